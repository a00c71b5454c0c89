"""Fetching evidence: each byte from whoever owes it, in parallel, with what cannot be had simply left out.

A peer that does not answer, or answers with something else, is no error here: the judgement decides what a gap means.
Where the bytes come from is a `Source`: a validator asks the miner directly, then by letter (so that the relay sees a
refusal too), then the run's store; whoever replays a verdict has other sources (`subnet.nodes.replaying`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

import msgspec

from subnet.audit.evidence import Chunk, Evidence, Leading, Needed, Wanted
from subnet.audit.tensors import frame_bytes
from subnet.config import RunConfig
from subnet.errors import EvidenceError, SubnetError
from subnet.ledger.state import RunState
from subnet.nodes import download
from subnet.nodes.client import RunClient
from subnet.nodes.download import Pace, download_state
from subnet.nodes.miner_routes import ChunkReply
from subnet.nodes.reach import LETTER_S, Peer, Reach
from subnet.wire.merkle import check_chunk, check_leaves, chunk_proof, chunk_span, merkle_leaves, merkle_root
from template.errors import BodyTooLarge, ClockSkew, PeerRefused, TransportError

log = logging.getLogger("strata.validator")

K = TypeVar("K")
V = TypeVar("V")

PARALLEL = 8  # requests under way at once
LIMIT_S = 45.0  # for all of one audit's evidence, and
LEAST_BYTES_PER_S = 1e6  # as much more as its bytes need: who drips must not hold up the audits of others
LAST_S = LETTER_S + 15.0  # after that for the relay and the store alone: who stalls directly must not use up their time
PEER_PATIENCE_S = 2.0
REBUILD_FRAC = 0.25
"""Of a round's time: two validators wait one after the other, and evidence is owed for two rounds."""
RELAY_AWAY = {503: "receiver_away", 504: "relay_expired"}  # how the relay says that the miner does not come or answer
LEAST_RELAY_FAULT = 429  # from here on an answer is the relay's own, but for these and
MINER_FAULT = 502  # a miner's failure, as the relay hands it on
REBUILDING = "rebuilding"  # and its word where it is none: the miner makes a dropped state again


@dataclass(frozen=True, kw_only=True)
class State:
    """A committed state: its root and length, and the hotkey that owes it."""

    holder: str
    root: str
    size_bytes: int


@runtime_checkable
class Source(Protocol):
    """Where evidence comes from. Each gives None for what cannot be had there; nothing is trusted to be right."""

    async def public(self, root: str, size_bytes: int, first_bytes: int) -> Leading | None:
        """The chunks that hold the first bytes of a public state of the run."""
        ...

    async def blob(self, holder: str, name: str, size_bytes: int) -> bytes | None:
        """A blob by digest that this hotkey owes."""
        ...

    async def whole(self, state: "State") -> bytes | None:
        """All bytes of a committed state."""
        ...

    async def leaves(self, state: "State") -> bytes | None:
        """The leaf hashes of a committed state, one after the other."""
        ...

    async def chunk(self, state: "State", index: int) -> Chunk | None:
        """A chunk of a committed state with its proof."""
        ...


def evidence_bytes(need: Needed, run: RunConfig) -> int:
    """About how many bytes an audit fetches at most."""
    frames = frame_bytes(run) * (len(need.inbound) + need.most_outbound)
    public_bytes = need.parameter_bytes if need.public_root else 0
    return public_bytes + need.start_bytes + need.end_bytes + frames


def gather_limit_s(need: Needed, run: RunConfig) -> float:
    """How long one audit's evidence may take: what no miner can prolong, and longer the more there is."""
    return LIMIT_S + evidence_bytes(need, run) / LEAST_BYTES_PER_S


def grace_s(need: Needed, run: RunConfig, *, rebuild_s: float = 0.0) -> float:
    """How long a miner may not show what it owes before that is a refusal: longer, the more it has to send.

    rebuild_s: how long a dropped state may take to be made again, where that is what it said.
    """
    return run.audit.grace_s + evidence_bytes(need, run) / LEAST_BYTES_PER_S + rebuild_s


