"""Costs equal the real model's counts, and cuts are the best there are."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.model.cost import Span, _cut, activation_bytes, parameters, spans, state_bytes, work_per_token
from subnet.model.partition import build_stage
from tests.model.tiny import SEQUENCES, TOKENS, tiny_model, tiny_run

VARIANTS = [
    ("LlamaForCausalLM", {}),
    ("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True}),
    ("LlamaForCausalLM", {"tie_word_embeddings": True, "num_key_value_heads": 4, "head_dim": 16}),
    ("Qwen3ForCausalLM", {}),
    ("Qwen3ForCausalLM", {"attention_bias": True, "head_dim": 12}),
    ("Qwen3ForCausalLM", {"tie_word_embeddings": True}),
]


@pytest.mark.parametrize(("architecture", "changes"), VARIANTS)
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_parameters_are_exactly_those_of_the_built_stage(
    architecture: str, changes: dict[str, object], stages: int
) -> None:
    run = tiny_run(tiny_model(architecture, **changes), stages=stages)
    for index, span in enumerate(spans(run)):
        module = build_stage(run, index, None)
        assert parameters(run, span) == sum(parameter.numel() for parameter in module.parameters())
        assert state_bytes(run, span) == 12 * parameters(run, span) + 8
        assert all(parameter.device.type == "cpu" for parameter in module.parameters())


@pytest.mark.parametrize(("architecture", "changes"), VARIANTS)
def test_work_is_six_times_the_matmul_parameters_plus_attention(architecture: str, changes: dict[str, object]) -> None:
    """Counted on the built model: every Linear, the tied head too, no look-up; 12 x heads x head width x tokens."""
    run = tiny_run(tiny_model(architecture, **changes), stages=1)
    config = build_stage(run, 0, None).config
    matrices = [m.weight.numel() for m in build_stage(run, 0, None).modules() if type(m).__name__ == "Linear"]
    attention = 12 * config.num_hidden_layers * config.num_attention_heads * config.head_dim * TOKENS
    assert len(matrices) == 4 * 7 + 1
    assert work_per_token(run, spans(run)[0]) == 6 * sum(matrices) + attention


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_the_stages_work_adds_up_to_the_whole_models(stages: int) -> None:
    cut, whole = tiny_run(stages=stages), tiny_run(stages=1)
    total = sum(work_per_token(cut, span) for span in spans(cut))
    assert total == work_per_token(whole, spans(whole)[0])


def test_an_activation_is_four_bytes_per_number() -> None:
    assert activation_bytes(tiny_run()) == 4 * SEQUENCES * TOKENS * 32


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_stages_are_contiguous_and_only_the_ends_have_embedding_and_head(stages: int) -> None:
    cut = spans(tiny_run(stages=stages))
    assert [block for span in cut for block in range(span.first_block, span.end_block)] == [0, 1, 2, 3]
    assert all(span.num_blocks >= 1 for span in cut)
    assert [span.embedding for span in cut] == [True] + [False] * (stages - 1)
    assert [span.head for span in cut] == [False] * (stages - 1) + [True]


def test_a_heavy_head_leaves_its_stage_fewer_blocks() -> None:
    run = tiny_run(tiny_model(vocab_size=4096, num_hidden_layers=12), stages=3)
    assert [span.num_blocks for span in spans(run)] == [1, 10, 1]
    assert spans(run)[1] == Span(first_block=1, end_block=11, embedding=False, head=False)


@settings(max_examples=60)
@given(st.data())
def test_no_cut_has_a_smaller_largest_cost(data: st.DataObject) -> None:
    """Against every possible cut, for any cost per block and at the ends."""
    blocks = data.draw(st.lists(st.integers(1, 50), min_size=1, max_size=8))
    stages = data.draw(st.integers(1, len(blocks)))
    first_cost, last_cost = data.draw(st.integers(0, 99)), data.draw(st.integers(0, 99))

    def cost(first: int, end: int) -> int:
        return sum(blocks[first:end]) + first_cost * (first == 0) + last_cost * (end == len(blocks))

    def largest(ends: tuple[int, ...]) -> int:
        return max(cost(first, end) for first, end in zip((0, *ends[:-1]), ends, strict=True))

    found = _cut(len(blocks), stages, cost)
    every = [(*inner, len(blocks)) for inner in itertools.combinations(range(1, len(blocks)), stages - 1)]
    assert found in every
    assert largest(found) == min(map(largest, every))
