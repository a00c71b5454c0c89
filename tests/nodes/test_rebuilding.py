"""Which states a miner keeps that keeps few, what it writes down of the others, and when it makes one again."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from subnet.canonical import digest
from subnet.data.pack import Corpus
from subnet.edges.blobs import MemoryBlobs
from subnet.errors import BlobMissing, StoreError, UnreachableError
from subnet.nodes.rebuilding import ANYBODY, FOLDER, PUBLIC_REST, REBUILT, REST, Rebuilding, Recipe
from subnet.nodes.retention import Retention
from subnet.wire.merkle import merkle_root
from subnet.wire.messages import Plan, Receipt
from template.errors import RefusedRequest
from tests.ledger.small import run_config
from tests.wire.golden import messages

RUN = run_config()


def made(folder: Path, blobs: MemoryBlobs, **options: Any) -> Rebuilding:
    retention = Retention(blobs=blobs, run=RUN, folder=folder, clock=lambda: 0.0)
    corpus = Corpus(tokens=np.zeros(1, dtype=np.uint16), digest="0" * 64, vocabulary=259)
    return Rebuilding(RUN, corpus, retention, **options)


def write_down(mine: Rebuilding, *, rounds: int = 2, each: int = 4) -> list[str]:
    """Take segments of one step each, as they would be logged; the roots of their states."""
    public = mine.blobs.put(b"public")
    receipt, plan = messages()["receipt"], messages()["plan"]
    assert isinstance(receipt, Receipt) and isinstance(plan, Plan)
    roots, start = [], ""
    for number in range(rounds * each):
        data = bytes([number])
        mine.blobs.put_named(root := merkle_root(data), data)
        step = replace(receipt, round=number // each, step=number % each, plan=digest(data), state_root=root)
        recipe = Recipe(
            root=root, state_bytes=1, stage=1, round=step.round, opens_round=step.step == 0, start_root=start,
            public_root=public, receipts=(step,), plans={step.plan: plan}, time_s=0.0,
        )  # fmt: skip
        mine.take(recipe)
        mine.thin()
        roots.append(root)
        start = root
    return roots


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs(limit_bytes=1 << 20)


def held(blobs: MemoryBlobs, roots: list[str]) -> list[int]:
    return [number for number, root in enumerate(roots) if blobs.has(root)]


@pytest.mark.parametrize(
    ("newest", "kept"), [(1, [3, 7]), (2, [3, 6, 7]), (None, list(range(8))), (99, list(range(8)))]
)
def test_the_newest_and_each_round_s_last_are_kept(
    newest: int | None, kept: list[int], tmp_path: Path, blobs: MemoryBlobs
) -> None:
    assert held(blobs, write_down(made(tmp_path, blobs, newest=newest))) == kept


def test_nothing_is_dropped_that_could_not_be_made_again(tmp_path: Path, blobs: MemoryBlobs) -> None:
    """Without a round's public parameters there is no way to its first state; from that one there is to the others."""
    mine = made(tmp_path, blobs)
    roots = write_down(mine)
    blobs.delete(mine.recipes[roots[0]].public_root)
    mine.newest = 1
    mine.thin()
    assert held(blobs, roots) == [0, 3, 4, 7]


def test_a_restarted_miner_knows_its_recipes_and_leaves_out_a_damaged_one(tmp_path: Path, blobs: MemoryBlobs) -> None:
    roots = write_down(made(tmp_path, blobs, newest=1))
    (tmp_path / FOLDER / roots[2]).write_bytes(b"{")
    assert list(made(tmp_path, blobs, newest=1).recipes) == sorted({*roots} - {roots[2]})


def test_recipes_go_when_their_states_are_no_longer_owed(tmp_path: Path, blobs: MemoryBlobs) -> None:
    mine = made(tmp_path, blobs, newest=1)
    roots = write_down(mine)
    mine.retention.clock = lambda: 1e6
    mine.forget(2)
    assert set(mine.recipes) == set(roots[4:]) == {path.name for path in (tmp_path / FOLDER).iterdir()}


@pytest.mark.parametrize("who", [ANYBODY, "validator"])
async def test_one_rebuild_at_a_time_and_a_rest_which_is_longer_for_anybody(
    tmp_path: Path, blobs: MemoryBlobs, who: str
) -> None:
    """A rebuild whose frames are gone fails: that state is given up, and the others wait until the rest is over."""
    clock_s = 100.0
    mine = made(tmp_path, blobs, newest=1, clock=lambda: clock_s)
    roots = write_down(mine)
    rest_s = 7.0 * (REST if who else PUBLIC_REST)
    with pytest.raises(RefusedRequest) as refused:
        mine.ask_for(roots[1], who)
    task = mine.task
    assert task is not None and (refused.value.status, refused.value.word) == (503, "rebuilding")
    with pytest.raises(RefusedRequest):
        mine.ask_for(roots[5], who)
    assert mine.task is task, "the other is not begun"
    await asyncio.sleep(0)
    clock_s = 107.0
    await asyncio.wait_for(task, 20)
    assert mine.failed == {roots[1]} and mine.task is None
    mine.ask_for(roots[1], who)  # returns: nobody is told to wait for it
    with pytest.raises(RefusedRequest) as refused:
        mine.ask_for(roots[5], who)
    assert mine.task is None and refused.value.retry_after_s == rest_s
    clock_s = 107.0 + rest_s
    with pytest.raises(RefusedRequest):
        mine.ask_for(roots[5], who)
    assert mine.task is not None
    await asyncio.wait_for(mine.task, 20)
    mine.close()


