"""The runtime this chain pretends to run: packaged metadata, with the block time set in it.

Owns loading and the numbers that stand in the metadata itself: spec version,
constants, error indices. Does not know storage, blocks or the network.
"""

import hashlib
import lzma
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import bittensor_core

from template.devchain.metadata_edit import pallet, parse_metadata, write_metadata

SS58_FORMAT = 42
_PACKAGED = Path(__file__).with_name("runtime_metadata.xz")


@dataclass(frozen=True)
class RuntimeInfo:
    """The codec of one runtime, the metadata that clients are shown, and the facts read from them."""

    metadata: bytes
    codec: bittensor_core.Runtime
    version: dict[str, Any]

    @cached_property
    def digest(self) -> bytes:
        """blake2b-256 of the metadata: salts the genesis hash, so that client caches never mix runtimes."""
        return hashlib.blake2b(self.metadata, digest_size=32).digest()

    @cached_property
    def pallets(self) -> dict[str, dict[str, Any]]:
        """Pallet name to its calls, errors, storage and constants."""
        return {each["name"]: each for each in self.codec.metadata_ir()["pallets"]}

    @cached_property
    def errors(self) -> dict[str, dict[str, Any]]:
        """Module error name (`Pallet.Name`) to the DispatchError value that carries it."""
        return {
            f"{name}.{error['name']}": {"Module": {"index": pallet["index"], "error": f"0x{error['index']:02x}000000"}}
            for name, pallet in self.pallets.items()
            for error in pallet["errors"]
        }

    @cached_property
    def apis(self) -> dict[str, dict[str, Any]]:
        """Runtime API name to method to its input and output types."""
        apis: dict[str, dict[str, Any]] = self.codec.runtime_api_map()
        return apis


@cache
def load_runtime(block_time_s: float, without_items: tuple[str, ...] = ()) -> RuntimeInfo:
    """The packaged runtime with `Aura.SlotDuration` set, which is where the SDK reads the block time.

    Storage items in `without_items` (`Pallet.Item`) are left out of what
    clients see, as if the runtime were older; the chain itself keeps them.
    """
    tree = parse_metadata(lzma.decompress(_PACKAGED.read_bytes()))
    slot = next(each for each in pallet(tree, "Aura")["constants"] if each["name"] == "SlotDuration")
    slot["value"] = max(1, round(block_time_s * 1000)).to_bytes(8, "little")
    whole = write_metadata(tree)
    for name in without_items:
        _remove_item(tree, name)
    version = bittensor_core.Runtime(whole, 1, 1, SS58_FORMAT).constant("System", "Version")
    codec = bittensor_core.Runtime(whole, version["spec_version"], version["transaction_version"], SS58_FORMAT)
    return RuntimeInfo(write_metadata(tree), codec, version)


def _remove_item(tree: dict[str, Any], name: str) -> None:
    pallet_name, _, item = name.partition(".")
    found = [each for each in tree["pallets"] if each["name"] == pallet_name]
    entries = found[0]["storage"]["entries"] if found and found[0]["storage"] else []
    kept = [each for each in entries if each["name"] != item]
    if len(kept) == len(entries):
        raise ValueError(f"expected a storage item of the runtime such as SubtensorModule.Burn, found {name}")
    found[0]["storage"]["entries"] = kept
