"""Codecs of tensors on the wire: lossy functions with a stated bound, applied identically by miner and auditor.

`none` is float32 as it is. `bf16` keeps the upper 16 bits, rounded to the nearest, ties to even; a value that would
round to infinity becomes the largest finite one. Little-endian, row-major, without padding. Done in numpy on the bits,
so that every machine gives the same bytes. Knows nothing of frames.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from jaxtyping import Float32

from subnet.config import CODECS
from subnet.errors import ConfigError, FrameError, InputError

ELEMENT_BYTES = {"none": 4, "bf16": 2}
BOUNDS = {"none": 0.0, "bf16": 2.0**-8}
SMALLEST_NORMAL = 2.0**-126
LARGEST_BF16 = 0x7F7F
INFINITE_BF16 = 0x7F80


def _known(codec: str) -> str:
    if codec not in CODECS:
        raise ConfigError(f"expected a wire codec of {', '.join(CODECS)}, found {codec!r}; choose one of these")
    return codec


def bound(codec: str) -> float:
    """The largest relative error of any element of magnitude SMALLEST_NORMAL or more.

    Smaller elements err by at most this much times SMALLEST_NORMAL.
    """
    return BOUNDS[_known(codec)]


def encoded_bytes(codec: str, shape: Sequence[int]) -> int:
    """How many bytes a tensor of this shape has in this codec."""
    return math.prod(shape) * ELEMENT_BYTES[_known(codec)]


def encode(codec: str, x: Float32[np.ndarray, "..."]) -> bytes:
    """The bytes of a float32 tensor. Raises InputError when a value is not finite."""
    _known(codec)
    if not np.isfinite(x).all():
        raise InputError(f"expected finite values, found {int((~np.isfinite(x)).sum())} that are not; drop the tensor")
    little = np.ascontiguousarray(x, dtype="<f4")
    if codec == "none":
        return little.tobytes()
    bits = little.view("<u4")
    kept = (bits >> 16).astype("<u2")
    discarded = bits & np.uint32(0xFFFF)
    tie_goes_up = (discarded == 0x8000) & ((kept & 1) == 1)
    rounded = kept + ((discarded > 0x8000) | tie_goes_up).astype("<u2")
    overflowed = (rounded & 0x7FFF) == INFINITE_BF16
    finite: npt.NDArray[np.uint16] = np.where(overflowed, (rounded & 0x8000) | LARGEST_BF16, rounded)
    return finite.astype("<u2").tobytes()


def decode(codec: str, data: bytes | bytearray | memoryview, shape: Sequence[int]) -> Float32[np.ndarray, "..."]:
    """The float32 tensor of these bytes, in memory of its own.

    Raises FrameError when the bytes are not as many as the shape needs, InputError when a value is not finite.
    """
    expected, found = encoded_bytes(codec, shape), memoryview(data).nbytes
    if found != expected:
        raise FrameError(f"expected {expected} bytes for shape {tuple(shape)} in {codec}, found {found}; send it again")
    if codec == "none":
        x = np.frombuffer(data, dtype="<f4").astype(np.float32)
    else:
        x = (np.frombuffer(data, dtype="<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    if not np.isfinite(x).all():
        raise InputError(
            f"expected finite values, found {int((~np.isfinite(x)).sum())} that are not; refuse the sender"
        )
    return x.reshape(tuple(shape))
