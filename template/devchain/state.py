"""Storage with history.

Owns every value of the chain, SCALE-encoded under its real key, at every
block of the kept window. Values go in and come out as plain Python (accounts
as ss58, bytes as bytes or text, the rest as numbers, lists and dicts) and are
never changed in place. Does not know what any item means.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

import bittensor_core

from template.devchain.spool import SEGMENT_SHIFT, Spool

_UNREAD = object()
_PREFIX_BYTES = 32
_SEGMENT_BLOCKS = 1024
_PLACE_MASK = (1 << SEGMENT_SHIFT) - 1
_NEWEST, _DELETED = 0, _PLACE_MASK  # in the list of places: the one in memory; none, because there was no value


class Item:
    """One storage item of the runtime: how its keys and values are written, and its cells."""

    __slots__ = ("cells", "default", "entry", "name", "pallet", "prefix")

    def __init__(self, codec: bittensor_core.Runtime, pallet: str, name: str) -> None:
        self.pallet, self.name = pallet, name
        self.entry = codec.storage_entry(pallet, name)
        self.prefix: bytes = bytes(codec.storage_prefix(pallet, name))
        optional = self.entry.modifier == "Optional"
        self.default = None if optional else codec.decode(self.entry.value_type, self.entry.default_bytes)
        self.cells: dict[tuple[Any, ...], Cell] = {}


class Cell:
    """One key of one item. Its newest version is in memory; of older ones only the block and the place on disk, twelve
    bytes each, because there are many: every version of every value of thousands of blocks."""

    __slots__ = ("blocks", "item", "key", "params", "places", "raw", "value")

    def __init__(self, item: Item, params: tuple[Any, ...], key: bytes) -> None:
        self.item, self.params, self.key = item, params, key
        self.blocks = array("I")
        self.places = array("Q")
        self.raw: bytes | None = None  # of the newest version; None where that is a deletion
        self.value: Any = None

    def index_at(self, block: int) -> int:
        """Which version holds at the end of that block; -1 where there was none yet."""
        blocks = self.blocks
        return len(blocks) - 1 if blocks and blocks[-1] <= block else bisect_right(blocks, block) - 1

    def has_at(self, block: int) -> bool:
        """Whether there is a value at the end of that block."""
        index = self.index_at(block)
        if index == len(self.blocks) - 1:
            return self.raw is not None
        return index >= 0 and self.places[index] != _DELETED


class Storage:
    """The current values, written at `block`, and a window of the past."""

    def __init__(self, codec: bittensor_core.Runtime) -> None:
        self.codec = codec
        self.block = 0
        self._items: dict[str, Item] = {}
        self._by_prefix: dict[bytes, Item] = {}
        self._by_key: dict[bytes, Cell] = {}
        self._journal: dict[int, list[Cell]] = {}
        self._undo: list[tuple[Cell, bool, bytes | None, Any]] = []
        self._oldest = 0
        self._spool = Spool()

    def item(self, name: str) -> Item:
        """The item called `Pallet.Name`; a bare name is SubtensorModule's. Raises KeyError when there is none."""
        found = self._items.get(name)
        if found is None:
            pallet, _, short = name.rpartition(".")
            found = Item(self.codec, pallet or "SubtensorModule", short)
            self._items[name] = found
            self._by_prefix[found.prefix] = found
        return found

    def get(self, name: str, *params: Any) -> Any:
        """The current value, or the item's default."""
        item = self.item(name)
        cell = item.cells.get(params)
        if cell is None or cell.raw is None:
            return item.default
        if cell.value is _UNREAD:
            cell.value = self.codec.decode(item.entry.value_type, cell.raw)
        return cell.value

    def _version(self, cell: Cell, index: int) -> bytes | None:
        """The bytes of a version, wherever they are."""
        if index == len(cell.blocks) - 1:
            return cell.raw
        place = cell.places[index] if index >= 0 else _DELETED
        return None if place == _DELETED else self._spool.get(_segment(cell, index) << SEGMENT_SHIFT | place)

    def has(self, name: str, *params: Any) -> bool:
        """Whether the key holds a value of its own."""
        cell = self.item(name).cells.get(params)
        return cell is not None and cell.raw is not None

    def put(self, name: str, *params_and_value: Any) -> None:
        """Write a value: the parameters of the key, then the value."""
        *params, value = params_and_value
        item = self.item(name)
        self._write(item, tuple(params), bytes(self.codec.encode(item.entry.value_type, value)), value)

    def put_raw(self, name: str, raw: bytes) -> None:
        """Write the bytes of a value without keys; the next read decodes them."""
        self._write(self.item(name), (), raw, _UNREAD)

    def delete(self, name: str, *params: Any) -> None:
        """Remove the key, when it is there."""
        if self.has(name, *params):
            self._write(self.item(name), params, None, None)

    def scan(self, name: str, *prefix: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """Every (parameters, value) of a map whose first parameters are these."""
        size = len(prefix)
        for params in [each for each in self.item(name).cells if each[:size] == prefix]:
            if self.has(name, *params):
                yield params, self.get(name, *params)

    def _write(self, item: Item, params: tuple[Any, ...], raw: bytes | None, value: Any) -> None:
        cell = item.cells.get(params)
        if cell is None:
            key = bytes(self.codec.storage_key(item.pallet, item.name, list(params)))
            cell = item.cells[params] = self._by_key[key] = Cell(item, params, key)
        same_block = bool(cell.blocks) and cell.blocks[-1] == self.block
        self._undo.append((cell, same_block, cell.raw, cell.value))
        if not same_block:
            self._add_version(cell, self.block)
            self._journal.setdefault(self.block, []).append(cell)
        cell.raw, cell.value = raw, value

    def _add_version(self, cell: Cell, block: int) -> None:
        """Make room for a version of this block; the newest until now becomes history, and goes to disk."""
        cell.blocks.append(block)
        cell.places.append(_NEWEST)
        if len(cell.blocks) > 1:
            index = len(cell.blocks) - 2
            stored = None if cell.raw is None else self._spool.put(_segment(cell, index), cell.raw)
            cell.places[index] = _DELETED if stored is None else stored & _PLACE_MASK

    def _drop_newest(self, cell: Cell) -> None:
        """Take the newest version away; its bytes are no longer needed. A cell without any goes too."""
        cell.blocks.pop()
        cell.places.pop()
        if not cell.blocks:
            cell.item.cells.pop(cell.params, None)
            self._by_key.pop(cell.key, None)

    def mark(self) -> int:
        """A point to roll back to."""
        return len(self._undo)

    def rollback(self, mark: int) -> None:
        """Undo every write after the mark."""
        while len(self._undo) > mark:
            cell, same_block, raw, value = self._undo.pop()
            if not same_block:
                self._drop_newest(cell)
            cell.raw, cell.value = raw, value

    def begin_block(self, number: int) -> None:
        """From here on writes belong to this block."""
        self.block = number
        self._undo.clear()

    def dump(self) -> Iterator[tuple[str, bytes, int, bytes | None]]:
        """Every kept version of every value: item, key, block, bytes."""
        for name, item in self._items.items():
            for cell in item.cells.values():
                for index, block in enumerate(cell.blocks):
                    yield name, cell.key, block, self._version(cell, index)

    def restore(self, versions: Iterable[tuple[str, bytes, int, bytes | None]], block: int, oldest: int) -> None:
        """Take over dumped versions in place of everything there is; `oldest` is the oldest kept state."""
        for item in self._items.values():
            item.cells.clear()
        self._by_key.clear()
        self._journal.clear()
        for name, key, number, raw in versions:
            cell = self._by_key.get(key)
            if cell is None:
                item = self.item(name)
                params = tuple(self.codec.decode_storage_key_params(item.pallet, item.name, key))
                cell = item.cells[params] = self._by_key[key] = Cell(item, params, key)
            self._add_version(cell, number)
            cell.raw, cell.value = raw, _UNREAD
            self._journal.setdefault(max(number, oldest), []).append(cell)
        self._oldest = oldest
        self.begin_block(block)

    def changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        """What this block has written so far: key and bytes."""
        for cell in self._journal.get(self.block, ()):
            if cell.blocks and cell.blocks[-1] == self.block:
                yield cell.key, cell.raw

    def discard_before(self, block: int) -> None:
        """Forget states older than this block; current values stay."""
        for number in range(self._oldest, block + 1):
            for cell in self._journal.pop(number, ()):
                self._trim(cell, block)
        self._oldest = max(self._oldest, block + 1)
        self._spool.drop_before(self._oldest // _SEGMENT_BLOCKS)

    def _trim(self, cell: Cell, block: int) -> None:
        index = cell.index_at(block)
        if index > 0:
            del cell.blocks[:index], cell.places[:index]
        if len(cell.blocks) == 1 and cell.raw is None:
            cell.item.cells.pop(cell.params, None)
            self._by_key.pop(cell.key, None)

    def revert_to(self, block: int) -> None:
        """Drop every version after this block, as a reorganisation does."""
        for later in [each for each in self._journal if each > block]:
            for cell in self._journal.pop(later):
                while cell.blocks and cell.blocks[-1] > block:
                    raw = self._version(cell, len(cell.blocks) - 2)
                    self._drop_newest(cell)
                    cell.raw, cell.value = raw, _UNREAD
        self.begin_block(block)

    def raw(self, key: bytes, block: int) -> bytes | None:
        """The bytes under a full key at a block."""
        cell = self._by_key.get(key)
        return None if cell is None else self._version(cell, cell.index_at(block))

    def close(self) -> None:
        """Give back the disk space of the past."""
        self._spool.close()

    def keys(self, prefix: bytes, block: int) -> list[bytes]:
        """Every key that starts with the prefix and holds a value at that block, in order."""
        item = self._by_prefix.get(prefix[:_PREFIX_BYTES])
        if item is None and len(prefix) >= _PREFIX_BYTES:
            return []
        cells = self._by_key.values() if item is None else item.cells.values()
        return sorted(cell.key for cell in cells if cell.key.startswith(prefix) and cell.has_at(block))


def _segment(cell: Cell, index: int) -> int:
    """Where on disk an older version is: it went there in the block that wrote the next one."""
    return cell.blocks[index + 1] // _SEGMENT_BLOCKS


class View:
    """Storage as it was at the end of one block; reads only."""

    def __init__(self, storage: Storage, block: int) -> None:
        self.storage, self.block = storage, block

    def get(self, name: str, *params: Any) -> Any:
        """The value at this block, or the item's default."""
        if self.block >= self.storage.block:
            return self.storage.get(name, *params)
        item = self.storage.item(name)
        cell = item.cells.get(params)
        raw = None if cell is None else self.storage.raw(cell.key, self.block)
        return item.default if raw is None else self.storage.codec.decode(item.entry.value_type, raw)

    def has(self, name: str, *params: Any) -> bool:
        """Whether the key held a value of its own at this block."""
        cell = self.storage.item(name).cells.get(params)
        return cell is not None and cell.has_at(self.block)

    def scan(self, name: str, *prefix: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """Every (parameters, value) at this block whose first parameters are these."""
        size = len(prefix)
        for params in [each for each in self.storage.item(name).cells if each[:size] == prefix]:
            if self.has(name, *params):
                yield params, self.get(name, *params)
