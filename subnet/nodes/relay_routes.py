"""The relay's doors at the orchestrator: a letter in, the letters of a receiver out, its answers in.

Every door is signed. What a letter costs is known from the signed target, so it is refused before it is read. The
receiver checks the letter itself; here it is only made sure that nobody fills the relay in another's name.
"""

import time

from subnet.audit.tensors import frame_bytes
from subnet.canonical import canonical
from subnet.edges.relay import Answer, Relay, answer_room
from subnet.errors import RefusedError
from subnet.nodes.orchestrator import Orchestrator
from subnet.nodes.orchestrator_routes import asked_wait_s, joined_caller, registered_caller, whole
from subnet.nodes.standing_in import stood_in_for
from subnet.wire.letter import HEAD_LIMIT_BYTES, SIGNED_HEADERS, Head, Letter, check_relayable, pack, sender_of, unpack
from subnet.wire.messages import Signed, make_signed
from template.auth import FORWARDED_AGE_S, check_age
from template.errors import ClockFault, RefusedRequest
from template.transport import Incoming, Reply, Route, json_reply

PIECE_BYTES = 4 << 20  # of evidence, in one answer

MEMBER_LIMIT, MEMBER_FAILED = 429, 502
UNSIGNED, LETTER_UNSIGNED = 401, 409  # a refusal of the signature of a letter is none of the request that brought it
REFUSAL = 400
NONCE = f"{SIGNED_HEADERS}nonce"
NOT_THERE = ("receiver_away", "relay_expired")


def routes(node: Orchestrator, relay: Relay) -> list[Route]:
    """All doors of the relay."""
    doors = _Doors(node, relay)
    return [
        Route(method="GET", path="/v1/relay", handler=doors.take),
        Route(method="POST", path="/v1/relay/{hotkey}", handler=doors.send),
        Route(method="POST", path="/v1/relay/answers/{number}", handler=doors.answer),
    ]


class _Doors:
    """The handlers of one relay."""

    def __init__(self, node: Orchestrator, relay: Relay) -> None:
        self._node = node
        self._relay = relay

    async def take(self, request: Incoming) -> Reply:
        """The caller's letters, as a bundle; waits for the first. An empty bundle when none came."""
        caller = registered_caller(self._node, request)
        letters = await self._relay.take(caller, wait_s=asked_wait_s(request))
        return Reply(body=pack(letters))

    async def send(self, request: Incoming) -> Reply:
        """Take a letter for a member, and answer with what the member answers."""
        caller, receiver = registered_caller(self._node, request), request.path["hotkey"]
        if receiver not in self._node.state.members:
            raise RefusedRequest(
                f"expected a letter to a member of the run, found {receiver[:64]}; it has to join first",
                word="no_member",
                status=404,
            )
        longest = frame_bytes(self._node.state.config) + HEAD_LIMIT_BYTES
        length_bytes = whole(request, "length", limit=longest)
        answer_bytes = whole(request, "answer", limit=PIECE_BYTES)
        letter: Letter | None = None
        try:
            with self._relay.room(caller, receiver, length_bytes + answer_room(answer_bytes)):
                letter = await self._letter(request, length_bytes, answer_bytes, caller)
                answer = await self._relay.send(receiver, letter)
        except RefusedRequest as refused:
            if refused.word not in NOT_THERE:
                raise
            letter = letter or await self._letter(request, length_bytes, answer_bytes, caller)
            stood_in = self._stood_in(letter, caller, receiver)
            if stood_in is None:
                raise
            return stood_in
        if answer.status < REFUSAL:
            return Reply(body=answer.body, status=answer.status)
        misdated = _misdated(letter.head) if answer.status == UNSIGNED else None
        stood_in = misdated or self._stood_in(letter, caller, receiver)
        return stood_in or Reply(body=answer.body, status=_passed_on(answer.status))

    async def _letter(self, request: Incoming, length_bytes: int, answer_bytes: int, caller: str) -> Letter:
        """The one letter in the body, in the caller's own name."""
        letters = unpack(await request.body(length_bytes=length_bytes, digest=request.query.get("digest", "")))
        if len(letters) != 1 or letters[0].head.answer_bytes != answer_bytes:
            raise RefusedError(
                f"expected one letter with an answer of up to {answer_bytes} bytes, found {len(letters)}; send "
                "each by itself, with the room that the target says"
            )
        check_relayable(letters[0].head)
        self._check_sender(sender_of(letters[0].head), caller, signed=letters[0].head.method == "POST")
        return letters[0]

    def _stood_in(self, letter: Letter, sender: str, receiver: str) -> Reply | None:
        """The orchestrator's acknowledgement of a gradient that the receiver does not give its own for."""
        if letter.head.method != "POST":
            return None
        state, target = self._node.state, letter.head.target
        delivery = stood_in_for(state, target, letter.body, sender=sender, receiver=receiver)
        if delivery is None:
            return None
        signed: Signed = make_signed(delivery, self._node.signer)
        return Reply(body=canonical(signed), content_type="application/json")

    def _check_sender(self, sender: str, caller: str, *, signed: bool) -> None:
        if sender != (caller if signed else ""):
            raise RefusedError(
                f"expected a letter signed by {caller if signed else 'nobody'}, found {sender[:64] or 'nobody'}; hand "
                "in your own deliveries only"
            )

    async def answer(self, request: Incoming) -> Reply:
        """Take a receiver's answer to a letter, and hand it to the sender."""
        caller, text = joined_caller(self._node, request), request.path["number"]
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
        status = whole(request, "status", limit=599)
        length_bytes = whole(request, "length", limit=self._relay.expected_bytes(caller, number))
        body = await request.body(length_bytes=length_bytes, digest=request.query.get("digest", ""))
        if status < 200:
            raise RefusedError(f"expected a status of 200 to 599, found {status}; send what the miner answered")
        self._relay.answer(caller, number, Answer(status=status, body=body))
        return Reply(body=b"{}", content_type="application/json")


def _passed_on(status: int) -> int:
    """A member's answer as its sender gets it: what the relay says of itself (401, 429, 503, 504) no member can say."""
    if status == UNSIGNED:
        return LETTER_UNSIGNED
    return status if status < MEMBER_LIMIT else MEMBER_FAILED


def _misdated(head: Head) -> Reply | None:
    """The refusal of a letter that is as badly dated as its receiver says: nobody stands in for one that does."""
    nonce = next((value for name, value in head.headers.items() if name.lower() == NONCE), "")
    if head.method != "POST" or not (nonce.isascii() and nonce.isdigit() and len(nonce) < 20):
        return None
    try:
        check_age((int(nonce) - time.time_ns()) / 1e9, FORWARDED_AGE_S)
    except ClockFault as fault:
        facts = {"error": fault.word, "message": str(fault), "delta_s": fault.delta_s}
        return json_reply(facts, status=LETTER_UNSIGNED)
    return None
