"""The door, refusal by refusal: what may not be appended, with its sentence; a refusal changes nothing.

`Simulation.say` compares the state with the fold of the log after every refusal. Receipts have a file of their own.
"""

from collections.abc import Callable
from copy import deepcopy

import pytest
from msgspec.structs import replace

from subnet.canonical import digest
from subnet.errors import MessageError, RefusedError
from subnet.ledger.admit import MAX_AGE_MS, MAX_AHEAD_MS, SEEN_SLACK_BLOCKS, admit, most_evidence
from subnet.ledger.events import GENESIS
from subnet.ledger.state import MOST_VOIDS, Segment
from subnet.wire.messages import (
    WIRE_VERSION,
    Check,
    Checkpoint,
    Head,
    Join,
    Leave,
    Message,
    Seen,
    Signed,
    Verdict,
    make_signed,
)
from tests.ledger.log import hotkey, signer
from tests.ledger.simulation import Simulation


@pytest.fixture(scope="module")
def begun() -> Simulation:
    """Four miners, two steps in: everybody has a segment."""
    sim = Simulation()
    sim.start("ann", "ben", "cem", "dov")
    sim.do_step()
    sim.do_step()
    return sim


@pytest.fixture
def sim(begun: Simulation) -> Simulation:
    """A copy of it."""
    return deepcopy(begun)


def refused(sim: Simulation, name: str, message: Message, sentence: str) -> None:
    with pytest.raises(RefusedError, match=sentence):
        sim.say(name, message)


def join(sim: Simulation, name: str = "ann", **changes: object) -> Join:
    values = {"hotkey": hotkey(name), "address": "", "memory_bytes": 0, "root": "", "time_ms": sim.now_ms}
    return sim.of(Join, **(values | changes))


def test_a_kind_that_nobody_may_append_is_refused(sim: Simulation) -> None:
    """Plans and wirings are the orchestrator's own; a head is not an event; an unknown kind is none."""
    head = sim.of(Head, root="0" * 64, count=1, time_ms=sim.now_ms)
    refused(sim, "ann", head, "expected one of join, leave, receipt, .*found 'head'")
    current = sim.state.current
    assert current is not None
    refused(sim, "owner", current.wiring, "found 'wiring'")
    refused(sim, "owner", current.plans[0], "found 'plan'")
    unknown = Signed(kind="wish", hotkey=hotkey("ann"), body="{}", signature="")
    with pytest.raises(RefusedError, match="found 'wish'"):
        admit(sim.state, unknown, sim.door())


def test_a_malformed_body_is_refused(sim: Simulation) -> None:
    good = make_signed(join(sim), signer("ann"))
    for body in ("{}", good.body + " ", good.body.replace('"root":""', '"root":"","more":1'), "nonsense"):
        with pytest.raises(MessageError, match="expected (a Join|the canonical bytes)"):
            admit(sim.state, replace(good, body=body), sim.door())


def test_a_message_of_another_run_is_refused(sim: Simulation) -> None:
    other = replace(join(sim), run_id="0" * 64)
    refused(sim, "ann", other, f"expected a join of run {sim.run.run_id[:12]}, found 000000000000; join this run")


def test_an_unregistered_author_is_refused(sim: Simulation) -> None:
    refused(sim, "nobody", join(sim, "nobody"), "expected a hotkey registered on subnet 1, found .*; register it")


@pytest.mark.parametrize(("off_ms", "said"), [(-MAX_AGE_MS - 1, "-600.0 s"), (MAX_AHEAD_MS + 1, r"\+5.0 s")])
def test_a_message_out_of_time_is_refused(sim: Simulation, off_ms: int, said: str) -> None:
    message = join(sim, time_ms=sim.now_ms + off_ms)
    refused(sim, "ann", message, f"expected a time within 600 s before now, found {said}; set the clock")


@pytest.mark.parametrize("off_ms", [-MAX_AGE_MS, 0, MAX_AHEAD_MS])
def test_a_message_in_time_is_taken(sim: Simulation, off_ms: int) -> None:
    sim.say("ann", join(sim, time_ms=sim.now_ms + off_ms))


