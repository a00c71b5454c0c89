"""Letters: a bundle gives back what was put in, and nothing that is not a bundle is read as one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from subnet.errors import MessageError, RefusedError
from subnet.wire.letter import Head, Letter, check_relayable, make_letter, pack, sender_of, unpack

HEADERS = {"X-Bittensor-Hotkey": "5Alice", "X-Bittensor-Nonce": "12"}
DELIVERY = make_letter("POST", "/v1/deliver?run=1&length=3", HEADERS, b"abc", answer_bytes=10)
QUESTION = make_letter("GET", f"/v1/blobs/{'a' * 64}?start=0&length=9", {}, b"", answer_bytes=9)

texts = st.text(max_size=20)
letters = st.builds(
    lambda target, headers, body, number: Letter(
        head=Head(
            number=number, method="POST", target=target, headers=headers, body_bytes=len(body), answer_bytes=number
        ),
        body=body,
    ),
    texts,
    st.dictionaries(texts, texts, max_size=3),
    st.binary(max_size=50),
    st.integers(0, 2**40),
)


@given(st.lists(letters, max_size=4))
def test_a_bundle_gives_back_its_letters(sent: list[Letter]) -> None:
    assert list(unpack(pack(sent))) == sent


@given(st.binary(max_size=200))
def test_any_bytes_are_a_bundle_or_refused(noise: bytes) -> None:
    try:
        assert isinstance(unpack(noise), tuple)
    except MessageError:
        assert noise


@given(st.integers(1, len(pack([DELIVERY])) - 1))
def test_a_bundle_that_was_cut_is_refused(length: int) -> None:
    with pytest.raises(MessageError):
        unpack(pack([DELIVERY])[:length])


def test_only_the_signed_headers_travel() -> None:
    letter = make_letter("GET", "/v1/blobs/a", {**HEADERS, "Cookie": "secret"}, b"", answer_bytes=1)
    assert letter.head.headers == HEADERS and sender_of(letter.head) == "5Alice" and sender_of(QUESTION.head) == ""


def test_deliveries_and_questions_for_evidence_may_travel() -> None:
    others = [("GET", "/v1/states/a/chunks/1"), ("POST", "/v1/states/a/wanted")]
    for letter in (DELIVERY, QUESTION, *(make_letter(*other, {}, b"", answer_bytes=1) for other in others)):
        check_relayable(letter.head)


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "PUT"},
        {"method": "GET"},
        {"target": "/v1/blobs/a"},
        {"target": "/v1/states/a/chunks/1"},
        {"target": "/v1/states/a/wanted"},  # with a body
        {"target": "/v1/blobs/a/wanted"},
        {"target": "/healthz"},
        {"target": "/v1/deliver/../../healthz?"},
        {"target": "/v1/deliver?a b"},
        {"target": "/v1/deliver?a#b"},
        {"target": "/v1/deliver?\r\nHost: x"},
        {"target": "http://10.0.0.1/v1/deliver?"},
        {"headers": {"Host": "x"}},
        {"headers": {f"X-Bittensor-{number}": "" for number in range(9)}},
        {"answer_bytes": -1},
    ],
)
def test_nothing_else_may_travel(changes: dict[str, object]) -> None:
    with pytest.raises(RefusedError, match=r"^expected"):
        check_relayable(replace(DELIVERY.head, **changes))
