"""From a handful of options to a whole run: `build_run(options)` gives the RunConfig that every node agrees on.

Owns the named models and every default of the product. It reads the model's configuration file, when one is named, the
corpus, whose digest goes into the run, and the model that the run starts from, whose roots do. Knows nothing of torch:
models are described by the dictionaries that `transformers` configurations have.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from subnet.audit.tolerance import tolerances
from subnet.canonical import canonical
from subnet.config import (
    AuditConfig,
    DataConfig,
    LaneConfig,
    ModelConfig,
    OuterConfig,
    PayConfig,
    ReduceConfig,
    RunConfig,
    TrainConfig,
)
from subnet.data.pack import Corpus, Split
from subnet.edges.data import BYTE_VOCABULARY, has_tokenizer, measure_corpus
from subnet.edges.origin import has_weights, is_hub_id, open_source, start_of
from subnet.edges.tolerances import PACKAGED, read_calibration
from subnet.errors import ConfigError, CorpusError, ModelError

ARCHITECTURE_OF_TYPE = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}
DRAW_EVERY_BLOCKS = 4
DRAW_DELAY_BLOCKS = 4
LEAST_AUDIT_WINDOW_S = 20.0
MAX_SEQUENCE_TOKENS = 1024  # of a model from a file whose context is longer
DRAWN_LR = 2e-3
EXISTING_LR = 1e-4
BYTES = "bytes"
CONFIGURATION = "config.json"
MOST_CONFIGURATION_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a user chooses about a run; everything else follows."""

    name: str = "strata"
    seed: int = 0
    stages: int = 2
    rounds: int = 6
    steps: int = 32  # of a lane per round
    model: str = "tiny"  # a preset's name, a `transformers` config.json, or a folder or Hub id to start from
    from_parameters: bool = True  # start from those of a folder that has some; False: draw them all the same
    data: str = "stdlib"  # "stdlib", a folder of text files, or datasets:PATH[@REVISION][#COLUMN]
    tokenizer: str | None = None  # "bytes", or a tokenizer's folder or Hub id; None: the model's own, else bytes
    sequence_tokens: int | None = None  # None: the model's own
    microbatch_sequences: int = 2
    microbatches: int = 4  # of a lane per step
    segment_steps: int = 4
    lr: float | None = None  # None: DRAWN_LR, or EXISTING_LR for a model that is trained already
    attention: str = "sdpa"
    codec: str = "none"
    audit_rate: float = 1 / 3
    block_time_s: float = 1.0  # of the chain; a segment's audit window covers its draw, which comes by blocks
    allow_same_identity: bool = False
    dtype: str = "float32"  # of the matrix products: "float32" or "bfloat16"
    optimizer: str = "adamw"  # or "muon"
    reduction: str = "mean"  # or "trimmed_mean", or "centred_clipping"
    outer: str = "diloco"  # or "averaging"
    tolerances: Path | None = None  # a calibration; None: the package's


def _llama(*, hidden: int, intermediate: int, blocks: int, heads: int, context_tokens: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "intermediate_size": intermediate,
        "max_position_embeddings": context_tokens,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": blocks,
        "num_key_value_heads": heads,
        "pad_token_id": None,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": BYTE_VOCABULARY,
    }


PRESETS = {
    "tiny": _llama(hidden=128, intermediate=352, blocks=4, heads=4, context_tokens=128),
    "nano": _llama(hidden=32, intermediate=88, blocks=4, heads=2, context_tokens=32),
}


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What `--model` names: the model's settings, and where its parameters are; no location: they are drawn."""

    settings: dict[str, Any]
    location: str = ""
    revision: str = ""

    @property
    def id(self) -> str:
        """The folder, or the id with its revision."""
        return f"{self.location}@{self.revision}" if self.revision else self.location


def choose_model(model: str, *, from_parameters: bool = True) -> Chosen:
    """The preset, configuration file, folder or Hub id of this name. Raises ModelError or StoreError."""
    if model in PRESETS:
        return Chosen(settings=PRESETS[model])
    if is_hub_id(model):
        return _hub_model(model)
    folder = Path(model) if Path(model).is_dir() else None
    path = folder / CONFIGURATION if folder else Path(model)
    if not path.is_file():
        raise ModelError(
            f"expected a model of {', '.join(PRESETS)} or a config.json, found nothing at {path}; check --model"
        )
    try:
        settings = _settings(path.read_bytes(), str(path))
    except OSError as error:
        raise ModelError(f"expected to read {path}, found {error.strerror}; check its rights") from error
    if folder and from_parameters and has_weights(folder):
        return Chosen(settings=settings, location=str(folder.resolve()))
    return Chosen(settings=settings)


