"""1F1B: everything once, backward after forward, few in flight, and no stage waits for ever."""

from hypothesis import given
from hypothesis import strategies as st

from subnet.stage.pipeline import Action, one_forward_one_backward

pipelines = st.tuples(st.integers(1, 9), st.integers(0, 20))


@given(pipelines)
def test_every_microbatch_has_one_forward_and_then_one_backward(pipeline: tuple[int, int]) -> None:
    stages, microbatches = pipeline
    for stage in range(stages):
        order = one_forward_one_backward(stage, stages, microbatches)
        assert len(order) == 2 * microbatches
        for kind in "FB":
            assert [action.position for action in order if action.kind == kind] == list(range(microbatches))
        for position in range(microbatches):
            forward, backward = (order.index(Action(kind=kind, position=position)) for kind in ("F", "B"))
            assert forward < backward


@given(pipelines)
def test_at_most_as_many_are_in_flight_as_there_are_stages_from_here_to_the_end(pipeline: tuple[int, int]) -> None:
    stages, microbatches = pipeline
    for stage in range(stages):
        in_flight = most = 0
        for action in one_forward_one_backward(stage, stages, microbatches):
            in_flight += 1 if action.kind == "F" else -1
            most = max(most, in_flight)
        assert most == min(stages - stage, microbatches)


@given(pipelines)
def test_stages_that_work_in_order_never_wait_for_ever(pipeline: tuple[int, int]) -> None:
    """Each stage does its next action once its input exists; all of them finish."""
    stages, microbatches = pipeline
    queues = [one_forward_one_backward(stage, stages, microbatches) for stage in range(stages)]
    done: set[tuple[int, Action]] = set()

    def ready(stage: int, action: Action) -> bool:
        source = stage - 1 if action.kind == "F" else stage + 1
        return not 0 <= source < stages or (source, action) in done

    while any(queues):
        progress = [stage for stage, queue in enumerate(queues) if queue and ready(stage, queue[0])]
        assert progress, f"deadlock with {queues}"
        for stage in progress:
            done.add((stage, queues[stage].pop(0)))
    assert len(done) == 2 * stages * microbatches


def test_the_order_of_three_stages_and_four_microbatches() -> None:
    text = [" ".join(f"{a.kind}{a.position}" for a in one_forward_one_backward(stage, 3, 4)) for stage in range(3)]
    assert text == ["F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"]
