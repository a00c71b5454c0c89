"""Deliveries as evidence: what a sender signed when it delivered a frame, kept so that anyone can check it later.

The signature of a delivery's request covers its target, which says everything: run, round, step, microbatch, kind,
digest and length. So of each accepted frame its receiver keeps nonce and signature, a *line*; the rest follows from
plan and receipt. A receipt names the digest of its lines in the order of its work: per microbatch the activation's,
then the gradient's. Knows nothing of plans, inboxes or transport.
"""

import struct

from subnet.canonical import parse
from subnet.errors import MessageError
from subnet.wire.messages import WIRE_VERSION, Delivery, Receipt, Signed, check_signed
from template.auth import SIGNATURE_BYTES, Verifier, request_bytes

METHOD = "POST"
Key = tuple[int, int, int, str]  # round, step, microbatch, kind
_LINE = struct.Struct(f"<Q{SIGNATURE_BYTES}s")
LINE_BYTES = _LINE.size


def deliver_target(run_id: str, key: Key, name: str, length_bytes: int) -> str:
    """The request target of a delivery: everything that its signature has to cover, in the one spelling allowed."""
    round_number, step, microbatch, kind = key
    return (
        f"/v1/deliver?run={run_id}&round={round_number}&step={step}&microbatch={microbatch}"
        f"&kind={kind}&digest={name}&length={length_bytes}"
    )


def make_line(nonce_ns: int, signature: str) -> bytes:
    """The line of an accepted request with this nonce and signature (hex, as its header has it).

    Raises ValueError for a signature of another length, or none.
    """
    raw = bytes.fromhex(signature.removeprefix("0x"))
    if len(raw) != SIGNATURE_BYTES or not 0 <= nonce_ns < 1 << 64:
        raise ValueError(f"expected a signature of {SIGNATURE_BYTES} bytes, found {len(raw)}; sign with sr25519")
    return _LINE.pack(nonce_ns, raw)


def line_holds(line: bytes, target: str, *, sender: str, receiver: str, verifier: Verifier) -> bool:
    """Whether the line is the sender's signature over the delivery of this target to this receiver."""
    if len(line) != LINE_BYTES:
        return False
    nonce_ns, signature = _LINE.unpack(line)
    signed = request_bytes(METHOD, target, nonce_ns=nonce_ns, sender=sender, receiver=receiver)
    return verifier.verify(signed, signature, sender)


def inbound(receipt: Receipt) -> tuple[tuple[Key, str], ...]:
    """What a step's receipt says came in, in the order of its lines: place and digest of each frame."""
    came = []
    for work in receipt.work:
        for kind, name in (("activation", work.input if receipt.stage > 0 else ""), ("gradient", work.gradient_in)):
            if name:
                came.append(((receipt.round, receipt.step, work.index, kind), name))
    return tuple(came)


def sender_stage(stage: int, kind: str) -> int:
    """The stage that sends a frame of this kind to `stage`."""
    return stage - 1 if kind == "activation" else stage + 1


def delivery_of(run_id: str, key: Key, name: str, *, sender: str, receiver: str) -> Delivery:
    """What is acknowledged of one frame."""
    return Delivery(
        version=WIRE_VERSION, run_id=run_id, sender=sender, receiver=receiver,
        round=key[0], step=key[1], microbatch=key[2], kind=key[3], digest=name,
    )  # fmt: skip


def acknowledgement(body: bytes, expected: Delivery, signers: tuple[str, ...], verifier: Verifier) -> str:
    """The signature in an answer to a delivery. Raises MessageError for one of something else, or by others."""
    signed = parse(body, Signed)
    if check_signed(signed, Delivery, verifier) != expected or signed.hotkey not in signers:
        raise MessageError(f"expected {expected.receiver} to acknowledge this delivery, found another answer")
    return signed.signature
