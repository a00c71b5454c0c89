"""Laws of the wiring: a pure function that anyone can check, in which no identity faces itself and nobody starves."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from subnet.canonical import digest_of
from subnet.config import RunConfig
from subnet.errors import RefusedError
from subnet.ledger.events import Said
from subnet.scheduler.lanes import Lane, check_plan, wire_lanes
from subnet.wire.messages import WIRE_VERSION, Free, Plan, Wiring, read_signed
from tests.ledger.chaos import SEEDS, shaken
from tests.ledger.small import run_config

RUN = run_config(stages=3, each=2)
MAX_PER_STAGE = 5
EXAMPLES = settings(max_examples=30)


def wiring(free: list[list[Free]], *, run: RunConfig = RUN, **changes: Any) -> Wiring:
    """A wiring of these free replicas."""
    values: dict[str, Any] = {
        "round": 1,
        "step": 2,
        "block": 7,
        "block_hash": "0x" + "7" * 64,
        "free": tuple(map(tuple, free)),
        "first_microbatch": 10,
        "requeued": (),
    }
    return Wiring(version=WIRE_VERSION, run_id=run.run_id, **(values | changes))


def free(name: str, *, coldkey: str = "", speed: int = 0, waited: int = 0) -> Free:
    """A free replica."""
    return Free(hotkey=name, coldkey=coldkey or f"{name}/cold", speed_class=speed, waited_steps=waited)


def plan_of(of: Wiring, number: int, lane: Lane) -> Plan:
    """The plan that an honest orchestrator signs for a lane."""
    return Plan(
        version=WIRE_VERSION,
        run_id=of.run_id,
        round=of.round,
        step=of.step,
        global_step=9,
        lane=number,
        path=lane.path,
        microbatches=lane.microbatches,
        wiring=digest_of(of),
        deadline_ms=1,
    )


@st.composite
def wirings(draw: Callable[..., Any], stages: int = 3) -> Wiring:
    """Any wiring of up to five replicas a stage, under few coldkeys, so that they meet."""
    stage = st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(-1, 3)), min_size=0, max_size=MAX_PER_STAGE
    )
    rows = [draw(stage) for _ in range(stages)]
    return wiring(
        [
            [
                free(f"miner-{number}-{index}", coldkey=f"cold-{cold}", speed=speed, waited=waited)
                for index, (cold, speed, waited) in enumerate(row)
            ]
            for number, row in enumerate(rows)
        ],
        block_hash="0x" + draw(st.sampled_from(["1", "2", "3"])) * 64,
        requeued=tuple(draw(st.lists(st.integers(0, 9), unique=True, max_size=5))),
    )


@EXAMPLES
@given(of=wirings())
def test_one_identity_never_faces_itself(of: Wiring) -> None:
    """No lane within one coldkey, no replica in two lanes, every member on its own stage."""
    coldkeys = {entry.hotkey: entry.coldkey for stage in of.free for entry in stage}
    lanes = wire_lanes(RUN, of)
    for lane in lanes:
        assert len({coldkeys[hotkey] for hotkey in lane.path}) == RUN.stages
        assert all(
            hotkey in {entry.hotkey for entry in stage} for hotkey, stage in zip(lane.path, of.free, strict=True)
        )
    members = [hotkey for lane in lanes for hotkey in lane.path]
    assert len(members) == len(set(members))


@EXAMPLES
@given(of=wirings())
def test_a_lane_is_wired_whenever_one_exists(of: Wiring) -> None:
    """However coldkeys are spread: nothing that is left could form one more lane, unless as many as possible run."""
    lanes = wire_lanes(RUN, of)
    used = {hotkey for lane in lanes for hotkey in lane.path}
    rest = [{entry.coldkey for entry in stage if entry.hotkey not in used} for stage in of.free]
    one_more = any(len({a, b, c}) == 3 for a in rest[0] for b in rest[1] for c in rest[2])
    assert not one_more or len(lanes) == min(len(stage) for stage in of.free)


def test_one_identity_on_a_short_stage_does_not_stop_the_others() -> None:
    """The replica that waited longest is of the coldkey that holds the only replica of the first stage."""
    of = wiring([[free("a", coldkey="ann")], [free("b", coldkey="ann", waited=9), free("c")], [free("d")]])
    assert [lane.path for lane in wire_lanes(RUN, of)] == [("a", "c", "d")]


def test_an_earlier_stage_chooses_again_where_the_last_has_no_choice() -> None:
    of = wiring([[free("a")], [free("b", coldkey="eva", waited=9), free("c")], [free("d", coldkey="eva")]])
    assert [lane.path for lane in wire_lanes(RUN, of)] == [("a", "c", "d")]


def test_where_every_path_would_face_itself_there_is_no_lane_unless_the_run_allows_it() -> None:
    of = wiring([[free("a", coldkey="ann")], [free("b", coldkey="ann")], [free("c")]])
    assert wire_lanes(RUN, of) == ()
    assert [lane.path for lane in wire_lanes(replace(RUN, allow_same_identity=True), of)] == [("a", "b", "c")]


@EXAMPLES
@given(of=wirings())
def test_microbatches_are_the_requeued_ones_then_the_next_without_gaps(of: Wiring) -> None:
    lanes = wire_lanes(RUN, of)
    taken = [index for lane in lanes for index in lane.microbatches]
    count = len(lanes) * RUN.train.microbatches_per_step
    again = list(of.requeued[:count])
    assert taken == again + list(range(10, 10 + count - len(again)))
    assert all(len(lane.microbatches) == RUN.train.microbatches_per_step for lane in lanes)


@EXAMPLES
@given(of=wirings())
def test_the_wiring_is_pure_and_its_plans_pass_the_check(of: Wiring) -> None:
    lanes = wire_lanes(RUN, of)
    assert lanes == wire_lanes(RUN, of)
    for number, lane in enumerate(lanes):
        check_plan(RUN, of, plan_of(of, number, lane))


def test_replicas_that_waited_are_preferred() -> None:
    """Three for one place: whoever waited longest runs, and with equal waiting the block's hash decides."""
    first = [free("a", waited=1), free("b", waited=2), free("c", waited=0)]
    assert wire_lanes(RUN, wiring([first, [free("d")], [free("e")]]))[0].path[0] == "b"
    equal = [free(name) for name in "abcdefgh"]
    chosen = {
        wire_lanes(RUN, wiring([equal, [free("x")], [free("y")]], block_hash="0x" + digit * 64))[0].path[0]
        for digit in "0123456789abcdef"
    }
    assert len(chosen) > 1


