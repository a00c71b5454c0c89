"""The invariant `any_cut_gives_the_same_model`, and what a stage is built from."""

import hashlib

import pytest
import torch
import transformers

from subnet.canonical import canonical
from subnet.config import ModelConfig
from subnet.errors import ModelError
from subnet.model.cost import spans
from subnet.model.partition import build_stage, check_model, initial_tensor, initial_tensors, stage_names, whole_config
from subnet.model.shapes import span_shapes
from tests.model.tiny import tiny_model, tiny_run

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
FAMILIES = ["LlamaForCausalLM", "Qwen3ForCausalLM"]


@pytest.mark.parametrize("architecture", FAMILIES)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_any_cut_gives_the_same_model(architecture: str, tied: bool, stages: int) -> None:
    """The stages' tensors together are those of the uncut model, bit for bit; a cut tied head is a copy."""
    model = tiny_model(architecture, tie_word_embeddings=tied)
    whole = initial_tensors(tiny_run(model, stages=1), 0)
    run = tiny_run(model, stages=stages)
    found = {name: tensor for index in range(stages) for name, tensor in initial_tensors(run, index).items()}
    if tied and stages > 1:
        assert torch.equal(found[HEAD], found[EMBEDDING])
        assert found[HEAD].data_ptr() != found[EMBEDDING].data_ptr()
        del found[HEAD]
    assert list(found) == list(whole)
    assert all(torch.equal(found[name], whole[name]) for name in whole)


def test_initial_values_are_pinned() -> None:
    """Two machines of one kind agree; a change of the seed's derivation is a new protocol version."""
    drawn = initial_tensor(tiny_run(), "model.layers.0.mlp.up_proj.weight", (4, 2))
    expected = [0.067597, -0.154267, 0.039134, 0.033295, 0.169232, -0.076804, -0.168210, -0.174452]
    assert drawn.flatten().tolist() == pytest.approx(expected, abs=1e-6)


def test_initial_values_follow_the_family() -> None:
    run = tiny_run(tiny_model(attention_bias=True, pad_token_id=3), stages=1)
    tensors = initial_tensors(run, 0)
    for name, tensor in tensors.items():
        if "norm" in name:
            assert (tensor == 1).all(), name
        elif name.endswith("bias"):
            assert (tensor == 0).all(), name
        else:
            assert float(tensor.std()) == pytest.approx(0.1, rel=0.15), name
    assert (tensors[EMBEDDING][3] == 0).all()
    digests = {hashlib.sha256(tensor.numpy().tobytes()).digest() for tensor in tensors.values() if tensor.ndim == 2}
    assert len(digests) == 4 * 7 + 2, "every matrix is drawn from a seed of its own"


def test_another_seed_gives_another_model() -> None:
    first, second = initial_tensors(tiny_run(seed=1), 0), initial_tensors(tiny_run(seed=2), 0)
    assert not torch.equal(first[EMBEDDING], second[EMBEDDING])


@pytest.mark.parametrize("architecture", FAMILIES)
def test_canonical_order_is_the_models_own(architecture: str) -> None:
    run = tiny_run(tiny_model(architecture), stages=1)
    with torch.device("meta"):
        model = getattr(transformers, architecture)(whole_config(run))
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert list(span_shapes(run, spans(run)[0]).items()) == list(shapes.items())


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_only_block_numbers_differ_between_a_stage_and_the_whole(stages: int) -> None:
    run = tiny_run(stages=stages)
    for index, span in enumerate(spans(run)):
        names = stage_names(run, index)
        assert list(names) == [name for name, _ in build_stage(run, index, None).named_parameters()]
        for name, whole in names.items():
            if name.startswith("model.layers."):
                assert int(whole.split(".")[2]) == int(name.split(".")[2]) + span.first_block
            else:
                assert name == whole


def test_a_stage_keeps_its_own_copy_of_the_tensors_it_is_given() -> None:
    run = tiny_run()
    given = initial_tensors(run, 0)
    module = build_stage(run, 0, given)
    given[EMBEDDING].zero_()
    assert torch.equal(dict(module.named_parameters())[EMBEDDING], initial_tensors(run, 0)[EMBEDDING])


def test_only_a_stages_own_tensors_exist_and_none_is_left_on_the_meta_device() -> None:
    run = tiny_run(stages=4)
    for index in range(4):
        module = build_stage(run, index, None)
        everything = [*module.named_parameters(), *module.named_buffers()]
        assert {tensor.device.type for _, tensor in everything} == {"cpu"}
        assert {name for name, _ in everything} - set(stage_names(run, index)) == {
            "model.rotary_emb.inv_freq",
            "model.rotary_emb.original_inv_freq",
        }


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0},
        {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0},
    ],
)
def test_rotary_buffers_are_those_of_the_whole_model(rope: dict[str, object]) -> None:
    if rope["rope_type"] == "llama3":
        rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
    run = tiny_run(tiny_model(rope_parameters=rope))
    with torch.random.fork_rng():
        whole = transformers.LlamaForCausalLM(whole_config(run))
    for index in range(2):
        assert torch.equal(build_stage(run, index, None).model.rotary_emb.inv_freq, whole.model.rotary_emb.inv_freq)


def test_a_cut_model_is_untied_and_an_uncut_one_stays_as_it_is() -> None:
    model = tiny_model(tie_word_embeddings=True)
    assert whole_config(tiny_run(model, stages=1)).tie_word_embeddings is True
    assert whole_config(tiny_run(model, stages=2)).tie_word_embeddings is False
    one = build_stage(tiny_run(model, stages=1), 0, None)
    assert one.lm_head.weight is one.model.embed_tokens.weight


def test_missing_foreign_and_misshapen_tensors_are_refused() -> None:
    run = tiny_run()
    own = initial_tensors(run, 0)
    with pytest.raises(ModelError, match="expected exactly the tensors of stage 0, found model.norm.weight"):
        build_stage(run, 0, own | {"model.norm.weight": torch.ones(32)})
    with pytest.raises(ModelError, match=f"expected exactly the tensors of stage 0, found {EMBEDDING}"):
        build_stage(run, 0, {name: tensor for name, tensor in own.items() if name != EMBEDDING})
    with pytest.raises(ModelError, match=rf"expected {EMBEDDING} of shape \(256, 32\), found \(32, 256\)"):
        build_stage(run, 0, own | {EMBEDDING: own[EMBEDDING].T})


@pytest.mark.parametrize(("name", "value"), [("rms_norm_eps", "small"), ("hidden_act", "no such activation")])
def test_settings_that_transformers_refuses_are_one_sentence(name: str, value: str) -> None:
    model = tiny_model()
    broken = canonical(model.values | {name: value}).decode()
    with pytest.raises(ModelError, match=f"found some that transformers refuses .*{value}") as caught:
        check_model(tiny_run(ModelConfig(architecture=model.architecture, settings=broken)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_a_model_that_can_be_cut_passes_the_check(stages: int) -> None:
    check_model(tiny_run(stages=stages))
