"""The judgement of a segment: pass, fail or void, with a reason word, from the evidence that could be had.

It comes in two parts: `examine` ends in the replay, which tells what chunks of the end state (`chunks.py`) and what
frames of those that were sent (`sent.py`) are wanted; `conclude` compares with these. `audit` is both, for whoever has
all evidence at once.

`fail` needs the miner's own committed bytes against it, or its refusal to show them, seen by two. What the store or a
neighbour owes and does not show makes a verdict void: no judgement, drawn again, and never a pass. Knows nothing of
keys, transport or pay.
"""

from dataclasses import dataclass, replace

from subnet.audit.bookkeeping import contribution_faults, equivocations, faults, unbound
from subnet.audit.chunks import chosen, chunks_wanted
from subnet.audit.compare import END, Finding, compare
from subnet.audit.evidence import Evidence, Needed, Wanted, joined, missing, verified
from subnet.audit.replay import replay
from subnet.audit.replayed import Replayed
from subnet.audit.sent import frames_chosen, frames_wanted
from subnet.config import RunConfig
from subnet.data.pack import Corpus
from subnet.ledger.state import NEIGHBOUR_MISSING
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
    NEIGHBOUR_MISSING,  # void: a neighbour does not show what it received
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

    def wanted(self, need: Needed) -> Wanted:
        """What the miner and its neighbours have to show now."""
        return Wanted(
            chunks=chunks_wanted(need, self.evidence, self.replayed), frames=frames_wanted(need, self.replayed)
        )

    def with_more(self, need: Needed, more: Evidence) -> "Begun":
        """The same with more evidence, verified here."""
        return replace(self, evidence=joined(self.evidence, verified(need, more)))


def audit(
    need: Needed, evidence: Evidence, run: RunConfig, *, corpus: Corpus, verifier: Verifier, refused: bool
) -> Judgement:
    """Verify the evidence, replay the segment, compare and judge. Of chunks, and of frames that were sent, only the
    wanted ones are looked at.

    refused: see `as_refused`.
    """
    begun = examine(need, before_replay(need, evidence), run, corpus=corpus, verifier=verifier)
    if isinstance(begun, Judgement):
        judgement = begun
    else:
        wanted = begun.wanted(need)
        judgement = conclude(need, begun.with_more(need, after_replay(evidence, wanted)), run, wanted=wanted)
    return as_refused(judgement) if refused else judgement


def before_replay(need: Needed, evidence: Evidence) -> Evidence:
    """What of the evidence the replay takes."""
    frames = {name: evidence.frames[name] for name in need.inbound if name in evidence.frames}
    return replace(evidence, frames=frames, chunks={})


def after_replay(evidence: Evidence, wanted: Wanted) -> Evidence:
    """What of the evidence is wanted after it, as plain values."""
    sent = dict.fromkeys(frame.digest for frame in wanted.frames)
    return Evidence(
        frames={name: evidence.frames[name] for name in sent if name in evidence.frames},
        chunks={index: evidence.chunks[index] for index in wanted.chunks if index in evidence.chunks},
    )


def with_most(need: Needed, evidence: Evidence) -> Evidence:
    """The evidence with, as plain values, what is wanted where nothing is alike: the most that an audit takes."""
    most = Wanted(chunks=chosen(need, frozenset(need.order)), frames=frames_chosen(need, frozenset(need.outbound)))
    return joined(before_replay(need, evidence), after_replay(evidence, most))


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
    if lacking.public or (kept.public is not None and need.public_bytes != layout.public_bytes):
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


def conclude(need: Needed, begun: Begun, run: RunConfig, *, wanted: Wanted) -> Judgement:
    """Compare what the miner committed to with the replay, and judge. Every chunk and every frame that was sent is
    compared where it is in the evidence.

    wanted: those that must be in it by now.
    """
    kept, replayed = begun.evidence, begun.replayed
    lacking = missing(need, kept, wanted)
    if lacking.miner:
        return Judgement(verdict="void", reason="withheld", details=lacking.miner)
    seen = _shown(need, kept)
    wrong = contribution_faults(need, kept, replayed, run)
    if wrong:
        return _exact("bookkeeping", wrong, seen)
    findings = compare(need, kept, replayed, run)
    return judge(findings, unseen=tuple(frame.digest for frame in lacking.neighbours), evidence=seen)


def judge(findings: list[Finding], *, unseen: tuple[str, ...], evidence: tuple[str, ...]) -> Judgement:
    """The judgement over these comparisons; `unseen` are wanted frames that could not be compared: for want of them it
    is void, and names them, so that who received them has to show them at an audit of its own."""
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
        return Judgement(verdict="void", reason=NEIGHBOUR_MISSING, checks=checks, evidence=unseen)
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
