"""Signed requests: what is accepted once, and every way in which it is refused, for the fake and the real keys."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from template.auth import (
    ALLOWED_SKEW_S,
    FORWARDED_AGE_S,
    MAX_AGE_S,
    SIGNATURE_BYTES,
    NonceStore,
    Signer,
    Verifier,
    request_bytes,
)
from template.errors import (
    BadSignature,
    ExpiredRequest,
    FutureRequest,
    MalformedAuth,
    ReplayedRequest,
    WrongReceiver,
)
from template.fake.keys import FakeSigner, FakeVerifier
from template.nonces import FileNonceStore, MemoryNonceStore

TARGET = "/v1/deliver?run=7c1e&round=3&kind=act&length=42"


@dataclass
class Keys:
    """Two senders, and verifiers for a receiver."""

    alice: Signer
    bob: Signer
    verifier: Callable[..., Verifier]


@pytest.fixture(params=["fake", "sdk"])
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> Keys:
    if request.param == "fake":
        return Keys(FakeSigner("alice"), FakeSigner("bob"), FakeVerifier)
    from template.sdk import HotkeySigner, HotkeyVerifier, create_wallet

    alice, bob = (HotkeySigner(create_wallet(name, "default", tmp_path)) for name in ("alice", "bob"))
    return Keys(alice, bob, HotkeyVerifier)


def shifted(seconds: float) -> Callable[[], int]:
    return lambda: time.time_ns() + int(seconds * 1e9)


def test_a_signed_request_is_accepted_from_its_sender(keys: Keys) -> None:
    headers = keys.alice.sign_request("POST", TARGET, keys.bob.hotkey)
    caller = keys.verifier(keys.bob.hotkey).verify_request("POST", TARGET, headers)
    assert caller.hotkey == keys.alice.hotkey
    assert abs(caller.nonce_ns - time.time_ns()) < 10**9


def test_a_request_s_signature_can_be_checked_by_anybody_later(keys: Keys) -> None:
    """Over `request_bytes`, by its nonce and parties alone: it is evidence of who sent what to whom."""
    headers = {name.lower(): value for name, value in keys.alice.sign_request("POST", TARGET, keys.bob.hotkey).items()}
    nonce_ns, signature = int(headers["x-bittensor-nonce"]), headers["x-bittensor-signature"].removeprefix("0x")
    said = {"nonce_ns": nonce_ns, "sender": keys.alice.hotkey, "receiver": keys.bob.hotkey}
    anybody = keys.verifier("")
    assert anybody.verify(request_bytes("POST", TARGET, **said), bytes.fromhex(signature), keys.alice.hotkey)
    assert not anybody.verify(request_bytes("POST", TARGET + "0", **said), bytes.fromhex(signature), keys.alice.hotkey)


def test_header_names_are_not_case_sensitive(keys: Keys) -> None:
    headers = keys.alice.sign_request("GET", TARGET, keys.bob.hotkey)
    lowered = {name.lower(): value for name, value in headers.items()}
    assert keys.verifier(keys.bob.hotkey).verify_request("GET", TARGET, lowered).hotkey == keys.alice.hotkey


def test_two_requests_in_one_moment_are_two_requests(keys: Keys) -> None:
    verifier = keys.verifier(keys.bob.hotkey)
    for _ in range(50):
        verifier.verify_request("GET", TARGET, keys.alice.sign_request("GET", TARGET, keys.bob.hotkey))


def test_an_unsigned_request_is_refused(keys: Keys) -> None:
    with pytest.raises(MalformedAuth):
        keys.verifier(keys.bob.hotkey).verify_request("POST", TARGET, {})


@pytest.mark.parametrize("missing", ["Version", "Hotkey", "Nonce", "Signature"])
def test_a_missing_header_is_refused(keys: Keys, missing: str) -> None:
    headers = keys.alice.sign_request("POST", TARGET, keys.bob.hotkey)
    del headers[f"X-Bittensor-{missing}"]
    with pytest.raises((MalformedAuth, BadSignature)):
        keys.verifier(keys.bob.hotkey).verify_request("POST", TARGET, headers)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Version", "2"),
        ("Nonce", "soon"),
        ("Nonce", "-5"),
        ("Nonce", "1e9"),
        ("Signature", "0xzz"),
        ("Signature", "0x"),
        ("Signature", "0x" + "00" * 64),
        ("Hotkey", "5notanaddress"),
        ("Hotkey", ""),
    ],
)
def test_an_unreadable_header_is_refused(keys: Keys, name: str, value: str) -> None:
    headers = keys.alice.sign_request("POST", TARGET, keys.bob.hotkey) | {f"X-Bittensor-{name}": value}
    with pytest.raises((MalformedAuth, BadSignature, ExpiredRequest)):
        keys.verifier(keys.bob.hotkey).verify_request("POST", TARGET, headers)


def test_a_wrong_signer_is_refused(keys: Keys) -> None:
    headers = keys.alice.sign_request("POST", TARGET, keys.bob.hotkey) | {"X-Bittensor-Hotkey": keys.bob.hotkey}
    with pytest.raises(BadSignature):
        keys.verifier(keys.bob.hotkey).verify_request("POST", TARGET, headers)


@pytest.mark.parametrize(
    "other", [TARGET + "0", TARGET.replace("round=3", "round=4"), "/v1/deliver", "/v1/receipts?" + TARGET]
)
def test_an_altered_target_or_another_route_is_refused(keys: Keys, other: str) -> None:
    headers = keys.alice.sign_request("POST", TARGET, keys.bob.hotkey)
    with pytest.raises(BadSignature):
        keys.verifier(keys.bob.hotkey).verify_request("POST", other, headers)


def test_another_method_is_refused(keys: Keys) -> None:
    headers = keys.alice.sign_request("GET", TARGET, keys.bob.hotkey)
    with pytest.raises(BadSignature):
        keys.verifier(keys.bob.hotkey).verify_request("POST", TARGET, headers)


def test_another_receiver_is_refused(keys: Keys) -> None:
    headers = keys.alice.sign_request("POST", TARGET, keys.alice.hotkey)
    with pytest.raises(WrongReceiver):
        keys.verifier(keys.bob.hotkey).verify_request("POST", TARGET, headers)
    del headers["X-Bittensor-Receiver"]
    with pytest.raises(WrongReceiver):
        keys.verifier(keys.bob.hotkey).verify_request("POST", TARGET, headers)


def test_a_receiver_that_was_swapped_after_signing_is_refused(keys: Keys) -> None:
    headers = keys.alice.sign_request("POST", TARGET, keys.alice.hotkey) | {"X-Bittensor-Receiver": keys.bob.hotkey}
    with pytest.raises(BadSignature):
        keys.verifier(keys.bob.hotkey).verify_request("POST", TARGET, headers)


def test_an_expired_request_is_refused_and_told_by_how_much(keys: Keys) -> None:
    headers = keys.alice.sign_request("POST", TARGET, keys.bob.hotkey)
    with pytest.raises(ExpiredRequest, match=r"dated 6\d\.\d s ago") as caught:
        keys.verifier(keys.bob.hotkey, now_ns=shifted(60)).verify_request("POST", TARGET, headers)
    assert caught.value.delta_s == pytest.approx(-60, abs=2)


def test_a_future_dated_request_is_refused_and_told_by_how_much(keys: Keys) -> None:
    headers = keys.alice.sign_request("POST", TARGET, keys.bob.hotkey)
    with pytest.raises(FutureRequest, match="ahead") as caught:
        keys.verifier(keys.bob.hotkey, now_ns=shifted(-60)).verify_request("POST", TARGET, headers)
    assert caught.value.delta_s == pytest.approx(60, abs=2)


@pytest.mark.parametrize("seconds", [9.0, -1.5])
def test_clocks_may_differ_by_a_little(keys: Keys, seconds: float) -> None:
    headers = keys.alice.sign_request("POST", TARGET, keys.bob.hotkey)
    keys.verifier(keys.bob.hotkey, now_ns=shifted(seconds)).verify_request("POST", TARGET, headers)


def test_a_replayed_request_is_refused(keys: Keys) -> None:
    headers = keys.alice.sign_request("POST", TARGET, keys.bob.hotkey)
    verifier = keys.verifier(keys.bob.hotkey)
    verifier.verify_request("POST", TARGET, headers)
    with pytest.raises(ReplayedRequest):
        verifier.verify_request("POST", TARGET, headers)


def test_a_request_replayed_across_a_restart_is_refused(keys: Keys, tmp_path: Path) -> None:
    headers = keys.alice.sign_request("POST", TARGET, keys.bob.hotkey)
    keys.verifier(keys.bob.hotkey, FileNonceStore(tmp_path / "nonces")).verify_request("POST", TARGET, headers)
    restarted = keys.verifier(keys.bob.hotkey, FileNonceStore(tmp_path / "nonces"))
    with pytest.raises(ReplayedRequest):
        restarted.verify_request("POST", TARGET, headers)


def test_a_refused_request_leaves_no_trace(keys: Keys) -> None:
    """Somebody who cannot sign for a hotkey cannot use up its nonces either."""
    headers = keys.alice.sign_request("POST", TARGET, keys.bob.hotkey)
    verifier = keys.verifier(keys.bob.hotkey)
    with pytest.raises(BadSignature):
        verifier.verify_request("POST", TARGET + "0", headers)
    assert verifier.verify_request("POST", TARGET, headers).hotkey == keys.alice.hotkey


def test_signatures_verify_for_their_hotkey_and_bytes_only(keys: Keys) -> None:
    signature, verifier = keys.alice.sign(b"receipt"), keys.verifier(keys.bob.hotkey)
    assert len(signature) == SIGNATURE_BYTES
    assert verifier.verify(b"receipt", signature, keys.alice.hotkey)
    assert not verifier.verify(b"receipt", signature, keys.bob.hotkey)
    assert not verifier.verify(b"receipts", signature, keys.alice.hotkey)
    assert not verifier.verify(b"receipt", bytes([signature[0] ^ 1]) + signature[1:], keys.alice.hotkey)


@pytest.mark.parametrize("signature", [b"", b"x", bytes(64), bytes(65)])
@pytest.mark.parametrize("hotkey", ["", "nobody", None])
def test_what_cannot_be_read_does_not_verify(keys: Keys, signature: bytes, hotkey: str | None) -> None:
    assert not keys.verifier(keys.bob.hotkey).verify(b"data", signature, hotkey or keys.alice.hotkey)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_nonce_store_remembers_each_pair_once(kind: str, tmp_path: Path) -> None:
    store: NonceStore = MemoryNonceStore() if kind == "memory" else FileNonceStore(tmp_path / "deep" / "nonces")
    now_ns = time.time_ns()
    assert store.check_and_store("5A", now_ns) and not store.check_and_store("5A", now_ns)
    assert store.check_and_store("5B", now_ns) and store.check_and_store("5A", now_ns + 1)


def test_a_forwarded_request_may_be_older_but_is_still_accepted_once(keys: Keys) -> None:
    headers = keys.alice.sign_request("POST", TARGET, keys.bob.hotkey)
    nonces, later = MemoryNonceStore(), shifted(MAX_AGE_S + 5)
    direct = keys.verifier(keys.bob.hotkey, nonces, now_ns=later)
    forwarded = keys.verifier(keys.bob.hotkey, nonces, now_ns=later, max_age_s=FORWARDED_AGE_S)
    with pytest.raises(ExpiredRequest, match="within the last 10 s"):
        direct.verify_request("POST", TARGET, headers)
    assert forwarded.verify_request("POST", TARGET, headers).hotkey == keys.alice.hotkey
    with pytest.raises(ReplayedRequest):
        forwarded.verify_request("POST", TARGET, headers)
    too_late = keys.verifier(keys.bob.hotkey, now_ns=shifted(FORWARDED_AGE_S + 1), max_age_s=FORWARDED_AGE_S)
    with pytest.raises(ExpiredRequest, match="within the last 40 s"):
        too_late.verify_request("POST", TARGET, headers)


def test_nonces_are_remembered_for_longer_than_any_request_is_accepted() -> None:
    assert MemoryNonceStore().retention > FORWARDED_AGE_S + ALLOWED_SKEW_S
