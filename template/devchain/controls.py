"""Test controls: `dev_*` methods that make the node misbehave, or wait, on purpose.

They exist only when the node is started with dev controls. Nothing else in
the dev chain asks whether it is being tested.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from template.devchain.chain import Chain, Produced
from template.devchain.metadata import load_runtime
from template.devchain.methods import RpcError
from template.devchain.snapshot import save_chain

_INVALID_PARAMS = -32602
_MAX_STEP_BLOCKS = 10_000


@dataclass
class Faults:
    """What is wrong with the node right now."""

    paused: bool = False
    delay_s: float = 0.0  # every answer waits so long
    mute: bool = False  # requests are read and never answered
    drop_after_s: float = 0.0  # every new connection is cut after so long; 0 leaves them alone
    clock_offset_ms: int = 0


class Controls:
    """The `dev_*` methods of one chain."""

    def __init__(self, chain: Chain, faults: Faults, produce: Callable[[], Produced]) -> None:
        self.chain, self.faults, self._produce = chain, faults, produce

    def methods(self) -> dict[str, Callable[[list[Any]], Any]]:
        """Every control by its JSON-RPC name."""
        return {
            "dev_fork": self.fork,
            "dev_pause": self.pause,
            "dev_resume": self.resume,
            "dev_save": self.save,
            "dev_setClock": self.set_clock,
            "dev_setDelay": self.set_delay,
            "dev_setDrop": self.set_drop,
            "dev_setMissing": self.set_missing,
            "dev_setMute": self.set_mute,
            "dev_step": self.step,
            "dev_submitPulse": self.submit_pulse,
        }

    def pause(self, params: list[Any]) -> int:
        """Make no more blocks; gives the head's number."""
        self.faults.paused = True
        return self.chain.head.number

    def resume(self, params: list[Any]) -> int:
        """Go on making blocks; gives the head's number."""
        self.faults.paused = False
        return self.chain.head.number

    def step(self, params: list[Any]) -> int:
        """Make so many blocks at once (default 1); gives the new head's number."""
        for _ in range(_number(params, 1, _MAX_STEP_BLOCKS)):
            self._produce()
        return self.chain.head.number

    def fork(self, params: list[Any]) -> int:
        """Drop the newest n blocks, as a reorganisation does; gives the new head's number.

        Their extrinsics wait for a block again, unless the second parameter is false: then they are gone.
        """
        count = _number(params, 1, self.chain.head.number - self.chain.oldest_state)
        self.chain.fork(count, keep=bool(params[1]) if len(params) > 1 else True)
        return self.chain.head.number

    def set_clock(self, params: list[Any]) -> int:
        """Shift the chain's clock by so many seconds against the machine's."""
        if not params or not isinstance(params[0], int | float):
            raise RpcError(_INVALID_PARAMS, "Invalid params", "dev_setClock expects an offset in seconds")
        self.faults.clock_offset_ms = round(params[0] * 1000)
        return self.faults.clock_offset_ms

    def set_delay(self, params: list[Any]) -> float:
        """Let every later answer wait so many seconds; 0 ends it."""
        self.faults.delay_s = _seconds(params, "dev_setDelay")
        return self.faults.delay_s

    def set_drop(self, params: list[Any]) -> float:
        """Cut every connection that is made from now on after so many seconds; 0 ends it."""
        self.faults.drop_after_s = _seconds(params, "dev_setDrop")
        return self.faults.drop_after_s

    def set_missing(self, params: list[Any]) -> list[str]:
        """Show clients a runtime without these storage items (`Pallet.Item`), as an older node's; none shows all again.

        Who has read the metadata already goes on with what it knows.
        """
        items = params[0] if params else None
        if not isinstance(items, list) or not all(isinstance(each, str) for each in items):
            raise RpcError(_INVALID_PARAMS, "Invalid params", "dev_setMissing expects an array of items, Pallet.Item")
        try:
            self.chain.runtime = load_runtime(self.chain.genesis.block_time_s, tuple(items))
        except ValueError as error:
            raise RpcError(_INVALID_PARAMS, "Invalid params", str(error)) from error
        return items

    def set_mute(self, params: list[Any]) -> bool:
        """Read requests and answer none of them (true), except these controls; or answer again (false)."""
        self.faults.mute = bool(params[0]) if params else True
        return self.faults.mute

    def submit_pulse(self, params: list[Any]) -> int:
        """Give the chain the drand signature of a round; it is in the next block."""
        if len(params) != 2 or not isinstance(params[0], int) or not isinstance(params[1], str):
            detail = "dev_submitPulse expects a round number and its signature as hex"
            raise RpcError(_INVALID_PARAMS, "Invalid params", detail)
        try:
            signature = bytes.fromhex(params[1].removeprefix("0x"))
        except ValueError as error:
            raise RpcError(_INVALID_PARAMS, "Invalid params", f"the signature must be hex: {error}") from error
        self.chain.pulses[params[0]] = signature
        return params[0]

    def save(self, params: list[Any]) -> str:
        """Write the chain's state to a file on the node's machine."""
        if not params or not isinstance(params[0], str):
            raise RpcError(_INVALID_PARAMS, "Invalid params", "dev_save expects the path of a file")
        save_chain(self.chain, Path(params[0]))
        return params[0]


def _number(params: list[Any], default: int, top: int) -> int:
    value = params[0] if params else default
    if not isinstance(value, int) or not 1 <= value <= top:
        raise RpcError(_INVALID_PARAMS, "Invalid params", f"expected a whole number from 1 to {top}, found {value!r}")
    return value


def _seconds(params: list[Any], method: str) -> float:
    value = params[0] if params else None
    if not isinstance(value, int | float) or value < 0:
        raise RpcError(_INVALID_PARAMS, "Invalid params", f"{method} expects seconds, 0 or more, found {value!r}")
    return float(value)
