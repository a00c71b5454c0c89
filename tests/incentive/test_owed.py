"""Which bytes are owed: whatever may still be trained on, drawn, replayed or disputed; and nothing for ever."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from subnet.audit.draw import OWED_ROUNDS
from subnet.audit.evidence import needed
from subnet.config import RunConfig
from subnet.incentive.owed import Kept, failed_rounds, is_open, is_owed, kept_s, owed_by_rounds, pinned_until, unneeded
from subnet.ledger.window import window_rounds
from subnet.wire.messages import Checkpoint
from tests.ledger.log import hotkey
from tests.ledger.simulation import Simulation
from tests.ledger.small import run_config

LONG_MS = 10**9  # after this nothing is young


def run_of(*, rounds: int = 6, window_segments: int = 4) -> RunConfig:
    """Two segments a round, so a window of so many segments is half as many rounds."""
    run = run_config(rounds=rounds)
    return replace(run, pay=replace(run.pay, window_segments=window_segments))


RUN = run_of()
rounds = st.integers(0, 30)
times = st.floats(0, 1e6)
kept = st.builds(
    lambda first, more, time_s: Kept(first_round=first, last_round=first + more, time_s=time_s),
    rounds, st.integers(0, 3), times,
)  # fmt: skip
pins = st.dictionaries(rounds, rounds, max_size=4)


@given(kept, rounds, times, pins)
def test_this_round_s_and_the_last_one_s_evidence_is_owed(blob, now, now_s, pinned):
    if blob.last_round > now - OWED_ROUNDS:
        assert is_owed(blob, RUN, round=now, now_s=now_s, pins=pinned)


@given(kept, rounds, pins)
def test_what_is_younger_than_an_audit_takes_is_owed_whatever_its_round(blob, now, pinned):
    assert is_owed(blob, RUN, round=now, now_s=blob.time_s + kept_s(RUN) - 0.1, pins=pinned)


@given(kept, rounds, times)
def test_evidence_of_a_failed_round_is_owed_until_the_window_of_its_pay_closes(blob, later, now_s):
    for failed in range(blob.first_round, blob.last_round + 1):
        until = pinned_until(RUN, failed)
        assert until - failed + 1 == window_rounds(RUN)
        if later <= until:
            assert is_owed(blob, RUN, round=later, now_s=now_s, pins={failed: until})


@given(kept, rounds, rounds, times, times, pins)
def test_what_is_not_owed_any_more_never_is_again(blob, now, more, now_s, more_s, pinned):
    if not is_owed(blob, RUN, round=now, now_s=now_s, pins=pinned):
        assert not is_owed(blob, RUN, round=now + more, now_s=now_s + more_s, pins=pinned)


@given(kept, pins)
def test_nothing_is_owed_for_ever(blob, pinned):
    end = max(blob.last_round + OWED_ROUNDS, *(until + 1 for until in pinned.values()), 0)
    assert not is_owed(blob, RUN, round=end, now_s=blob.time_s + kept_s(RUN), pins=pinned)


def later_needs(sim: Simulation, root: str) -> set[str]:
    """The root, unless an open segment starts from that state."""
    state = sim.state
    starts = {s.start_root for s in state.segments.values() if is_open(s, state, now_ms=sim.now_ms + LONG_MS)}
    return {root} - starts


def check_store(sim: Simulation, now_ms: int) -> None:
    """Nothing that somebody may still fetch from the run's store is among what nobody needs."""
    state, owed = sim.state, owed_by_rounds(sim.state, now_ms=now_ms)
    for segment in state.segments.values():
        drawable = segment.round > state.round - OWED_ROUNDS
        disputed = bool(segment.verdicts) and state.round <= pinned_until(state.config, segment.round)
        if drawable or disputed:
            assert is_open(segment, state, now_ms=now_ms)
            need = needed(state, segment, seed=b"seed")
            assert {need.public_root, need.contribution} - {""} <= owed
            evidence = {need.start_root, need.end_root, *need.inbound, *(frame.digest for frame in need.outbound)}
            evidence |= {lines.name for lines in need.deliveries}
            assert unneeded({*evidence, "ff" * 32}, state, now_ms=now_ms) == {"ff" * 32}
        else:
            assert unneeded({segment.end_root}, state, now_ms=now_ms) == later_needs(sim, segment.end_root)
    for number, manifest in state.manifests.items():
        current = number >= state.round - 1
        exported = number in state.checkpoints
        if current or not exported or number == max(state.manifests):
            assert {public.root for public in manifest.stages} <= owed
    for (number, _), closed in state.closed.items():
        if number >= state.round - 1:
            assert {entry.digest for entry in closed.contributions} <= owed


def publish(sim: Simulation, number: int) -> None:
    """The checkpoint of a round is out."""
    sim.say("owner", sim.of(Checkpoint, round=number, heldout_loss=1.0, files=(), time_ms=sim.now_ms))


def test_a_store_keeps_what_trainers_auditors_and_the_publisher_need_and_no_more() -> None:
    """Over a whole run with a fail in its first round, at every phase; the publisher is a round behind."""
    sim = Simulation(run=run_of())
    sim.start("ann", "ben", "cem", "dov")
    sizes: dict[int, int] = {}
    while sim.state.phase != "done":
        if sim.state.round == 0 and sim.state.step == 2 and not any(s.verdicts for s in sim.state.segments.values()):
            sim.judge("ann", validators=("validator-0",))
        check_store(sim, sim.now_ms + LONG_MS)
        {"train": sim.do_step, "close": sim.do_close, "merge": sim.do_merge}[sim.state.phase]()
        behind = sim.state.round - 1
        if sim.state.phase == "train" and behind in sim.state.manifests and behind not in sim.state.checkpoints:
            publish(sim, behind)
        size = len(owed_by_rounds(sim.state, now_ms=sim.now_ms + LONG_MS))
        sizes[sim.state.round] = max(size, sizes.get(sim.state.round, 0))
    check_store(sim, sim.now_ms + LONG_MS)
    assert sizes[4] <= sizes[3] <= sizes[2], "what is owed grows with the run"
    first = {public.root for public in sim.state.manifests[0].stages}
    assert unneeded(first, sim.state, now_ms=sim.now_ms + LONG_MS) == first
    assert not unneeded(first, sim.state, now_ms=sim.now_ms), "young segments are not paid yet"


def test_a_miner_is_told_the_rounds_of_its_own_fails_while_they_matter() -> None:
    sim = Simulation(run=run_of())
    sim.start("ann", "ben")
    sim.do_step()
    sim.do_step()
    assert failed_rounds(sim.state, hotkey("ann")) == ()
    sim.judge("ann", validators=("validator-0",))
    seen = []
    while sim.state.phase != "done":
        seen.append((sim.state.round, failed_rounds(sim.state, hotkey("ann")), failed_rounds(sim.state, hotkey("ben"))))
        sim.do_round()
    assert seen == [(0, (0,), ()), (1, (0,), ()), *((number, (), ()) for number in range(2, 6))]
