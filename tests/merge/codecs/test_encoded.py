"""Laws of encoded pseudo-gradients: bounded error, bytes pinned, piece by piece as the whole, refused unless intact."""

import math
import tracemalloc
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from subnet.canonical import digest
from subnet.errors import EvidenceError, InputError
from subnet.merge.codecs.encoded import CODECS, HEADER_BYTES, PIECE, Encoded, encode, encoded_bytes
from subnet.merge.codecs.rows import Codec

LOSSY = ("int8", "int4", "sparse", "dct")
EACH = pytest.mark.parametrize("name", CODECS)
EACH_LOSSY = pytest.mark.parametrize("name", LOSSY)
FLOATS = st.floats(-(2.0**60), 2.0**60, width=32) | st.floats(-0.0078125, 0.0078125, width=32)
VALUES = arrays(np.float32, st.integers(1, 300), elements=FLOATS, fill=st.just(np.float32(0)))


def whole_numbers(count: int) -> np.ndarray:
    """Values of many sizes, made of integers alone: the same on every machine."""
    return _whole_numbers()[:count].copy()


@cache
def _whole_numbers() -> np.ndarray:
    state, found = 12345, np.empty(9000, dtype=np.float32)
    for place in range(len(found)):
        state = (1103515245 * state + 12345) % (1 << 31)
        found[place] = ((state >> 8) % 65537 - 32768) / (1 << (10 + (state >> 4) % 13))
    return found


def error(values: np.ndarray, decoded: np.ndarray) -> float:
    return float(np.linalg.norm(values.astype(np.float64) - decoded.astype(np.float64)))


def size(values: np.ndarray) -> float:
    return float(np.linalg.norm(values.astype(np.float64)))


def decoded(codec: Codec, values: np.ndarray) -> np.ndarray:
    return Encoded(codec, encode(codec, values), values.size).values()


PINNED = {
    "none": "156cfea7b52e3b65 156cfea7b52e3b65 0x1.3a990ec959bc6p+18",
    "int8": "3f2c338c2533a5af 15b96ee3494c23cc 0x1.3a9762ac52a25p+18",
    "int4": "bc23efe73fea07d4 b8dd744e97b29ccd 0x1.3e3039a100000p+18",
    "sparse": "ee8ee3317c137a67 5fd078d45e659dbb 0x1.ccca840000000p+16",
    "dct": "9af93e5dedc4ef62 faa69f71cedf3549 0x1.0fa2aaef00000p+15",
}


@EACH
def test_the_bytes_and_what_they_decode_to_are_pinned(name: str):
    values = whole_numbers(9000)
    data = encode(CODECS[name], values)
    encoded = Encoded(CODECS[name], data, values.size)
    assert f"{digest(data)[:16]} {digest(encoded.values().tobytes())[:16]} {encoded.norm_squared.hex()}" == PINNED[name]


SHORT = {
    "none": "0000003f000040c000000000000000406f12833a",
    "int8": "0683c13c1581005500",
    "int4": "db3e19d888",
    "sparse": "01000140400000",
    "dct": (
        "63400665600667800669300aa4500aa6700aa8900ae3400ee5600ee7800ee930122451122671122891126341166561166781"
        "1669311aa4511aa6711aa8911ae3411ee5611ee7811ee9312224522226722228322664522666722668522aa6622e00000000"
        "0000000000000000000000000000000000000000000000000000000014000200"
    ),
}


def test_short_encodings_are_pinned_in_full():
    values = np.array([0.5, -3.0, 0.0, 2.0, 1e-3], dtype=np.float32)
    found = {name: encode(CODECS[name], values)[HEADER_BYTES * (name != "none") :].hex() for name in CODECS}
    assert found == SHORT


@given(values=VALUES)
def test_none_loses_nothing(values: np.ndarray):
    assert decoded(CODECS["none"], values).tobytes() == values.tobytes()


@given(values=VALUES)
def test_int8_is_within_half_a_scale_of_each_value(values: np.ndarray):
    found = decoded(CODECS["int8"], values)
    for first in range(0, values.size, 256):
        block, part = values[first : first + 256].astype(np.float64), found[first : first + 256]
        scale = np.abs(block).max() / 127
        assert np.abs(block - part).max() <= 0.501 * scale + 127 * 2.0**-149


@given(values=VALUES)
def test_int4_is_within_half_a_scale_and_its_rounding_of_each_value(values: np.ndarray):
    found = decoded(CODECS["int4"], values)
    for first in range(0, values.size, 64):
        block, part = values[first : first + 64].astype(np.float64), found[first : first + 64]
        scale = np.abs(block).max() / 7
        assert np.abs(block - part).max() <= 0.54 * scale + 7 * 2.0**-133


