"""Read, edit and write runtime metadata, version 15.

Owns the shape of the metadata bytes: they become plain lists and dicts and
come back bit for bit. On top of that it strips doc strings and adds the
storage items that a newer SDK asks for. Knows nothing of files or of a node.
"""

from typing import Any

_MAGIC = b"meta\x0f"
_IDENTITY = 6

# The shapes: a name is a primitive; ("vec", x), ("opt", x) and ("enum", {...}) wrap; a list of pairs is a struct.
_FIELD = [("name", ("opt", "str")), ("type", "compact"), ("type_name", ("opt", "str")), ("docs", ("vec", "str"))]
_VARIANT = [("name", "str"), ("fields", ("vec", _FIELD)), ("index", "u8"), ("docs", ("vec", "str"))]
_TYPE_DEF = (
    "enum",
    {
        0: ("vec", _FIELD),
        1: ("vec", _VARIANT),
        2: "compact",
        3: [("len", "u32"), ("type", "compact")],
        4: ("vec", "compact"),
        5: "u8",
        6: "compact",
        7: [("store", "compact"), ("order", "compact")],
    },
)
_TYPE = [
    ("id", "compact"),
    ("path", ("vec", "str")),
    ("params", ("vec", [("name", "str"), ("type", ("opt", "compact"))])),
    ("def", _TYPE_DEF),
    ("docs", ("vec", "str")),
]
_STORAGE_TYPE = (
    "enum",
    {0: "compact", 1: [("hashers", ("vec", "u8")), ("key", "compact"), ("value", "compact")]},
)
_STORAGE_ENTRY = [
    ("name", "str"),
    ("modifier", "u8"),
    ("type", _STORAGE_TYPE),
    ("default", "bytes"),
    ("docs", ("vec", "str")),
]
_CONSTANT = [("name", "str"), ("type", "compact"), ("value", "bytes"), ("docs", ("vec", "str"))]
_PALLET = [
    ("name", "str"),
    ("storage", ("opt", [("prefix", "str"), ("entries", ("vec", _STORAGE_ENTRY))])),
    ("calls", ("opt", "compact")),
    ("event", ("opt", "compact")),
    ("constants", ("vec", _CONSTANT)),
    ("error", ("opt", "compact")),
    ("index", "u8"),
    ("docs", ("vec", "str")),
]
_EXTRINSIC = [
    ("version", "u8"),
    ("address", "compact"),
    ("call", "compact"),
    ("signature", "compact"),
    ("extra", "compact"),
    ("extensions", ("vec", [("identifier", "str"), ("type", "compact"), ("additional", "compact")])),
]
_METHOD = [
    ("name", "str"),
    ("inputs", ("vec", [("name", "str"), ("type", "compact")])),
    ("output", "compact"),
    ("docs", ("vec", "str")),
]
_METADATA = [
    ("types", ("vec", _TYPE)),
    ("pallets", ("vec", _PALLET)),
    ("extrinsic", _EXTRINSIC),
    ("type", "compact"),
    ("apis", ("vec", [("name", "str"), ("methods", ("vec", _METHOD)), ("docs", ("vec", "str"))])),
    ("outer", [("call", "compact"), ("event", "compact"), ("error", "compact")]),
    ("custom", ("vec", [("key", "str"), ("type", "compact"), ("value", "bytes")])),
]


