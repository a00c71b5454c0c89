"""What a call or the block's own work may touch: storage, the block number, events, and how to fail.

Owns the two kinds of failure: a DispatchError ends one call and is written in
the block; a PoolError refuses an extrinsic before it is in any block.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from template.devchain.metadata import RuntimeInfo
from template.devchain.metadata_edit import encode_compact
from template.devchain.state import Storage

SUBTENSOR = "SubtensorModule"


class DispatchError(Exception):
    """A call failed. `reason` is a module error (`Pallet.Name`) or a DispatchError value of the runtime."""

    def __init__(self, reason: str | dict[str, Any]) -> None:
        super().__init__(str(reason))
        self.reason = reason


class PoolError(Exception):
    """An extrinsic was refused: a JSON-RPC error code, its message and the node's detail."""

    def __init__(self, code: int, message: str, data: str | None = None) -> None:
        super().__init__(f"{message}: {data}")
        self.code, self.message, self.data = code, message, data


def invalid(detail: str) -> PoolError:
    """The node's 1010 "Invalid Transaction" with its detail."""
    return PoolError(1010, "Invalid Transaction", detail)


def custom(code: int) -> PoolError:
    """The node's 1010 with one of subtensor's numbered reasons."""
    return invalid(f"Custom error: {code}")


BAD_ORIGIN = "BadOrigin"
CANNOT_LOOKUP = "CannotLookup"

# How a call can fail: by its own rules, or because the codec refuses a value that does not fit its type, where the
# runtime's checked arithmetic would have failed.
FAILURES = (DispatchError, OverflowError, TypeError, ValueError)


@dataclass(frozen=True)
class Origin:
    """Who calls: a signed account, or root."""

    account: str | None
    root: bool = False

    def signed(self) -> str:
        """The signing account; root is refused."""
        if self.account is None or self.root:
            raise DispatchError(BAD_ORIGIN)
        return self.account


class Context:
    """Storage and events of the block that is being built."""

    def __init__(self, storage: Storage, runtime: RuntimeInfo) -> None:
        self.storage, self.runtime = storage, runtime
        self.get, self.put, self.delete = storage.get, storage.put, storage.delete
        self.has, self.scan = storage.has, storage.scan
        self._events: list[bytes] = []
        self._events_type = storage.item("System.Events").entry.value_type
        self.phase: Any = "Initialization"
        self.subnet_defaults: dict[str, Any] = {}

    @property
    def block(self) -> int:
        """The number of the block being built."""
        return self.storage.block

    def emit(self, event: str, value: Any = None) -> None:
        """Record an event `Pallet.Name`; a bare name is SubtensorModule's."""
        pallet, _, name = event.rpartition(".")
        content = name if value is None else {name: value}
        record = {"phase": self.phase, "event": {pallet or SUBTENSOR: content}, "topics": []}
        self._events.append(bytes(self.runtime.codec.encode(self._events_type, [record]))[1:])

    def take_events(self) -> bytes:
        """The block's events as the runtime stores them; the next block starts without any."""
        raw = encode_compact(len(self._events)) + b"".join(self._events)
        self._events = []
        return raw

    @contextmanager
    def undone_on_failure(self) -> Iterator[None]:
        """Everything written and emitted inside is undone when it fails with one of FAILURES."""
        mark, events = self.storage.mark(), len(self._events)
        try:
            yield
        except FAILURES:
            self.storage.rollback(mark)
            del self._events[events:]
            raise

    def add(self, name: str, *params_and_amount: Any) -> int:
        """Add to a number in storage and return the new value."""
        *params, amount = params_and_amount
        total: int = self.get(name, *params) + amount
        self.put(name, *params, total)
        return total

    def dispatch_error(self, error: DispatchError) -> Any:
        """The error as the runtime writes it."""
        if isinstance(error.reason, str) and "." in error.reason:
            return self.runtime.errors[error.reason]
        return error.reason


def account_of(address: Any) -> str:
    """The account a MultiAddress names; only account ids can be looked up."""
    if not isinstance(address, str) or address.startswith("0x"):
        raise DispatchError(CANNOT_LOOKUP)
    return address


def ensure(condition: bool, error: str) -> None:
    """Fail the call with this module error; a bare name is SubtensorModule's."""
    if not condition:
        raise DispatchError(error if "." in error or error == BAD_ORIGIN else f"{SUBTENSOR}.{error}")
