"""The codec `none`: float32, little-endian, as it is."""

import numpy as np

from subnet.merge.codecs.rows import FLOAT, Bytes, Flat, added, require


class Plain:
    """32 bits a value; loses nothing."""

    name = "none"
    width = 4096
    decay: float | None = None

    def row_bytes(self, w: int) -> int:
        """Four for each value."""
        return FLOAT.itemsize * w

    def encode(self, rows: Flat) -> Bytes:
        """The values' own bytes."""
        return np.ascontiguousarray(rows, dtype=FLOAT).view(np.uint8)

    def decode(self, data: Bytes, w: int) -> Flat:
        """The values. Raises EvidenceError when some are not finite."""
        values: Flat = np.ascontiguousarray(data).view(FLOAT).astype(np.float32)
        wrong = values.size - int(np.isfinite(values).sum())
        require(not wrong, self.name, f"{wrong} values that are not finite")
        return values

    def squares(self, data: Bytes, w: int, total: float) -> float:
        """Value by value: squares of float32 are exact in float64, and added in order."""
        return added(total, np.square(self.decode(data, w).reshape(-1), dtype=np.float64))