class _Reader:
    """Reads one shape after the other from SCALE bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise ValueError(f"expected {size} more bytes of metadata at offset {self.at}, found the end of the file")
        self.at += size
        return self.data[self.at - size : self.at]

    def compact(self) -> int:
        mode = self.take(1)[0] & 3
        self.at -= 1
        if mode == 3:
            size = (self.take(1)[0] >> 2) + 4
            return int.from_bytes(self.take(size), "little")
        return int.from_bytes(self.take(1 << mode), "little") >> 2

    def read(self, shape: Any) -> Any:
        if isinstance(shape, list):
            return {name: self.read(part) for name, part in shape}
        if isinstance(shape, str):
            return self._primitive(shape)
        kind, inner = shape
        if kind == "vec":
            return [self.read(inner) for _ in range(self.compact())]
        tag = self.take(1)[0]
        if kind == "opt":
            return self.read(inner) if tag else None
        return (tag, self.read(inner[tag]))

    def _primitive(self, shape: str) -> Any:
        if shape == "compact":
            return self.compact()
        if shape == "u8":
            return self.take(1)[0]
        if shape == "u32":
            return int.from_bytes(self.take(4), "little")
        raw = self.take(self.compact())
        return raw.decode() if shape == "str" else raw


def encode_compact(value: int) -> bytes:
    """SCALE compact form of a whole number."""
    if value < 1 << 6:
        return bytes([value << 2])
    if value < 1 << 14:
        return (value << 2 | 1).to_bytes(2, "little")
    if value < 1 << 30:
        return (value << 2 | 2).to_bytes(4, "little")
    size = max(4, (value.bit_length() + 7) // 8)
    return bytes([(size - 4) << 2 | 3]) + value.to_bytes(size, "little")


def decode_compact(data: bytes) -> tuple[int, int]:
    """The compact number at the start of `data`, and how many bytes it took."""
    reader = _Reader(data)
    return reader.compact(), reader.at


def _write(shape: Any, value: Any) -> bytes:
    if isinstance(shape, list):
        return b"".join(_write(part, value[name]) for name, part in shape)
    if isinstance(shape, str):
        return _write_primitive(shape, value)
    kind, inner = shape
    if kind == "vec":
        return encode_compact(len(value)) + b"".join(_write(inner, item) for item in value)
    if kind == "opt":
        return b"\x00" if value is None else b"\x01" + _write(inner, value)
    tag, content = value
    return bytes([tag]) + _write(inner[tag], content)


def _write_primitive(shape: str, value: Any) -> bytes:
    if shape == "compact":
        return encode_compact(value)
    if shape == "u8":
        return bytes([value])
    if shape == "u32":
        return int(value).to_bytes(4, "little")
    raw = value.encode() if shape == "str" else value
    return encode_compact(len(raw)) + bytes(raw)


def parse_metadata(data: bytes) -> dict[str, Any]:
    """Metadata bytes to a tree of lists and dicts; refuses anything but version 15 without trailing bytes."""
    if data[:5] != _MAGIC:
        raise ValueError(f"expected metadata version 15 (it starts with {_MAGIC!r}), found {data[:5]!r}")
    reader = _Reader(data[5:])
    tree: dict[str, Any] = reader.read(_METADATA)
    if reader.at != len(reader.data):
        raise ValueError(f"expected the metadata to end at byte {reader.at}, found {len(reader.data)} bytes")
    return tree


def write_metadata(tree: dict[str, Any]) -> bytes:
    """The inverse of parse_metadata."""
    return _MAGIC + _write(_METADATA, tree)


def strip_docs(node: Any) -> Any:
    """The same tree with every doc string removed."""
    if isinstance(node, dict):
        return {key: [] if key == "docs" else strip_docs(value) for key, value in node.items()}
    if isinstance(node, list):
        return [strip_docs(item) for item in node]
    return (node[0], strip_docs(node[1])) if isinstance(node, tuple) else node


def unwrap_option(data: bytes) -> bytes:
    """The metadata inside the answer of Metadata_metadata_at_version: Option<Vec<u8>>."""
    if data[:1] != b"\x01":
        raise ValueError("expected metadata version 15 from the node, found none: use a node with a newer runtime")
    size, used = decode_compact(data[1:])
    return data[1 + used : 1 + used + size]


def pallet(tree: dict[str, Any], name: str) -> dict[str, Any]:
    """The pallet of that name."""
    return next(each for each in tree["pallets"] if each["name"] == name)


def entry(tree: dict[str, Any], pallet_name: str, item: str) -> dict[str, Any] | None:
    """The storage item of that name, or None."""
    entries = pallet(tree, pallet_name)["storage"]["entries"]
    return next((each for each in entries if each["name"] == item), None)


# Storage items that SDK 11.3.0 knows and the recorded runtime lacks: item, an existing item with the same keys,
# an existing item with the same value type, and the default.
_MISSING_ITEMS = (
    ("SubtensorModule", "NullPruningTarget", "MinAllowedUids", "MinAllowedUids", None),
    ("SubtensorModule", "LastYumaStepBlock", "Tempo", "LastEpochBlock", bytes(8)),
    ("SubtensorModule", "SavedYumaMaxAllowedValidators", "Tempo", "MaxAllowedValidators", None),
    ("SubtensorModule", "LastPowRegistrationBlock", "LastTxBlock", "LastTxBlock", bytes(8)),
)


def add_missing_items(tree: dict[str, Any]) -> list[str]:
    """Add in place what newer SDKs ask for; returns the names added, nothing when all are there."""
    added = []
    if entry(tree, "SubtensorModule", "SubnetEpochConsensus") is None:
        _add_epoch_consensus(tree)
        added.append("SubtensorModule.SubnetEpochConsensus")
    for pallet_name, item, keys_of, value_of, default in _MISSING_ITEMS:
        keys, value = entry(tree, pallet_name, keys_of), entry(tree, pallet_name, value_of)
        if entry(tree, pallet_name, item) is None and keys is not None and value is not None:
            shape = keys["type"][1] | {"value": value["type"][1]["value"]}
            _append(tree, pallet_name, item, (1, shape), default)
            added.append(f"{pallet_name}.{item}")
    return added


def _append(tree: dict[str, Any], pallet_name: str, item: str, shape: tuple[int, Any], default: bytes | None) -> None:
    """Append a storage item: optional without a default, else with it."""
    modifier, value = (0, b"\x00") if default is None else (1, default)
    new = {"name": item, "modifier": modifier, "type": shape, "default": value, "docs": []}
    pallet(tree, pallet_name)["storage"]["entries"].append(new)


def _add_epoch_consensus(tree: dict[str, Any]) -> None:
    """The enum EpochConsensus {Yuma, Null} and its map by netuid, default Yuma."""
    new_id = len(tree["types"])
    variants = [{"name": name, "fields": [], "index": index, "docs": []} for index, name in enumerate(("Yuma", "Null"))]
    path = ["pallet_subtensor", "pallet", "EpochConsensus"]
    tree["types"].append({"id": new_id, "path": path, "params": [], "def": (1, variants), "docs": []})
    tempo = entry(tree, "SubtensorModule", "Tempo")
    assert tempo is not None
    shape = {"hashers": [_IDENTITY], "key": tempo["type"][1]["key"], "value": new_id}
    _append(tree, "SubtensorModule", "SubnetEpochConsensus", (1, shape), b"\x00")
