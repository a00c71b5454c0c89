"""Laws of messages: their bytes are pinned, a signature is over one kind of one run, and only one spelling is read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from subnet.canonical import canonical, digest, parse
from subnet.errors import MessageError
from subnet.wire.messages import (
    KINDS,
    WIRE_VERSION,
    Delivery,
    Head,
    Join,
    Leave,
    Message,
    Signed,
    check_signature,
    check_signed,
    make_signed,
    read_signed,
    signing_bytes,
)
from template.fake.keys import FakeSigner, FakeVerifier
from tests.wire.golden import messages, names, vectors

SIGNER, VERIFIER = FakeSigner("miner"), FakeVerifier(FakeSigner("me").hotkey)
KIND_NAMES = sorted(KINDS)


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_the_bytes_are_the_golden_ones(kind: str) -> None:
    """Body, digest and signing bytes of every kind. Whoever changes a vector changes WIRE_VERSION with it."""
    message, golden = messages()[kind], vectors()[kind]
    body = canonical(message)
    assert body.decode() == golden["body"]
    assert digest(body) == golden["digest"]
    assert signing_bytes(kind, body).decode() == golden["signing"]
    assert golden["signing"] == f"strata/{kind}/{WIRE_VERSION}\n{golden['digest']}"


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_golden_bytes_are_read_as_the_message(kind: str) -> None:
    assert parse(vectors()[kind]["body"].encode(), KINDS[kind]) == messages()[kind]


def test_every_kind_has_a_vector() -> None:
    assert set(vectors()) == set(messages()) == set(KINDS)


def test_the_version_of_the_vectors_is_the_wire_s() -> None:
    assert {json.loads(vector["body"])["version"] for vector in vectors().values()} == {WIRE_VERSION} == {2}


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_what_is_signed_is_checked(kind: str) -> None:
    message = messages()[kind]
    signed = make_signed(message, SIGNER)
    assert (signed.kind, signed.hotkey, signed.body) == (kind, SIGNER.hotkey, vectors()[kind]["body"])
    assert len(signed.signature) == 128 and signed.digest == vectors()[kind]["digest"]
    assert check_signed(signed, type(message), VERIFIER) == message
    assert parse(canonical(signed), Signed) == signed


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_a_message_of_another_kind_is_refused(kind: str) -> None:
    """Under its own name, and under a false one."""
    signed = make_signed(messages()[kind], SIGNER)
    other = Leave if kind != "leave" else Head
    with pytest.raises(MessageError, match=f"expected a {other.__name__.lower()}, found a {kind}; send it to its own"):
        read_signed(signed, other)
    with pytest.raises(MessageError, match=f"expected a {other.__name__}"):
        check_signed(replace(signed, kind=other.__name__.lower()), other, VERIFIER)


def test_a_signature_over_one_kind_is_none_over_another_with_the_same_bytes() -> None:
    """The domain is part of what is signed."""
    body = canonical(messages()["head"])
    signature = SIGNER.sign(signing_bytes("head", body)).hex()
    assert check_signature(Head, body, signature, hotkey=SIGNER.hotkey, verifier=VERIFIER)
    assert not check_signature(Delivery, body, signature, hotkey=SIGNER.hotkey, verifier=VERIFIER)


@pytest.mark.parametrize(
    "change",
    [
        {"signature": "00" * 64},
        {"signature": ""},
        {"signature": "no hex"},
        {"hotkey": FakeSigner("other").hotkey},
        {"hotkey": ""},
    ],
    ids=["another", "none", "no hex", "of another hotkey", "of nobody"],
)
def test_a_signature_that_does_not_hold_is_refused(change: dict[str, str]) -> None:
    signed = replace(make_signed(messages()["leave"], SIGNER), **change)
    with pytest.raises(MessageError, match="expected a leave signed by .*, found another signature; sign it again"):
        check_signed(signed, Leave, VERIFIER)


@given(place=st.integers(0, 10_000), letter=st.sampled_from('0123456789abcdefx{}", '))
def test_a_changed_body_is_refused(place: int, letter: str) -> None:
    """One character anywhere: either it is no message any more, or the signature is over another one."""
    signed = make_signed(messages()["receipt"], SIGNER)
    place %= len(signed.body)
    changed = signed.body[:place] + letter + signed.body[place + 1 :]
    if changed == signed.body:
        return
    with pytest.raises(MessageError):
        check_signed(replace(signed, body=changed), KINDS["receipt"], VERIFIER)


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_a_field_more_or_less_is_refused(kind: str) -> None:
    values = json.loads(vectors()[kind]["body"])
    for changed in ({**values, "more": 1}, {k: v for k, v in values.items() if k != "run_id"}):
        with pytest.raises(MessageError, match=f"expected a {KINDS[kind].__name__}"):
            parse(canonical(changed), KINDS[kind])


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_another_wire_version_is_refused_in_one_sentence(kind: str) -> None:
    values = json.loads(vectors()[kind]["body"])
    found = f"expected a {kind} of wire version {WIRE_VERSION}, found 3; update the older side"
    with pytest.raises(MessageError, match=found):
        parse(canonical({**values, "version": 3}), KINDS[kind])


def test_a_number_for_text_and_text_for_a_number_are_refused() -> None:
    values = json.loads(vectors()["join"]["body"])
    for changed in ({"memory_bytes": "1"}, {"memory_bytes": 1.5}, {"hotkey": 1}, {"root": None}, {"time_ms": True}):
        with pytest.raises(MessageError, match="expected a Join"):
            parse(canonical({**values, **changed}), Join)


def test_a_message_that_holds_a_number_without_end_has_no_bytes() -> None:
    for value in (float("nan"), float("inf"), -float("inf")):
        receipt = replace(messages()["receipt"], gradient_norm=value)
        with pytest.raises(MessageError, match="canonical bytes need finite numbers"):
            make_signed(receipt, SIGNER)


def test_messages_cannot_be_changed_after_they_are_made() -> None:
    message: Message = Leave(**names(), hotkey="x", time_ms=1)
    with pytest.raises(AttributeError, match="immutable"):
        message.run_id = "other"  # type: ignore[misc]
