"""`badmerge`: returns a wrong reduced pseudo-gradient, larger by 1 + strength, so that its merged state is wrong.

It is a pure function of what is reduced: two miners of one stage with this cheat and strength agree with each other,
which is how it is done with a partner.
"""

from collections.abc import Callable, Sequence

import numpy as np

from subnet.cheats.base import Cheat
from subnet.ledger.events import ClosedSet


class BadMerge(Cheat):
    """Reports a merge that the contributions do not give."""

    default_strength = 0.2

    def reduce(
        self,
        honest: Callable[[ClosedSet, Sequence[np.ndarray]], np.ndarray],
        closed: ClosedSet,
        contributions: Sequence[np.ndarray],
    ) -> np.ndarray:
        """Too large."""
        return honest(closed, contributions) * np.float32(1 + self.strength)