def wanted(mine: Rebuilding, root: str, who: str = ANYBODY) -> None:
    """Ask for a state that is made again later."""
    with pytest.raises(RefusedRequest, match="ask again"):
        mine.ask_for(root, who)


async def ended(mine: Rebuilding) -> str:
    """The state that was being made, once that has ended."""
    task, making = mine.task, mine.making
    assert task is not None
    await asyncio.wait_for(task, 20)
    return making


async def test_nobody_s_flood_keeps_a_validator_from_its_turn(tmp_path: Path, blobs: MemoryBlobs) -> None:
    """One of anybody's may be under way; then come the validators, each once before one comes twice."""
    clock_s = 100.0
    mine = made(tmp_path, blobs, newest=1, clock=lambda: clock_s)
    roots = write_down(mine)
    for root in roots[:3]:
        wanted(mine, root)
    wanted(mine, roots[4], "first")
    wanted(mine, roots[5], "first")
    wanted(mine, roots[6], "second")
    order = [await ended(mine), await ended(mine)]
    for root in roots[1:3]:
        wanted(mine, root)
    order += [await ended(mine), await ended(mine)]
    assert order == [roots[0], roots[4], roots[6], roots[5]]
    assert mine.making in roots[1:3], "then anybody's"
    await ended(mine)
    mine.close()


async def test_a_validator_does_not_wait_for_anybody_s_rest(tmp_path: Path, blobs: MemoryBlobs) -> None:
    clock_s = 100.0
    mine = made(tmp_path, blobs, newest=1, clock=lambda: clock_s)
    roots = write_down(mine)
    wanted(mine, roots[0])
    await asyncio.sleep(0)
    clock_s = 110.0
    await ended(mine)
    wanted(mine, roots[1])
    assert mine.task is None
    wanted(mine, roots[2], "validator")
    assert await ended(mine) == roots[2]
    mine.close()


def test_what_was_made_for_a_validator_stays_whatever_anybody_asks_for(tmp_path: Path, blobs: MemoryBlobs) -> None:
    """Else it would be dropped again before the validator comes back for it."""
    mine = made(tmp_path, blobs, newest=1)
    roots = write_down(mine)
    mine._keep_for("validator", roots[0])
    for number in (1, 2, *range(100, 99 + REBUILT)):
        mine._keep_for(ANYBODY, roots[number] if number < len(roots) else digest(bytes([number])))
    for number in (0, 1, 2):
        blobs.put_named(roots[number], bytes([number]))
    mine.thin()
    assert held(blobs, roots) == [0, 2, 3, 7]


class Away(MemoryBlobs):
    """A store that fails in a way of its own when it is read."""

    fault: Exception

    def get(self, name: str) -> bytes:
        raise self.fault


@pytest.mark.parametrize(
    ("fault", "gives_up"),
    [
        (StoreError("expected the disk to answer, found it busy; try again"), False),
        (UnreachableError("expected the store to answer, found nobody; try again"), False),
        (MemoryError("no room for another stage"), False),
        (BlobMissing("expected a frame, found none; ask its author"), True),
        (ValueError("a frame of another shape"), True),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_disk_or_memory_that_is_full_for_a_while_gives_up_no_state(
    fault: Exception, gives_up: bool, tmp_path: Path
) -> None:
    """Else one bad moment would make the miner withhold that state for ever."""
    blobs = Away(limit_bytes=1 << 20)
    blobs.fault = fault
    mine = made(tmp_path, blobs, newest=1)
    roots = write_down(mine)
    wanted(mine, roots[1], "validator")
    await ended(mine)
    assert mine.failed == ({roots[1]} if gives_up else set())
    mine.close()


async def test_what_anybody_had_made_while_a_validator_waited_for_it_stays_for_the_validator(
    tmp_path: Path, blobs: MemoryBlobs
) -> None:
    mine = made(tmp_path, blobs, newest=1)
    roots = write_down(mine)
    wanted(mine, roots[1])
    wanted(mine, roots[1], "validator")
    blobs.put_named(roots[1], bytes([1]))  # as the rebuild for anybody would, had this test its frames
    await ended(mine)
    assert list(mine.rebuilt["validator"]) == [roots[1]]
    mine.close()


def test_what_was_never_here_is_not_waited_for(tmp_path: Path, blobs: MemoryBlobs) -> None:
    mine = made(tmp_path, blobs, newest=1)
    write_down(mine)
    mine.ask_for("ab" * 32)
    assert mine.task is None
