"""The model's geometry: which tensors a span of blocks has, and their shapes.

Owns the canonical order of tensors (embedding, blocks by number, norm, head) and the refusal of settings that
cannot be cut. Pure arithmetic on the settings dictionary: knows nothing of torch or transformers, so a process
that never runs the model can still size, cut and lay out its state.
"""

import math
from functools import lru_cache
from typing import Any

import msgspec

from subnet.config import ModelConfig, RunConfig
from subnet.errors import ModelError

Shape = tuple[int, ...]

EMBEDDING = "model.embed_tokens.weight"
NORM = "model.norm.weight"
HEAD = "lm_head.weight"
BLOCKS = "model.layers."

MODEL_TYPES = {"LlamaForCausalLM": "llama", "Qwen3ForCausalLM": "qwen3"}
ROPE_TYPES = ("default", "linear", "llama3", "yarn")  # the others change with the length of the input
EXPERT_SETTINGS = ("num_experts", "num_local_experts", "n_routed_experts")
SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the model that is one stage: blocks `first_block` to `end_block - 1`, and the ends if it has them."""

    first_block: int
    end_block: int
    embedding: bool
    head: bool  # the final norm goes with the head

    @property
    def num_blocks(self) -> int:
        """How many blocks the span has."""
        return self.end_block - self.first_block


class Geometry(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that shapes and costs follow from."""

    vocabulary: int
    width: int
    mlp_width: int
    num_blocks: int
    num_heads: int
    num_key_heads: int
    head_width: int
    tied: bool  # embedding and head are one tensor in the configuration
    attention_bias: bool
    mlp_bias: bool
    head_norms: bool  # Qwen3 normalises queries and keys per head


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise ModelError(sentence)


def _check_kind(model: ModelConfig, values: dict[str, Any]) -> None:
    expected = MODEL_TYPES[model.architecture]
    _require(
        values.get("model_type") == expected,
        f"expected settings of model type {expected!r} for {model.architecture}, found {values.get('model_type')!r}; "
        "use the settings of that family",
    )
    experts = [name for name in EXPERT_SETTINGS if values.get(name)]
    _require(not experts, f"expected a dense model, found {', '.join(experts)}; mixtures of experts cannot be cut yet")
    sliding = values.get("use_sliding_window") or "sliding_attention" in (values.get("layer_types") or ())
    _require(not sliding, "expected full attention in every block, found a sliding window; switch it off")
    dropout = values.get("attention_dropout") or 0.0
    _require(dropout == 0.0, f"expected no attention dropout, found {dropout}; set it to 0, replays must be exact")
    scaling = values.get("rope_parameters") or values.get("rope_scaling") or {}  # the latter before transformers 5
    rope = scaling.get("rope_type") or scaling.get("type") or "default"
    _require(
        rope in ROPE_TYPES,
        f"expected rotary embeddings of type {', '.join(ROPE_TYPES)}, found {rope!r}; choose one of these",
    )
    _require(
        not values.get("quantization_config"),
        "expected parameters in full precision, found a quantization_config; use the model before quantization",
    )


@lru_cache(maxsize=64)
def geometry(model: ModelConfig) -> Geometry:
    """Read the settings. Raises ModelError with one sentence when a model of these settings cannot be cut."""
    values = model.values
    _check_kind(model, values)
    for name in SIZES:
        value = values.get(name)
        _require(
            isinstance(value, int) and value >= 1,
            f"expected {name} of at least 1 in the model's settings, found {value!r}; "
            "use the whole dictionary of a transformers configuration",
        )
    heads = values["num_attention_heads"]
    key_heads = values.get("num_key_value_heads") or heads
    head_width = values.get("head_dim") or values["hidden_size"] // heads
    _require(heads % key_heads == 0, f"expected heads in multiples of {key_heads} key heads, found {heads}; correct it")
    _require(head_width % 2 == 0, f"expected an even head width for rotary embeddings, found {head_width}; correct it")
    llama = model.architecture == "LlamaForCausalLM"
    return Geometry(
        vocabulary=values["vocab_size"],
        width=values["hidden_size"],
        mlp_width=values["intermediate_size"],
        num_blocks=values["num_hidden_layers"],
        num_heads=heads,
        num_key_heads=key_heads,
        head_width=head_width,
        tied=bool(values.get("tie_word_embeddings")),
        attention_bias=bool(values.get("attention_bias")),
        mlp_bias=llama and bool(values.get("mlp_bias")),
        head_norms=not llama,
    )


def is_tied(run: RunConfig) -> bool:
    """Whether the run trains one tensor as embedding and head: only where the config says so and nothing is cut."""
    return geometry(run.model).tied and run.stages == 1


def block_shapes(model: ModelConfig) -> dict[str, Shape]:
    """The tensors of one block by their name within the block, in canonical order."""
    shape = geometry(model)
    queries = shape.num_heads * shape.head_width
    keys = shape.num_key_heads * shape.head_width
    linear: list[tuple[str, int, int, bool]] = [  # name, outputs, inputs, bias
        ("self_attn.q_proj", queries, shape.width, shape.attention_bias),
        ("self_attn.k_proj", keys, shape.width, shape.attention_bias),
        ("self_attn.v_proj", keys, shape.width, shape.attention_bias),
        ("self_attn.o_proj", shape.width, queries, shape.attention_bias),
        ("mlp.gate_proj", shape.mlp_width, shape.width, shape.mlp_bias),
        ("mlp.up_proj", shape.mlp_width, shape.width, shape.mlp_bias),
        ("mlp.down_proj", shape.width, shape.mlp_width, shape.mlp_bias),
    ]
    shapes: dict[str, Shape] = {}
    for name, outputs, inputs, bias in linear:
        shapes[f"{name}.weight"] = (outputs, inputs)
        if bias:
            shapes[f"{name}.bias"] = (outputs,)
        if name == "self_attn.o_proj" and shape.head_norms:
            shapes |= {f"self_attn.{part}_norm.weight": (shape.head_width,) for part in "qk"}
    return shapes | {f"{norm}.weight": (shape.width,) for norm in ("input_layernorm", "post_attention_layernorm")}


def span_shapes(run: RunConfig, span: Span) -> dict[str, Shape]:
    """The tensors of a span by their name in the whole model, in canonical order."""
    shape = geometry(run.model)
    block = block_shapes(run.model)
    shapes: dict[str, Shape] = {}
    if span.embedding:
        shapes[EMBEDDING] = (shape.vocabulary, shape.width)
    for number in range(span.first_block, span.end_block):
        shapes |= {f"{BLOCKS}{number}.{name}": size for name, size in block.items()}
    if span.head:
        shapes[NORM] = (shape.width,)
        if not is_tied(run):
            shapes[HEAD] = (shape.vocabulary, shape.width)
    return shapes


def num_elements(shapes: dict[str, Shape]) -> int:
    """How many numbers these tensors hold."""
    return sum(math.prod(shape) for shape in shapes.values())
