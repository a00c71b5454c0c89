"""Repeating a verdict: from the ledger and public bytes alone, on any machine, by anybody.

Finds the verdict in the log, takes the state that the log had when it was given, fetches what it rests on from the
run's store, from miners that still serve it, or from folders, and judges anew. Needs no key and no registration.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from subnet.audit.chunks import chunks_to_repeat
from subnet.audit.draw import seed_of
from subnet.audit.evidence import (
    Chunk,
    Evidence,
    Leading,
    Missing,
    Needed,
    Wanted,
    leading_of,
    missing,
    needed,
    verified,
)
from subnet.audit.judge import Begun, Judgement, conclude, examine
from subnet.audit.pinned import Pack, read_pack
from subnet.audit.sent import frames_to_repeat
from subnet.data.pack import Corpus
from subnet.edges.blobs import check_blob, check_name
from subnet.errors import ConfigError, EvidenceError, SubnetError
from subnet.ledger.events import Event, Said
from subnet.ledger.fold import fold
from subnet.ledger.state import RunState
from subnet.nodes.evidence import State, cut_chunk, cut_leaves, gather, read_chunk
from subnet.wire.merkle import check_chunk, check_leaves, leaves_bytes
from subnet.wire.messages import Verdict, read_signed
from template.auth import Verifier
from template.errors import TransportError
from template.transport import Transport

LEAST_PREFIX = 4
PARALLEL = 8


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A verdict of the log: its digest, what it says, and the state that the log gave before it."""

    id: str
    verdict: Verdict
    state: RunState
    need: Needed


@dataclass(frozen=True, kw_only=True)
class Line:
    """One check, claimed and recomputed; None where one side does not have it."""

    name: str
    claimed: float | None
    recomputed: float | None
    tolerance: float


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the replay came to. agrees: the same verdict for the same reason."""

    claim: Claim
    judgement: Judgement
    lines: tuple[Line, ...]

    @property
    def agrees(self) -> bool:
        """Whether the recomputed verdict is the claimed one."""
        said = self.claim.verdict
        return (said.verdict, said.reason) == (self.judgement.verdict, self.judgement.reason)


def find_verdict(events: Sequence[Event], prefix: str) -> Claim:
    """The one verdict of the log whose id begins so. Raises ConfigError for none, several, or one that is void."""
    if len(prefix) < LEAST_PREFIX:
        raise ConfigError(f"expected at least {LEAST_PREFIX} characters of a verdict's id, found {prefix!r}; give more")
    found = [
        (event.n, event.body.signed)
        for event in events
        if isinstance(event.body, Said) and event.body.signed.kind == "verdict"
        and event.body.signed.digest.startswith(prefix.lower())
    ]  # fmt: skip
    if len({signed.digest for _, signed in found}) != 1:
        which = "none" if not found else f"{len(found)} of them"
        raise ConfigError(
            f"expected one verdict whose id begins with {prefix[:64]!r}, found {which}; the board and "
            "summary.json list the ids"
        )
    n, signed = found[0]
    verdict = read_signed(signed, Verdict)
    if verdict.verdict == "void":
        raise ConfigError(
            f"expected a verdict that judges, found the void {signed.digest[:12]} ({verdict.reason}); there is nothing "
            "to recompute"
        )
    state = fold(events[:n])
    segment = state.segments[verdict.segment]
    need = needed(state, segment, seed=seed_of(state, segment, verdict.draw, verdict.validator))
    return Claim(id=signed.digest, verdict=verdict, state=state, need=need)


class Folders:
    """Bytes by name out of folders: a store's, a miner's, or what was copied from them, however deep they lie."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._paths: dict[str, Path] = {}
        for folder in folders:
            if not folder.is_dir():
                raise ConfigError(f"expected a folder of blobs at {folder}, found none; check --blobs")
            self._paths |= {path.name: path for path in folder.rglob("?" * 64) if path.is_file()}

    def get(self, name: str) -> bytes | None:
        """The bytes of this name, or None when they are not here or are not what the name says."""
        path = self._paths.get(name)
        if path is None:
            return None
        try:
            data = path.read_bytes()
            check_blob(name, data)
        except (OSError, EvidenceError):
            return None
        return data


