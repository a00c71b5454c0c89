"""Laws of the codecs: decode(encode(x)) is x within the stated bound, the bytes are pinned, and twice is once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.config import CODECS
from subnet.errors import ConfigError, FrameError, InputError
from subnet.wire.codec import BOUNDS, ELEMENT_BYTES, SMALLEST_NORMAL, bound, decode, encode, encoded_bytes

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def tensor(values: list[float]) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def test_every_codec_of_the_configuration_is_complete():
    assert set(CODECS) == set(BOUNDS) == set(ELEMENT_BYTES)


@pytest.mark.parametrize("codec", CODECS)
@given(values=st.lists(FLOATS, min_size=1, max_size=40))
def test_what_is_decoded_is_what_was_encoded_within_the_bound(codec: str, values: list[float]):
    x = tensor(values).astype(np.float64)
    error = np.abs(decode(codec, encode(codec, tensor(values)), (len(values),)).astype(np.float64) - x)
    assert (error <= bound(codec) * np.maximum(np.abs(x), SMALLEST_NORMAL)).all()


@pytest.mark.parametrize("codec", CODECS)
@given(values=st.lists(FLOATS, min_size=1, max_size=40))
def test_encoding_again_changes_nothing(codec: str, values: list[float]):
    once = encode(codec, tensor(values))
    assert encode(codec, decode(codec, once, (len(values),))) == once


def test_the_bound_of_bf16_is_reached():
    """A bound that no value comes near would hide errors: 1 + 2**-8 is a tie and loses almost all of it."""
    x = tensor([1 + 2**-8])
    assert abs(decode("bf16", encode("bf16", x), (1,))[0] - x[0]) / x[0] > 0.99 * bound("bf16")


def test_bf16_rounds_to_the_nearest_and_ties_to_even():
    x = np.array([0x3F80_8000, 0x3F81_8000, 0x3F80_8001, 0x3F80_7FFF, 0xBF81_8000], dtype=np.uint32).view(np.float32)
    assert encode("bf16", x).hex() == "803f" + "823f" + "813f" + "803f" + "82bf"


def test_bf16_never_rounds_to_infinity():
    largest = np.finfo(np.float32).max
    assert encode("bf16", tensor([largest, -largest])).hex() == "7f7f" + "7fff"


def test_none_is_little_endian_float32():
    assert encode("none", tensor([1.0, -2.5])).hex() == "0000803f" + "000020c0"


def test_rows_are_encoded_in_order_whatever_the_memory_layout():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert encode("bf16", np.asfortranarray(x)) == encode("bf16", x)
    assert (decode("bf16", encode("bf16", x.T), (4, 3)) == x.T).all()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_not_finite_is_refused_on_both_sides(codec: str, value: float):
    with pytest.raises(InputError, match="expected finite values, found 1 that are not"):
        encode(codec, tensor([0.0, value]))
    bits = tensor([0.0, value]).view(np.uint32)
    data = bits.tobytes() if codec == "none" else (bits >> 16).astype(np.uint16).tobytes()
    with pytest.raises(InputError, match="expected finite values, found 1 that are not"):
        decode(codec, data, (2,))


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_of_another_length_are_refused(codec: str):
    data = encode(codec, tensor([1.0, 2.0]))
    assert len(data) == encoded_bytes(codec, (1, 2))
    for wrong in (data[:-1], data + b"\0", b""):
        with pytest.raises(FrameError, match=f"expected {len(data)} bytes for shape .*, found {len(wrong)}"):
            decode(codec, wrong, (1, 2))


def test_an_unknown_codec_is_refused():
    with pytest.raises(ConfigError, match="expected a wire codec of none, bf16, found 'int3'"):
        encode("int3", tensor([1.0]))
