"""Whole model <-> stages: a stage is a shortened model of the same class with its own blocks only.

Owns the names of a stage's tensors, their initial values, and how a stage module is built: on the meta device, its
own tensors assigned by name, rotary buffers rebuilt, nothing else ever materialised. Uses the public interface of
`transformers` only. Does not know how a stage is trained, stored or sent.

Letters: V vocabulary, D model width.
"""

import math
from collections.abc import Mapping
from typing import Any

import blake3
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from jaxtyping import Float32
from torch import Tensor, nn

from subnet.canonical import canonical
from subnet.config import RunConfig
from subnet.errors import ModelError
from subnet.model.cost import spans
from subnet.model.shapes import BLOCKS, EMBEDDING, HEAD, Shape, Span, geometry, is_tied, span_shapes


def whole_config(run: RunConfig) -> Any:
    """The effective `transformers` configuration of the run's model: float32, and untied where it is cut."""
    geometry(run.model)
    return _config(run, num_blocks=None)


def _config(run: RunConfig, *, num_blocks: int | None) -> Any:
    model_class = getattr(transformers, run.model.architecture)
    values = dict(run.model.values)
    values |= {"architectures": [run.model.architecture], "dtype": "float32", "use_cache": num_blocks is None}
    values["tie_word_embeddings"] = is_tied(run)
    if num_blocks is not None:
        values["num_hidden_layers"] = num_blocks
        if values.get("layer_types"):
            values["layer_types"] = values["layer_types"][:num_blocks]
    try:
        return model_class.config_class.from_dict(values, attn_implementation=run.train.attention)
    except (StrictDataclassError, TypeError, ValueError) as error:
        raise _refused(run, error) from error


def _refused(run: RunConfig, error: Exception) -> ModelError:
    reason = " ".join(str(error).split())
    return ModelError(
        f"expected settings of a {run.model.architecture}, found some that transformers refuses "
        f"({reason}); correct them"
    )


def check_model(run: RunConfig) -> None:
    """Raise ModelError with one sentence when the run's model cannot be built and cut. Allocates no parameter."""
    for span in spans(run):
        _shortened(run, span)


def stage_names(run: RunConfig, index: int) -> dict[str, str]:
    """Name in the stage -> name in the whole model, in canonical order. Only block numbers differ."""
    span = spans(run)[index]
    return {_stage_name(name, span): name for name in span_shapes(run, span)}


def _stage_name(name: str, span: Span) -> str:
    if not name.startswith(BLOCKS):
        return name
    number, rest = name.removeprefix(BLOCKS).split(".", 1)
    return f"{BLOCKS}{int(number) - span.first_block}.{rest}"


def build_stage(run: RunConfig, index: int, tensors: Mapping[str, Tensor] | None = None) -> nn.Module:
    """Build stage `index` of the run on the CPU in float32.

    tensors: by their name in the whole model, exactly the stage's own; they are copied. None means the run's
    initial values. The module takes `input_ids` (first stage) or `inputs_embeds`, and its `logits` are the hidden
    states it hands on, or, with the head, the logits.
    """
    span = spans(run)[index]
    module: nn.Module = _shortened(run, span)
    names = stage_names(run, index)
    own = initial_tensors(run, index) if tensors is None else dict(tensors)
    _check_tensors(own, span_shapes(run, span), index)
    copies = {name: own[whole].detach().to(torch.float32, copy=True) for name, whole in names.items()}
    if is_tied(run):
        copies[HEAD] = copies[EMBEDDING]
    module.load_state_dict(copies, strict=True, assign=True)
    module.tie_weights()  # type: ignore[operator]
    return module


def _shortened(run: RunConfig, span: Span) -> Any:
    """The stage's module with its parameters still on the meta device."""
    config = _config(run, num_blocks=span.num_blocks)
    try:
        with torch.device("meta"):
            module = getattr(transformers, run.model.architecture)(config)
    except (KeyError, TypeError, ValueError) as error:
        raise _refused(run, error) from error
    base = module.base_model
    if not isinstance(getattr(base, "layers", None), nn.ModuleList):
        raise ModelError(f"expected the blocks of {run.model.architecture} in a list, found none; choose another model")
    if not span.embedding:
        module.set_input_embeddings(nn.Identity())
    if not span.head:
        base.norm = nn.Identity()
        module.set_output_embeddings(nn.Identity())
    base.rotary_emb = type(base.rotary_emb)(config)
    expected = {_stage_name(name, span): shape for name, shape in span_shapes(run, span).items()}
    found = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    if found != expected:
        odd = sorted(set(found.items()) ^ set(expected.items()))
        raise ModelError(
            f"expected {run.model.architecture} to have the tensors of its family, found a difference at {odd[0]}; "
            f"this version of transformers ({transformers.__version__}) builds another model, use 5.x"
        )
    return module


def _check_tensors(own: Mapping[str, Tensor], shapes: Mapping[str, Shape], index: int) -> None:
    odd = sorted(own.keys() ^ shapes.keys())
    if odd:
        raise ModelError(
            f"expected exactly the tensors of stage {index}, found {odd[0]} missing or too many; pass its own"
        )
    for name, shape in shapes.items():
        if tuple(own[name].shape) != shape:
            raise ModelError(
                f"expected {name} of shape {shape}, found {tuple(own[name].shape)}; use the tensors of this run's model"
            )


def initial_tensor(run: RunConfig, name: str, shape: Shape) -> Float32[Tensor, "..."]:
    """The initial value of one tensor, a pure function of the run's seed and the tensor's name in the whole model.

    Follows the family: matrices normal with `initializer_range`, norms one, biases zero, the padding token's row
    of the embedding zero. The head of a model that is tied in its configuration but cut starts as a copy of the
    embedding.
    """
    if name == HEAD and geometry(run.model).tied:
        return initial_tensor(run, EMBEDDING, shape)
    if name.endswith("norm.weight"):
        return torch.ones(shape)
    if name.endswith(".bias"):
        return torch.zeros(shape)
    seed = blake3.blake3(canonical(["strata/initial/1", run.seed, name])).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(seed[:8], "little") >> 1)
    values = run.model.values
    std = float(values.get("initializer_range") or 0.02)
    drawn = torch.empty(math.prod(shape)).normal_(0.0, std, generator=generator).reshape(shape)
    padding = values.get("pad_token_id")
    if name == EMBEDDING and padding is not None:
        drawn[padding].zero_()
    return drawn


def initial_tensors(run: RunConfig, index: int) -> dict[str, Tensor]:
    """The initial tensors of one stage by their name in the whole model, in canonical order."""
    shapes = span_shapes(run, spans(run)[index])
    return {name: initial_tensor(run, name, shape) for name, shape in shapes.items()}
