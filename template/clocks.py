"""What peers said of this machine's clock: by how much to date the requests to each of them otherwise.

A peer's word counts for requests to that peer alone, so that nobody can spoil what is sent to others. A request that
was held up on its way says nothing of the clock.
"""

import logging

from template.errors import ClockSkew, PeerRefused
from template.values import Hotkey

log = logging.getLogger("template.clocks")

LIMIT_S = 3600.0
"""A clock that is off by more is the user's to set."""

SAY_AGAIN_S = 5.0  # a change of the offset worth another line


class Clocks:
    """The offset of each receiver, in seconds: its clock less ours."""

    def __init__(self) -> None:
        self._offsets_s: dict[Hotkey, float] = {}

    def offset_s(self, receiver: Hotkey) -> float:
        """What to add to our time in a request to this receiver."""
        return self._offsets_s.get(receiver, 0.0)

    def noted(self, refused: PeerRefused, receiver: Hotkey | None, *, elapsed_s: float) -> PeerRefused:
        """The refusal; where it is of our clock, the next request to this receiver is dated by the receiver's."""
        if receiver is None or not isinstance(refused, ClockSkew):
            return refused
        before, held_up = self.offset_s(receiver), refused.delta_s < 0 and elapsed_s > -refused.delta_s / 2
        offset_s = before - refused.delta_s
        if held_up or abs(offset_s) > LIMIT_S:
            return refused
        self._offsets_s[receiver] = offset_s
        if abs(offset_s - before) > SAY_AGAIN_S:
            log.warning(
                "clock=%.1f s %s receiver=%s; requests to it are dated by its clock: set this machine's "
                "(timedatectl set-ntp true)",
                abs(offset_s), "behind" if offset_s > 0 else "ahead", receiver,
            )  # fmt: skip
        return refused
