"""Canaries: committed before, revealed after, never paid, never merged; and what they say of each validator."""

import pytest
from msgspec.structs import replace

from subnet.canonical import canonical
from subnet.errors import LedgerError
from subnet.incentive.score import books
from subnet.ledger.canary import CANARY, check_consent, commitment_of, consent_of, measured_of
from subnet.ledger.events import Planted, Revealed
from subnet.ledger.fold import fold
from subnet.ledger.state import state_digest
from subnet.scheduler.tick import closed_set
from subnet.wire.messages import signing_bytes
from template.fake.keys import FakeVerifier
from tests.ledger.log import hotkey, signer
from tests.ledger.simulation import Simulation

SALT = "5a" * 32


def planted(*, before: bool = True) -> Simulation:
    """Ann is the canary; each validator judged one of its segments: one failed it, one passed it."""
    sim = Simulation()
    commitment = Planted(commitment=commitment_of(hotkey("ann"), "stale", 1.0, salt=SALT))
    if before:
        sim.append([commitment])
    sim.start("ann", "ben", "cem", "dov")
    while not sim.segments("ann"):
        sim.do_step()
    segment = sim.segments("ann")[0]
    sim.say("validator-0", sim.verdict("validator-0", segment, "fail", draw=sim.some_draw()))
    sim.say("validator-1", sim.verdict("validator-1", segment, "pass", draw=sim.some_draw()))
    if not before:
        sim.append([commitment])
    return sim


def revealed(**changes: object) -> Revealed:
    said = {"hotkey": hotkey("ann"), "cheat": "stale", "strength": 1.0, "salt": SALT}
    return agreed(Revealed(**(said | changes)), "ann")  # type: ignore[arg-type]


def agreed(body: Revealed, author: str, *, run_id: str = "") -> Revealed:
    """The reveal with this hotkey's consent."""
    said = canonical(consent_of(run_id or Simulation().run.run_id, body))
    return replace(body, consent=signer(author).sign(signing_bytes("consent", said)).hex())


def test_the_reveal_counts_what_each_validator_found() -> None:
    sim = planted()
    sim.append([revealed()])
    canary = sim.state.canaries[hotkey("ann")]
    assert (canary.cheat, canary.segments) == ("stale", 1)
    first, second = (measured_of(sim.state, hotkey(f"validator-{number}")) for number in (0, 1))
    assert (first.drawn, first.caught, first.missed) == (1, 1, 0)
    assert (second.drawn, second.caught, second.missed) == (1, 0, 1)
    assert state_digest(fold(sim.events)) == state_digest(sim.state)


def test_a_canary_is_never_paid_and_never_merged() -> None:
    sim = planted()
    sim.append([revealed()])
    assert {segment.forfeit for segment in sim.segments("ann")} == {CANARY}
    book = books(sim.state, now_ms=sim.now_ms + 10**9, own=None)
    assert book[hotkey("ann")].payable == book[hotkey("ann")].score == 0 < book[hotkey("ben")].score
    while sim.state.phase == "train":
        sim.do_step()
    stage = sim.state.members[hotkey("ann")].stage or 0
    for name in sim.members():
        if sim.state.phase == "close" and sim.trained(name):
            sim.say(name, sim.close_receipt(name))
    stored = frozenset(receipt.contribution for receipt in sim.state.closes[0].values())
    if sim.state.phase == "close":
        assert hotkey("ann") not in {
            entry.hotkey for entry in closed_set(sim.state, stage, stored=stored).contributions
        }


def test_segments_from_before_the_commitment_do_not_count() -> None:
    sim = planted(before=False)
    sim.append([revealed()])
    assert sim.state.canaries[hotkey("ann")].segments == 0
    assert measured_of(sim.state, hotkey("validator-1")).missed == 0


@pytest.mark.parametrize("changes", [{"cheat": "scale"}, {"strength": 0.5}, {"salt": "00"}, {"hotkey": hotkey("ben")}])
def test_nobody_is_called_a_canary_after_the_fact(changes: dict[str, object]) -> None:
    """Another hotkey, cheat, strength or salt is not what was committed to."""
    sim = planted()
    with pytest.raises(LedgerError, match="calls work bad after the fact"):
        sim.append([revealed(**changes)])


def test_nobody_is_a_canary_without_its_own_consent() -> None:
    """The orchestrator alone could plant a canary on an honest miner and take its pay: no word, or another's."""
    sim = planted()
    with pytest.raises(LedgerError, match="to be called a canary, found none"):
        sim.append([replace(revealed(), consent="")])
    verifier = FakeVerifier(hotkey("validator-0"))
    check_consent(sim.state, revealed(), verifier)
    for lie in (
        agreed(revealed(), "owner"),
        agreed(revealed(), "ann", run_id="0" * 64),
        replace(revealed(strength=0.5), consent=revealed().consent),
        replace(revealed(), consent="no hex"),
    ):
        with pytest.raises(LedgerError, match="a miner's work bad that is not its own"):
            check_consent(sim.state, lie, verifier)
