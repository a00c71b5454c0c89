"""Every signed message, typed and versioned: what each role says, and how its bytes are signed.

A message is a frozen Struct; its canonical bytes are signed under a domain of its own, so that a signature over one
kind can never pass for another. Digests are 64 hex digits, hotkeys and coldkeys ss58 addresses, times whole
milliseconds since 1970. An empty string stands for "no digest". Knows nothing of transport or storage.
"""

from typing import TypeVar

import msgspec

from subnet.canonical import canonical, digest, parse
from subnet.errors import MessageError
from template.auth import Signer, Verifier

WIRE_VERSION = 2
M = TypeVar("M", bound="Message")


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all signed messages; the class name in lower case is the signing domain."""

    version: int
    run_id: str

    def __post_init__(self) -> None:
        if self.version != WIRE_VERSION:
            name = type(self).__name__.lower()
            raise MessageError(
                f"expected a {name} of wire version {WIRE_VERSION}, found {self.version}; update the older side"
            )


class Signed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message with its author: `body` is the message's canonical text, `signature` 128 hex digits over it."""

    kind: str
    hotkey: str
    body: str
    signature: str

    @property
    def digest(self) -> str:
        """blake3 of the body, by which other messages refer to this one."""
        return digest(self.body.encode())


class Join(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A miner asks for (or, after a restart, returns to) its stage. `root`: the committed state it resumes from."""

    hotkey: str
    address: str  # host:port as announced on the chain; empty for an outbound-only miner
    memory_bytes: int
    root: str
    time_ms: int


class Leave(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A miner stops on purpose: it is not planned for until it joins again."""

    hotkey: str
    time_ms: int


class Free(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A replica that may be wired into a lane: its identity, speed class and the steps it has waited."""

    hotkey: str
    coldkey: str
    speed_class: int
    waited_steps: int


class Wiring(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The inputs of the public wiring function for one step: who is free on each stage, the seed, the microbatches."""

    round: int
    step: int
    block: int
    block_hash: str
    free: tuple[tuple[Free, ...], ...]
    first_microbatch: int
    requeued: tuple[int, ...]


class Plan(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The orchestrator's order for one step of one lane. `path` is one hotkey per stage, `wiring` a digest."""

    round: int
    step: int
    global_step: int
    lane: int
    path: tuple[str, ...]
    microbatches: tuple[int, ...]
    wiring: str
    deadline_ms: int


class Delivery(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a receiver acknowledges: one frame of one lane. `kind` is "activation" or "gradient"."""

    sender: str
    receiver: str
    round: int
    step: int
    microbatch: int
    kind: str
    digest: str


class Work(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One microbatch of a receipt: digests of the four frames (tokens for a first stage's input), the receivers'
    signatures over their `Delivery`, and on the last stage the sum of the token losses in nats."""

    index: int
    input: str
    output: str
    output_ack: str
    gradient_in: str
    gradient_out: str
    gradient_ack: str
    loss: float | None


class Receipt(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A miner's statement of one step, chained to its previous one.

    kind: "step"; "close" (the round's end: commits the state and the contribution, no microbatches); "rollback"
    (voids the receipts since the last committed state, whose root it repeats); "fresh" (before a round's first step:
    goes on from the public parameters with zero moments, so that what tainted its last state taints nothing more).
    state_root: Merkle root of the state where a segment ends, else empty. contribution, contribution_norm and tokens
    belong to "close". replica_steps counts the inner steps of this replica's optimizer since its moments were zero.
    deliveries: digest of the signed lines of all that came in (`subnet.wire.delivery`); empty where nothing did.
    """

    kind: str
    hotkey: str
    round: int
    step: int
    stage: int
    lane: int
    plan: str
    previous: str
    work: tuple[Work, ...]
    deliveries: str = ""
    gradient_norm: float | None
    replica_steps: int
    state_root: str
    state_bytes: int
    contribution: str
    contribution_norm: float | None
    tokens: int
    time_ms: int


class Merged(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The author reduced the stage's closed set, took the outer step and got this public state for round `round`: a
    replica, the publisher, or a validator that checks a merge on which they disagree."""

    hotkey: str
    round: int
    stage: int
    root: str
    state_bytes: int
    time_ms: int


class Seen(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A validator countersigns a ledger head: `count` events under `root`, seen when `block` was finalised."""

    validator: str
    root: str
    count: int
    block: int


class Draw(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a draw comes from: the finalised block and its hash, the countersigned ledger head."""

    block: int
    block_hash: str
    root: str
    count: int


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One comparison of a verdict: largest distance found against its tolerance."""

    name: str
    distance: float
    tolerance: float


class Verdict(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A validator's judgement of a segment (named by the digest of its last receipt).

    verdict: "pass", "fail" or "void"; reason: a fixed lower-case word. `draw` is None when this rechecks a foreign
    fail. evidence: digests of the blobs that were compared.
    """

    validator: str
    segment: str
    hotkey: str
    stage: int
    round: int
    verdict: str
    reason: str
    distance: float
    tolerance: float
    checks: tuple[Check, ...]
    evidence: tuple[str, ...]
    draw: Draw | None
    time_ms: int


class Checkpoint(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The publisher's statement: the checkpoint of round `round` and its held-out loss in nats per token."""

    round: int
    heldout_loss: float
    files: tuple[tuple[str, str], ...]  # name and blake3 of each file
    time_ms: int


class Consent(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A hotkey agrees to be a canary of this run, under this commitment (`subnet.ledger.canary`): only its signature
    is told, at the reveal."""

    commitment: str


class Position(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The orchestrator's acknowledgement: the message of this digest is event `event` of the ledger."""

    digest: str
    event: int


class Head(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The orchestrator's signed ledger head: `count` events, the last of them with digest `root`."""

    root: str
    count: int
    time_ms: int


KINDS: dict[str, type[Message]] = {
    kind.__name__.lower(): kind
    for kind in (
        *(Join, Leave, Wiring, Plan, Delivery, Receipt, Merged, Seen, Verdict, Checkpoint, Consent, Position, Head),
    )
}


def signing_bytes(kind: str, body: bytes) -> bytes:
    """The bytes that are signed: the domain of the kind and version, then the digest of the body."""
    return f"strata/{kind}/{WIRE_VERSION}\n{digest(body)}".encode()


def make_signed(message: Message, signer: Signer) -> Signed:
    """Sign a message with the signer's hotkey."""
    kind = type(message).__name__.lower()
    body = canonical(message)
    signature = signer.sign(signing_bytes(kind, body)).hex()
    return Signed(kind=kind, hotkey=signer.hotkey, body=body.decode(), signature=signature)


def check_signed(signed: Signed, kind: type[M], verifier: Verifier) -> M:
    """The message, once its author's signature holds. Raises MessageError on another kind, spelling or signature."""
    message = read_signed(signed, kind)
    if not check_signature(kind, signed.body.encode(), signed.signature, hotkey=signed.hotkey, verifier=verifier):
        raise MessageError(
            f"expected a {signed.kind} signed by {signed.hotkey}, found another signature; sign it again"
        )
    return message


def read_signed(signed: Signed, kind: type[M]) -> M:
    """The message without checking its signature: for logs whose entries were checked when they were accepted."""
    name = kind.__name__.lower()
    if signed.kind != name:
        raise MessageError(f"expected a {name}, found a {signed.kind}; send it to its own route")
    return parse(signed.body.encode(), kind)


def check_signature(kind: type[Message], body: bytes, signature: str, *, hotkey: str, verifier: Verifier) -> bool:
    """Whether `signature` (hex) is the hotkey's over the message bytes; malformed hex is simply no signature."""
    try:
        raw = bytes.fromhex(signature)
    except ValueError:
        return False
    return verifier.verify(signing_bytes(kind.__name__.lower(), body), raw, hotkey)
