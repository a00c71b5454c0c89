"""Pinned evidence: what is known of an end state in one blob, and what an accuser may put into the store, no more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.audit.evidence import Chunk, needed
from subnet.audit.pinned import (
    LOOKED_AT_FAILS,
    PACK_SLACK_BYTES,
    PINNED_FAILS,
    Pack,
    make_pack,
    pinnable,
    pinned_by,
    read_pack,
    to_pin,
)
from subnet.canonical import digest
from subnet.errors import EvidenceError
from subnet.ledger.state import Segment
from subnet.wire.merkle import check_leaves
from tests.audit.lane import SEED, Lane, lane_run
from tests.ledger.log import hotkey
from tests.ledger.simulation import Simulation
from tests.ledger.small import run_config

hashes = st.binary(min_size=32, max_size=32).map(bytes.hex)
parts = st.dictionaries(
    st.integers(0, 2**20), st.tuples(st.binary(max_size=99), st.lists(hashes, max_size=5)), max_size=5
)


@given(parts, st.lists(hashes, max_size=5))
def test_a_pack_gives_back_its_leaves_and_chunks(made: dict[int, tuple[bytes, list[str]]], leaves: list[str]) -> None:
    chunks = {index: Chunk(data=data, proof=tuple(proof)) for index, (data, proof) in made.items()}
    pack = Pack(leaves=bytes.fromhex("".join(leaves)), chunks=chunks)
    assert read_pack(make_pack(pack)) == pack


@given(st.binary(min_size=1, max_size=300))
def test_garbage_is_no_pack_or_one_of_chunks_that_prove_nothing(data: bytes) -> None:
    try:
        assert all(isinstance(chunk, Chunk) for chunk in read_pack(data).chunks.values())
    except EvidenceError as error:
        assert "cut off" in str(error)


def test_a_cut_pack_is_refused() -> None:
    pack = make_pack(Pack(leaves=b"y" * 32, chunks={3: Chunk(data=b"x" * 50, proof=("ab" * 32,))}))
    for length in (0, 3, 5, 20, 40, len(pack) - 1):
        with pytest.raises(EvidenceError):
            read_pack(pack[:length])


def test_all_that_is_pinned_may_be_pinned_and_is_named_by_the_ledger() -> None:
    """Its names are those of the segment's receipts, and its pack the last of the verdict's evidence."""
    lane = Lane(lane_run(3, steps=4))
    lane.round(0, close=False)
    segment = lane.segments(1)[1]
    need = needed(lane.state, segment, seed=SEED)
    pinned = to_pin(need, lane.evidence(need))
    pack = list(pinned)[-1]
    unpacked = read_pack(pinned[pack])
    assert check_leaves(need.end_root, need.end_bytes, unpacked.leaves) and unpacked.chunks.keys() == set(need.order)
    fail = Simulation().verdict("validator-0", segment, "fail", evidence=("0" * 64, pack))
    allowed = pinnable(lane.state, segment, fail)
    assert pinned.keys() <= allowed.keys()
    assert all(len(data) <= allowed[name] for name, data in pinned.items())
    assert segment.start_root in pinned and digest(pinned[pack]) == pack


def failing(sim: Simulation, name: str, *, evidence: tuple[str, ...] = ("ee" * 32,)) -> None:
    segment = sim.segments(name)[-1]
    sim.say("validator-0", sim.verdict("validator-0", segment, "fail", draw=sim.some_draw(), evidence=evidence))


def test_only_the_author_of_a_fail_may_pin_and_only_what_that_rests_on() -> None:
    sim = Simulation()
    sim.start("ann", "ben", "cem", "dov")
    while not sim.segments("ann"):
        sim.do_step()
    assert pinned_by(sim.state, hotkey("validator-0")) == {}
    failing(sim, "ann")
    allowed, segment = pinned_by(sim.state, hotkey("validator-0")), sim.segments("ann")[-1]
    receipts = [sim.state.receipts[part] for part in segment.receipts]
    assert {receipt.deliveries for receipt in receipts} <= allowed.keys()
    assert allowed["ee" * 32] == segment.end_bytes + segment.end_bytes // 8 + PACK_SLACK_BYTES
    assert "0" * 64 not in allowed and pinned_by(sim.state, hotkey("validator-1")) == {}
    assert PINNED_FAILS == 16


def test_what_was_found_false_is_pinned_no_longer() -> None:
    """A liar cannot fill the store."""
    sim = Simulation(validators=("validator-0", "validator-1", "validator-2"))
    sim.start("ann", "ben")
    while not sim.segments("ann"):
        sim.do_step()
    failing(sim, "ann")
    for name in ("validator-1", "validator-2"):
        sim.say(name, sim.verdict(name, sim.segments("ann")[-1], "pass"))
    assert pinned_by(sim.state, hotkey("validator-0")) == {}


class Counted(dict[str, Segment]):
    """Segments by id, counting how many are looked up; nobody may look at all of them."""

    looked_up = 0

    def __getitem__(self, name: str) -> Segment:
        self.looked_up += 1
        return super().__getitem__(name)

    def values(self):  # type: ignore[override]
        raise AssertionError("all segments of a run were looked at for one upload")


def test_what_may_be_pinned_is_found_in_few_steps_however_many_fails_there_are() -> None:
    """It is asked for at every upload, on the orchestrator's loop."""
    sim, me = Simulation(run=run_config(rounds=80)), hotkey("validator-0")
    sim.start("ann", "ben")
    while len(sim.segments("ann")) < 2 * LOOKED_AT_FAILS:
        sim.do_round()
        for segment in sim.segments("ann"):
            if me not in segment.verdicts:
                sim.say("validator-0", sim.verdict("validator-0", segment, "fail", draw=sim.some_draw()))
    assert len(sim.state.fails[me]) > LOOKED_AT_FAILS
    allowed = pinned_by(sim.state, me)
    counted = Counted(sim.state.segments)
    sim.state.segments = counted
    assert pinned_by(sim.state, me) == allowed != {}
    assert counted.looked_up <= LOOKED_AT_FAILS
