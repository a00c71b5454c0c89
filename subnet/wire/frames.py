"""The binary frame that carries one tensor from miner to miner: a small typed header and raw bytes.

Version 1, little-endian, no padding:

    offset  size  field
    0       4     magic, "STRA"
    4       1     version, 1
    5       1     kind: 1 activation, 2 gradient
    6       1     codec: 0 none, 1 bf16
    7       1     dtype of the tensor before it was encoded: 1 float32, 2 bfloat16
    8       32    run id
    40      4     round
    44      4     step
    48      8     microbatch
    56      1     number of dimensions n, 1 to 8
    57      4n    dimensions, each at least 1
    57+4n   8     payload length in bytes
    65+4n         payload

The payload's length must be what shape and codec say. Everything is checked before anything is allocated; the payload
is handed out as a view. Knows nothing of who sends it, nor of values inside the payload.
"""

import math
import struct
from dataclasses import dataclass

from subnet.errors import FrameError
from subnet.wire.codec import ELEMENT_BYTES

MAGIC = b"STRA"
VERSION = 1
KINDS = {"activation": 1, "gradient": 2}
FRAME_CODECS = {"none": 0, "bf16": 1}
DTYPES = {"float32": 1, "bfloat16": 2}
DTYPE_BYTES = {"float32": 4, "bfloat16": 2}
MAX_DIMENSIONS = 8

_HEAD = struct.Struct("<4sBBBB32sIIQB")
_LENGTH = struct.Struct("<Q")
_LIMITS = {"round": 1 << 32, "step": 1 << 32, "microbatch": 1 << 64}
_HEX = frozenset("0123456789abcdef")


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise FrameError(sentence)


@dataclass(frozen=True, kw_only=True)
class FrameHeader:
    """What a frame says about its tensor. Raises FrameError for values that cannot be written."""

    run_id: str  # 64 lower-case hex digits
    round: int
    step: int
    microbatch: int
    kind: str
    codec: str
    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        for name, allowed in (("kind", KINDS), ("codec", FRAME_CODECS), ("dtype", DTYPES)):
            value = getattr(self, name)
            _require(value in allowed, f"expected a frame {name} of {', '.join(allowed)}, found {value!r}; use one")
        for name, limit in _LIMITS.items():
            value = getattr(self, name)
            _require(0 <= value < limit, f"expected a frame {name} from 0 to {limit - 1}, found {value}; correct it")
        _require(
            len(self.run_id) == 64 and _HEX.issuperset(self.run_id),
            f"expected a run id of 64 lower-case hex digits, found {self.run_id!r}; use the run's own",
        )
        _require(
            1 <= len(self.shape) <= MAX_DIMENSIONS,
            f"expected 1 to {MAX_DIMENSIONS} dimensions, found {len(self.shape)}; reshape the tensor",
        )
        _require(
            all(1 <= size < 1 << 32 for size in self.shape),
            f"expected dimensions from 1 to {(1 << 32) - 1}, found {self.shape}; reshape the tensor",
        )

    @property
    def payload_bytes(self) -> int:
        """How many bytes the payload must have."""
        element_bytes = DTYPE_BYTES[self.dtype] if self.codec == "none" else ELEMENT_BYTES[self.codec]
        return math.prod(self.shape) * element_bytes


def header_bytes(num_dimensions: int) -> int:
    """How many bytes a frame has before its payload."""
    return _HEAD.size + 4 * num_dimensions + _LENGTH.size


def encode_frame(header: FrameHeader, payload: bytes | bytearray | memoryview) -> bytes:
    """The frame's bytes. Raises FrameError when the payload is not as long as the header says."""
    found = memoryview(payload).nbytes
    _require(
        found == header.payload_bytes,
        f"expected a payload of {header.payload_bytes} bytes for shape {header.shape} in {header.codec}, "
        f"found {found}; encode the tensor first",
    )
    head = _HEAD.pack(
        MAGIC,
        VERSION,
        KINDS[header.kind],
        FRAME_CODECS[header.codec],
        DTYPES[header.dtype],
        bytes.fromhex(header.run_id),
        header.round,
        header.step,
        header.microbatch,
        len(header.shape),
    )
    dimensions = struct.pack(f"<{len(header.shape)}I", *header.shape)
    return b"".join((head, dimensions, _LENGTH.pack(found), payload))


def _name_of(code: int, names: dict[str, int], field: str) -> str:
    for name, value in names.items():
        if value == code:
            return name
    raise FrameError(f"expected a frame {field} of {sorted(names.values())}, found {code}; update the older side")


def _header(view: memoryview) -> tuple[FrameHeader, int]:
    """The header and the payload length it claims."""
    _require(len(view) >= _HEAD.size, f"expected a frame of at least {_HEAD.size} bytes, found {len(view)}; send all")
    magic, version, kind, codec, dtype, run_id, round_, step, microbatch, num_dimensions = _HEAD.unpack_from(view)
    _require(magic == MAGIC, f"expected a frame that starts with {MAGIC!r}, found {magic!r}; send frames here only")
    _require(version == VERSION, f"expected frame version {VERSION}, found {version}; update the older side")
    _require(
        1 <= num_dimensions <= MAX_DIMENSIONS,
        f"expected 1 to {MAX_DIMENSIONS} dimensions, found {num_dimensions}; reshape the tensor",
    )
    size = header_bytes(num_dimensions)
    _require(len(view) >= size, f"expected a frame header of {size} bytes, found {len(view)}; send all of it")
    header = FrameHeader(
        run_id=run_id.hex(),
        round=round_,
        step=step,
        microbatch=microbatch,
        kind=_name_of(kind, KINDS, "kind"),
        codec=_name_of(codec, FRAME_CODECS, "codec"),
        dtype=_name_of(dtype, DTYPES, "dtype"),
        shape=struct.unpack_from(f"<{num_dimensions}I", view, _HEAD.size),
    )
    (claimed_bytes,) = _LENGTH.unpack_from(view, size - _LENGTH.size)
    return header, claimed_bytes


def decode_frame(data: bytes | bytearray | memoryview, *, limit_bytes: int) -> tuple[FrameHeader, memoryview]:
    """The header, and a view of the payload in `data`. Raises FrameError; `limit_bytes` is of the whole frame."""
    view = memoryview(data).cast("B").toreadonly()
    _require(
        len(view) <= limit_bytes,
        f"expected a frame of at most {limit_bytes} bytes, found {len(view)}; send only what was planned",
    )
    header, claimed_bytes = _header(view)
    _require(
        claimed_bytes == header.payload_bytes,
        f"expected a payload of {header.payload_bytes} bytes for shape {header.shape} in {header.codec}, "
        f"found a claim of {claimed_bytes}; correct the header",
    )
    payload = view[header_bytes(len(header.shape)) :]
    _require(
        len(payload) == claimed_bytes,
        f"expected {claimed_bytes} bytes after the header, found {len(payload)}; send the frame and nothing else",
    )
    return header, payload
