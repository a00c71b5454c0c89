"""What a runtime API may look at: one block's storage, the codec, and the block itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from template.devchain.metadata import RuntimeInfo
from template.devchain.state import View

Function = Callable[..., Any]  # takes a Query and the decoded arguments


@dataclass(frozen=True)
class Query:
    """One runtime API call at one block."""

    view: View
    runtime: RuntimeInfo
    block: int

    def get(self, name: str, *params: Any) -> Any:
        """A value at this block."""
        return self.view.get(name, *params)

    def exists(self, netuid: int) -> bool:
        """Whether the subnet exists at this block."""
        return bool(self.view.get("NetworksAdded", netuid))

    def netuids(self) -> list[int]:
        """Every subnet, the root included, in order."""
        return sorted(netuid for (netuid,), added in self.view.scan("NetworksAdded") if added)


def text_units(value: Any) -> list[int]:
    """Text as the list of its UTF-8 bytes, which is how these answers carry names."""
    if isinstance(value, str):
        return list(bytes.fromhex(value[2:]) if value.startswith("0x") else value.encode())
    return list(value)
