"""The run's configuration: frozen, keyword-only, checked when built, hashed into the run id.

Every value on which nodes must agree is here. A node's own identity (wallet, port, data folder) is not.
Knows nothing of torch, files or the network: the model is described by the canonical JSON of its
`transformers` configuration.
"""

import json
import math
from functools import cached_property
from typing import Any

import msgspec

from subnet.canonical import canonical, digest
from subnet.errors import ConfigError

ARCHITECTURES = ("LlamaForCausalLM", "Qwen3ForCausalLM")
CODECS = ("none", "bf16")
DTYPES = ("float32", "bfloat16")
OPTIMIZERS = ("adamw", "muon")
OUTER_STEPS = ("averaging", "diloco")
OUTER_STEPS_APART = ("noloco", "streaming")  # known, but between rounds they leave replicas that differ
REDUCTIONS = ("mean", "trimmed_mean", "centred_clipping")


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise ConfigError(sentence)


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which model is trained. `settings` is the canonical JSON of `PretrainedConfig.to_dict()`, version removed."""

    architecture: str
    settings: str

    def __post_init__(self) -> None:
        _require(
            self.architecture in ARCHITECTURES,
            f"expected a model of {' or '.join(ARCHITECTURES)}, found {self.architecture!r}; choose one of these",
        )

    @property
    def values(self) -> dict[str, Any]:
        """The settings as a dictionary."""
        values: dict[str, Any] = json.loads(self.settings)
        return values


class DataConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where tokens come from.

    source: "stdlib" (the Python standard library's own source), "text" (a folder of text files) or "datasets"
    (a `datasets` data set). `location` and `revision` pin it; `corpus_digest` is the blake3 of the packed tokens'
    source bytes in their pinned order, so that two machines notice when theirs differ.
    """

    source: str
    location: str
    revision: str
    tokenizer: str  # "bytes", or a folder or Hub id of a `transformers` tokenizer
    corpus_digest: str
    sequence_tokens: int  # length of one sequence
    heldout_every: int  # one sequence in this many is held out and never trained on
    heldout_microbatches: int  # how many held-out microbatches the published loss is computed on

    def __post_init__(self) -> None:
        _require(
            self.source in ("stdlib", "text", "datasets"),
            f"expected the data source stdlib, text or datasets, found {self.source!r}; choose one of these",
        )
        _require(
            self.sequence_tokens >= 2,
            f"expected sequences of at least 2 tokens, found {self.sequence_tokens}; raise sequence_tokens",
        )
        _require(
            self.heldout_every >= 2,
            f"expected one held-out sequence in at least 2, found {self.heldout_every}; raise heldout_every",
        )


class TrainConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The inner loop: microbatches, steps, segments, rounds, the inner optimizer, and the pinned numerics.

    dtype, attention and the microbatch's shape make the class within which honest work repeats. Parameters, moments
    and everything on the wire are float32 in every class.
    """

    microbatch_sequences: int  # sequences per microbatch
    microbatches_per_step: int  # microbatches of one lane per step
    steps_per_round: int  # H
    segment_steps: int  # C: a replica commits its state after this many steps of its own
    rounds: int
    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    warmup_steps: int  # of a linear warm-up of lr over the run's global steps
    max_grad_norm: float  # each stage clips its own gradient norm to this
    dtype: str  # compute dtype: "float32", or "bfloat16" for the matrix products
    attention: str  # "sdpa" or "eager"
    optimizer: str = "adamw"  # or "muon" for the blocks' matrices, with AdamW for the rest
    muon_damping: float = 0.5  # what counts as little in a matrix, in root mean squares of its singular values

    def __post_init__(self) -> None:
        for name in ("microbatch_sequences", "microbatches_per_step", "steps_per_round", "segment_steps", "rounds"):
            value = getattr(self, name)
            _require(value >= 1, f"expected {name} of at least 1, found {value}; raise it")
        _require(
            self.dtype in DTYPES,
            f"expected the compute dtype {' or '.join(DTYPES)}, found {self.dtype!r}; choose one of these",
        )
        _require(
            self.optimizer in OPTIMIZERS,
            f"expected the optimizer {' or '.join(OPTIMIZERS)}, found {self.optimizer!r}; choose one of these",
        )
        _require(
            self.attention in ("sdpa", "eager"),
            f"expected attention sdpa or eager, found {self.attention!r}; choose one of these",
        )
        _require(
            0 < self.muon_damping < math.inf,
            f"expected a positive Muon damping, found {self.muon_damping}; without any, rounding errors become steps",
        )
        _require(self.lr > 0 and math.isfinite(self.lr), f"expected a positive lr, found {self.lr}; raise it")


class ReduceConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a stage's contributions become one. In every mode tokens are weights, and each contribution is first clipped
    to the median norm."""

    mode: str = "mean"  # or "trimmed_mean", or "centred_clipping"
    trim_frac: float = 0.3  # of the weight, cut off at either end of each element; more than those who may lie
    clip_iterations: int = 3  # of centred clipping

    def __post_init__(self) -> None:
        _require(
            self.mode in REDUCTIONS,
            f"expected a reduction of {', '.join(REDUCTIONS)}, found {self.mode!r}; choose one of these",
        )
        _require(
            0 <= self.trim_frac < 0.5,
            f"expected to trim at least 0 and less than half of the weight at either end, found {self.trim_frac}; "
            "nothing would be left",
        )
        _require(
            self.clip_iterations >= 1,
            f"expected at least 1 iteration of centred clipping, found {self.clip_iterations}; raise it",
        )


class OuterConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The outer step: Nesterov momentum on the reduced pseudo-gradient (DiLoCo, arXiv 2311.08105), or the average."""

    lr: float
    momentum: float
    kind: str = "diloco"  # or "averaging": federated averaging, with lr 1 and momentum 0

    def __post_init__(self) -> None:
        _require(
            self.kind not in OUTER_STEPS_APART,
            f"expected the outer step {' or '.join(OUTER_STEPS)} in a run, found {self.kind!r}; it leaves each replica "
            "with parameters of its own between rounds, which no public state covers: simulate it, or choose another",
        )
        _require(
            self.kind in OUTER_STEPS,
            f"expected the outer step {' or '.join(OUTER_STEPS)}, found {self.kind!r}; choose one of these",
        )
        _require(
            self.kind != "averaging" or (self.lr, self.momentum) == (1.0, 0.0),
            f"expected outer lr 1 and momentum 0 for averaging, found {self.lr} and {self.momentum}; choose diloco to "
            "have them count",
        )
        _require(
            self.lr > 0 and 0 <= self.momentum < 1,
            f"expected outer lr > 0 and momentum in [0, 1), found {self.lr} and {self.momentum}; correct them",
        )


class AuditConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shadow audit. Tolerances are relative L2 distances within the run's dtype class."""

    rate_frac: float  # p: chance that a segment is drawn, over all validators together
    draw_every_blocks: int
    draw_delay_blocks: int
    tolerance_activation: float
    tolerance_gradient: float
    tolerance_loss: float
    tolerance_delta: float  # of parameter deltas
    tolerance_moment: float
    outbound_frac: float  # part of the outbound tensors that is fetched from the receiver and compared
    chunk_frac: float  # part of the end state's chunks that is compared
    grace_s: float  # withheld evidence becomes a fail after this
    tolerance_norm: float | None = None  # of a gradient's norm; None: that of gradients

    def __post_init__(self) -> None:
        _require(0 < self.rate_frac <= 1, f"expected an audit rate in (0, 1], found {self.rate_frac}; correct it")
        _require(
            self.draw_delay_blocks >= 2,
            f"expected a draw delay of at least 2 blocks, found {self.draw_delay_blocks}; fewer can be foreseen",
        )
        _require(
            self.draw_every_blocks >= 1,
            f"expected draws every block or rarer, found {self.draw_every_blocks}; use at least 1",
        )


class PayConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pay: the window in segments, the burn share, the price factor per stage."""

    window_segments: int  # a hotkey's score is the payable work of its last so many segments
    audit_window_s: float  # a segment not refuted this long after its receipt is payable
    burn_frac: float
    stage_price_milli: tuple[int, ...]  # price factor per stage in thousandths, measured in the validators' replays
    quarantine_rounds: int

    def __post_init__(self) -> None:
        _require(
            0 <= self.burn_frac < 1,
            f"expected a burn share in [0, 1), found {self.burn_frac}; correct it",
        )
        _require(
            self.window_segments >= 1,
            f"expected a pay window of at least 1 segment, found {self.window_segments}; raise it",
        )


class LaneConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lanes: their deadline, how many failures of a lane a step waits for, and the wire codec between stages."""

    deadline_s: float  # the floor of a step's deadline; measured rates extend it
    codec: str
    norm_band_low: float  # a receiver refuses inputs whose root mean square lies outside this band
    norm_band_high: float

    def __post_init__(self) -> None:
        _require(
            self.codec in CODECS, f"expected a wire codec of {', '.join(CODECS)}, found {self.codec!r}; choose one"
        )
        _require(self.deadline_s > 0, f"expected a positive deadline, found {self.deadline_s}; raise it")


class StartConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run starts from when it does not draw its parameters: an existing model, or an earlier run's checkpoint.

    The roots pin it: whoever reads it compares what came out with them. Where it can be read, `location` says; who
    cannot read it there downloads the public state of round 0 like that of any other round.
    """

    location: str  # a folder, or a model's id on the Hub
    revision: str  # of an id: the commit
    roots: tuple[str, ...]  # of each stage's public state in round 0
    moments: tuple[str, ...] = ()  # of each stage's state whose moments round 0 begins with; empty: zeros
    steps: int = 0  # global steps that were done before; the learning rate goes on from there
    microbatches: int = 0  # of the training data that were planned before; the next one has this index
    requeued: tuple[int, ...] = ()  # of those, the ones that nobody finished

    def __post_init__(self) -> None:
        _require(
            self.steps >= 0 and self.microbatches >= 0 and all(0 <= n < self.microbatches for n in self.requeued),
            f"expected counts of what was done before of at least 0, found {self.steps} steps, {self.microbatches} "
            "microbatches, and requeued ones among these; correct them",
        )


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """One training job. `run_id` is the blake3 of its canonical bytes."""

    version: int
    name: str
    seed: int
    stages: int
    model: ModelConfig
    data: DataConfig
    train: TrainConfig
    outer: OuterConfig
    lanes: LaneConfig
    audit: AuditConfig
    pay: PayConfig
    allow_same_identity: bool  # only for tests and one-stage runs: one coldkey may face itself
    reduce: ReduceConfig = ReduceConfig()
    start: StartConfig | None = None  # None: the initial parameters are drawn from the seed

    def __post_init__(self) -> None:
        blocks = self.model.values.get("num_hidden_layers", 0)
        _require(
            1 <= self.stages <= blocks,
            f"expected 1 to {blocks} stages for a model of {blocks} blocks, found {self.stages}; change --stages",
        )
        _require(
            self.train.dtype == "float32" or not self.model.values.get("attention_bias"),
            f"expected no attention_bias in a {self.train.dtype} run, found one; the gradient of a key's bias cancels "
            "to below that rounding, so that honest work does not repeat: train in float32",
        )
        _require(
            len(self.pay.stage_price_milli) == self.stages,
            f"expected a price for each of {self.stages} stages, found {len(self.pay.stage_price_milli)}; list all",
        )
        pinned = [] if self.start is None else [self.start.roots, *([self.start.moments] * bool(self.start.moments))]
        _require(
            all(len(roots) == self.stages for roots in pinned),
            f"expected the start of each of {self.stages} stages, found {[len(roots) for roots in pinned]}; make the "
            "run anew from the model that it starts from",
        )

    @cached_property
    def run_id(self) -> str:
        """blake3 of the canonical bytes, 64 hex digits. Made once: it is read with each message and each frame."""
        return digest(canonical(self))

    @property
    def microbatch_tokens(self) -> int:
        """Tokens of one microbatch."""
        return self.train.microbatch_sequences * self.data.sequence_tokens
