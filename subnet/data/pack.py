"""Tokens of a microbatch: a pure function of the run and the microbatch's index.

The corpus is one long row of tokens. Sequence i is tokens[i*T : i*T + T + 1]: T inputs and the same shifted by one as
labels, so no token is the label of two sequences. Of every `heldout_every` sequences the last is held out. Training
sequences come in the order of a seeded permutation (a Feistel network over blake3, walked until it lands inside), a new
one for each pass, in O(1) memory. Knows nothing of files, tokenizers or torch.

Shapes: B sequences of a microbatch, T tokens of a sequence.
"""

import struct
from dataclasses import dataclass

import blake3
import numpy as np
from jaxtyping import Int64, Integer

from subnet.config import DataConfig, RunConfig
from subnet.errors import CorpusError

FEISTEL_ROUNDS = 6
TRAINING = b"strata/data/training/1"
HELDOUT = b"strata/data/heldout/1"

Microbatch = tuple[Int64[np.ndarray, "batch tokens"], Int64[np.ndarray, "batch tokens"]]


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The packed tokens in their pinned order, in the smallest dtype that holds them. `digest` names their source."""

    tokens: Integer[np.ndarray, " tokens"]
    digest: str
    vocabulary: int  # tokens are in [0, vocabulary)


@dataclass(frozen=True)
class Split:
    """How many sequences a corpus has, and which of them are held out."""

    num_sequences: int
    heldout_every: int

    @property
    def num_heldout(self) -> int:
        return self.num_sequences // self.heldout_every

    @property
    def num_training(self) -> int:
        return self.num_sequences - self.num_heldout

    def training(self, position: int) -> int:
        """The sequence number of the training sequence at this position."""
        return position + position // (self.heldout_every - 1)

    def heldout(self, position: int) -> int:
        """The sequence number of the held-out sequence at this position."""
        return position * self.heldout_every + self.heldout_every - 1


def split(data: DataConfig, corpus: Corpus) -> Split:
    """The corpus in sequences. Raises CorpusError when there is not one to hold out."""
    cut = Split((len(corpus.tokens) - 1) // data.sequence_tokens, data.heldout_every)
    if cut.num_heldout < 1:
        needed = data.heldout_every * data.sequence_tokens + 1
        raise CorpusError(
            f"expected at least {needed} tokens to train and hold out sequences of {data.sequence_tokens}, "
            f"found {len(corpus.tokens)}; give more text or shorten the sequences"
        )
    return cut


def check_corpus(data: DataConfig, corpus: Corpus) -> None:
    """Raises CorpusError unless this is the corpus that the run names."""
    if corpus.digest == data.corpus_digest:
        return
    remedy = {
        "stdlib": "use the Python version that the run was made with",
        "text": f"copy the run's text files to {data.location}",
        "datasets": f"use revision {data.revision} of {data.location} and the run's tokenizer",
    }[data.source]
    raise CorpusError(
        f"expected the corpus {data.corpus_digest[:16]} of source {data.source}, found {corpus.digest[:16]}; {remedy}"
    )


def permute(position: int, size: int, key: bytes) -> int:
    """Where a keyed pseudo-random permutation of range(size) sends `position`."""
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half_bits) - 1
    while True:
        left, right = position >> half_bits, position & mask
        for feistel_round in range(FEISTEL_ROUNDS):
            message = struct.pack("<BQ", feistel_round, right)
            mixed = int.from_bytes(blake3.blake3(message, key=key).digest(length=8), "little")
            left, right = right, left ^ (mixed & mask)
        position = left << half_bits | right
        if position < size:
            return position


def _key(domain: bytes, seed: int, number: int) -> bytes:
    return blake3.blake3(b"%s %d %d" % (domain, seed, number)).digest()


def _gather(sequences: list[int], corpus: Corpus, length_tokens: int) -> Microbatch:
    rows = np.stack([corpus.tokens[i * length_tokens : (i + 1) * length_tokens + 1] for i in sequences])
    rows_BT = rows.astype(np.int64)
    return np.ascontiguousarray(rows_BT[:, :-1]), np.ascontiguousarray(rows_BT[:, 1:])


def training_sequences(run: RunConfig, corpus: Corpus, index: int) -> list[int]:
    """The sequence numbers of a microbatch, in order; each pass takes every training sequence once."""
    cut = split(run.data, corpus)
    first = index * run.train.microbatch_sequences
    numbers = []
    for n in range(first, first + run.train.microbatch_sequences):
        key = _key(TRAINING, run.seed, n // cut.num_training)
        numbers.append(cut.training(permute(n % cut.num_training, cut.num_training, key)))
    return numbers


def heldout_sequences(run: RunConfig, corpus: Corpus, index: int) -> list[int]:
    """The sequence numbers of a held-out microbatch. Raises CorpusError past the last one."""
    cut = split(run.data, corpus)
    first = index * run.train.microbatch_sequences
    if first + run.train.microbatch_sequences > cut.num_heldout:
        raise CorpusError(
            f"expected a held-out microbatch below {cut.num_heldout // run.train.microbatch_sequences}, found {index}; "
            "lower heldout_microbatches or give more text"
        )
    key = _key(HELDOUT, run.seed, 0)
    last = first + run.train.microbatch_sequences
    return [cut.heldout(permute(n, cut.num_heldout, key)) for n in range(first, last)]


def microbatch(run: RunConfig, corpus: Corpus, index: int) -> Microbatch:
    """Tokens and labels of one training microbatch, int64 of shape (B, T); labels are already shifted by one.

    Raises CorpusError when the corpus is not the run's.
    """
    check_corpus(run.data, corpus)
    return _gather(training_sequences(run, corpus, index), corpus, run.data.sequence_tokens)


def heldout_microbatch(run: RunConfig, corpus: Corpus, index: int) -> Microbatch:
    """Tokens and labels of one held-out microbatch, spread over the corpus. Raises CorpusError past the last one."""
    check_corpus(run.data, corpus)
    return _gather(heldout_sequences(run, corpus, index), corpus, run.data.sequence_tokens)
