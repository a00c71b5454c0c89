"""The judgement of a segment: pass, fail or void, with a reason word, from the evidence that could be had.

It comes in two parts: `examine` ends in the replay, which tells what chunks of the end state are wanted (`chunks.py`);
`conclude` compares with these. `audit` is both, for whoever has all evidence at once.

`fail` needs the miner's own committed bytes against it, or its refusal to show them, seen by two. What the store or a
neighbour owes and does not show makes a verdict void: no judgement, drawn again, and never a pass. Knows nothing of
keys, transport or pay.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from subnet.audit.bookkeeping import contribution_faults, equivocations, faults, unbound
from subnet.audit.chunks import chunks_wanted
from subnet.audit.compare import END, Finding, compare
from subnet.audit.evidence import Evidence, Needed, joined, missing, verified
from subnet.audit.replay import Replayed, replay
from subnet.config import RunConfig
from subnet.data.pack import Corpus
from subnet.stage.layout import StateLayout
from subnet.wire.messages import WIRE_VERSION, Check, Draw, Verdict
from template.auth import Verifier

REASONS = (
    "ok",  # pass: everything drawn was compared and holds
    "activation",  # fail: an activation it sent is not what its stage gives
    "gradient",  # fail: a gradient it sent is not what its stage gives
    "loss",  # fail: it reported another loss
    "norm",  # fail: it reported another gradient norm, or stepped with gradients that are not finite
    "delta",  # fail: its parameters moved otherwise
    "moment",  # fail: its optimizer's moments, or their step counter, are others
    "bookkeeping",  # fail: receipts, tokens, counters or contribution do not add up
    "equivocated",  # fail: it states another digest than the one it signed when it delivered the frame
    "unbound-state",  # fail: a committed root is not that of a state of its stage
    "withheld",  # fail after the grace, void before: it does not show what it committed to
    "neighbour-missing",  # void: a neighbour does not show what it received
    "validator-fault",  # void: the store or the validator itself lacks what it needs
)
TINY = 1e-300  # a tolerance of zero is one
_ORDER = ("activation", "loss", "gradient", "norm", "delta", "moment")


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What a verdict says, before it has an author."""

    verdict: str
    reason: str
    distance: float = 0.0
    tolerance: float = 0.0
    checks: tuple[Check, ...] = ()
    evidence: tuple[str, ...] = ()
    details: tuple[str, ...] = ()  # sentences for people; not part of the verdict


@dataclass(frozen=True, kw_only=True)
class Begun:
    """An audit that came to its replay: verified evidence, and the replay. It need not be repeated for later bytes."""

    evidence: Evidence
    replayed: Replayed

    def wanted(self, need: Needed) -> tuple[int, ...]:
        """The chunks of the end state that the miner has to show now."""
        return chunks_wanted(need, self.evidence, self.replayed)

    def with_more(self, need: Needed, more: Evidence) -> "Begun":
        """The same with more evidence, verified here."""
        return replace(self, evidence=joined(self.evidence, verified(need, more)))


def audit(
    need: Needed, evidence: Evidence, run: RunConfig, *, corpus: Corpus, verifier: Verifier, refused: bool
) -> Judgement:
    """Verify the evidence, replay the segment, compare and judge. Of the chunks only the wanted ones are looked at.

    refused: see `as_refused`.
    """
    begun = examine(need, replace(evidence, chunks={}), run, corpus=corpus, verifier=verifier)
    if isinstance(begun, Judgement):
        judgement = begun
    else:
        wanted = begun.wanted(need)
        shown = {index: evidence.chunks[index] for index in wanted if index in evidence.chunks}
        judgement = conclude(need, begun.with_more(need, Evidence(chunks=shown)), run, wanted=wanted)
    return as_refused(judgement) if refused else judgement


def as_refused(judgement: Judgement) -> Judgement:
    """The same once the miner was asked for what is missing until the grace was over, and two validators of different
    coldkeys (or the only one) saw that it does not give it: what was withheld is a fail."""
    return replace(judgement, verdict="fail") if judgement.reason == "withheld" else judgement


