"""A genesis is checked when it is built, survives a file, and starts the chain it describes."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from template.devchain import stakes
from template.devchain.chain import Chain
from template.devchain.genesis import (
    Genesis,
    GenesisValidator,
    default_genesis,
    development_address,
    genesis_from_dict,
    genesis_to_dict,
)

BOB = development_address("//Bob")


def test_a_genesis_survives_json(genesis_for: Callable[..., Genesis]) -> None:
    genesis = genesis_for(without_items=("SubtensorModule.Burn",))
    assert genesis_from_dict(json.loads(json.dumps(genesis_to_dict(genesis)))) == genesis


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sudo": "nobody"}, "sudo expects an ss58 address, found 'nobody'"),
        ({"funds_tao": ((BOB, -1.0),)}, "at least 0 TAO, found -1.0"),
        ({"tempo": 0}, "at least 1, found"),
        ({"block_time_s": 0.0}, "block_time_s must be above 0"),
        ({"max_uids": 2}, "max_uids must hold the 3 hotkeys of genesis, found 2"),
        ({"owner_hotkey": development_address("//validator0//hot")}, "must all differ"),
        ({"validators": (GenesisValidator(hotkey="x", coldkey=BOB),)}, "validator hotkey expects an ss58 address"),
    ],
)
def test_an_impossible_genesis_is_refused(
    genesis_for: Callable[..., Genesis], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        genesis_for(**changes)


def test_an_unknown_key_in_a_file_is_refused(genesis_for: Callable[..., Genesis]) -> None:
    with pytest.raises(ValueError, match="does not have colour: remove it"):
        genesis_from_dict(genesis_to_dict(genesis_for()) | {"colour": "red"})


def test_the_chain_starts_as_its_genesis_says(genesis_for: Callable[..., Genesis]) -> None:
    storage = Chain(genesis_for(tempo=7, weights_rate_limit=9), start_ms=1).storage
    assert storage.get("Tempo", 1) == 7 and storage.get("WeightsSetRateLimit", 1) == 9
    assert storage.get("SubnetworkN", 1) == 3
    assert storage.get("ValidatorPermit", 1) == [True, True, True]
    assert storage.get("LastUpdate", 1) == [0, 0, 0]
    assert storage.get("Sudo.Key") == development_address("//Sudo")
    hotkey, coldkey = development_address("//validator0//hot"), development_address("//validator0")
    assert stakes.stake_of(storage, hotkey, coldkey, 1) == 2000 * 10**9


def test_the_default_genesis_has_a_funded_owner_and_extra_funds() -> None:
    extra = development_address("//extra")
    storage = Chain(default_genesis(funds_tao=((extra, 5.0),)), start_ms=1).storage
    assert storage.get("SubnetOwner", 1) == development_address("//Alice")
    assert storage.get("System.Account", extra)["data"]["free"] == 5 * 10**9
    assert storage.get("System.Account", BOB)["data"]["free"] == 10**13


def test_every_difference_makes_another_genesis_hash(genesis_for: Callable[..., Genesis]) -> None:
    chains = [
        Chain(genesis_for(), start_ms=1),
        Chain(genesis_for(), start_ms=2),
        Chain(genesis_for(tempo=11), start_ms=1),
        Chain(genesis_for(without_items=("SubtensorModule.Burn",)), start_ms=1),
    ]
    assert len({chain.blocks.genesis.hash for chain in chains}) == 4
    assert Chain(genesis_for(), start_ms=1).blocks.genesis.hash == chains[0].blocks.genesis.hash
