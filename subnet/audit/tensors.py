"""Between tensors and frames, the same for the miner that sends one and the validator that recomputes it.

Owns what a run's frame must look like: its codec, dtype and shape. Knows nothing of who sends it.

Letters: B sequences of a microbatch, T tokens of a sequence, D model width.
"""

import numpy as np
from jaxtyping import Float32, Int64

from subnet.canonical import digest
from subnet.config import RunConfig
from subnet.errors import FrameError
from subnet.model.shapes import geometry
from subnet.wire.codec import decode, encode, encoded_bytes
from subnet.wire.frames import FrameHeader, decode_frame, encode_frame, header_bytes

Activation = Float32[np.ndarray, "batch tokens model"]


def frame_header(run: RunConfig, *, round: int, step: int, microbatch: int, kind: str) -> FrameHeader:
    """The one header that a frame of this hop can have; `kind` is "activation" or "gradient"."""
    shape = (run.train.microbatch_sequences, run.data.sequence_tokens, geometry(run.model).width)
    return FrameHeader(
        run_id=run.run_id,
        round=round,
        step=step,
        microbatch=microbatch,
        kind=kind,
        codec=run.lanes.codec,
        dtype="float32",
        shape=shape,
    )


def frame_bytes(run: RunConfig) -> int:
    """How many bytes every frame of this run has."""
    shape = (run.train.microbatch_sequences, run.data.sequence_tokens, geometry(run.model).width)
    return header_bytes(len(shape)) + encoded_bytes(run.lanes.codec, shape)


def make_frame(header: FrameHeader, values: Activation) -> bytes:
    """The frame of these values. Raises InputError when one is not finite."""
    return encode_frame(header, encode(header.codec, values))


def read_frame(header: FrameHeader, data: bytes) -> Activation:
    """The values of a frame that must have this header. Raises FrameError, and InputError for non-finite values."""
    found, payload = decode_frame(data, limit_bytes=header_bytes(len(header.shape)) + header.payload_bytes)
    if found != header:
        raise FrameError(f"expected the frame of {header}, found {found}; send each frame to its own place")
    return decode(header.codec, payload, header.shape)


def tokens_digest(tokens: Int64[np.ndarray, "batch tokens"]) -> str:
    """What a first stage's receipt says of its input: blake3 of the tokens as little-endian int64."""
    return digest(np.ascontiguousarray(tokens, dtype="<i8").tobytes())
