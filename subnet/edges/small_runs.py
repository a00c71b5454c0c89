"""Small runs for calibration and benchmarks, drawn at random: families, sizes, shapes, schedules.

A tolerance has to hold for runs that nobody calibrated, so the runs that it is made from should differ in everything
that a run may choose within its class: width, depth and cut, biases and tied tensors, sequences and microbatches,
learning rate, betas, decay, segment length, and how long the training has gone on. Each is small enough that a segment
takes a tenth of a second. None has biases of keys: their gradients cancel (a bias of all keys moves attention by what
their positions do only), so that honest movements of these few values differ ten times as far as anything else does.
Knows nothing of how they are computed.
"""

from typing import Any

import msgspec
import numpy as np

from subnet.canonical import canonical
from subnet.config import (
    AuditConfig,
    DataConfig,
    LaneConfig,
    ModelConfig,
    OuterConfig,
    PayConfig,
    RunConfig,
    TrainConfig,
)
from subnet.edges.conditions import Setting
from subnet.edges.data import BYTE_VOCABULARY

MOST = {"hidden_size": 128, "num_hidden_layers": 6}  # that any of them has
MOST_SEQUENCE_TOKENS = 64
EVERYTHING = 1.0  # of the frames and chunks is compared
LARGEST_LR_LOG10 = -2.5
USUAL_LR = 2e-3  # the presets'
ANY = 1.0  # a tolerance that nothing is judged by


def drawn_settings(
    count: int, *, dtype: str = "float32", optimizer: str = "adamw", codec: str = "none", seed: int
) -> list[Setting]:
    """So many settings of one class; the same seed gives the same ones."""
    chance = np.random.default_rng([seed, *f"{dtype} {optimizer} {codec}".encode()])
    return [_setting(chance, dtype=dtype, optimizer=optimizer, codec=codec) for _ in range(count)]


def setting_of(run: RunConfig, *, rounds: int = 1) -> Setting:
    """A given run: two short segments in each of its first rounds, everything compared."""
    train = msgspec.structs.replace(run.train, steps_per_round=2 * run.train.segment_steps)
    return Setting(run=_compared(msgspec.structs.replace(run, train=train)), skip_rounds=0, rounds=rounds)


def are_like(run: RunConfig) -> bool:
    """Whether small runs stand for this one: none of its sizes is beyond all of theirs."""
    small = all(int(run.model.values[name]) <= most for name, most in MOST.items())
    return small and run.data.sequence_tokens <= MOST_SEQUENCE_TOKENS


def _compared(run: RunConfig) -> RunConfig:
    audit = msgspec.structs.replace(run.audit, outbound_frac=EVERYTHING, chunk_frac=EVERYTHING)
    return msgspec.structs.replace(run, audit=audit)


def _setting(chance: np.random.Generator, *, dtype: str, optimizer: str, codec: str) -> Setting:
    stages = _one(chance, 1, 2, 3)
    skip_rounds = _one(chance, 0, 0, 2, 6)  # early in the training, and later
    return Setting(
        run=RunConfig(
            version=1,
            name="calibration",
            seed=int(chance.integers(1 << 30)),
            stages=stages,
            model=_model(chance, blocks=stages * _one(chance, 1, 1, 1, 2)),
            data=DataConfig(
                source="stdlib",
                location="",
                revision="",
                tokenizer="bytes",
                corpus_digest="",
                sequence_tokens=_one(chance, 16, 32, 64),
                heldout_every=20,
                heldout_microbatches=1,
            ),
            train=_train(chance, dtype=dtype, optimizer=optimizer, rounds=skip_rounds + 2),
            outer=OuterConfig(lr=0.7, momentum=0.9),
            lanes=LaneConfig(deadline_s=1.0, codec=codec, norm_band_low=1e-12, norm_band_high=1e12),
            audit=AuditConfig(
                rate_frac=1.0,
                draw_every_blocks=2,
                draw_delay_blocks=2,
                tolerance_activation=ANY,
                tolerance_gradient=ANY,
                tolerance_loss=ANY,
                tolerance_delta=ANY,
                tolerance_moment=ANY,
                tolerance_norm=ANY,
                outbound_frac=EVERYTHING,
                chunk_frac=EVERYTHING,
                grace_s=1.0,
            ),
            pay=PayConfig(
                window_segments=8,
                audit_window_s=1.0,
                burn_frac=0.0,
                stage_price_milli=(1000,) * stages,
                quarantine_rounds=1,
            ),
            allow_same_identity=True,
        ),
        skip_rounds=skip_rounds,
        rounds=2,
    )


def _train(chance: np.random.Generator, *, dtype: str, optimizer: str, rounds: int) -> TrainConfig:
    segment_steps = _one(chance, 1, 2, 4)
    return TrainConfig(
        microbatch_sequences=_one(chance, 2, 3),
        microbatches_per_step=_one(chance, 1, 2),
        steps_per_round=2 * segment_steps,
        segment_steps=segment_steps,
        rounds=rounds,
        lr=_one(chance, USUAL_LR, float(10.0 ** chance.uniform(-5, LARGEST_LR_LOG10))),
        beta1=0.9,
        beta2=_one(chance, 0.95, 0.99),
        eps=1e-8,
        weight_decay=_one(chance, 0.0, 0.1),
        warmup_steps=10,
        max_grad_norm=_one(chance, 0.0, 1.0),
        dtype=dtype,
        attention=_one(chance, "sdpa", "eager"),
        optimizer=optimizer,
    )


def _model(chance: np.random.Generator, *, blocks: int) -> ModelConfig:
    heads = _one(chance, 2, 4, 4, 8)
    head_dim = _one(chance, 8, 16)
    llama = bool(chance.integers(2))
    settings: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM" if llama else "Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "hidden_size": heads * head_dim,
        "initializer_range": _one(chance, 0.02, 0.1),
        "intermediate_size": heads * head_dim * 2 + 8,
        "max_position_embeddings": 128,
        "model_type": "llama" if llama else "qwen3",
        "num_attention_heads": heads,
        "num_hidden_layers": blocks,
        "num_key_value_heads": _one(chance, 1, heads),
        "pad_token_id": None,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": _one(chance, 1e4, 1e6), "rope_type": "default"},
        "tie_word_embeddings": bool(chance.integers(2)),
        "use_cache": True,
        "vocab_size": BYTE_VOCABULARY,
    }
    settings |= {"mlp_bias": bool(chance.integers(2))} if llama else {}
    return ModelConfig(architecture=settings["architectures"][0], settings=canonical(settings).decode())


def _one(chance: np.random.Generator, *choices: Any) -> Any:
    """One of these, each as likely as another."""
    return choices[int(chance.integers(len(choices)))]