def rebuild_s(state: RunState, hotkey: str) -> float:
    """How long this miner may put off a state that it makes again: a part of what a round's steps take it by the
    ledger. Bounded, for else who puts off for ever would never be judged, and be paid."""
    member, run = state.members[hotkey], state.config
    return REBUILD_FRAC * run.train.steps_per_round * member.step_ms / 1000


async def gather(
    source: Source, run: RunConfig, need: Needed, *, have: Evidence | None = None, wanted: Wanted | None = None
) -> Evidence:
    """Everything that the source gives of the needed bytes, and of what is wanted, besides what is there already."""
    known, owner, size_bytes = have or Evidence(), need.case.hotkey, frame_bytes(run)
    owners = dict.fromkeys(need.inbound, owner)
    wanted = wanted or Wanted()
    owners |= {frame.digest: frame.receiver for frame in wanted.frames}
    signed = {lines.name: lines for lines in need.deliveries}
    end = State(holder=owner, root=need.end_root, size_bytes=need.end_bytes)
    begin = State(holder=owner, root=need.start_root, size_bytes=need.start_bytes)
    public = need.public_root if known.public is None else ""
    got = await asyncio.gather(
        source.public(public, need.public_bytes, need.parameter_bytes) if public else _nothing(),
        source.whole(begin) if begin.root and known.start is None else _nothing(),
        source.leaves(end) if need.order and known.leaves is None else _nothing(),
        _all(owners.keys() - known.frames.keys(), lambda name: source.blob(owners[name], name, size_bytes)),
        _all(
            signed.keys() - known.deliveries.keys(),
            lambda name: source.blob(signed[name].holder, name, signed[name].size_bytes),
        ),
        _all(set(wanted.chunks) - known.chunks.keys(), lambda index: source.chunk(end, index)),
    )
    return Evidence(public=got[0], start=got[1], leaves=got[2], frames=got[3], deliveries=got[4], chunks=got[5])


async def _nothing() -> None:
    return None


async def _all(keys: Iterable[K], fetch: Callable[[K], Awaitable[V | None]]) -> dict[K, V]:
    """What can be had, by key. Nothing is asked for before this runs, so nothing is left behind when it is stopped."""
    names = list(keys)
    found = await asyncio.gather(*(fetch(name) for name in names))
    return {name: value for name, value in zip(names, found, strict=True) if value is not None}


@dataclass(kw_only=True)
class Asked:
    """What the relay saw of one miner: letters that it answered, refused or put off, that our time ran out for, or that
    the relay did not carry."""

    shown: int = 0
    refused: int = 0
    late: int = 0
    untried: int = 0
    later: int = 0  # it said that it makes the state again: no refusal for as long as that may take

    @property
    def witnessed(self) -> bool:
        """Whether the relay saw every refusal: a relay that fails proves nothing against a miner.

        Who drips until our time is over refuses too, but only where the relay is seen to work. So does who puts off:
        whether for too long, the grace says (`grace_s`).
        """
        works = self.shown + self.refused + self.later > 0
        return works and self.refused + self.late + self.later > 0 and self.untried == 0


