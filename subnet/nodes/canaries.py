"""The owner's canaries: read from a file that only the orchestrator has, committed to, and revealed in time.

The file is a JSON list of objects: `hotkey`, `cheat`, `strength` (as the miner of that hotkey was started with) and
`salt`, 64 random hex digits. What the ledger makes of them is in `subnet.ledger.canary`.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from subnet.errors import ConfigError
from subnet.ledger.canary import commitment_of
from subnet.ledger.events import Planted, Revealed
from subnet.ledger.state import RunState

SALT_CHARS = 64


def read_canaries(path: Path) -> tuple[Revealed, ...]:
    """The canaries of a file. Raises ConfigError when it is none."""
    try:
        listed = msgspec.json.decode(path.read_bytes(), type=list[dict[str, str | float]])
        found = tuple(msgspec.convert({"type": "revealed", **entry}, Revealed) for entry in listed)
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"expected a list of canaries in {path}, found: {error}; see subnet/nodes/canaries.py"
        ) from error
    if any(len(each.salt) != SALT_CHARS for each in found):
        raise ConfigError(f"expected a salt of {SALT_CHARS} random hex digits for each canary in {path}; make one each")
    return found


def due_events(state: RunState, canaries: Sequence[Revealed]) -> list[Planted | Revealed]:
    """What is to be logged of them now: first the commitment, and the reveal once a round's steps are over."""
    due: list[Planted | Revealed] = []
    for each in canaries:
        commitment = commitment_of(each.hotkey, each.cheat, each.strength, salt=each.salt)
        if commitment not in state.planted:
            due.append(Planted(commitment=commitment))
        elif state.phase == "close" and each.hotkey not in state.canaries and state.chains.get(each.hotkey):
            due.append(each)
    return due
