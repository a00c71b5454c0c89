"""The outer step: Nesterov momentum on the reduced pseudo-gradient (DiLoCo, arXiv 2311.08105).

The same as `torch.optim.SGD(nesterov=True)`: buffer = momentum * buffer + gradient;
parameters -= lr * (gradient + momentum * buffer). Separate float32 operations in numpy, so every replica gets the same
bits. Knows nothing of who took part.
"""

import numpy as np
from jaxtyping import Float32

from subnet.config import OuterConfig
from subnet.errors import InputError

Flat = Float32[np.ndarray, " parameters"]


def outer_step(parameters: Flat, momentum: Flat, gradient: Flat, outer: OuterConfig) -> tuple[Flat, Flat]:
    """The next parameters and the next momentum buffer; the first buffer is zeros. The arguments stay as they are.

    All three are of one size. Raises InputError when the result is not finite.
    """
    mu, lr = np.float32(outer.momentum), np.float32(outer.lr)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        next_momentum = np.add(np.multiply(momentum, mu), gradient)
        direction = np.add(np.multiply(next_momentum, mu), gradient)
        next_parameters = np.subtract(parameters, np.multiply(direction, lr))
    if not (np.isfinite(next_parameters).all() and np.isfinite(next_momentum).all()):
        raise InputError("expected a finite outer step, found values that are not; check the reduced pseudo-gradient")
    return next_parameters, next_momentum
