"""A small run over invented tokens, for tests that need no files."""

import json

import numpy as np

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
from subnet.data.pack import Corpus

DIGEST = "c0" * 32


def small_corpus(num_tokens: int = 1001, digest: str = DIGEST) -> Corpus:
    """Tokens that differ from their neighbours, so that a wrong shift is seen."""
    tokens = (np.arange(num_tokens) * 7 % 251).astype(np.uint8)
    return Corpus(tokens=tokens, digest=digest, vocabulary=256)


def small_run(*, seed: int = 0, sequence_tokens: int = 8, heldout_every: int = 5, sequences: int = 2) -> RunConfig:
    """A run of one stage whose data part is what the arguments say."""
    return RunConfig(
        version=1,
        name="small",
        seed=seed,
        stages=1,
        model=ModelConfig(architecture="LlamaForCausalLM", settings=json.dumps({"num_hidden_layers": 1})),
        data=DataConfig(
            source="text",
            location="books",
            revision="",
            tokenizer="bytes",
            corpus_digest=DIGEST,
            sequence_tokens=sequence_tokens,
            heldout_every=heldout_every,
            heldout_microbatches=1,
        ),
        train=TrainConfig(
            microbatch_sequences=sequences,
            microbatches_per_step=4,
            steps_per_round=4,
            segment_steps=2,
            rounds=1,
            lr=1e-3,
            beta1=0.9,
            beta2=0.95,
            eps=1e-8,
            weight_decay=0.0,
            warmup_steps=0,
            max_grad_norm=1.0,
            dtype="float32",
            attention="sdpa",
        ),
        outer=OuterConfig(lr=0.7, momentum=0.9),
        lanes=LaneConfig(deadline_s=1.0, codec="none", norm_band_low=1e-8, norm_band_high=1e4),
        audit=AuditConfig(
            rate_frac=1.0,
            draw_every_blocks=4,
            draw_delay_blocks=2,
            tolerance_activation=1e-4,
            tolerance_gradient=1e-4,
            tolerance_loss=1e-5,
            tolerance_delta=1e-3,
            tolerance_moment=1e-3,
            outbound_frac=0.25,
            chunk_frac=0.25,
            grace_s=1.0,
        ),
        pay=PayConfig(
            window_segments=8, audit_window_s=1.0, burn_frac=0.0, stage_price_milli=(1000,), quarantine_rounds=8
        ),
        allow_same_identity=True,
    )
