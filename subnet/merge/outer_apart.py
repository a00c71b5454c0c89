"""What outer steps need that do not merge everything with everybody: fragments of the parameters, and random pairs.

Streaming (arXiv 2501.18512) merges one fragment at a time, and each replica mixes the merged values into its own some
steps later, so that nobody waits for them. NoLoCo (arXiv 2506.10911) merges two replicas at a time, drawn by lot. Pure;
knows nothing of how either is carried.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float32

from subnet.canonical import digest

Flat = Float32[np.ndarray, " parameters"]

BLOCK_OF = re.compile(r"\.layers\.(\d+)\.")


def fragments(slices: Mapping[str, slice], count: int) -> tuple[tuple[slice, ...], ...]:
    """The spans of each of so many fragments, in order. slices: where each tensor lies, by its name in the model.

    Blocks go to the fragments in turn, since neighbours in depth are best not merged together; what comes before the
    blocks goes with the first fragment, what comes after with the last.
    """
    parts: list[list[slice]] = [[] for _ in range(count)]
    seen = False
    for name, span in slices.items():
        block = BLOCK_OF.search(name)
        seen = seen or block is not None
        place = int(block[1]) % count if block else count - 1 if seen else 0
        parts[place].append(span)
    return tuple(tuple(part) for part in parts)


def due(step: int, *, every: int, count: int) -> int | None:
    """Which fragment is sent after so many inner steps, if any: each once in `every` steps, evenly apart."""
    return next((place for place in range(count) if step > 0 and step % every == place * every // count), None)


def gather(values: Flat, spans: Sequence[slice]) -> Float32[np.ndarray, " fragment"]:
    """The values in these spans, one after another."""
    return np.concatenate([values[span] for span in spans]) if spans else values[:0]


def mixed(local: Flat, merged: Flat, *, kept_frac: float) -> Flat:
    """What a replica goes on with when merged values come in while it trains: its own, kept in part."""
    own, others = np.float32(kept_frac), np.float32(1 - kept_frac)
    result: Flat = np.add(np.multiply(local, own), np.multiply(merged, others))
    return result


def pairs(names: Sequence[str], seed: str) -> tuple[tuple[str, ...], ...]:
    """Everybody in pairs, drawn by lot; of an odd number one stays alone. The order of the names does not matter."""
    drawn = sorted(names, key=lambda name: digest(f"{seed}/{name}".encode()))
    return tuple(tuple(drawn[first : first + 2]) for first in range(0, len(drawn), 2))
