"""How long a miner keeps evidence: two rounds, and ten minutes at least. Knows nothing of what the bytes are."""

import time
from dataclasses import dataclass, field

from subnet.edges.blobs import BlobStore

KEPT_ROUNDS = 2  # evidence of older rounds is deleted,
KEPT_S = 600.0  # once it is also this old: short rounds must not outrun an audit


@dataclass(kw_only=True)
class Retention:
    """The blobs that are evidence, with the round and time of each."""

    blobs: BlobStore
    kept: list[tuple[int, float, str]] = field(default_factory=list)

    def keep(self, round_number: int, name: str, data: bytes) -> None:
        """Keep a blob as evidence of a round."""
        self.blobs.put_named(name, data)
        self.owe(round_number, name)

    def owe(self, round_number: int, name: str) -> None:
        """Note a stored blob as evidence of a round."""
        self.kept.append((round_number, time.time(), name))

    def forget(self, round_number: int, *, needed: str) -> None:
        """At the begin of a round, delete what nobody can ask for any more; never the blob `needed`."""
        limit_s = time.time() - KEPT_S
        kept = [entry for entry in self.kept if entry[0] > round_number - KEPT_ROUNDS or entry[1] > limit_s]
        names = {name for _, _, name in kept} | {needed}
        for _, _, name in self.kept:
            if name not in names:
                self.blobs.delete(name)
        self.kept = kept