class PublicSource:
    """Implements evidence.Source from folders, the run's store at a URL, and miners that still serve."""

    def __init__(
        self,
        folders: Folders,
        transport: Transport | None,
        store: str,
        addresses: Mapping[str, str],
        *,
        pack: str,
        told: Callable[[int], None] = lambda size_bytes: None,
    ) -> None:
        """pack: the name of what was pinned of the end state, where the verdict has one. told: how many bytes came,
        each time."""
        self._folders, self._transport, self._store = folders, transport, store
        self._addresses, self._pack, self._told = addresses, pack, told
        self._whole: dict[str, asyncio.Task[bytes | None]] = {}
        self._unpacked: Pack | None = None
        self._slots = asyncio.Semaphore(PARALLEL)

    async def public(self, root: str, size_bytes: int, first_bytes: int) -> Leading | None:
        whole = await self._blob((self._store,), root, size_bytes)
        return leading_of(whole, first_bytes) if whole is not None else None

    async def blob(self, holder: str, name: str, size_bytes: int) -> bytes | None:
        return await self._blob((self._store, self._addresses.get(holder, "")), name, size_bytes)

    async def whole(self, state: State) -> bytes | None:
        return await self.blob(state.holder, state.root, state.size_bytes)

    async def pinned(self, state: State) -> Pack:
        """What an accuser pinned of this state; an empty pack where there is none, or none that can be read."""
        if self._unpacked is None:
            size_bytes = 2 * state.size_bytes + (1 << 16)
            self._unpacked = _read(await self._once(self._pack, size_bytes) if self._pack else None)
        return self._unpacked

    async def leaves(self, state: State) -> bytes | None:
        leaves = (await self.pinned(state)).leaves
        if check_leaves(state.root, state.size_bytes, leaves):
            return leaves
        whole, address = await self._once(state.root, state.size_bytes), self._addresses.get(state.holder, "")
        if whole is not None:
            return cut_leaves(whole, state)
        if self._transport is None or not address:
            return None
        path, limit_bytes = f"/v1/states/{state.root}/leaves", leaves_bytes(state.size_bytes)
        leaves = await self._fetched(self._transport, address, path, limit_bytes) or b""
        return leaves if check_leaves(state.root, state.size_bytes, leaves) else None

    async def chunk(self, state: State, index: int) -> Chunk | None:
        chunk = (await self.pinned(state)).chunks.get(index)
        if chunk is not None and check_chunk(state.root, state.size_bytes, index, chunk.data, chunk.proof):
            return chunk
        whole = await self._once(state.root, state.size_bytes)
        if whole is not None:
            return cut_chunk(whole, state, index)
        return await self._chunk_of_miner(state, index)

    async def _chunk_of_miner(self, state: State, index: int) -> Chunk | None:
        address = self._addresses.get(state.holder, "")
        if self._transport is None or not address:
            return None
        async with self._slots:
            try:
                response = await self._transport.request("GET", address, f"/v1/states/{state.root}/chunks/{index}")
                self._told(len(response.body))
                return read_chunk(response.body, state, index)
            except (TransportError, SubnetError):
                return None

    async def _once(self, name: str, size_bytes: int) -> bytes | None:
        """A blob of the store that many ask for, fetched once."""
        if name not in self._whole:
            self._whole[name] = asyncio.ensure_future(self._blob((self._store,), name, size_bytes))
        return await self._whole[name]

    async def _blob(self, peers: Sequence[str], name: str, size_bytes: int) -> bytes | None:
        check_name(name)
        data = self._folders.get(name)
        for peer in peers if data is None else ():
            if data is None and peer and self._transport is not None:
                data = _named(name, await self._fetched(self._transport, peer, f"/v1/blobs/{name}", size_bytes))
        return data

    async def _fetched(self, transport: Transport, peer: str, path: str, size_bytes: int) -> bytes | None:
        async with self._slots:
            try:
                data = b"".join([part async for part in transport.download(peer, path, limit_bytes=size_bytes)])
            except (TransportError, SubnetError):
                return None
            self._told(len(data))
            return data


def _named(name: str, data: bytes | None) -> bytes | None:
    """The bytes where they are what the name says."""
    try:
        check_blob(name, data or b"")
    except EvidenceError:
        return None
    return data


