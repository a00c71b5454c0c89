"""What can be cut, and what is refused in one sentence."""

import subprocess
import sys

import msgspec
import pytest

from subnet.canonical import canonical
from subnet.config import ModelConfig
from subnet.errors import ModelError
from subnet.model.shapes import geometry
from tests.model.tiny import tiny_model

LLAMA = "LlamaForCausalLM"
QWEN = "Qwen3ForCausalLM"


def changed(model: ModelConfig, **settings: object) -> ModelConfig:
    return msgspec.structs.replace(model, settings=canonical(model.values | settings).decode())


@pytest.mark.parametrize(
    ("architecture", "settings", "sentence"),
    [
        (QWEN, {"use_sliding_window": True}, "expected full attention in every block, found a sliding window"),
        (QWEN, {"layer_types": ["full_attention", "sliding_attention"] * 2}, "found a sliding window"),
        (LLAMA, {"num_local_experts": 8}, "expected a dense model, found num_local_experts"),
        (LLAMA, {"attention_dropout": 0.1}, "expected no attention dropout, found 0.1"),
        (
            LLAMA,
            {"model_type": "mistral"},
            "expected settings of model type 'llama' for LlamaForCausalLM, found 'mistral'",
        ),
        (LLAMA, {"rope_parameters": {"rope_type": "dynamic"}}, "expected rotary embeddings of type .* found 'dynamic'"),
        (LLAMA, {"quantization_config": {"bits": 4}}, "expected parameters in full precision"),
        (LLAMA, {"hidden_size": None}, "expected hidden_size of at least 1 in the model's settings, found None"),
        (LLAMA, {"num_key_value_heads": 3}, "expected heads in multiples of 3 key heads, found 4"),
        (LLAMA, {"head_dim": 7}, "expected an even head width for rotary embeddings, found 7"),
    ],
)
def test_a_model_that_cannot_be_cut_is_refused_in_one_sentence(
    architecture: str, settings: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ModelError, match=sentence):
        geometry(changed(tiny_model(architecture), **settings))


def test_costs_and_layouts_need_neither_torch_nor_transformers() -> None:
    """The orchestrator sizes and lays out states in processes that never load the model."""
    code = (
        "import sys, subnet.model.cost, subnet.model.shapes, subnet.stage.layout, subnet.stage.pipeline;"
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
