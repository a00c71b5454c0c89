"""Which contributions a stage's merge uses: the closed set, as digests, integer weights and clip factors.

In it is what was committed in time, has work behind it, and could be read by everyone who reduces or audits. One
hotkey has one contribution, its first; one digest belongs to the hotkey that committed it first. The order is by
digest, so nobody's arrival time moves a bit of the result. Knows nothing of the ledger: it is handed the offers.
"""

from collections.abc import Iterable, Sequence, Set

import msgspec

from subnet.merge.reduce import clip_factors


class Offer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a replica said about its contribution before anyone could read it, and where the ledger has that."""

    hotkey: str
    digest: str
    tokens: int  # trained in the round by this replica
    norm: float  # L2 norm of the pseudo-gradient, by `subnet.merge.contribution.norm`
    position: int  # of the commitment in the ledger


class Share(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One contribution of a closed set: its weight in tokens, its clip factor in [0, 1]."""

    hotkey: str
    digest: str
    tokens: int
    factor: float


def in_time(offers: Iterable[Offer], last_position: int) -> list[Offer]:
    """The offers up to this ledger position that count: with work, one per hotkey, one per digest; the first wins."""
    kept: list[Offer] = []
    hotkeys: set[str] = set()
    digests: set[str] = set()
    for offer in sorted(offers, key=lambda offer: offer.position):
        if offer.position > last_position or offer.tokens < 1 or offer.hotkey in hotkeys:
            continue
        hotkeys.add(offer.hotkey)
        if offer.digest not in digests:
            digests.add(offer.digest)
            kept.append(offer)
    return kept


def close_set(offers: Iterable[Offer], *, last_position: int, readable: Set[str]) -> tuple[Share, ...]:
    """The closed set of a stage, by ascending digest; empty when the stage keeps its parameters.

    `readable` are the digests that every reducer and auditor could read and verify.
    """
    usable = [offer for offer in in_time(offers, last_position) if offer.digest in readable]
    chosen = sorted(usable, key=lambda offer: offer.digest)
    factors = clip_factors([offer.norm for offer in chosen], [offer.tokens for offer in chosen])
    return tuple(
        Share(hotkey=offer.hotkey, digest=offer.digest, tokens=offer.tokens, factor=factor)
        for offer, factor in zip(chosen, factors, strict=True)
    )


def check_closed_set(
    claimed: Sequence[Share], offers: Iterable[Offer], *, last_position: int, readable: Set[str]
) -> bool:
    """Whether the claimed set is the one that these offers give."""
    return tuple(claimed) == close_set(offers, last_position=last_position, readable=readable)
