"""`noise`: adds normal noise to what it sends to others: activations and gradients.

Strength: the noise's part of the signal, root mean square against root mean square. The only stage of a run adds it to
its contribution; `noise-update` adds it to the change of its parameters in each inner step.
"""

import numpy as np

from subnet.cheats.poison import Poison, Sent, Update


def noisy(cheat: Poison, values: np.ndarray) -> np.ndarray:
    """The values with noise of the cheat's strength."""
    size = float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))
    noise = cheat.generator.standard_normal(values.shape) * (cheat.strength * size)
    return (values + noise).astype(np.float32)


class Noise(Sent):
    """Poisons its neighbours' inputs with noise."""

    default_strength = 0.1

    def spoil(self, values: np.ndarray) -> np.ndarray:
        """Noisy."""
        return noisy(self, values)


class NoiseUpdate(Update):
    """Shakes its parameters."""

    default_strength = 0.1

    def spoil(self, values: np.ndarray) -> np.ndarray:
        """Noisy."""
        return noisy(self, values)
