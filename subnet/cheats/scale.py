"""`scale`: multiplies what it sends to others by 1 + strength: activations and gradients.

The only stage of a one-stage run sends no tensors; there it multiplies its contribution. `scale-update` multiplies the
change of its parameters in each inner step instead.
"""

import numpy as np

from subnet.cheats.poison import Sent, Update


class Scale(Sent):
    """Poisons its neighbours' inputs by a constant factor."""

    default_strength = 0.2

    def spoil(self, values: np.ndarray) -> np.ndarray:
        """Too large."""
        return values * np.float32(1 + self.strength)


class ScaleUpdate(Update):
    """Moves its parameters too far."""

    default_strength = 0.2

    def spoil(self, values: np.ndarray) -> np.ndarray:
        """Too large."""
        return values * np.float32(1 + self.strength)
