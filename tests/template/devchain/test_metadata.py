"""The packaged metadata is complete, stripped, and remade by its script from the SDK's source distribution."""

import ast
import io
import json
import lzma
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from template.devchain.dispatch import CALLS
from template.devchain.metadata import RuntimeInfo, load_runtime
from template.devchain.metadata_edit import (
    add_missing_items,
    encode_compact,
    entry,
    parse_metadata,
    strip_docs,
    unwrap_option,
    write_metadata,
)
from template.devchain.runtime_api.accounts import RAW_APIS
from template.devchain.runtime_api.registry import APIS

ROOT = Path(__file__).parents[3]
PACKED = ROOT / "template/devchain/runtime_metadata.xz"

# What btcli asks a node for in tests/template/devchain/test_btcli.py, and the SDK in tests/template/test_chain.py.
ASKED_ITEMS = {
    "Commitments": "CommitmentOf",
    "MevShield": "NextKey",
    "SubtensorModule": """
        Axons BlocksSinceLastStep Burn CollateralLockShare CommitRevealWeightsEnabled
        FirstEmissionBlockNumber IdentitiesV2 ImmunityPeriod LastEpochBlock LastUpdate Lock
        MaxAllowedUids MaxWeightsLimit MinAllowedWeights NetworkRegisteredAt NetworksAdded Owner
        PendingEpochAt RevealPeriodEpochs ServingRateLimit StakeThreshold SubnetEmaTaoFlow
        SubnetEpochConsensus SubnetEpochIndex SubnetIdentitiesV3 SubnetLocked SubnetOwner
        SubnetOwnerHotkey SubnetTaoInEmission SubnetworkN Tempo TimelockedWeightCommits TokenSymbol
        Uids Weights WeightsSetRateLimit WeightsVersionKey
    """,
    "System": "Account Events",
    "Timestamp": "Now",
}
ASKED_APIS = """
    BetaBasketRuntimeApi_get_root_basket_owed BetaBasketRuntimeApi_get_root_basket_positions
    DelegateInfoRuntimeApi_get_delegates NeuronInfoRuntimeApi_get_neurons_lite
    StakeInfoRuntimeApi_get_stake_availability_for_coldkeys
    StakeInfoRuntimeApi_get_stake_info_for_coldkey StakeInfoRuntimeApi_get_stake_info_for_coldkeys
    SubnetInfoRuntimeApi_get_metagraph SubnetInfoRuntimeApi_get_next_epoch_start_block
    SubnetInfoRuntimeApi_get_subnet_hyperparams_v3
    SubnetRegistrationRuntimeApi_get_network_registration_cost SwapRuntimeApi_current_alpha_price
    SwapRuntimeApi_current_alpha_price_all SwapRuntimeApi_sim_swap_alpha_for_tao
    SwapRuntimeApi_sim_swap_tao_for_alpha TransactionPaymentApi_query_info
"""


@pytest.fixture(scope="module")
def runtime() -> RuntimeInfo:
    return load_runtime(0.25)


@pytest.mark.parametrize(("block_time_s", "slot_ms"), [(0.05, 50), (0.25, 250), (1.0, 1000), (12.0, 12000)])
def test_the_block_time_stands_in_the_metadata(block_time_s: float, slot_ms: int) -> None:
    assert load_runtime(block_time_s).codec.constant("Aura", "SlotDuration") == slot_ms


def test_writing_gives_back_the_bytes_that_were_read() -> None:
    raw = lzma.decompress(PACKED.read_bytes())
    assert write_metadata(parse_metadata(raw)) == raw


def test_the_packaged_metadata_has_no_doc_strings_and_needs_no_more_items() -> None:
    tree = parse_metadata(lzma.decompress(PACKED.read_bytes()))
    assert strip_docs(tree) == tree
    assert add_missing_items(tree) == []


def test_a_missing_item_is_added_with_its_default(runtime: RuntimeInfo) -> None:
    item = runtime.codec.storage_entry("SubtensorModule", "SubnetEpochConsensus")
    assert runtime.codec.decode(item.value_type, item.default_bytes) == "Yuma"
    tree = parse_metadata(lzma.decompress(PACKED.read_bytes()))
    subtensor = next(each for each in tree["pallets"] if each["name"] == "SubtensorModule")
    items = subtensor["storage"]["entries"]
    items[:] = [each for each in items if each["name"] != "NullPruningTarget"]
    assert add_missing_items(tree) == ["SubtensorModule.NullPruningTarget"]
    assert entry(tree, "SubtensorModule", "NullPruningTarget") is not None


