"""Accusations: what became of each validator's fails, and how each validator's word has stood so far.

A pure reading of the fold, so that a false accusation is visible to everybody under its author's name. Nothing here
moves pay: a fail acts once it is upheld (`RunState.stands`), and a `pass` is never imported.
"""

from collections import Counter
from dataclasses import dataclass

from subnet.ledger.state import RunState, Segment

UPHELD, FALSE, DISPUTED, OPEN = "upheld", "false", "disputed", "open"


@dataclass(frozen=True, kw_only=True)
class Accusation:
    """One fail and what others found: `outcome` is "upheld", "false", "disputed" or "open"."""

    segment: str
    hotkey: str
    validator: str
    reason: str
    outcome: str


@dataclass(frozen=True, kw_only=True)
class ValidatorRecord:
    """How many segments a validator passed, failed and left void, and what became of its fails.

    missed: segments that it passed, of which a fail was upheld.
    """

    validator: str
    passed: int = 0
    failed: int = 0
    void: int = 0
    upheld: int = 0
    false: int = 0
    missed: int = 0


def accusations(state: RunState) -> tuple[Accusation, ...]:
    """Every standing fail in the ledger, in the order of its segment."""
    return tuple(
        Accusation(
            segment=segment.id,
            hotkey=segment.hotkey,
            validator=validator,
            reason=verdict.reason,
            outcome=outcome(state, segment),
        )
        for segment in state.segments.values()
        for validator, verdict in segment.verdicts.items()
        if verdict.verdict == "fail"
    )


def outcome(state: RunState, segment: Segment) -> str:
    """What became of the fails of a segment.

    "false": not upheld, and by their replays more stake, of at least two identities that did not accuse, says pass.
    "disputed": somebody passed it, but that is one word against another.
    """
    if state.upheld(segment):
        return UPHELD
    stakes = state.validators()
    accusers = _identities(state, segment, "fail")
    passers = _identities(state, segment, "pass") - accusers
    if not passers:
        return OPEN
    against, stands = (_stake(state, stakes, group) for group in (passers, accusers))
    return FALSE if len(passers) > len(accusers) and against > stands else DISPUTED


def _identities(state: RunState, segment: Segment, verdict: str) -> set[str]:
    return {state.coldkey(said.validator) for said in segment.verdicts.values() if said.verdict == verdict}


def _stake(state: RunState, stakes: dict[str, int], identities: set[str]) -> int:
    return sum(stake for hotkey, stake in stakes.items() if state.coldkey(hotkey) in identities)


def records(state: RunState) -> dict[str, ValidatorRecord]:
    """The record of every validator that has a permit or said something, by hotkey."""
    counts: dict[str, Counter[str]] = {hotkey: Counter() for hotkey in state.validators()}
    for segment in state.segments.values():
        ended = outcome(state, segment)
        for validator, verdict in segment.verdicts.items():
            count = counts.setdefault(validator, Counter())
            count[verdict.verdict] += 1
            count[ended] += verdict.verdict == "fail"
            count["missed"] += verdict.verdict == "pass" and ended == UPHELD
    return {
        hotkey: ValidatorRecord(
            validator=hotkey,
            passed=count["pass"],
            failed=count["fail"],
            void=count["void"],
            upheld=count[UPHELD],
            false=count[FALSE],
            missed=count["missed"],
        )
        for hotkey, count in counts.items()
    }


def refusal_seen_by_two(state: RunState, segment: Segment, validator: str) -> bool:
    """Whether another identity has found this segment's evidence withheld too, or there is no other that may judge."""
    own = state.coldkey(validator)
    identities = {state.coldkey(hotkey) for hotkey in state.validators()}
    if not state.config.allow_same_identity:
        identities.discard(state.coldkey(segment.hotkey))
    others = {state.coldkey(who) for who, said in segment.verdicts.items() if said.reason == "withheld"}
    return len(identities) < 2 or bool(others - {own})