def test_nobody_speaks_for_another(sim: Simulation) -> None:
    """Every message that names its author is refused from anybody else."""
    segment = sim.segments("ann")[0]
    spoken: list[Message] = [
        join(sim),
        sim.of(Leave, hotkey=hotkey("ann"), time_ms=sim.now_ms),
        sim.rollback_receipt("ann"),
        sim.merged("ann", 0, round_number=1),
        sim.seen("validator-0"),
        sim.verdict("validator-0", segment, draw=sim.some_draw()),
    ]
    for message in spoken:
        refused(sim, "ben", message, "expected a message signed by its author")


def test_the_orchestrator_does_not_mine(sim: Simulation) -> None:
    refused(sim, "owner", join(sim, "owner"), "expected a miner, found the orchestrator's own hotkey")


def test_a_negative_memory_is_refused(sim: Simulation) -> None:
    refused(sim, "ann", join(sim, memory_bytes=-1), "expected a memory size, found -1")


def test_who_never_joined_cannot_leave(sim: Simulation) -> None:
    sim.seat("eva")
    leave = sim.of(Leave, hotkey=hotkey("eva"), time_ms=sim.now_ms)
    refused(sim, "eva", leave, "expected a member to leave, found .*, who never joined")


def test_a_merge_is_of_a_closed_set_of_one_s_own_stage_and_said_once(sim: Simulation) -> None:
    stage = sim.state.members[hotkey("ann")].stage or 0
    refused(sim, "ann", sim.merged("ann", stage), f"expected a merge of a closed set, found round 1 stage {stage}")
    refused(sim, "owner", sim.merged("owner", 0), "expected a merge of a closed set")
    first = sim.merged("owner", 0, round_number=0)
    refused(sim, "owner", replace(first, stage=2), "expected a stage below 2, found 2")
    refused(sim, "owner", replace(first, stage=-1), "expected a stage below 2, found -1")
    refused(sim, "ann", sim.merged("ann", stage, round_number=0), "expected a merge of a closed set")
    refused(
        sim, "owner", sim.merged("owner", 0, round_number=0), "expected one merge report for round 0, found a second"
    )
    while sim.state.phase != "merge":
        {"train": sim.do_step, "close": sim.do_close}[sim.state.phase]()
    refused(sim, "ann", sim.merged("ann", 1 - stage), f"expected a replica of stage {1 - stage}")
    refused(sim, "validator-0", sim.merged("validator-0", 0), "expected a replica of stage 0")
    sim.say("ann", sim.merged("ann", stage))
    refused(
        sim, "ann", sim.merged("ann", stage, root="1" * 64), "expected one merge report for round 1, found a second"
    )


def test_only_a_validator_countersigns(sim: Simulation) -> None:
    refused(sim, "ann", sim.seen("ann"), "expected a hotkey with a validator permit, found .* without")


SEEN: list[tuple[str, Callable[[Simulation], dict[str, object]], str]] = [
    ("no event", lambda sim: {"count": 0, "root": GENESIS}, "expected a head of this ledger, found 0 events"),
    ("too many", lambda sim: {"count": sim.state.count + 1}, "expected a head of this ledger"),
    ("another root", lambda sim: {"root": "0" * 64}, "expected a head of this ledger, found .* under 000000000000"),
    ("a root of another count", lambda sim: {"count": sim.state.count - 1}, "expected a head of this ledger"),
    (
        "a block too old",
        lambda sim: {"block": sim.block - SEEN_SLACK_BLOCKS - 1},
        "expected a head seen at about block",
    ),
    ("a block ahead", lambda sim: {"block": sim.block + SEEN_SLACK_BLOCKS + 1}, "expected a head seen at about block"),
]


@pytest.mark.parametrize(("changes", "sentence"), [case[1:] for case in SEEN], ids=[case[0] for case in SEEN])
def test_a_head_that_is_none_is_not_countersigned(
    sim: Simulation, changes: Callable[[Simulation], dict[str, object]], sentence: str
) -> None:
    refused(sim, "validator-0", sim.seen("validator-0", **changes(sim)), sentence)


