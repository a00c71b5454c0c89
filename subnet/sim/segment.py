"""One segment by a miner that cheats, in memory, with all the bytes that its audit needs.

What tests and benchmarks judge: the cheat's hooks run in a real lane on real stages, whose other miners are honest, and
the segment comes out as a validator would have it before it. Each seed is other data and another draw.
"""

import blake3
import numpy as np

from subnet.audit.compare import Finding, compare
from subnet.audit.evidence import Evidence, Needed, verified
from subnet.audit.judge import Begun, Judgement, after_replay, audit, before_replay
from subnet.audit.replay import replay
from subnet.cheats.base import Cheat
from subnet.config import RunConfig
from subnet.data.pack import Corpus
from subnet.edges.rehearsal import Rehearsal, Unsigned
from subnet.model.shapes import geometry

CORPUS_SEQUENCES = 4096
FAR_APART = 1 << 10  # microbatches between the data of two seeds
VERIFIER = Unsigned()


def segment_corpus(run: RunConfig) -> Corpus:
    """Tokens in no order, under the digest that the run names: a rehearsal's data need not be found anywhere."""
    size = CORPUS_SEQUENCES * run.data.sequence_tokens + 1
    vocabulary = min(geometry(run.model).vocabulary, 1 << 16)
    tokens = np.random.default_rng(3).integers(0, vocabulary, size=size).astype(np.uint16)
    return Corpus(tokens=tokens, digest=run.data.corpus_digest, vocabulary=vocabulary)


def cheat_segment(
    run: RunConfig, stage: int, cheat: Cheat, seed: int, *, number: int = 0, corpus: Corpus | None = None
) -> tuple[Needed, Evidence]:
    """The segment `number`, counted from the run's first, of the miner at `stage`, which runs this cheat.

    Give each call a cheat of its own: it may remember what it did. seed: which data, and what of it is drawn.
    """
    lane = Rehearsal(
        run,
        segment_corpus(run) if corpus is None else corpus,
        cheats={stage: cheat},
        seed=blake3.blake3(b"strata/segment/1 %d" % seed).digest(),
    )
    lane.next_microbatch = seed * FAR_APART
    while True:
        for rehearsed in lane.round():
            if rehearsed.need.case.stage == stage:
                if number == 0:
                    return rehearsed.need, rehearsed.evidence
                number -= 1


def judged(run: RunConfig, need: Needed, evidence: Evidence, *, corpus: Corpus | None = None) -> Judgement:
    """What an audit with this evidence says."""
    known = segment_corpus(run) if corpus is None else corpus
    return audit(need, evidence, run, corpus=known, verifier=VERIFIER, refused=False)


def compared(run: RunConfig, need: Needed, evidence: Evidence, *, corpus: Corpus | None = None) -> list[Finding]:
    """Every comparison that the audit makes; the judgement rests on these and on the bookkeeping."""
    known = segment_corpus(run) if corpus is None else corpus
    kept = verified(need, before_replay(need, evidence))
    begun = Begun(evidence=kept, replayed=replay(need.case, kept, run, known))
    shown = after_replay(evidence, begun.wanted(need))
    return compare(need, begun.with_more(need, shown).evidence, begun.replayed, run)
