"""Blocks, extrinsics and the pool: nonces, mortality, refusals, finality, forks, saving."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import bittensor_core
import pytest

from template.devchain.chain import Chain
from template.devchain.context import PoolError
from template.devchain.genesis import Genesis, development_address
from template.devchain.metadata_edit import encode_compact
from template.devchain.snapshot import SnapshotError, load_chain, save_chain

RICH = bittensor_core.Keypair.create_from_uri("//Rich")


@pytest.fixture
def chain(genesis_for: Callable[..., Genesis]) -> Chain:
    chain = Chain(genesis_for(finality_lag_blocks=2, state_window_blocks=20), start_ms=1_000)
    grow(chain, 3)
    return chain


def grow(chain: Chain, count: int) -> None:
    for _ in range(count):
        chain.produce(1_000 + 250 * (chain.head.number + 1))


def signed(chain: Chain, *, nonce: int = 0, tip: int = 0, key: Any = RICH, **options: Any) -> bytes:
    """A signed extrinsic, by default an immortal remark of //Rich's."""
    module, function, args = options.get("call", ("System", "remark", {"remark": b"hello"}))
    codec = chain.runtime.codec
    call = bytes(codec.compose_call(module, function, args))
    era = options.get("era", "00")
    genesis = chain.blocks.genesis.hash
    birth = options.get("birth", genesis)
    common = {"era": era, "nonce": nonce, "tip": tip, "tip_asset_id": None}
    payload = codec.signature_payload(call, genesis_hash=genesis, era_block_hash=birth, **common)
    signature = options.get("signature", bytes(key.sign(bytes(payload))))
    data, _ = codec.encode_signed_extrinsic(
        call, public_key=bytes(key.public_key), signature=signature, signature_version=1, **common
    )
    return bytes(data)


def block_hash(chain: Chain, number: int) -> bytes:
    block = chain.blocks.by_number(number)
    assert block is not None
    return block.hash


def refusal(chain: Chain, raw: bytes) -> tuple[int, str | None]:
    with pytest.raises(PoolError) as caught:
        chain.submit(raw)
    return caught.value.code, caught.value.data


def test_an_extrinsic_is_in_the_next_block_and_its_nonce_is_used(chain: Chain) -> None:
    raw = signed(chain)
    chain.submit(raw)
    assert chain.next_index(RICH.ss58_address) == 1
    produced = chain.produce(5_000)
    assert produced.block.extrinsics[1] == raw
    assert chain.nonce(RICH.ss58_address) == 1
    assert refusal(chain, raw) == (1010, "Transaction is outdated")


def test_a_future_nonce_waits_for_the_ones_before_it(chain: Chain) -> None:
    later, sooner = signed(chain, nonce=1), signed(chain, nonce=0)
    extrinsic, _ = chain.submit(later)
    assert not chain.is_ready(extrinsic)
    assert chain.next_index(RICH.ss58_address) == 0
    assert chain.produce(5_000).included == []
    chain.submit(sooner)
    assert [each.nonce for each in chain.produce(5_250).included] == [0, 1]


def test_a_nonce_far_ahead_is_refused(chain: Chain) -> None:
    assert refusal(chain, signed(chain, nonce=5000)) == (1010, "Transaction will be valid in the future")


def test_the_same_extrinsic_twice_is_refused(chain: Chain) -> None:
    raw = signed(chain)
    chain.submit(raw)
    assert refusal(chain, raw)[0] == 1013


def test_a_higher_tip_replaces_and_a_lower_one_does_not(chain: Chain) -> None:
    first, _ = chain.submit(signed(chain))
    assert refusal(chain, signed(chain, call=("System", "remark", {"remark": b"other"})))[0] == 1014
    _, replaced = chain.submit(signed(chain, tip=10))
    assert replaced == first
    assert [each.tip for each in chain.produce(5_000).included] == [10]


def test_a_bad_signature_and_bad_bytes_are_refused(chain: Chain) -> None:
    assert refusal(chain, signed(chain, signature=bytes(64))) == (1010, "Transaction has a bad signature")
    assert refusal(chain, signed(chain, birth=block_hash(chain, 1))) == (1010, "Transaction has a bad signature")
    assert refusal(chain, b"\x00")[0] == 1001
    assert refusal(chain, signed(chain)[:-1])[0] == 1001
    assert refusal(chain, encode_compact(3) + b"\x04\x00\x00")[0] == 1001


def test_an_extrinsic_for_another_chain_is_refused(chain: Chain, genesis_for: Callable[..., Genesis]) -> None:
    other = Chain(genesis_for(), start_ms=2_000)
    assert refusal(chain, signed(other)) == (1010, "Transaction has a bad signature")