def test_heads_are_countersigned_in_order(sim: Simulation) -> None:
    """Neither an earlier block nor a shorter log after a longer one: a draw's windows never overlap."""
    old: Seen = sim.seen("validator-0")
    sim.say("validator-0", sim.seen("validator-0"))
    sim.pass_time(2000)
    sim.say("validator-0", sim.seen("validator-0"))
    refused(sim, "validator-0", replace(old, block=sim.block), "expected heads in order")
    refused(sim, "validator-0", sim.seen("validator-0", block=sim.block - 1), "expected heads in order, one a block")


def test_a_block_has_one_head_of_a_validator(sim: Simulation) -> None:
    """Each countersignature is an event, and so a new head: without this rule one block would hold them without end."""
    sim.say("validator-0", sim.seen("validator-0"))
    refused(sim, "validator-0", sim.seen("validator-0"), "expected heads in order, one a block")
    sim.pass_time(1000)
    sim.say("validator-0", sim.seen("validator-0"))


def verdict(sim: Simulation, **changes: object) -> Verdict:
    return replace(sim.verdict("validator-0", sim.segments("ann")[0], draw=sim.some_draw()), **changes)


def test_only_a_validator_judges(sim: Simulation) -> None:
    message = verdict(sim, validator=hotkey("ben"))
    refused(sim, "ben", message, "expected a hotkey with a validator permit")


VERDICTS: list[tuple[dict[str, object], str]] = [
    ({"segment": "0" * 64}, "expected a verdict on a segment of this ledger, found 000000000000"),
    ({"hotkey": hotkey("ben")}, "expected a verdict on a segment of this ledger"),
    ({"stage": 7}, "expected a verdict on a segment of this ledger"),
    ({"round": 7}, "expected a verdict on a segment of this ledger"),
    ({"verdict": "maybe"}, "expected the verdict pass, fail or void, found 'maybe'"),
    ({"distance": -1.0}, "expected finite distances"),
    ({"tolerance": -1.0}, "expected finite distances"),
    ({"checks": (Check(name="loss", distance=-0.5, tolerance=1.0),)}, "expected finite distances"),
    ({"draw": None}, "expected a draw, or a foreign fail to recheck, found neither"),
]


@pytest.mark.parametrize(("changes", "sentence"), VERDICTS, ids=[str(next(iter(case[0]))) for case in VERDICTS])
def test_a_verdict_that_does_not_hold_together_is_refused(
    sim: Simulation, changes: dict[str, object], sentence: str
) -> None:
    refused(sim, "validator-0", verdict(sim, **changes), sentence)


def test_nobody_judges_within_its_own_coldkey() -> None:
    """`one_identity_never_faces_itself`, in audits."""
    sim = Simulation()
    sim.seat("ann", coldkey="validator-0/coldkey")
    sim.start("ann", "ben", "cem", "dov")
    sim.do_step()
    sim.do_step()
    refused(sim, "validator-0", verdict(sim), "expected a validator of another coldkey than the miner's")
    allowed = Simulation(run=replace(sim.run, allow_same_identity=True))
    allowed.seat("ann", coldkey="validator-0/coldkey")
    allowed.start("ann", "ben", "cem", "dov")
    allowed.do_step()
    allowed.do_step()
    allowed.say("validator-0", verdict(allowed))


def test_a_validator_judges_a_segment_once_unless_it_could_not(sim: Simulation) -> None:
    """A void may be followed by a judgement; a judgement by nothing."""
    sim.say("validator-0", verdict(sim, verdict="void"))
    sim.say("validator-0", verdict(sim, verdict="pass"))
    refused(
        sim, "validator-0", verdict(sim), "expected one verdict of a validator per segment, found a second after pass"
    )


