"""Tiny runs for tests: 4 blocks of width 32 of either family, and random microbatches."""

import msgspec
import torch
import transformers
from torch import Tensor

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

torch.set_num_threads(1)  # sums are made in one order

VOCABULARY = 256
TOKENS = 12
SEQUENCES = 3


def tiny_model(architecture: str = "LlamaForCausalLM", **settings: object) -> ModelConfig:
    """4 blocks, width 32, 4 heads of 8, 2 key heads."""
    values = dict(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=None,
    )
    config = getattr(transformers, architecture).config_class(**(values | settings))
    described = config.to_dict()
    del described["transformers_version"]
    return ModelConfig(architecture=architecture, settings=canonical(described).decode())


def tiny_run(model: ModelConfig | None = None, *, stages: int = 2, attention: str = "sdpa", seed: int = 7) -> RunConfig:
    """A run of a tiny model."""
    return RunConfig(
        version=1,
        name="tiny",
        seed=seed,
        stages=stages,
        model=tiny_model() if model is None else model,
        data=DataConfig(
            source="stdlib",
            location="",
            revision="",
            tokenizer="bytes",
            corpus_digest="",
            sequence_tokens=TOKENS,
            heldout_every=10,
            heldout_microbatches=2,
        ),
        train=TrainConfig(
            microbatch_sequences=SEQUENCES,
            microbatches_per_step=4,
            steps_per_round=5,
            segment_steps=5,
            rounds=4,
            lr=0.01,
            beta1=0.9,
            beta2=0.95,
            eps=1e-8,
            weight_decay=0.1,
            warmup_steps=4,
            max_grad_norm=1.0,
            dtype="float32",
            attention=attention,
        ),
        outer=OuterConfig(lr=0.7, momentum=0.9),
        lanes=LaneConfig(deadline_s=10.0, codec="none", norm_band_low=1e-6, norm_band_high=1e6),
        audit=AuditConfig(
            rate_frac=0.3,
            draw_every_blocks=2,
            draw_delay_blocks=2,
            tolerance_activation=1e-4,
            tolerance_gradient=1e-4,
            tolerance_loss=1e-4,
            tolerance_delta=1e-3,
            tolerance_moment=1e-3,
            outbound_frac=0.5,
            chunk_frac=0.25,
            grace_s=30.0,
        ),
        pay=PayConfig(
            window_segments=8,
            audit_window_s=60.0,
            burn_frac=0.0,
            stage_price_milli=(1000,) * stages,
            quarantine_rounds=1,
        ),
        allow_same_identity=True,
    )


def whole_model(run: RunConfig, *, tied: bool) -> transformers.PreTrainedModel:
    """The run's model as transformers alone builds it, at the run's initial parameters; tied if asked."""
    from subnet.model.partition import initial_tensors, whole_config

    one = msgspec.structs.replace(run, stages=1, pay=msgspec.structs.replace(run.pay, stage_price_milli=(1000,)))
    config = whole_config(run)
    config.tie_word_embeddings = tied
    with torch.random.fork_rng():
        model = getattr(transformers, run.model.architecture)(config)
    tensors = initial_tensors(one, 0)
    if not tied and "lm_head.weight" not in tensors:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    model.load_state_dict(tensors, strict=not tied)
    return model


def tiny_microbatches(count: int, seed: int = 1) -> list[tuple[Tensor, Tensor]]:
    """Random tokens and their labels, already shifted."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(0, VOCABULARY, (count, SEQUENCES, TOKENS + 1), generator=generator)
    return [(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()) for tokens in drawn]
