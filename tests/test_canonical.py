"""Laws of canonical bytes: one value has one spelling, and no other spelling is read."""

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.canonical import canonical, digest, digest_of, parse
from subnet.errors import MessageError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(1 << 53), 1 << 53)
LEAVES = st.none() | st.booleans() | NUMBERS | TEXT
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A small value with every kind of field."""

    name: str
    count: int
    share: float
    parts: tuple[int, ...] = ()


@given(value=VALUES)
def test_what_is_read_is_what_was_written(value: Any) -> None:
    data = canonical(value)
    assert json.loads(data) == value
    assert canonical(json.loads(data)) == data


@given(value=st.dictionaries(TEXT, VALUES, max_size=5))
def test_keys_are_sorted_and_nothing_stands_between(value: dict[str, Any]) -> None:
    """The order in which a table was made changes nothing; there is no white space outside texts."""
    turned = dict(reversed(list(value.items())))
    assert canonical(turned) == canonical(value)
    assert list(json.loads(canonical(value))) == sorted(value)
    assert not re.search(rb"\s", re.sub(rb'"(\\.|[^"\\])*"', b"", canonical(value)))


def test_the_bytes_are_the_golden_ones() -> None:
    """Text in UTF-8 as it is, floats in their shortest form, whole floats with their point."""
    value = {"b": [1, 1.0, 0.1, 1e16, 1e-7, -0.0, True, None], "a": 'ä☃𝄞"\\\n\u007f', "": {}}
    assert canonical(value) == (
        b'{"":{},"a":"\xc3\xa4\xe2\x98\x83\xf0\x9d\x84\x9e\\"\\\\\\n\x7f","b":[1,1.0,0.1,1e+16,1e-07,-0.0,true,null]}'
    )
    assert digest(b"") == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert digest_of({}) == digest(b"{}")


@given(value=st.sampled_from([float("nan"), float("inf"), -float("inf")]))
def test_a_number_that_is_not_finite_has_no_bytes(value: float) -> None:
    for held in (value, [value], {"a": {"b": value}}, Row(name="", count=0, share=value)):
        with pytest.raises(MessageError, match="canonical bytes need finite numbers"):
            canonical(held)


GOLDEN = b'{"count":1,"name":"a","parts":[1,2],"share":0.5}'

SPELLINGS = [
    b'{"count": 1,"name":"a","parts":[1,2],"share":0.5}',
    b'{"name":"a","count":1,"parts":[1,2],"share":0.5}',
    b'{"count":1,"name":"a","parts":[1,2],"share":0.5}\n',
    b'\xef\xbb\xbf{"count":1,"name":"a","parts":[1,2],"share":0.5}',
    b'{"count":1,"name":"\\u0061","parts":[1,2],"share":0.5}',
    b'{"count":1,"name":"a","parts":[1,2],"share":0.50}',
    b'{"count":1,"name":"a","parts":[1,2],"share":5e-1}',
    b'{"count":1,"name":"a","parts":[1,2],"share":1}',
    b'{"count":1.0,"name":"a","parts":[1,2],"share":0.5}',
    b'{"count":1,"name":"b","name":"a","parts":[1,2],"share":0.5}',
    b'{"count":1,"name":"a","share":0.5}',
    b'{"count":1,"name":"a","parts":[1,2],"share":0.5,"x":0}',
    b'{"count":1,"name":"a","parts":[1,2],"share":NaN}',
    b'{"count":1,"name":"a","parts":[1,2],"share":1e999}',
    b'{"count":1,"name":"\xff","parts":[1,2],"share":0.5}',
    b'{"count":1,"name":"\\ud800","parts":[1,2],"share":0.5}',
    b'{"count":"1","name":"a","parts":[1,2],"share":0.5}',
    b'{"count":1,"name":"a","parts":[1,2],"share":0.5',
    b"[]",
    b"",
]


@pytest.mark.parametrize("data", SPELLINGS)
def test_another_spelling_is_refused(data: bytes) -> None:
    """Two byte strings never mean the same message, or a digest would not name one."""
    assert parse(GOLDEN, Row) == Row(name="a", count=1, share=0.5, parts=(1, 2))
    with pytest.raises(MessageError, match="expected (a Row|the canonical bytes of a Row)"):
        parse(data, Row)


@given(name=TEXT, count=st.integers(-(1 << 62), 1 << 62), share=st.floats(allow_nan=False, allow_infinity=False))
def test_every_row_is_read_back(name: str, count: int, share: float) -> None:
    row = Row(name=name, count=count, share=share)
    assert parse(canonical(row), Row) == row
