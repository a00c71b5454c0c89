"""The owner's canaries: read from a file that only the orchestrator has, committed to, and revealed in time.

The file is a JSON list of objects: `wallet` and `hotkey` (names, as the miner was started with), `cheat`, `strength`
(likewise) and `salt`, 64 random hex digits. The hotkeys lie on the orchestrator's machine: each signs that it agrees to
be a canary of this run, since nobody may be called one on the orchestrator's word. What the ledger makes of them is in
`subnet.ledger.canary`.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from subnet.canonical import canonical
from subnet.errors import ConfigError
from subnet.ledger.canary import commitment_of, consent_of
from subnet.ledger.events import Planted, Revealed
from subnet.ledger.state import RunState
from subnet.wire.messages import signing_bytes
from template.auth import Signer

SALT_CHARS = 64


class Listed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One canary as its owner writes it down: the names of its wallet and hotkey, how it cheats, and a salt."""

    wallet: str
    hotkey: str
    cheat: str
    strength: float
    salt: str


def read_canaries(path: Path) -> tuple[Listed, ...]:
    """The canaries of a file. Raises ConfigError when it is none."""
    try:
        found = tuple(msgspec.json.decode(path.read_bytes(), type=list[Listed]))
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"expected a list of canaries with wallet, hotkey, cheat, strength and salt in {path}, found: {error}; see "
            "docs/audit.md"
        ) from error
    if any(len(each.salt) != SALT_CHARS for each in found):
        raise ConfigError(f"expected a salt of {SALT_CHARS} random hex digits for each canary in {path}; make one each")
    return found


def consenting(
    listed: Iterable[Listed], run_id: str, *, signer_of: Callable[[str, str], Signer]
) -> tuple[Revealed, ...]:
    """What is to be revealed of them in this run, with each one's consent. signer_of: by names of wallet and hotkey."""
    return tuple(with_consent(each, run_id, signer_of(each.wallet, each.hotkey)) for each in listed)


def with_consent(listed: Listed, run_id: str, signer: Signer) -> Revealed:
    """One canary, signed by its hotkey."""
    body = Revealed(hotkey=signer.hotkey, cheat=listed.cheat, strength=listed.strength, salt=listed.salt)
    said = canonical(consent_of(run_id, body))
    return replace(body, consent=signer.sign(signing_bytes("consent", said)).hex())


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