def test_a_mortal_extrinsic_is_valid_in_its_era_only(chain: Chain) -> None:
    """An era of four blocks that began at block 0 ends with block 3; for block 5 the birth hash is another one."""
    grow(chain, 1)
    era = {"period": 4, "phase": 0}
    good = signed(chain, era=era, birth=block_hash(chain, 4))
    old = signed(chain, era=era, birth=block_hash(chain, 0))
    assert refusal(chain, old) == (1010, "Transaction has a bad signature")
    chain.submit(good)
    assert len(chain.produce(5_000).included) == 1


def test_a_mortal_extrinsic_that_waits_too_long_is_dropped(chain: Chain) -> None:
    """Its era is blocks 4 to 7; nonce 0 never came, so it leaves the pool when block 8 is made."""
    grow(chain, 1)
    chain.submit(signed(chain, nonce=1, era={"period": 4, "phase": 0}, birth=block_hash(chain, 4)))
    grow(chain, 3)
    assert len(chain.pool) == 1
    assert [each.nonce for each in chain.produce(9_000).dropped] == [1]
    assert len(chain.pool) == 0


def test_an_empty_account_cannot_pay(chain: Chain) -> None:
    nobody = bittensor_core.Keypair.create_from_uri("//nobody")
    assert refusal(chain, signed(chain, key=nobody))[1] == "Inability to pay some fees (e.g. account balance too low)"


def test_a_failed_call_costs_its_fee_and_changes_nothing_else(chain: Chain) -> None:
    before = chain.storage.get("System.Account", RICH.ss58_address)["data"]["free"]
    target = development_address("//target")
    raw = signed(chain, call=("Balances", "transfer_keep_alive", {"dest": target, "value": 10**20}))
    chain.submit(raw)
    grow(chain, 1)
    account = chain.storage.get("System.Account", RICH.ss58_address)
    assert account["nonce"] == 1
    assert 0 < before - account["data"]["free"] < 10**6
    events = [each["event"]["event_id"] for each in chain.storage.get("System.Events")]
    assert "ExtrinsicFailed" in events and "Transfer" not in events


def test_timestamp_cannot_be_set_by_anyone(chain: Chain) -> None:
    chain.submit(signed(chain, call=("Timestamp", "set", {"now": 5})))
    grow(chain, 1)
    assert chain.storage.get("Timestamp.Now") > 1_000


def test_finality_lags_by_so_many_blocks(chain: Chain) -> None:
    assert chain.head.number == 3
    assert chain.blocks.finalized == 1


def test_a_fork_replaces_blocks_and_keeps_their_extrinsics(chain: Chain) -> None:
    chain.submit(signed(chain))
    grow(chain, 1)
    old = chain.head.hash
    chain.fork(1)
    assert chain.head.number == 3 and chain.nonce(RICH.ss58_address) == 0
    produced = chain.produce(99_000)
    assert produced.block.hash != old
    assert len(produced.included) == 1 and chain.nonce(RICH.ss58_address) == 1


def test_states_outside_the_window_are_gone_and_blocks_are_not(chain: Chain) -> None:
    grow(chain, 40)
    assert chain.oldest_state == 23
    assert chain.view(23).get("System.Number") == 23
    key = chain.storage.keys(chain.storage.item("System.Number").prefix, chain.head.number)[0]
    assert chain.storage.raw(key, 10) is None
    first = chain.blocks.by_number(1)
    assert first is not None and first.extrinsics


def test_a_saved_chain_goes_on_where_it_was(chain: Chain, tmp_path: Path) -> None:
    chain.submit(signed(chain))
    grow(chain, 25)
    save_chain(chain, tmp_path / "chain.db")
    loaded = load_chain(tmp_path / "chain.db")
    assert [block.hash for block in loaded.blocks] == [block.hash for block in chain.blocks]
    assert loaded.nonce(RICH.ss58_address) == 1
    assert loaded.view(15).get("System.Number") == 15
    grow(loaded, 1)
    grow(chain, 1)
    assert loaded.head.hash == chain.head.hash
    assert loaded.shield.public_key(30) == chain.shield.public_key(30)
    grow(loaded, 30)
    assert loaded.oldest_state == loaded.head.number - 20


@pytest.mark.parametrize("content", [b"", b"not a database at all, whatever it says"])
def test_a_broken_state_file_is_refused_with_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "chain.db"
    path.write_bytes(content)
    with pytest.raises(SnapshotError, match="expected a saved chain"):
        load_chain(path)
    with pytest.raises(SnapshotError, match="found no file"):
        load_chain(tmp_path / "missing.db")
