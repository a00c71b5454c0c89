"""Accusations: what became of each validator's fails, and how each validator's word has stood so far.

A pure reading of the fold, so that a false accusation is visible to everybody under its author's name. Nothing here
moves pay: a fail acts once it is upheld (`RunState.stands`), and a `pass` is never imported.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from subnet.ledger.state import NEIGHBOUR_MISSING, RunState, Segment
from subnet.wire.delivery import inbound
from subnet.wire.messages import Receipt

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


def not_shown(segment: Segment) -> frozenset[str]:
    """The frames of this segment that validators did not get from the neighbours who received them."""
    said = (verdict for verdict in segment.verdicts.values() if verdict.reason == NEIGHBOUR_MISSING)
    return frozenset(name for verdict in said for name in verdict.evidence)


def hiders(state: RunState, segment: Segment) -> tuple[str, ...]:
    """The segments whose receipts say that they received what was not shown of this one: it is their own evidence, and
    they have to show it at an audit of theirs."""
    missed = not_shown(segment)
    if not missed:
        return ()
    beside = _beside(state, segment)
    found = (other.id for other, _, theirs in beside if missed & {name for _, name in inbound(theirs)})
    return tuple(dict.fromkeys(found))


def is_called(state: RunState, segment: Segment) -> bool:
    """Whether validators may look at a segment undrawn: at a neighbour's audit it did not show what it received."""
    return any(not_shown(other) & {name for _, name in inbound(own)} for other, own, _ in _beside(state, segment))


def _beside(state: RunState, segment: Segment) -> Iterator[tuple[Segment, Receipt, Receipt]]:
    """The neighbours' segments that have a step of this one too, with this one's receipt of the step and theirs."""
    for plan in dict.fromkeys(segment.plans):
        said = {state.receipts[name].stage: state.receipts[name] for name in state.of_plan.get(plan, ())}
        own = said.get(segment.stage)
        for theirs in (said.get(segment.stage - 1), said.get(segment.stage + 1)):
            other = _segment_of(state, theirs) if theirs is not None else None
            if own is not None and theirs is not None and other is not None:
                yield other, own, theirs


def _segment_of(state: RunState, step: Receipt) -> Segment | None:
    """The segment that has this step; None while it is not ended, and for a step that was rolled back."""
    for segment in (state.segments[name] for name in reversed(state.chains.get(step.hotkey, ()))):
        if step.plan in segment.plans or segment.round < step.round:
            return segment if step.plan in segment.plans else None
    return None