@dataclass(kw_only=True)
class NetworkSource:
    """Peers by hotkey, and bounded requests to them: directly, by letter, and then to the run's store."""

    client: RunClient
    addresses: dict[str, str]
    end_s: float  # by the event loop's clock: for asking miners directly
    last_s: float = 0.0  # after that, for letters and the store
    asked: dict[str, Asked] = field(default_factory=dict)  # by the miner's hotkey
    reach: Reach = field(init=False)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PARALLEL))
    _states: dict[str, "asyncio.Task[bytes | None]"] = field(default_factory=dict)
    _wanted: set[str] = field(default_factory=set)  # states that miners were told to make again

    def __post_init__(self) -> None:
        self.reach = Reach(self.client)

    def witnessed(self, hotkey: str) -> bool:
        """Whether the relay path saw this miner not show what it owes."""
        return hotkey in self.asked and self.asked[hotkey].witnessed

    def put_off(self, hotkey: str) -> bool:
        """Whether this miner said that it makes a state again."""
        return hotkey in self.asked and self.asked[hotkey].later > 0

    async def public(self, root: str, size_bytes: int, first_bytes: int) -> Leading | None:
        """From the run's store."""
        return await self._got(lambda: self.client.leading(root, size_bytes, first_bytes=first_bytes))

    async def blob(self, holder: str, name: str, size_bytes: int) -> bytes | None:
        """From its holder, else from the store, where an accuser or a miner that left may have put it."""
        peer = self._peer(holder)
        if self.reach.directly(peer):
            found = await self._got(
                lambda: self.reach.blob(peer, name, limit_bytes=size_bytes, patience_s=PEER_PATIENCE_S)
            )
            if found is not None:
                return found
        found = await self._by_letter(holder, lambda: self.reach.by_letter(peer, name, limit_bytes=size_bytes))
        return found if found is not None else await self._stored(name, size_bytes)

    async def whole(self, state: State) -> bytes | None:
        """From its holder by ranges, each chunk checked as it comes, so that one that is wrong or cut off costs no
        other; else by letter, and from the store."""
        peer = self._peer(state.holder)

        async def direct() -> bytes:
            wanted = download.Wanted(root=state.root, size_bytes=state.size_bytes)
            holder = download.Source(name=peer.hotkey, peer=peer.address)
            pace = Pace(patience_s=PEER_PATIENCE_S)
            return await download_state(self.client.transport, [holder], wanted, tally=self.client.tally, pace=pace)

        async def letter() -> bytes:
            return await self.reach.by_letter(peer, state.root, limit_bytes=state.size_bytes)

        found = await self._got(direct) if self.reach.directly(peer) else None
        found = found if found is not None else await self._by_letter(state.holder, letter, root=state.root)
        return found if found is not None else await self._in_store(state)

    async def leaves(self, state: State) -> bytes | None:
        """From its holder, else made of the whole state where the store has it."""
        peer, size_bytes = self._peer(state.holder), state.size_bytes

        async def direct() -> bytes:
            return await self.reach.leaves(peer, state.root, size_bytes=size_bytes)

        async def letter() -> bytes:
            return await self.reach.leaves_by_letter(peer, state.root, size_bytes=size_bytes)

        found = await self._got(direct) if self.reach.directly(peer) else None
        found = found if found is not None else await self._by_letter(state.holder, letter, root=state.root)
        return found if found is not None else cut_leaves(await self._in_store(state), state)

    async def chunk(self, state: State, index: int) -> Chunk | None:
        """From its holder, else cut from the whole state where the store has it."""
        peer, target = self._peer(state.holder), f"/v1/states/{state.root}/chunks/{index}"

        async def direct() -> Chunk:
            return read_chunk((await self.reach.ask(peer, target)).body, state, index)

        async def letter() -> Chunk:
            return read_chunk((await self.reach.ask_by_letter(peer, target)).body, state, index)

        found = await self._got(direct) if self.reach.directly(peer) else None
        found = found if found is not None else await self._by_letter(state.holder, letter, root=state.root)
        if found is not None:
            return found
        return cut_chunk(await self._in_store(state), state, index)

    async def _in_store(self, state: State) -> bytes | None:
        """A whole state out of the store, fetched once."""
        if state.root not in self._states:
            got = self._got(lambda: self.client.state(state.root, state.size_bytes), more_s=self.last_s)
            self._states[state.root] = asyncio.ensure_future(got)
        return await self._states[state.root]

    def _peer(self, hotkey: str) -> Peer:
        return Peer(hotkey=hotkey, address=self.addresses.get(hotkey, ""))

    async def _stored(self, name: str, size_bytes: int) -> bytes | None:
        return await self._got(lambda: self.client.get(name, limit_bytes=size_bytes), more_s=self.last_s)

    async def _by_letter(self, holder: str, request: Callable[[], Awaitable[V]], *, root: str = "") -> V | None:
        """What the relay brings, and note whether it saw the miner not show it. root: of the state that it is part of;
        one that was dropped is wanted then, and shown at a later try."""
        found, put_off = await self._answered(self.asked.setdefault(holder, Asked()), request, holder=holder, root=root)
        if put_off and root not in self._wanted:
            self._wanted.add(root)
            await self._got(lambda: self.reach.want(self._peer(holder), root), more_s=self.last_s)
        return found

    async def _answered(
        self, seen: Asked, request: Callable[[], Awaitable[V]], *, holder: str, root: str
    ) -> tuple[V | None, bool]:
        """What a letter brings, and whether the miner said: later."""
        async with self._slots:
            try:
                async with asyncio.timeout_at(self.end_s + self.last_s):
                    found = await request()
            except TimeoutError:
                seen.late += 1
                log.info("evidence missing='no time left' from=%s", holder)
                return None, False
            except (TransportError, SubnetError) as error:
                put_off, refusal = bool(root) and is_later(error), is_refusal(error)
                seen.later += put_off
                seen.refused, seen.untried = seen.refused + (refusal and not put_off), seen.untried + (not refusal)
                log.info("evidence missing=%r", str(error))
                return None, put_off
            seen.shown += 1
            return found, False

    async def _got(self, request: Callable[[], Awaitable[V]], *, more_s: float = 0.0) -> V | None:
        """What the request gives, or None when it fails."""
        async with self._slots:
            try:
                async with asyncio.timeout_at(self.end_s + more_s):
                    return await request()
            except (TransportError, SubnetError, TimeoutError) as error:
                log.info("evidence missing=%r", str(error))
                return None


