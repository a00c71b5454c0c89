"""The configuration of a run that is small in everything; only its counts matter to the ledger and the scheduler."""

from subnet.config import AuditConfig, DataConfig, LaneConfig, OuterConfig, PayConfig, RunConfig, TrainConfig
from subnet.edges.presets import build_model


def run_config(*, stages: int = 2, rounds: int = 3, steps: int = 4, segment_steps: int = 2, each: int = 2) -> RunConfig:
    """A small run; nothing of it is computed here, so only its counts matter."""
    train = TrainConfig(
        microbatch_sequences=2,
        microbatches_per_step=each,
        steps_per_round=steps,
        segment_steps=segment_steps,
        rounds=rounds,
        lr=1e-3,
        beta1=0.9,
        beta2=0.95,
        eps=1e-8,
        weight_decay=0.1,
        warmup_steps=2,
        max_grad_norm=1.0,
        dtype="float32",
        attention="sdpa",
    )
    data = DataConfig(
        source="stdlib",
        location="",
        revision="",
        tokenizer="bytes",
        corpus_digest="0" * 64,
        sequence_tokens=16,
        heldout_every=20,
        heldout_microbatches=2,
    )
    audit = AuditConfig(
        rate_frac=1.0,
        draw_every_blocks=1,
        draw_delay_blocks=2,
        tolerance_activation=1e-4,
        tolerance_gradient=1e-4,
        tolerance_loss=1e-4,
        tolerance_delta=1e-3,
        tolerance_moment=1e-3,
        outbound_frac=0.25,
        chunk_frac=0.25,
        grace_s=5.0,
    )
    pay = PayConfig(
        window_segments=64,
        audit_window_s=10.0,
        burn_frac=0.0,
        stage_price_milli=(1000,) * stages,
        quarantine_rounds=1000,
    )
    return RunConfig(
        version=1,
        name="simulated",
        seed=1,
        stages=stages,
        model=build_model("nano"),
        data=data,
        train=train,
        outer=OuterConfig(lr=0.7, momentum=0.9),
        lanes=LaneConfig(deadline_s=20.0, codec="none", norm_band_low=1e-8, norm_band_high=1e4),
        audit=audit,
        pay=pay,
        allow_same_identity=False,
    )
