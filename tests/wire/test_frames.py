"""Laws of the frame: what is decoded is what was encoded, the bytes are pinned, and what is malformed is refused."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.config import CODECS
from subnet.errors import FrameError
from subnet.wire.codec import encode
from subnet.wire.frames import FRAME_CODECS, FrameHeader, decode_frame, encode_frame, header_bytes

VECTORS = Path(__file__).parent / "vectors"
LIMIT_BYTES = 1 << 20

FIELDS = st.fixed_dictionaries(
    {
        "run_id": st.binary(min_size=32, max_size=32).map(bytes.hex),
        "round": st.integers(0, (1 << 32) - 1),
        "step": st.integers(0, (1 << 32) - 1),
        "microbatch": st.integers(0, (1 << 64) - 1),
        "kind": st.sampled_from(["activation", "gradient"]),
        "codec": st.sampled_from(["none", "bf16"]),
        "dtype": st.sampled_from(["float32", "bfloat16"]),
        "shape": st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple),
    }
)


def header(**changes: object) -> FrameHeader:
    values = {
        "run_id": bytes(range(32)).hex(),
        "round": 1,
        "step": 2,
        "microbatch": 3,
        "kind": "activation",
        "codec": "none",
        "dtype": "float32",
        "shape": (1, 2, 3),
    }
    return FrameHeader(**(values | changes))


def golden(name: str) -> bytes:
    return bytes.fromhex("".join((VECTORS / name).read_text().split()))


X = np.array([[[0.0, 1.0, -2.0], [0.5, 3.14159, -1e-3]]], dtype=np.float32)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("frame_activation_none.hex", {}),
        ("frame_gradient_bf16.hex", {"kind": "gradient", "codec": "bf16", "round": 65536, "microbatch": 1 << 40}),
    ],
)
def test_the_bytes_are_the_golden_ones(name: str, changes: dict[str, object]):
    """Change these files only together with the frame's version."""
    expected = header(**changes)
    frame = encode_frame(expected, encode(expected.codec, X))
    assert frame == golden(name)
    found, payload = decode_frame(golden(name), limit_bytes=LIMIT_BYTES)
    assert found == expected
    assert payload == encode(expected.codec, X)


def test_every_codec_of_the_configuration_has_a_code():
    assert set(FRAME_CODECS) == set(CODECS)


@given(fields=FIELDS)
def test_what_is_decoded_is_what_was_encoded(fields: dict[str, object]):
    expected = FrameHeader(**fields)
    payload = bytes(i % 256 for i in range(expected.payload_bytes))
    found, view = decode_frame(encode_frame(expected, payload), limit_bytes=LIMIT_BYTES)
    assert (found, bytes(view)) == (expected, payload)


@given(fields=FIELDS, draw=st.data())
def test_one_flipped_bit_of_the_header_is_refused_or_read_as_another_header(
    fields: dict[str, object], draw: st.DataObject
):
    """No two headers have the same bytes, and no byte of a header is ignored."""
    expected = FrameHeader(**fields)
    frame = bytearray(encode_frame(expected, bytes(expected.payload_bytes)))
    bit = draw.draw(st.integers(0, 8 * header_bytes(len(expected.shape)) - 1))
    frame[bit // 8] ^= 1 << bit % 8
    try:
        found, _ = decode_frame(frame, limit_bytes=LIMIT_BYTES)
    except FrameError:
        return
    assert found != expected


@given(fields=FIELDS, draw=st.data())
def test_a_truncated_or_extended_frame_is_refused(fields: dict[str, object], draw: st.DataObject):
    expected = FrameHeader(**fields)
    frame = encode_frame(expected, bytes(expected.payload_bytes))
    kept_bytes = draw.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(FrameError):
        decode_frame(frame[:kept_bytes], limit_bytes=LIMIT_BYTES)
    with pytest.raises(FrameError, match="send the frame and nothing else"):
        decode_frame(frame + b"\0", limit_bytes=LIMIT_BYTES)


@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_but_nothing_else(data: bytes):
    for candidate in (data, b"STRA\x01\x01\x00\x01" + data):
        try:
            found, payload = decode_frame(candidate, limit_bytes=LIMIT_BYTES)
        except FrameError:
            continue
        assert encode_frame(found, payload) == candidate


@pytest.mark.parametrize(
    ("offset", "value", "sentence"),
    [
        (0, b"X", "expected a frame that starts with b'STRA', found b'XTRA'"),
        (4, b"\x02", "expected frame version 1, found 2"),
        (5, b"\x03", r"expected a frame kind of \[1, 2\], found 3"),
        (6, b"\x09", r"expected a frame codec of \[0, 1\], found 9"),
        (7, b"\x00", r"expected a frame dtype of \[1, 2\], found 0"),
        (56, b"\x00", "expected 1 to 8 dimensions, found 0"),
        (56, b"\xff", "expected 1 to 8 dimensions, found 255"),
        (57, bytes(4), "expected dimensions from 1 to 4294967295"),
        (57, b"\xff" * 12, "expected a payload of .* found a claim of 24"),
        (
            69,
            struct.pack("<Q", (1 << 64) - 1),
            "expected a payload of 24 bytes .* found a claim of 18446744073709551615",
        ),
    ],
)
def test_each_malformed_field_is_named(offset: int, value: bytes, sentence: str):
    frame = bytearray(golden("frame_activation_none.hex"))
    frame[offset : offset + len(value)] = value
    with pytest.raises(FrameError, match=sentence):
        decode_frame(frame, limit_bytes=LIMIT_BYTES)


def test_a_frame_over_the_limit_is_refused():
    with pytest.raises(FrameError, match="expected a frame of at most 100 bytes, found 101"):
        decode_frame(golden("frame_activation_none.hex"), limit_bytes=100)


def test_a_payload_that_is_not_the_tensors_is_not_framed():
    with pytest.raises(FrameError, match="expected a payload of 24 bytes .* found 23"):
        encode_frame(header(), bytes(23))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"kind": "weights"}, "expected a frame kind of activation, gradient, found 'weights'"),
        ({"codec": "zip"}, "expected a frame codec of none, bf16, found 'zip'"),
        ({"dtype": "int8"}, "expected a frame dtype of float32, bfloat16, found 'int8'"),
        ({"round": -1}, "expected a frame round from 0 to 4294967295, found -1"),
        ({"step": 1 << 32}, "expected a frame step from 0 to 4294967295, found 4294967296"),
        ({"microbatch": 1 << 64}, "expected a frame microbatch"),
        ({"run_id": "AB" * 32}, "expected a run id of 64 lower-case hex digits"),
        ({"shape": ()}, "expected 1 to 8 dimensions, found 0"),
        ({"shape": (1,) * 9}, "expected 1 to 8 dimensions, found 9"),
        ({"shape": (2, 0)}, "expected dimensions from 1"),
    ],
)
def test_a_header_that_cannot_be_written_is_refused(changes: dict[str, object], sentence: str):
    with pytest.raises(FrameError, match=sentence):
        header(**changes)