def network_source(client: RunClient, state: RunState, need: Needed) -> NetworkSource:
    """A validator's source for one audit: it gives up after the audit's limit."""
    addresses = {hotkey: member.address for hotkey, member in state.members.items()}
    end_s = asyncio.get_running_loop().time() + gather_limit_s(need, state.config)
    return NetworkSource(client=client, addresses=addresses, end_s=end_s, last_s=LAST_S)


def is_later(error: Exception) -> bool:
    """Whether a failed letter shows that the miner makes the state again that it was asked for."""
    return isinstance(error, PeerRefused) and (error.status, error.word) == (MINER_FAULT, REBUILDING)


def is_refusal(error: Exception) -> bool:
    """Whether a failed letter shows that the miner did not give the bytes, and not that the relay failed."""
    if isinstance(error, ClockSkew):
        return False  # the relay's own word, on this machine's clock
    if isinstance(error, PeerRefused):
        known = error.status < LEAST_RELAY_FAULT or error.status == MINER_FAULT
        return known or RELAY_AWAY.get(error.status) == error.word
    return isinstance(error, EvidenceError | BodyTooLarge)  # other bytes, or more than were asked for


def read_chunk(body: bytes, state: State, index: int) -> Chunk:
    """The chunk in an answer. Raises EvidenceError for another answer."""
    try:
        reply = msgspec.json.decode(body, type=ChunkReply)
    except msgspec.MsgspecError as error:
        raise EvidenceError(
            f"expected a chunk from {state.holder}, found another answer ({error}); leave it"
        ) from error
    if not check_chunk(state.root, state.size_bytes, index, reply.data, reply.proof):
        raise EvidenceError(f"expected chunk {index} of {state.root[:12]} from {state.holder}, found another; leave it")
    return Chunk(data=reply.data, proof=reply.proof)


def cut_leaves(data: bytes | None, state: State) -> bytes | None:
    """The leaves of a whole state, or None when there is none, or another's."""
    leaves = b"".join(merkle_leaves(data)) if data is not None else b""
    return leaves if check_leaves(state.root, state.size_bytes, leaves) else None


def cut_chunk(data: bytes | None, state: State, index: int) -> Chunk | None:
    """A chunk of a whole state, or None when there is none, or another's."""
    if data is None or len(data) != state.size_bytes or merkle_root(data) != state.root:
        return None
    start, end = chunk_span(len(data), index)
    return Chunk(data=data[start:end], proof=tuple(chunk_proof(data, index)))
