"""The owner's file of canaries, and that what is revealed of them carries their own signature for this run."""

import json
from pathlib import Path

import pytest

from subnet.errors import ConfigError, LedgerError
from subnet.ledger.canary import check_consent, commitment_of
from subnet.ledger.events import Planted
from subnet.nodes.canaries import consenting, due_events, read_canaries
from template.fake.keys import FakeVerifier
from tests.ledger.log import hotkey, signer
from tests.ledger.simulation import Simulation

ENTRY = {"wallet": "owner", "hotkey": "ann", "cheat": "stale", "strength": 1.0, "salt": "5a" * 32}


def written(path: Path, *entries: dict) -> Path:
    path.write_text(json.dumps(entries))
    return path


def test_what_the_file_lists_is_planted_and_revealed_with_its_hotkeys_signature(tmp_path: Path):
    sim = Simulation()
    listed = read_canaries(written(tmp_path / "canaries.json", ENTRY))
    (canary,) = consenting(listed, sim.run.run_id, signer_of=lambda wallet, name: {"owner": signer}[wallet](name))
    assert canary.hotkey == hotkey("ann")
    commitment = commitment_of(hotkey("ann"), "stale", 1.0, salt="5a" * 32)
    assert due_events(sim.state, [canary]) == [Planted(commitment=commitment)]
    check_consent(sim.state, canary, FakeVerifier(""))
    (elsewhere,) = consenting(listed, "0" * 64, signer_of=lambda _, name: signer(name))
    with pytest.raises(LedgerError, match="consent"):
        check_consent(sim.state, elsewhere, FakeVerifier(""))


@pytest.mark.parametrize(
    "entry",
    [ENTRY | {"salt": "5a"}, {name: ENTRY[name] for name in ENTRY if name != "wallet"}, ENTRY | {"other": 1}],
)
def test_a_file_that_is_no_list_of_canaries_is_refused(tmp_path: Path, entry: dict):
    with pytest.raises(ConfigError, match="canar"):
        read_canaries(written(tmp_path / "canaries.json", entry))
