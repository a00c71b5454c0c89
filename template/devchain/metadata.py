"""The runtime this chain pretends to run: packaged metadata, with the block time set in it.

Owns loading and the numbers that stand in the metadata itself: spec version,
constants, error indices. Does not know storage, blocks or the network.
"""

import hashlib
import lzma
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import bittensor_core

from template.devchain.metadata_edit import pallet, parse_metadata, write_metadata

SS58_FORMAT = 42
_PACKAGED = Path(__file__).with_name("runtime_metadata.xz")


@dataclass(frozen=True)
class RuntimeInfo:
    """The codec of one runtime, its raw metadata, and the facts read from it."""

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


def load_runtime(block_time_s: float, path: Path = _PACKAGED) -> RuntimeInfo:
    """The packaged runtime with `Aura.SlotDuration` set, which is where the SDK reads the block time."""
    raw = lzma.decompress(path.read_bytes())
    metadata = _with_slot_duration(raw, max(1, round(block_time_s * 1000)))
    probe = bittensor_core.Runtime(metadata, 1, 1, SS58_FORMAT)
    version = probe.constant("System", "Version")
    spec, transaction = version["spec_version"], version["transaction_version"]
    return RuntimeInfo(metadata, bittensor_core.Runtime(metadata, spec, transaction, SS58_FORMAT), version)


def _with_slot_duration(raw: bytes, slot_ms: int) -> bytes:
    """The same metadata with the constant Aura.SlotDuration set."""
    tree = parse_metadata(raw)
    constant = next(each for each in pallet(tree, "Aura")["constants"] if each["name"] == "SlotDuration")
    constant["value"] = slot_ms.to_bytes(8, "little")
    return write_metadata(tree)