def test_a_foreign_fail_may_be_rechecked_without_a_draw(sim: Simulation) -> None:
    segment: Segment = sim.segments("ann")[0]
    sim.say("validator-0", verdict(sim))
    refused(sim, "validator-0", verdict(sim, draw=None), "found a second after fail")
    sim.say("validator-1", sim.verdict("validator-1", segment, draw=None))
    assert segment.upheld_event is not None


def test_only_the_orchestrator_s_key_publishes_each_merged_round_once_with_a_finite_loss(sim: Simulation) -> None:
    checkpoint = sim.of(Checkpoint, round=0, heldout_loss=5.5, files=(), time_ms=sim.now_ms)
    refused(sim, "ann", checkpoint, "expected the run's publisher")
    refused(sim, "owner", replace(checkpoint, round=1), "expected a round that is merged and unpublished, found 1")
    sim.say("owner", checkpoint)
    refused(sim, "owner", checkpoint, "expected a round that is merged and unpublished, found 0; publish each once")


def test_a_wire_version_of_another_time_is_refused() -> None:
    with pytest.raises(
        MessageError, match=f"expected a leave of wire version {WIRE_VERSION}, found 3; update the older"
    ):
        Leave(version=3, run_id="0" * 64, hotkey="x", time_ms=0)


@pytest.mark.parametrize(
    "address", ["[", "h:x", "127.0.0.1:70000", "a..b", "x" * 65 + ":1", "http://10.0.0.1:80", "h:0"]
)
def test_an_address_that_is_none_is_refused_at_the_door(sim: Simulation, address: str) -> None:
    """A validator or a neighbour will connect to it: it is host and port, or nothing."""
    refused(sim, "ann", join(sim, address=address), "expected an address as host:port, or none")


@pytest.mark.parametrize("change", [{"reason": "A sentence."}, {"evidence": ("x",) * 2}, {"reason": "w" * 33}])
def test_a_verdict_is_short_words_and_digests(sim: Simulation, change: dict[str, object]) -> None:
    """The log is for ever: nobody may fill it with text."""
    verdict = sim.verdict("validator-0", sim.segments("ann")[0], draw=sim.some_draw(), **change)
    refused(sim, "validator-0", verdict, "expected short lower-case words and the digests")


def test_a_verdict_names_at_most_what_its_segment_has(sim: Simulation) -> None:
    """However long a segment is, all that it sent may be named; and nobody fills the log with other digests."""
    segment = sim.segments("ann")[0]
    receipts = [sim.state.receipts[part] for part in segment.receipts]
    sent = [name for receipt in receipts for work in receipt.work for name in (work.output, work.gradient_out) if name]
    most = most_evidence(sim.state, segment)
    assert most >= 4 + len(sent) + len(receipts)
    names = tuple(digest(bytes([number % 256, number // 256])) for number in range(most + 1))
    refused(sim, "validator-0", verdict(sim, evidence=names), "the digests that were compared")
    sim.say("validator-0", verdict(sim, evidence=names[:most]))


def test_void_is_said_a_few_times_of_a_segment_and_no_more(sim: Simulation) -> None:
    """Nobody fills the ledger with what is no judgement; a judgement, and a call to look, are still taken."""
    for _ in range(MOST_VOIDS):
        sim.say("validator-0", verdict(sim, verdict="void", reason="validator-fault"))
        sim.pass_time(1000)
    for reason in ("validator-fault", "neighbour-missing"):
        with pytest.raises(RefusedError, match="times void of a segment"):
            sim.say("validator-0", verdict(sim, verdict="void", reason=reason))
    for _ in range(MOST_VOIDS):
        sim.say("validator-0", verdict(sim, verdict="void", reason="withheld"))
        sim.pass_time(1000)
    for reason in ("withheld", "validator-fault"):
        with pytest.raises(RefusedError, match="times void of a segment"):
            sim.say("validator-0", verdict(sim, verdict="void", reason=reason))
    sim.say("validator-1", verdict(sim, validator=hotkey("validator-1"), verdict="void"))
    sim.say("validator-0", verdict(sim, verdict="pass"))
