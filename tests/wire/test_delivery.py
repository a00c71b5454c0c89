"""Lines: of each accepted frame, the sender's signature over everything that its delivery says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.wire.delivery import LINE_BYTES, deliver_target, inbound, line_holds, make_line, sender_stage
from template.auth import request_bytes
from template.fake.keys import FakeSigner, FakeVerifier
from tests.audit.lane import Lane, lane_run
from tests.wire.golden import RUN_ID, named

SENDER, RECEIVER = FakeSigner("sender"), FakeSigner("receiver")
VERIFIER = FakeVerifier("anybody")
KEY = (1, 2, 40, "activation")
TARGET = deliver_target(RUN_ID, KEY, named("frame"), 12_365)


def line_of(signer: FakeSigner = SENDER, target: str = TARGET) -> bytes:
    headers = signer.sign_request("POST", target, RECEIVER.hotkey)
    return make_line(int(headers["X-Bittensor-Nonce"]), headers["X-Bittensor-Signature"])


def holds(line: bytes, **changes: str) -> bool:
    said = {"sender": SENDER.hotkey, "receiver": RECEIVER.hotkey, "target": TARGET} | changes
    return line_holds(line, said["target"], sender=said["sender"], receiver=said["receiver"], verifier=VERIFIER)


def test_the_signature_of_a_delivery_holds_for_it_and_for_nothing_else() -> None:
    """Another run, round, step, microbatch, kind, digest, length, sender or receiver."""
    line = line_of()
    assert len(line) == LINE_BYTES == 72 and holds(line)
    others = [
        deliver_target("0" * 64, KEY, named("frame"), 12_365),
        deliver_target(RUN_ID, (0, 2, 40, "activation"), named("frame"), 12_365),
        deliver_target(RUN_ID, (1, 3, 40, "activation"), named("frame"), 12_365),
        deliver_target(RUN_ID, (1, 2, 41, "activation"), named("frame"), 12_365),
        deliver_target(RUN_ID, (1, 2, 40, "gradient"), named("frame"), 12_365),
        deliver_target(RUN_ID, KEY, named("other"), 12_365),
        deliver_target(RUN_ID, KEY, named("frame"), 12_366),
    ]
    assert not any(holds(line, target=target) for target in others)
    assert not holds(line, sender=RECEIVER.hotkey) and not holds(line, receiver=SENDER.hotkey)


@given(st.integers(0, LINE_BYTES - 1), st.integers(1, 255))
def test_a_changed_line_does_not_hold(place: int, change: int) -> None:
    line = bytearray(line_of())
    line[place] ^= change
    assert not holds(bytes(line))


@given(st.binary(max_size=200))
def test_garbage_is_no_line(data: bytes) -> None:
    assert not holds(data)


@pytest.mark.parametrize("signature", ["", "0x", "ab" * 63, "ab" * 65, "zz" * 64])
def test_a_signature_of_another_length_makes_no_line(signature: str) -> None:
    with pytest.raises(ValueError):
        make_line(1, signature)


def test_a_request_s_bytes_are_pinned() -> None:
    """As docs/wire.md has them; the SDK's own are compared in tests/template/test_auth.py."""
    assert request_bytes("post", "/x?q=1", nonce_ns=7, sender="s", receiver="r") == (
        b"btauth/1\nsr25519\nPOST\n/x?q=1\ne3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n7\ns\nr"
    )


def test_a_receipt_s_lines_stand_in_the_order_of_its_work() -> None:
    """Per microbatch the activation, then the gradient; a first stage gets no activation, a last one no gradient."""
    lane = Lane(lane_run(3, steps=2))
    lane.round(0, close=False)
    kinds = {}
    for receipt in lane.state.receipts.values():
        came = inbound(receipt)
        assert [key[:3] for key, _ in came] == sorted(key[:3] for key, _ in came)
        kinds[receipt.stage] = [key[3] for key, _ in came][:2]
        assert len(lane.miners[receipt.stage].deliveries[receipt.deliveries]) == LINE_BYTES * len(came)
    assert kinds == {0: ["gradient"] * 2, 1: ["activation", "gradient"], 2: ["activation"] * 2}
    assert sender_stage(1, "activation") == 0 and sender_stage(1, "gradient") == 2
