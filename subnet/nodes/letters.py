"""A miner's letters: it comes to the orchestrator for them, puts each to its own routes, and brings the answer back.

A letter meets the checks that a request over the socket meets: signature, receiver, replay, plan, length, digest. So a
miner that nobody can connect to works with connections that it starts itself. Knows nothing of what is asked.
"""

import asyncio
import logging

from starlette.applications import Starlette

from subnet.audit.tensors import frame_bytes
from subnet.config import RunConfig
from subnet.edges.relay import RelayLimits, answer_room
from subnet.errors import PeerError
from subnet.nodes.client import FIRST_PAUSE_S, LONGEST_PAUSE_S, REQUEST_S, RunClient
from subnet.wire.letter import HEAD_LIMIT_BYTES, Letter, answer_target, check_relayable, take_target, unpack
from template.errors import BodyTooLarge, TransportError
from template.inward import Inward, answered
from template.transport import json_reply

log = logging.getLogger("strata.letters")

WAIT_S = 10.0
MAX_IN_HAND = 32
"""Letters being answered at once; the rest wait at the relay, which bounds them."""


class Letters:
    """The letters of one miner.

    `app` answers them: the miner's routes, with a verifier that shares the miner's nonces and has more patience, since
    a letter is under way twice. A bundle of more than `limit_bytes` is refused.
    """

    def __init__(self, client: RunClient, app: Starlette, *, limit_bytes: int) -> None:
        self._client = client
        self._app = app
        self._limit_bytes = limit_bytes
        self._in_hand: set[asyncio.Task[None]] = set()
        self._waiting = False

    async def work(self) -> None:
        """Come for letters and answer them, until cancelled. Nothing that a letter or the relay does ends this."""
        pause_s = FIRST_PAUSE_S
        try:
            while True:
                try:
                    letters = await self._take()
                except (TransportError, PeerError) as error:
                    self._say(f"relay=waiting reason={str(error)!r}", waiting=True)
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                    continue
                pause_s = FIRST_PAUSE_S
                self._say("relay=ready", waiting=False)
                for letter in letters:
                    task = asyncio.create_task(self._handle(letter))
                    self._in_hand.add(task)
                    task.add_done_callback(self._ended)
                while len(self._in_hand) >= MAX_IN_HAND:
                    await asyncio.wait(self._in_hand, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in self._in_hand:
                task.cancel()

    async def _take(self) -> tuple[Letter, ...]:
        client = self._client
        parts = client.transport.download(
            client.peer,
            take_target(WAIT_S),
            receiver=client.orchestrator,
            limit_bytes=self._limit_bytes,
            timeout_s=REQUEST_S + WAIT_S,
        )
        return unpack(b"".join([part async for part in parts]))

    async def _handle(self, letter: Letter) -> None:
        """Answer one letter; what goes wrong on the way is the sender's to notice, and it tries again."""
        head = letter.head
        try:
            check_relayable(head)
            request = Inward(method=head.method, target=head.target, headers=head.headers, body=letter.body)
            outcome = await answered(self._app, request, limit_bytes=answer_room(head.answer_bytes))
            status, body = outcome.status, outcome.body
        except PeerError as error:
            status, body = 403, _refusal("refused", str(error))
        except BodyTooLarge as error:
            status, body = error.status, _refusal(error.word, str(error))
        target = answer_target(head.number, status, body)
        try:
            await self._client.transport.request(
                "POST", self._client.peer, target, body=body, receiver=self._client.orchestrator, timeout_s=REQUEST_S
            )
        except TransportError as error:
            log.info("letter=%d unanswered=%r", head.number, str(error))

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._in_hand.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("letter failed", exc_info=error)

    def _say(self, text: str, *, waiting: bool) -> None:
        """Say once that the relay cannot be used, and once that it can be again."""
        if waiting != self._waiting:
            self._waiting = waiting
            log.log(logging.WARNING if waiting else logging.INFO, text)


def _refusal(word: str, message: str) -> bytes:
    body = json_reply({"error": word, "message": message}).body
    assert isinstance(body, bytes)
    return body


def bundle_limit_bytes(run: RunConfig) -> int:
    """The longest bundle that a relay within its limits hands out in this run."""
    limits = RelayLimits()
    return limits.bundle_bytes + frame_bytes(run) + 2 * HEAD_LIMIT_BYTES * limits.letters_per_receiver
