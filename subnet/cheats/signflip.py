"""`signflip`: turns the sign of some of the numbers that it sends: activations and gradients.

Strength: the part of the numbers, chosen anew in each tensor; at least one. A hundredth of them makes a
distance of about a fifth. The only stage of a run turns signs in its contribution; `signflip-update` does it to the
change of its parameters in each inner step.
"""

import numpy as np

from subnet.cheats.poison import Poison, Sent, Update


def flipped(cheat: Poison, values: np.ndarray) -> np.ndarray:
    """The values with some signs turned, at least one."""
    turned = cheat.generator.random(values.shape) < cheat.strength
    turned.flat[cheat.generator.integers(turned.size)] = True
    return np.where(turned, -values, values).astype(np.float32)


class SignFlip(Sent):
    """Poisons its neighbours' inputs with turned signs."""

    def spoil(self, values: np.ndarray) -> np.ndarray:
        """Some signs turned."""
        return flipped(self, values)


class SignFlipUpdate(Update):
    """Moves some of its parameters the other way."""

    def spoil(self, values: np.ndarray) -> np.ndarray:
        """Some signs turned."""
        return flipped(self, values)
