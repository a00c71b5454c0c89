"""The held-out loss, one stage at a time."""

import gc
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from subnet.errors import CheckpointError
from subnet.model.partition import initial_tensors
from subnet.stage.evaluate import heldout_loss
from subnet.stage.stage import Stage
from tests.model.tiny import tiny_microbatches, tiny_run, whole_model

MICROBATCHES = tiny_microbatches(3)


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_the_heldout_loss_is_the_whole_models(stages: int) -> None:
    run = tiny_run(stages=stages)
    tokens, labels = (torch.cat(part) for part in zip(*MICROBATCHES, strict=True))
    with torch.no_grad():
        expected = whole_model(run, tied=False)(input_ids=tokens, labels=labels, shift_labels=labels).loss
    found = heldout_loss(run, (initial_tensors(run, index) for index in range(stages)), MICROBATCHES)
    assert found == pytest.approx(float(expected), abs=1e-5)


def test_only_one_stage_is_in_memory_at_a_time() -> None:
    """When the next stage's tensors are asked for, no stage is left."""
    run = tiny_run(stages=4)
    alive: list[int] = []
    gc.collect()
    others = {id(thing) for thing in gc.get_objects() if type(thing) is Stage}  # of earlier tests, still referenced

    def stages() -> Iterator[dict[str, Tensor]]:
        for index in range(4):
            alive.append(sum(type(thing) is Stage and id(thing) not in others for thing in gc.get_objects()))
            yield initial_tensors(run, index)

    heldout_loss(run, stages(), MICROBATCHES)
    assert alive == [0, 0, 0, 0]


@pytest.mark.parametrize(("given_stages", "found"), [(1, "found 1"), (3, "found more")])
def test_too_few_or_too_many_stages_are_refused(given_stages: int, found: str) -> None:
    run = tiny_run(stages=2)
    tensors = [initial_tensors(run, min(index, 1)) for index in range(given_stages)]
    with pytest.raises(CheckpointError, match=f"expected 2 stages to evaluate, {found}"):
        heldout_loss(run, tensors, MICROBATCHES)