def _hub_model(model: str) -> Chosen:
    from subnet.edges.hub_files import pinned_revision

    location, _, branch = model.partition("@")
    revision = pinned_revision(location, branch)
    source = open_source(location, revision)
    size = source.size(CONFIGURATION) or 0
    if not 0 < size <= MOST_CONFIGURATION_BYTES:
        raise ModelError(f"expected a {CONFIGURATION} in {source.name}, found {size} bytes; choose another model")
    settings = _settings(source.read(CONFIGURATION, 0, size), f"{CONFIGURATION} of {source.name}")
    return Chosen(settings=settings, location=location, revision=revision)


def _settings(data: bytes, where: str) -> dict[str, Any]:
    try:
        settings = json.loads(data.decode())
    except ValueError as error:
        raise ModelError(f"expected JSON in {where}, found {error}; use the model's config.json") from error
    if not isinstance(settings, dict):
        raise ModelError(
            f"expected an object in {where}, found a {type(settings).__name__}; use the model's config.json"
        )
    return {key: value for key, value in settings.items() if key not in ("transformers_version", "_name_or_path")}


def _architecture(settings: dict[str, Any]) -> str:
    """The model class the settings name, or the one of their model type."""
    named = settings.get("architectures")
    if isinstance(named, list) and len(named) == 1:
        return str(named[0])
    return ARCHITECTURE_OF_TYPE.get(str(settings.get("model_type")), str(settings.get("model_type")))


def _positive(settings: dict[str, Any], key: str) -> int:
    value = settings.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelError(
            f"expected {key} of at least 1 in the model's configuration, found {value!r}; correct the file"
        )
    return value


def build_model(model: str) -> ModelConfig:
    """The model of a preset, a file, a folder or an id, whatever its parameters. Raises as `model_of` does."""
    return model_of(choose_model(model, from_parameters=False).settings)


def model_of(settings: dict[str, Any]) -> ModelConfig:
    """The model of these settings. Raises ModelError, or ConfigError for a family that is not known."""
    for key in ("hidden_size", "num_hidden_layers", "vocab_size", "max_position_embeddings"):
        _positive(settings, key)
    return ModelConfig(architecture=_architecture(settings), settings=canonical(settings).decode())


def _source(data: str) -> tuple[str, str, str]:
    """Source, location and revision of what --data names."""
    if data == "stdlib":
        return "stdlib", "", ""
    if data.startswith("datasets:"):
        path, hash_sign, column = data.removeprefix("datasets:").partition("#")
        path, _, revision = path.partition("@")
        return "datasets", path + hash_sign + column, revision
    return "text", data, ""


def _sequence_tokens(options: RunOptions, context_tokens: int) -> int:
    chosen = options.sequence_tokens or min(context_tokens, MAX_SEQUENCE_TOKENS)
    if chosen > context_tokens:
        raise ModelError(
            f"expected sequences of at most {context_tokens} tokens, the model's context, found {chosen}; shorten them"
        )
    return chosen