def examine(
    need: Needed, evidence: Evidence, run: RunConfig, *, corpus: Corpus, verifier: Verifier
) -> Begun | Judgement:
    """Verify the evidence, check that all is there but for chunks, check the books, and replay; or why not."""
    kept = verified(need, evidence)
    lacking, layout = missing(need, kept), StateLayout(run, need.case.stage)
    if lacking.public or (kept.public is not None and len(kept.public) != layout.public_bytes):
        return Judgement(verdict="void", reason="validator-fault", details=("the public state is missing",))
    if lacking.miner:
        return Judgement(verdict="void", reason="withheld", details=lacking.miner)
    seen = _shown(need, kept)
    loose = unbound(need.case, layout)
    if loose:
        return _exact("unbound-state", [loose], seen)
    wrong = faults(need, kept, run, corpus, verifier=verifier)
    if wrong:
        return _exact("bookkeeping", wrong, seen)
    two_faced = equivocations(need.case, kept, run, verifier=verifier)
    if two_faced:
        return _exact("equivocated", two_faced, seen)
    begun = Begun(evidence=kept, replayed=replay(need.case, kept, run, corpus))
    begun.wanted(need)  # hashes the end state, which is remembered: here it may take its time
    return begun


def conclude(need: Needed, begun: Begun, run: RunConfig, *, wanted: Iterable[int]) -> Judgement:
    """Compare what the miner committed to with the replay, and judge. Every chunk in the evidence is compared.

    wanted: those that must be in it by now.
    """
    kept, replayed = begun.evidence, begun.replayed
    lacking = missing(need, kept, chunks=wanted)
    if lacking.miner:
        return Judgement(verdict="void", reason="withheld", details=lacking.miner)
    seen = _shown(need, kept)
    wrong = contribution_faults(need, kept, replayed, run)
    if wrong:
        return _exact("bookkeeping", wrong, seen)
    findings, unseen = compare(need, kept, replayed, run)
    return judge(findings, unseen=len(unseen), evidence=seen)


def judge(findings: list[Finding], *, unseen: int, evidence: tuple[str, ...]) -> Judgement:
    """The judgement over these comparisons; `unseen` drawn frames could not be compared."""
    checks = _checks(findings)
    failing = [finding for finding in findings if not finding.holds]
    if failing:
        first = min(failing, key=_rank)
        worst = max(f.distance for f in failing if (f.name, f.position) == (first.name, first.position))
        return Judgement(
            verdict="fail",
            reason=first.name,
            distance=worst,
            tolerance=first.tolerance,
            checks=checks,
            evidence=evidence,
        )
    if unseen:
        return Judgement(verdict="void", reason="neighbour-missing", checks=checks, evidence=evidence)
    closest = max(checks, key=lambda check: check.distance / max(check.tolerance, TINY), default=None)
    return Judgement(
        verdict="pass",
        reason="ok",
        distance=closest.distance if closest else 0.0,
        tolerance=closest.tolerance if closest else 0.0,
        checks=checks,
        evidence=evidence,
    )


def _rank(finding: Finding) -> tuple[int, int, int]:
    """What to name first. The first step's tensors depend on the committed start alone; the end state on every update;
    later steps inherit whatever was wrong before them."""
    phase = 1 if finding.position == END else (0 if finding.position == 0 else 2)
    return phase, finding.position, _ORDER.index(finding.name)


def _checks(findings: list[Finding]) -> tuple[Check, ...]:
    """The largest distance of each kind."""
    return tuple(
        Check(
            name=name,
            distance=max(f.distance for f in findings if f.name == name),
            tolerance=next(f.tolerance for f in findings if f.name == name),
        )
        for name in _ORDER
        if any(f.name == name for f in findings)
    )


def _exact(reason: str, sentences: list[str], evidence: tuple[str, ...]) -> Judgement:
    """A fail by bytes that differ: the distance is the number of faults, the tolerance none."""
    check = Check(name=reason, distance=float(len(sentences)), tolerance=0.0)
    return Judgement(
        verdict="fail",
        reason=reason,
        distance=check.distance,
        checks=(check,),
        evidence=evidence,
        details=tuple(sentences),
    )


def _shown(need: Needed, evidence: Evidence) -> tuple[str, ...]:
    """What the judgement rests on, by digest or root."""
    roots = [root for root in (need.public_root, need.start_root, need.end_root) if root]
    shown = (frame.digest for frame in need.outbound if frame.digest in evidence.frames)
    return (*roots, *shown, *(lines.name for lines in need.deliveries if lines.name in evidence.deliveries))


def make_verdict(
    need: Needed, judgement: Judgement, *, run_id: str, validator: str, draw: Draw | None, time_ms: int
) -> Verdict:
    """The message that states a judgement; `draw` is None when it rechecks a foreign fail."""
    case = need.case
    return Verdict(
        version=WIRE_VERSION,
        run_id=run_id,
        validator=validator,
        segment=case.id,
        hotkey=case.hotkey,
        stage=case.stage,
        round=case.round,
        verdict=judgement.verdict,
        reason=judgement.reason,
        distance=judgement.distance,
        tolerance=judgement.tolerance,
        checks=judgement.checks,
        evidence=judgement.evidence,
        draw=draw,
        time_ms=time_ms,
    )