def test_lanes_are_made_of_replicas_of_like_speed() -> None:
    of = wiring([[free(f"{stage}{speed}", speed=speed) for speed in (2, 0, 1)] for stage in "abc"])
    assert [lane.path for lane in wire_lanes(RUN, of)] == [("a0", "b0", "c0"), ("a1", "b1", "c1"), ("a2", "b2", "c2")]


def test_the_accused_are_wired_last() -> None:
    of = wiring([[free("accused", waited=-1), free("other", waited=0)], [free("b")], [free("c")]])
    assert wire_lanes(RUN, of)[0].path[0] == "other"


OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("another lane", {"lane": 1}),
    ("a lane that is none", {"lane": 2}),
    ("a negative lane", {"lane": -1}),
    ("another path", {"path": ("a1", "b0", "c0")}),
    ("a path in another order", {"path": ("b0", "a0", "c0")}),
    ("other microbatches", {"microbatches": (10, 12)}),
    ("fewer microbatches", {"microbatches": (10,)}),
    ("another step", {"step": 3}),
    ("another round", {"round": 0}),
    ("another wiring", {"wiring": "0" * 64}),
    ("another run", {"run_id": "0" * 64}),
]


@pytest.mark.parametrize("changes", [changes for _, changes in OTHERS], ids=[name for name, _ in OTHERS])
def test_a_plan_that_the_wiring_does_not_give_is_refused(changes: dict[str, Any]) -> None:
    """The orchestrator's proven fault: its signature is on both."""
    of = wiring([[free(f"{stage}{number}", speed=number) for number in range(2)] for stage in "abc"])
    honest = plan_of(of, 0, wire_lanes(RUN, of)[0])
    check_plan(RUN, of, honest)
    with pytest.raises(RefusedError, match="expected (the lane that the wiring|a plan of the wiring)"):
        check_plan(RUN, of, replace(honest, **changes))


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("stages", [2, 3])
def test_every_plan_of_a_log_can_be_checked_by_anyone(seed: int, stages: int) -> None:
    """Over random histories: each plan in the log is the one that the wiring before it gives."""
    sim = shaken(seed, stages=stages)
    current: Wiring | None = None
    checked = 0
    for body in (event.body for event in sim.events):
        if isinstance(body, Said) and body.signed.kind == "wiring":
            current = read_signed(body.signed, Wiring)
        elif isinstance(body, Said) and body.signed.kind == "plan":
            assert current is not None
            check_plan(sim.run, current, read_signed(body.signed, Plan))
            checked += 1
    assert checked > 10