def _read(pack: bytes | None) -> Pack:
    try:
        return read_pack(pack) if pack is not None else Pack()
    except EvidenceError:
        return Pack()


def source_of(
    claim: Claim,
    folders: Folders,
    transport: Transport | None,
    store: str,
    *,
    told: Callable[[int], None] = lambda size_bytes: None,
) -> PublicSource:
    """Where the evidence of a verdict may lie: what the log names, at the addresses that the log has."""
    addresses = {hotkey: member.address for hotkey, member in claim.state.members.items()}
    pack = claim.verdict.evidence[-1] if claim.verdict.verdict == "fail" and claim.verdict.evidence else ""
    return PublicSource(folders, transport, store, addresses, pack=pack, told=told)


async def replay_verdict(claim: Claim, source: PublicSource, corpus: Corpus, verifier: Verifier) -> Outcome:
    """Fetch and judge anew. Raises EvidenceError, in one sentence, when bytes are gone."""
    run, need = claim.state.config, claim.need
    evidence = await gather(source, run, need)
    gone = missing(need, verified(need, evidence))
    unproven = sum(lines.name not in evidence.deliveries for lines in need.deliveries)
    if gone.public or gone.miner or unproven:
        raise EvidenceError(_gone(claim, gone))
    begin = partial(examine, need, evidence, run, corpus=corpus, verifier=verifier)
    judgement = await asyncio.to_thread(begin)
    if isinstance(judgement, Begun):
        begun, wanted = await _with_wanted(claim, source, judgement)
        gone = missing(need, begun.evidence, wanted)
        if gone.miner:
            raise EvidenceError(_gone(claim, gone))
        judgement = await asyncio.to_thread(partial(conclude, need, begun, run, wanted=wanted))
    outcome = Outcome(claim=claim, judgement=judgement, lines=compared(claim.verdict, judgement))
    if gone.neighbours and not outcome.agrees:
        raise EvidenceError(_gone(claim, gone))  # what nobody shows could have made the difference
    return outcome


async def _with_wanted(claim: Claim, source: PublicSource, begun: Begun) -> tuple[Begun, Wanted]:
    """The audit with the chunks and frames that it takes, and which: of a fail what its author pinned, or what is
    wanted here.

    On another machine others may differ from the replay, and nobody may serve these any longer; but one of those that
    the author had must show the fail.
    """
    need = claim.need
    end = State(holder=need.case.hotkey, root=need.end_root, size_bytes=need.end_bytes)
    pinned = verified(need, Evidence(chunks=(await source.pinned(end)).chunks)).chunks
    wanted = begun.wanted(need)
    if pinned:
        wanted = Wanted(
            chunks=chunks_to_repeat(need, begun.evidence, begun.replayed, pinned),
            frames=frames_to_repeat(need, begun.replayed, claim.verdict.evidence),
        )
    more = await gather(source, claim.state.config, need, have=begun.evidence, wanted=wanted)
    return begun.with_more(need, more), wanted


def _gone(claim: Claim, gone: Missing) -> str:
    count = gone.public + len(gone.miner) + len(gone.neighbours)
    said = claim.verdict
    if said.reason == "withheld":
        return (
            f"expected the evidence of {claim.id[:12]}, found {count} parts of it missing, as the verdict says; a "
            "refusal is not recomputed, it stands by the verdicts of the validators that saw it"
        )
    return (
        f"expected the evidence of {claim.id[:12]} (a {said.verdict} of round {said.round}), found {count} parts of it "
        "gone; a fail is kept until its window closes, a pass as long as the miner serves it: give copies with --blobs"
    )


def compared(verdict: Verdict, judgement: Judgement) -> tuple[Line, ...]:
    """Every check that either side has."""
    claimed = {check.name: check for check in verdict.checks}
    found = {check.name: check for check in judgement.checks}
    return tuple(
        Line(
            name=name,
            claimed=claimed[name].distance if name in claimed else None,
            recomputed=found[name].distance if name in found else None,
            tolerance=(found.get(name) or claimed[name]).tolerance,
        )
        for name in dict.fromkeys((*claimed, *found))
    )