def _heldout_microbatches(options: RunOptions, corpus: Corpus, sequence_tokens: int, heldout_every: int) -> int:
    """16, or as many as a small corpus has. Raises CorpusError when it has none."""
    cut = Split((len(corpus.tokens) - 1) // sequence_tokens, heldout_every)
    available = cut.num_heldout // options.microbatch_sequences
    if available < 1:
        needed = heldout_every * options.microbatch_sequences * sequence_tokens + 1
        raise CorpusError(
            f"expected at least {needed} tokens of text in {options.data}, found {len(corpus.tokens)}; "
            "give more text or shorten the sequences"
        )
    return min(16, available)


def _tokenizer(options: RunOptions, chosen: Chosen) -> str:
    """The tokenizer that was asked for, else that of the model that the run starts from: its text is what it knows."""
    if options.tokenizer is not None:
        return options.tokenizer
    if not chosen.location:
        return BYTES
    if not has_tokenizer(chosen.location, chosen.revision):
        raise CorpusError(
            f"expected the tokenizer of the model {chosen.id}, found none beside it; name one with --tokenizer, or "
            "`bytes` where the model was trained on bytes"
        )
    return chosen.id


def build_data(options: RunOptions, model: ModelConfig, tokenizer: str = BYTES) -> DataConfig:
    """Read the corpus and pin it. Raises CorpusError, or ModelError when the model's vocabulary is smaller."""
    source, location, revision = _source(options.data)
    corpus = measure_corpus(source, location, revision, tokenizer)
    vocabulary = int(model.values["vocab_size"])
    if corpus.vocabulary > vocabulary:
        raise ModelError(
            f"expected a model whose vocabulary holds {corpus.vocabulary} tokens of the tokenizer {tokenizer}, "
            f"found {vocabulary}; choose the model's own tokenizer"
        )
    sequence_tokens = _sequence_tokens(options, int(model.values["max_position_embeddings"]))
    heldout_every = 20
    return DataConfig(
        source=source,
        location=location,
        revision=revision,
        tokenizer=tokenizer,
        corpus_digest=corpus.digest,
        sequence_tokens=sequence_tokens,
        heldout_every=heldout_every,
        heldout_microbatches=_heldout_microbatches(options, corpus, sequence_tokens, heldout_every),
    )


def _train(options: RunOptions, *, usual_lr: float) -> TrainConfig:
    return TrainConfig(
        microbatch_sequences=options.microbatch_sequences,
        microbatches_per_step=options.microbatches,
        steps_per_round=options.steps,
        segment_steps=options.segment_steps,
        rounds=options.rounds,
        lr=usual_lr if options.lr is None else options.lr,
        beta1=0.9,
        beta2=0.95,
        eps=1e-8,
        weight_decay=0.1,
        warmup_steps=10,
        max_grad_norm=1.0,
        dtype=options.dtype,
        attention=options.attention,
        optimizer=options.optimizer,
    )


def _outer(kind: str) -> OuterConfig:
    if kind == "averaging":
        return OuterConfig(lr=1.0, momentum=0.0, kind=kind)
    return OuterConfig(lr=0.7, momentum=0.9, kind=kind)


def _lanes(options: RunOptions) -> LaneConfig:
    return LaneConfig(deadline_s=20.0, codec=options.codec, norm_band_low=1e-8, norm_band_high=1e4)


def model_name(model: str) -> str:
    """What a calibration calls a model: a preset's name, or the last part of its path or Hub id."""
    return Path(model).resolve().name


def _audit(options: RunOptions, model: ModelConfig) -> AuditConfig:
    """Tolerances are the calibration's of the run's class; none is chosen here. Raises ConfigError for a model that the
    packaged one does not hold for."""
    if options.tolerances is None and model.values.get("attention_bias"):
        raise ConfigError(
            "expected no attention_bias in a run with the packaged tolerances, found one; measure your own with "
            "`strata calibrate --model MODEL --out FILE` and give --tolerances FILE"
        )
    calibration = read_calibration(options.tolerances or PACKAGED)
    within = tolerances(
        calibration,
        dtype=options.dtype,
        optimizer=options.optimizer,
        codec=options.codec,
        model=model_name(options.model),
    )
    return AuditConfig(
        rate_frac=options.audit_rate,
        draw_every_blocks=DRAW_EVERY_BLOCKS,
        draw_delay_blocks=DRAW_DELAY_BLOCKS,
        tolerance_activation=within["activation"],
        tolerance_gradient=within["gradient"],
        tolerance_loss=within["loss"],
        tolerance_delta=within["delta"],
        tolerance_moment=within["moment"],
        tolerance_norm=within["norm"],
        outbound_frac=0.2,
        chunk_frac=0.25,
        grace_s=20.0,
    )


def _audit_window_s(block_time_s: float) -> float:
    """How long a segment can be refuted before it is payable: its draw comes at most one interval and one delay of
    blocks after it, and fetching and replaying gets as long again, or the least that they need."""
    return max(LEAST_AUDIT_WINDOW_S, 2 * (DRAW_EVERY_BLOCKS + DRAW_DELAY_BLOCKS) * block_time_s)


def with_block_time(run: RunConfig, block_time_s: float) -> RunConfig:
    """The same run for a chain with other blocks: its audit window covers a draw there."""
    return replace(run, pay=replace(run.pay, audit_window_s=_audit_window_s(block_time_s)))


def build_run(options: RunOptions) -> RunConfig:
    """The run these options describe.

    Raises ConfigError, ModelError or CorpusError with one sentence; of a model to start from also CheckpointError when
    it is not whole, and StoreError when it cannot be read.
    """
    chosen = choose_model(options.model, from_parameters=options.from_parameters)
    model = model_of(chosen.settings)
    pay = PayConfig(
        window_segments=512,
        audit_window_s=_audit_window_s(options.block_time_s),
        burn_frac=0.0,
        stage_price_milli=(1000,) * options.stages,
        quarantine_rounds=1000,
    )
    usual_lr = EXISTING_LR if chosen.location else DRAWN_LR
    train, lanes, outer = _train(options, usual_lr=usual_lr), _lanes(options), _outer(options.outer)
    reduce = ReduceConfig(mode=options.reduction)  # what cannot be chosen is refused before it is looked up
    run = RunConfig(
        version=1,
        name=options.name,
        seed=options.seed,
        stages=options.stages,
        model=model,
        data=build_data(options, model, _tokenizer(options, chosen)),
        train=train,
        outer=outer,
        lanes=lanes,
        audit=_audit(options, model),
        pay=pay,
        allow_same_identity=options.allow_same_identity,
        reduce=reduce,
    )
    return replace(run, start=start_of(run, chosen.location, chosen.revision)) if chosen.location else run
