"""The base is honest at every hook, and every hook hands its arguments on."""

import inspect

import numpy as np
import pytest
import torch

from subnet.cheats.base import Cheat
from subnet.ledger.events import ClosedSet, Event
from subnet.wire.messages import WIRE_VERSION, Message, Seen
from tests.audit.lane import Lane, lane_run

HOOKS = (
    *("forward", "backward", "optimizer_step", "loss", "contribution", "reduce", "receipt", "deliver"),
    *("serve_blob", "send"),
)


def test_the_hooks_are_those_of_the_design():
    found = [name for name, value in vars(Cheat).items() if inspect.isfunction(value) and not name.startswith("_")]
    assert sorted(found) == sorted((*HOOKS, "start", "beside"))


class Silent:
    """A line to others, and what it was used for."""

    def __init__(self) -> None:
        self.run, self.hotkey, self.used = lane_run(2), "miner", list[str]()

    async def ledger(self, first: int) -> tuple[Event, ...]:
        self.used.append("ledger")
        return ()

    async def fetch(self, name: str, limit_bytes: int) -> bytes | None:
        self.used.append("fetch")
        return None

    async def say(self, message: Message) -> bool:
        self.used.append("say")
        return True

    async def post(self, hotkey: str, target: str, body: bytes) -> bool:
        self.used.append("post")
        return True

    def neighbours(self) -> tuple[str, ...]:
        self.used.append("neighbours")
        return ()


async def test_an_honest_miner_does_nothing_beside_its_work():
    line = Silent()
    assert await Cheat(0.0).beside(line) is None
    assert line.used == []


@pytest.mark.parametrize(
    ("hook", "arguments", "answer"),
    [
        ("forward", (3, torch.zeros(1, 2, 4)), torch.ones(1, 2, 4)),
        ("loss", (3, torch.zeros(1, 2, 4), torch.zeros(1, 2, dtype=torch.int64)), 2.5),
        ("backward", (3, None, 8), torch.ones(1, 2, 4)),
        ("backward", (3, torch.zeros(1, 2, 4), 8), None),
        ("optimizer_step", (7,), 0.5),
        ("contribution", (np.zeros(2, np.float32), np.ones(2, np.float32)), b"bytes"),
        ("reduce", (ClosedSet(round=0, stage=0, contributions=()), []), np.ones(2, np.float32)),
        ("deliver", (b"frame",), b"frame"),
        ("deliver", (b"frame",), None),
        ("start", (np.zeros(2, np.float32), None), None),
        ("serve_blob", ("ab" * 32,), b"blob"),
        ("serve_blob", ("ab" * 32,), None),
        ("send", (Seen(version=WIRE_VERSION, run_id="r", validator="v", root="", count=1, block=2),), None),
    ],
)
def test_every_hook_is_honest(hook, arguments, answer):
    """It calls the honest function once with the same arguments and returns what that returns."""
    calls = []
    answer = arguments[0] if hook == "send" else answer

    def honest(*given):
        calls.append(given)
        return answer

    assert getattr(Cheat(0.0), hook)(honest, *arguments) is answer
    assert len(calls) == 1 and all(a is b for a, b in zip(calls[0], arguments, strict=True))


def test_a_run_of_base_cheats_is_an_honest_run():
    """The receipt hook too: the ledger is the same with and without."""
    plain, cheated = Lane(lane_run(1)), Lane(lane_run(1), {0: Cheat(1.0)})
    for lane in (plain, cheated):
        lane.round(0)
    assert plain.state.root == cheated.state.root