@pytest.mark.parametrize("raw", [b"", b"meta\x0e", lzma.decompress(PACKED.read_bytes())[:-7]])
def test_other_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_metadata(raw)


def test_an_endpoint_without_version_15_is_refused() -> None:
    with pytest.raises(ValueError, match="found none"):
        unwrap_option(b"\x00")


@pytest.mark.flow
def test_the_script_makes_it_from_a_source_distribution(tmp_path: Path) -> None:
    """A stand-in distribution that holds the packaged bytes gives the packaged file back."""
    raw = lzma.decompress(PACKED.read_bytes())
    answer = "0x" + (b"\x01" + encode_compact(len(raw)) + raw).hex()
    golden = json.dumps({"metadata": {"v15_hex": answer}}).encode()
    with tarfile.open(tmp_path / "bittensor-0.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("bittensor-0/tests/fixtures/golden.json")
        info.size = len(golden)
        archive.addfile(info, io.BytesIO(golden))
    command = [sys.executable, ROOT / "scripts/metadata", "--sdist", tmp_path / "bittensor-0.tar.gz"]
    subprocess.run([*command, "--out", tmp_path / "out.xz"], check=True, capture_output=True)
    assert lzma.decompress((tmp_path / "out.xz").read_bytes()) == raw


@pytest.mark.flow
def test_the_script_makes_it_from_a_live_endpoint(chain: "object", tmp_path: Path) -> None:
    url = chain.url  # type: ignore[attr-defined]
    command = [sys.executable, ROOT / "scripts/metadata", "--endpoint", url, "--out", tmp_path / "out.xz"]
    subprocess.run(command, check=True, capture_output=True)
    assert lzma.decompress((tmp_path / "out.xz").read_bytes()) == load_runtime(0.25).metadata


def test_every_item_and_call_that_the_sdk_file_names_exists(runtime: RuntimeInfo) -> None:
    """`bt.storage.Pallet.Item` and `bt.calls.Pallet.function`, as written in template/sdk*.py."""
    found = {"storage": 0, "calls": 0}
    for path in sorted((ROOT / "template").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            parts = ast.unparse(node).split(".") if isinstance(node, ast.Attribute) else []
            if len(parts) < 3 or parts[-3] not in found or not parts[-2][:1].isupper():
                continue
            kind, pallet, name = parts[-3:]
            names = {each["name"] for each in runtime.pallets[pallet][kind]}
            assert name in names, f"{path.name}: {pallet}.{name} is not in the packaged metadata"
            found[kind] += 1
    assert found["storage"] and found["calls"]


def test_every_item_that_the_listed_commands_ask_for_exists(runtime: RuntimeInfo) -> None:
    for pallet, items in ASKED_ITEMS.items():
        names = {each["name"] for each in runtime.pallets[pallet]["storage"]}
        assert set(items.split()) <= names, f"{pallet} of the packaged metadata lacks {set(items.split()) - names}"


def test_every_runtime_api_that_the_listed_commands_ask_for_exists_and_is_answered(runtime: RuntimeInfo) -> None:
    known = {f"{api}_{method}" for api, methods in runtime.apis.items() for method in methods}
    assert set(ASKED_APIS.split()) <= known
    assert set(ASKED_APIS.split()) <= APIS.keys() | RAW_APIS.keys() <= known


def test_every_call_that_the_chain_runs_exists(runtime: RuntimeInfo) -> None:
    """Those of the listed commands are among them, or the commands' own tests fail."""
    known = {f"{pallet}.{call['name']}" for pallet, parts in runtime.pallets.items() for call in parts["calls"]}
    assert CALLS.keys() <= known


def test_a_runtime_can_lack_an_item_for_clients_only() -> None:
    """The chain keeps the item; what clients see differs, and so does the genesis hash."""
    whole, older = load_runtime(1.0), load_runtime(1.0, ("SubtensorModule.SubnetEpochConsensus",))
    assert older.digest != whole.digest
    assert older.codec.storage_entry("SubtensorModule", "SubnetEpochConsensus").name == "SubnetEpochConsensus"
    seen = parse_metadata(older.metadata)
    assert entry(seen, "SubtensorModule", "SubnetEpochConsensus") is None
    assert entry(seen, "SubtensorModule", "Tempo") is not None
    with pytest.raises(ValueError, match="found SubtensorModule.NoSuchItem"):
        load_runtime(1.0, ("SubtensorModule.NoSuchItem",))
