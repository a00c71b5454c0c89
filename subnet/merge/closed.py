"""Which contributions a stage's merge uses: the closed set, as digests, integer weights and clip factors.

In it is what was committed in time, has work behind it, and could be read by everyone who reduces or audits. One
hotkey has one contribution, its first; one digest belongs to the hotkey that committed it first. The order is by
digest, so nobody's arrival time moves a bit of the result. Knows nothing of the ledger: it is handed commitments.
"""

from collections.abc import Iterable, Set

import msgspec

from subnet.merge.reduce import clip_factors


class Commitment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a replica said about its contribution before anyone could read it, and where the ledger has that."""

    hotkey: str
    digest: str
    tokens: int  # trained in the round by this replica
    norm: float  # L2 norm of the pseudo-gradient, by `subnet.merge.contribution.norm`
    position: int  # of the commitment in the ledger


class ClosedSet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contributions of one stage's merge; the four tuples run in parallel, by ascending digest."""

    hotkeys: tuple[str, ...]
    digests: tuple[str, ...]
    weights: tuple[int, ...]  # tokens
    factors: tuple[int, ...]  # in units of 1 / FACTOR_ONE

    @property
    def is_empty(self) -> bool:
        """Whether the stage keeps its parameters because nobody contributed."""
        return not self.digests


def in_time(commitments: Iterable[Commitment], last_position: int) -> list[Commitment]:
    """The commitments up to this ledger position that count: with work, one per hotkey, one per digest, first wins."""
    kept: list[Commitment] = []
    hotkeys: set[str] = set()
    digests: set[str] = set()
    for commitment in sorted(commitments, key=lambda item: item.position):
        late = commitment.position > last_position
        if late or commitment.tokens < 1 or commitment.hotkey in hotkeys:
            continue
        hotkeys.add(commitment.hotkey)
        if commitment.digest in digests:
            continue
        digests.add(commitment.digest)
        kept.append(commitment)
    return kept


def close_set(commitments: Iterable[Commitment], *, last_position: int, readable: Set[str]) -> ClosedSet:
    """The closed set of a stage; `readable` are the digests that every reducer and auditor could read and verify."""
    usable = [item for item in in_time(commitments, last_position) if item.digest in readable]
    chosen = sorted(usable, key=lambda item: item.digest)
    return ClosedSet(
        hotkeys=tuple(item.hotkey for item in chosen),
        digests=tuple(item.digest for item in chosen),
        weights=tuple(item.tokens for item in chosen),
        factors=clip_factors([item.norm for item in chosen]),
    )


def check_closed_set(
    claimed: ClosedSet, commitments: Iterable[Commitment], *, last_position: int, readable: Set[str]
) -> bool:
    """Whether the claimed set is the one that these commitments give."""
    return claimed == close_set(commitments, last_position=last_position, readable=readable)
