"""Whose fault it is: in whole networks, only who is at fault loses pay (`equivocate`, `starve`, bad input, denial)."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from subnet.cheats.base import Cheat
from subnet.cheats.registry import make_cheat
from subnet.config import RunConfig
from subnet.edges.data import load_corpus
from subnet.edges.presets import RunOptions, build_run
from subnet.incentive.score import books
from subnet.ledger.state import Segment
from subnet.nodes.inbox import Inbox
from subnet.wire.codec import decode, encode
from subnet.wire.frames import decode_frame, encode_frame
from template.errors import RefusedRequest
from template.fake.keys import FakeSigner
from tests.flow.network import STARVED_S, Network, network, unhurried

pytestmark = pytest.mark.flow


def small_run(*, steps: int = 4) -> RunConfig:
    """One round; validator-0 draws every segment."""
    run = unhurried(build_run(RunOptions(model="nano", rounds=1, steps=steps, segment_steps=(steps + 1) // 2)))
    return replace(run, audit=replace(run.audit, rate_frac=1.0, grace_s=1.0), pay=replace(run.pay, audit_window_s=1.0))


def hotkey(name: str) -> str:
    return FakeSigner(name).hotkey


def of(net: Network, stage: int) -> list[Segment]:
    return [segment for segment in net.state.segments.values() if segment.stage == stage]


def starved_run() -> RunConfig:
    """One step, which only its deadline ends: somebody waits for what never comes."""
    return unhurried(small_run(steps=1), deadline_s=STARVED_S)


async def done(net: Network) -> None:
    await net.until(lambda: net.state.phase == "done")


async def test_who_shows_the_auditor_other_bytes_than_its_neighbour_is_caught_and_its_neighbour_is_not(
    tmp_path: Path,
) -> None:
    """`equivocate`: both ends of each hop are joined; the neighbour's signed line is the proof."""
    run = small_run()
    async with network(run, load_corpus(run.data), tmp_path, num_miners=2) as net:
        net.start_miner("miner-0")
        net.start_miner("miner-1", make_cheat("equivocate"))
        await done(net)  # before anybody looks: nobody else could take the stage of a cheater that is out
        for name in ("validator-0", "validator-1"):
            net.start_validator(name)
        await net.until(lambda: any(map(net.state.upheld, net.state.segments.values())))
        failed = [s for s in net.state.segments.values() if any(v.verdict == "fail" for v in s.verdicts.values())]
        assert {segment.hotkey for segment in failed} == {hotkey("miner-1")}
        assert "equivocated" in {v.reason for segment in failed for v in segment.verdicts.values()}
        book = books(net.state, now_ms=net.state.time_ms + 10**9, own=None)
        assert book[hotkey("miner-1")].score == 0 < book[hotkey("miner-0")].score


class Spoils(Cheat):
    """What it sends of every other microbatch is out of the norm band."""

    def deliver(self, honest: Callable[[bytes], bytes | None], frame: bytes) -> bytes | None:
        header, payload = decode_frame(frame, limit_bytes=len(frame))
        if header.microbatch % 2 == 0:
            return honest(frame)
        values = decode(header.codec, payload, header.shape) * 1e12
        return honest(encode_frame(header, encode(header.codec, values)))


async def test_a_microbatch_whose_input_was_refused_pays_nobody(tmp_path: Path) -> None:
    """Neither who sent it nor who refused it states it, and the others are paid on both stages."""
    run = starved_run()
    async with network(run, load_corpus(run.data), tmp_path, num_miners=2) as net:
        net.start_miner("miner-0", Spoils(1.0))
        net.start_miner("miner-1", Spoils(1.0))
        await done(net)
        listed = {index for _, index in net.state.microbatch_by}
        spoiled = {index for _, index in net.state.microbatch_by if index % 2 and (0, index) in net.state.microbatch_by}
        assert listed and not spoiled and all(index % 2 == 0 for index in listed)
        book = books(net.state, now_ms=net.state.time_ms + 10**9, own=None)
        assert all(entry.payable == entry.committed > 0 for entry in book.values())


async def test_who_keeps_the_gradient_for_itself_is_not_paid_for_it(tmp_path: Path) -> None:
    """`starve`: nobody acknowledged it, the relay was not asked either; the work is committed and never payable."""
    run = starved_run()
    async with network(run, load_corpus(run.data), tmp_path, num_miners=2) as net:
        for name in ("miner-0", "miner-1"):
            net.start_miner(name, make_cheat("starve"))  # a first stage has no gradient to keep
        await done(net)
        assert of(net, 1) and all(segment.unpaid == segment.work for segment in of(net, 1))
        book = books(net.state, now_ms=net.state.time_ms + 10**9, own=None)
        assert all(entry.payable == 0 for entry in book.values() if of(net, 1)[0].hotkey == entry.hotkey)


class Denying(Inbox):
    """Refuses every gradient, however fit."""

    async def slot(self, key: tuple[int, int, int, str], sender: str) -> object:  # type: ignore[override]
        if key[3] == "gradient":
            raise RefusedRequest("expected nothing", word="denied", status=409)
        return await super().slot(key, sender)


async def test_a_neighbour_that_does_not_acknowledge_a_gradient_costs_its_sender_nothing(tmp_path: Path) -> None:
    """The relay saw the fit and planned frame refused, and signs in the neighbour's place: the work is paid."""
    run = starved_run()
    async with network(run, load_corpus(run.data), tmp_path, num_miners=2) as net:
        for name in ("miner-0", "miner-1"):
            miner = net.start_miner(name)
            miner.inbox = Denying(run=run)
        await done(net)
        assert of(net, 1) and all(segment.unpaid == 0 < segment.work for segment in of(net, 1) if segment.work)
        assert not any(segment.work for segment in of(net, 0))