@given(values=VALUES)
def test_sparse_takes_the_square_of_what_it_sends_off_what_is_left(values: np.ndarray):
    found = decoded(CODECS["sparse"], values)
    assert np.count_nonzero(found) <= -(-values.size // 64)
    left = size(values) ** 2 - size(found) ** 2
    assert error(values, found) ** 2 <= left + 0.01 * size(values) ** 2 + 1e-80
    kept = np.sort(np.abs(values))[::-1][: -(-values.size // 64)].astype(np.float64)
    assert size(found) ** 2 >= 0.98 * kept.sum() ** 2 / kept.size - 1e-80, "no less than the mean of the largest"


def test_sparse_keeps_the_largest_of_each_block_and_of_equals_the_earlier():
    values = np.zeros(2 * 4096, dtype=np.float32)
    values[4096:] = 1.0
    values[100:164] = -2.0
    found = decoded(CODECS["sparse"], values)
    assert (found[100:164] == -2.0).all()
    assert (found[4096 : 4096 + 64] == 1.0).all()
    assert np.count_nonzero(found) == 128


@settings(max_examples=25)
@given(values=VALUES)
def test_dct_leaves_no_more_than_there_was(values: np.ndarray):
    found = decoded(CODECS["dct"], values)
    assert error(values, found) <= 1.01 * size(values) + 1e-40


def test_dct_sends_what_neighbours_share_and_sparse_does_not():
    place = np.arange(4096, dtype=np.float64)
    waves = (np.cos(place / 700) + 0.5 * np.sin(place / 333)).astype(np.float32)
    assert error(waves, decoded(CODECS["dct"], waves)) < 0.25 * size(waves)
    assert error(waves, decoded(CODECS["sparse"], waves)) > 0.9 * size(waves)


@EACH
def test_zeros_come_back_as_zeros(name: str):
    for count in (1, 63, 4096, 5000):
        assert not decoded(CODECS[name], np.zeros(count, dtype=np.float32)).any()


@EACH
@settings(max_examples=20)
@given(draw=st.data())
def test_any_span_decodes_as_it_does_in_the_whole(name: str, draw: st.DataObject):
    values = whole_numbers(draw.draw(st.integers(1, 9000), label="values"))
    encoded = Encoded(CODECS[name], encode(CODECS[name], values), values.size)
    start = draw.draw(st.integers(0, values.size), label="start")
    stop = draw.draw(st.integers(start, values.size + 100), label="stop")
    assert encoded[start:stop].tobytes() == encoded.values()[start:stop].tobytes()


@EACH
def test_pieces_change_no_byte(name: str):
    values = np.tile(whole_numbers(8192), PIECE // 8192 + 1)[: PIECE + 5000]
    data = encode(CODECS[name], values)
    assert len(data) == encoded_bytes(CODECS[name], values.size)
    head = encode(CODECS[name], values[:PIECE])
    start = HEADER_BYTES * (name != "none")
    assert data[start : len(head)] == head[start:]
    assert Encoded(CODECS[name], data, values.size)[PIECE:].tobytes() == decoded(CODECS[name], values[PIECE:]).tobytes()


@EACH
def test_the_norm_is_that_of_the_decoded_values(name: str):
    values = whole_numbers(9000)
    encoded = Encoded(CODECS[name], encode(CODECS[name], values), values.size)
    assert encoded.norm_squared == pytest.approx(size(encoded.values()) ** 2, rel=1e-6)


def test_bits_for_each_value():
    count = 1 << 20
    bits = {name: 8 * encoded_bytes(codec, count) / count for name, codec in CODECS.items()}
    assert bits["none"] == 32
    assert 8.12 < bits["int8"] < 8.13
    assert 4.25 <= bits["int4"] < 4.26
    assert bits["sparse"] < 0.227
    assert bits["dct"] < 0.259


@EACH
def test_values_that_are_not_finite_are_refused(name: str):
    for wrong in (math.nan, math.inf, -math.inf):
        values = whole_numbers(100)
        values[17] = wrong
        with pytest.raises(InputError, match="found 1 values that are not; leave this contribution out"):
            encode(CODECS[name], values)


@EACH_LOSSY
def test_values_larger_than_any_training_gives_are_refused(name: str):
    with pytest.raises(InputError, match="below 2\\^95, found 1"):
        encode(CODECS[name], np.array([2.0**96], dtype=np.float32))
    assert np.isfinite(decoded(CODECS[name], np.full(5000, 2.0**95, dtype=np.float32))).all()


@EACH
def test_bytes_of_another_length_are_refused_before_anything_is_allocated(name: str):
    codec, data = CODECS[name], encode(CODECS[name], whole_numbers(5000))
    for wrong in (b"", data[:-1], data + b"\0"):
        with pytest.raises(EvidenceError, match=f"expected a contribution of {len(data)} bytes .* found {len(wrong)};"):
            Encoded(codec, wrong, 5000)
    tracemalloc.start()
    with pytest.raises(EvidenceError, match="found 39998"):
        Encoded(codec, bytes(39998), 10**12)
    assert tracemalloc.get_traced_memory()[1] < 200_000
    tracemalloc.stop()


@EACH_LOSSY
@settings(max_examples=50)
@given(draw=st.data())
def test_a_flipped_bit_is_refused(name: str, draw: st.DataObject):
    data = bytearray(encode(CODECS[name], whole_numbers(5000)))
    bit = draw.draw(st.integers(0, 8 * len(data) - 1))
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(EvidenceError, match="expected (the header|rows with the blake3)"):
        Encoded(CODECS[name], data, 5000)


def test_bytes_of_another_codec_or_another_number_of_values_are_refused():
    sparse, dct = CODECS["sparse"], CODECS["dct"]
    data = encode(sparse, whole_numbers(4096))
    assert encoded_bytes(sparse, 4095) == len(data)
    with pytest.raises(EvidenceError, match=r"expected the header .* \(4095 values by the codec sparse\)"):
        Encoded(sparse, data, 4095)
    longer = data + bytes(encoded_bytes(dct, 4096) - len(data))
    with pytest.raises(EvidenceError, match=r"expected the header .* by the codec dct\)"):
        Encoded(dct, longer, 4096)


def forged(name: str, body: bytes, count: int) -> bytes:
    """Bytes with a right header before any rows."""
    start = encode(CODECS[name], np.zeros(count, dtype=np.float32))[:16]
    return start + bytes.fromhex(digest(body))[:8] + body


@pytest.mark.parametrize(
    ("name", "count", "body", "found"),
    [
        ("int8", 1, "0000807f01", "a magnitude that is negative, too large or no number"),
        ("int8", 1, "000080bf01", "a magnitude that is negative, too large or no number"),
        ("int8", 1, "0000803f80", "the code -128"),
        ("int4", 2, "c07f99", "a magnitude that is negative"),
        ("int4", 2, "803f90", "a code below -7"),
        ("int4", 1, "803f99", "a value behind the last one"),
        ("sparse", 1, "000000" + "c07f803f", "a magnitude that is negative"),
        ("sparse", 1, "001000" + "803f803f", "bits set behind the last value"),
        ("sparse", 1, "050000" + "803f803f", "a place behind the last of 1"),
        ("sparse", 65, "000000" + "00" + "803f803f", "places that do not ascend"),
        ("dct", 1, "00" * 128 + "0000" + "0000", "places that do not ascend"),
    ],
)
def test_rows_that_no_encoder_makes_are_refused(name: str, count: int, body: str, found: str):
    with pytest.raises(EvidenceError, match=f"expected bytes that the codec {name} makes, found {found}"):
        Encoded(CODECS[name], forged(name, bytes.fromhex(body), count), count)


def test_a_transform_with_an_exponent_of_no_value_is_refused():
    body = bytearray(encode(CODECS["dct"], whole_numbers(4096))[HEADER_BYTES:])
    body[-2:] = (97).to_bytes(2, "little")
    with pytest.raises(EvidenceError, match="found an exponent that no value has"):
        Encoded(CODECS["dct"], forged("dct", bytes(body), 4096), 4096)


@pytest.mark.parametrize("name", LOSSY)
@settings(max_examples=100)
@given(draw=st.data())
def test_whatever_bytes_come_they_decode_to_finite_values_or_are_refused(name: str, draw: st.DataObject):
    count = draw.draw(st.sampled_from([1, 64, 100, 300]))
    body = draw.draw(st.binary(min_size=(n := encoded_bytes(CODECS[name], count) - HEADER_BYTES), max_size=n))
    try:
        encoded = Encoded(CODECS[name], forged(name, body, count), count)
    except EvidenceError:
        return
    assert np.isfinite(encoded.values()).all()
    assert math.isfinite(encoded.norm_squared)
