"""A miner that keeps only some of its states, and makes a dropped one again when somebody asks for it.

Kept are the newest states, and of every round the last one, from which the next round starts. Of each segment a recipe
is written down: what it started from, its receipts and plans. With that and the frames that are kept as evidence, the
miner replays from the state before; what comes out is served only where it has the committed root. One rebuild runs at
a time, in a thread of its own. Each validator that asks has its own turn, and then rests for as long as its rebuild
took; all who ask without a signature have one turn together, after the validators', and rest for much longer: nobody
can keep a miner busy with them, or keep a validator from its turn. Knows nothing of keys.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

import msgspec

from subnet.audit.case import Case
from subnet.audit.evidence import Evidence, leading_of
from subnet.audit.replay import replay
from subnet.canonical import canonical, parse
from subnet.config import RunConfig
from subnet.data.pack import Corpus
from subnet.edges.blobs import BlobStore
from subnet.errors import BlobMissing, EvidenceError, SubnetError, TemporaryError
from subnet.incentive.owed import Kept, is_owed
from subnet.ledger.events import Manifest
from subnet.nodes.custody import Custody
from subnet.nodes.retention import Retention, write_note
from subnet.stage.layout import StateLayout
from subnet.wire.delivery import inbound
from subnet.wire.merkle import merkle_root
from subnet.wire.messages import Plan, Receipt
from template.errors import RefusedRequest

log = logging.getLogger("strata.rebuild")

FOLDER = "recipes"
REBUILT = 8  # an audit asks for two states, where a segment starts and where it ends, and a validator has a few open
ANYBODY = ""  # who asks without a signature
REST = 1.0  # as many times as long as a validator's rebuild took, the next of the same validator waits
PUBLIC_REST = 9.0  # the same of anybody's: at most a tenth of the time goes to them
LEAST_RETRY_S = 1.0
FIRST_STEP_S = 1.0  # assumed of a step until one was replayed


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a committed state came about: one segment, and the bytes that it takes to compute it again."""

    root: str
    state_bytes: int
    stage: int
    round: int
    opens_round: bool
    start_root: str  # empty: zero moments
    public_root: str
    receipts: tuple[Receipt, ...]  # of its inner steps
    plans: dict[str, Plan]  # by digest
    time_s: float

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands among the others of a miner."""
        return self.round, self.receipts[-1].step

    def case(self) -> Case:
        """The segment, as a replay takes it."""
        return Case(
            id=self.root, hotkey=self.receipts[0].hotkey, stage=self.stage, round=self.round,
            opens_round=self.opens_round, start_root=self.start_root, start_bytes=0, end_root=self.root,
            end_bytes=self.state_bytes, public_root=self.public_root, public_bytes=0, ids=(), receipts=self.receipts,
            plans=self.plans, disputes=(), tokens_before=0,
        )  # fmt: skip


@dataclass
class Rebuilding:
    """The states of one miner that are kept, and those that can be made again."""

    run: RunConfig
    corpus: Corpus
    retention: Retention
    _: KW_ONLY
    newest: int | None = None  # how many states are kept besides the last of each round; None: all that are owed
    clock: Callable[[], float] = time.monotonic
    recipes: dict[str, Recipe] = field(init=False)  # by root
    rebuilt: dict[str, deque[str]] = field(default_factory=dict)  # by who asked: the newest few
    wanted: dict[str, list[str]] = field(default_factory=dict)  # by who asks: roots, whoever waits longest first
    failed: set[str] = field(default_factory=set)  # came to something else than the committed root
    count: int = 0  # segments replayed
    plans: dict[str, Plan] = field(default_factory=dict)
    steps: list[Receipt] = field(default_factory=list)  # since the last committed state
    task: "asyncio.Task[None] | None" = None
    making: str = ""  # the root that the task makes
    _step_s: float = FIRST_STEP_S
    _ready_s: float = 0.0  # when the running rebuild is likely to be done
    _rests_until_s: dict[str, float] = field(default_factory=dict)  # by who asked
    _closed: bool = False
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "rebuild"))

    def __post_init__(self) -> None:
        self.recipes = {}
        for path in sorted(self._folder.glob("*")) if self._folder.is_dir() else ():
            try:
                recipe = parse(path.read_bytes(), Recipe)
            except (OSError, SubnetError):
                continue  # cut off by a crash: the state cannot be made again, and its bytes may still be here
            self.recipes[recipe.root] = recipe

    @property
    def _folder(self) -> Path:
        return self.retention.folder / FOLDER

    @property
    def blobs(self) -> BlobStore:
        """Where states and frames are."""
        return self.retention.blobs

    def forget_steps(self) -> None:
        """The steps since the last committed state are void."""
        self.steps.clear()
        self.plans.clear()

    def said(self, receipt: Receipt, custody: Custody, manifest: Manifest | None) -> None:
        """Take a receipt that was logged. custody: as it is before the receipt counts. manifest: of its round."""
        if self.newest is None:
            return
        if receipt.kind in ("rollback", "fresh"):
            self.forget_steps()
        if receipt.kind == "step":
            self.steps.append(receipt)
        if receipt.state_root and receipt.kind != "rollback":
            if self.steps and manifest and receipt.state_root not in self.recipes:
                self._write_down(receipt, custody, manifest)
            self.forget_steps()

    def _write_down(self, receipt: Receipt, custody: Custody, manifest: Manifest) -> None:
        recipe = Recipe(
            root=receipt.state_root, state_bytes=receipt.state_bytes, stage=receipt.stage, round=receipt.round,
            opens_round=custody.opened_round != receipt.round, start_root=custody.root,
            public_root=manifest.stages[receipt.stage].root, receipts=tuple(self.steps),
            plans={step.plan: self.plans[step.plan] for step in self.steps}, time_s=self.retention.clock(),
        )  # fmt: skip
        self.take(recipe)

    def take(self, recipe: Recipe) -> None:
        """Keep a recipe, also for after a restart."""
        self._folder.mkdir(exist_ok=True)
        write_note(self._folder / recipe.root, canonical(recipe).decode())
        self.recipes[recipe.root] = recipe

    def thin(self) -> None:
        """Drop the states that can be made again, but for the newest, the last of each round, and those made just now.

        None is dropped whose start is not known to be here, or to be one that can be made again itself.
        """
        if self.newest is None:
            return
        ordered = sorted(self.recipes.values(), key=lambda recipe: recipe.place)
        last = {recipe.round: recipe.root for recipe in ordered}
        made = (root for roots in self.rebuilt.values() for root in roots)
        kept = {*last.values(), *made, *(recipe.root for recipe in ordered[-max(1, self.newest) :])}
        for recipe in ordered:
            if recipe.root not in kept and self._way_to(recipe.root):
                self.blobs.delete(recipe.root)

    def forget(self, round_number: int) -> None:
        """At the begin of a round, forget the recipes of states that nobody may ask for any more."""
        self.forget_steps()
        now_s, pins = self.retention.clock(), self.retention.pins
        for root, recipe in list(self.recipes.items()):
            kept = Kept(first_round=recipe.round, last_round=recipe.round, time_s=recipe.time_s)
            if not is_owed(kept, self.run, round=round_number, now_s=now_s, pins=pins):
                del self.recipes[root]
                self.failed.discard(root)
                (self._folder / root).unlink(missing_ok=True)

    def ask_for(self, root: str, who: str = ANYBODY) -> None:
        """Somebody wants a state that is not here. Raises RefusedRequest (503, with a time) where it is being made or
        waits for its turn, and returns where it cannot be made. who: a validator's hotkey, or anybody."""
        if not self._way_to(root) or root in self.failed:
            return
        waiting = self.wanted.setdefault(who, [])
        if root not in waiting and len(waiting) < REBUILT:
            waiting.append(root)
        self._begin()
        until_s = self._ready_s if self.task is not None else self._rests_until_s.get(who, 0.0)
        raise RefusedRequest(
            f"expected the state {root[:16]} here, found it dropped; it is computed again, ask again a little later",
            word="rebuilding",
            status=503,
            retry_after_s=max(LEAST_RETRY_S, until_s - self.clock()),
        )

    def _begin(self) -> None:
        """Make what was asked for next: the validators' turns come first, by who waits longest."""
        now_s = self.clock()
        for who in sorted(self.wanted, key=lambda asking: asking == ANYBODY):
            if self.task is not None or self._closed:
                return
            if self._rests_until_s.get(who, 0.0) > now_s:
                continue
            root, *others = self.wanted.pop(who)
            if others:
                self.wanted[who] = others  # behind all others now
            way = self._way_to(root)
            if self.blobs.has(root):
                self._keep_for(who, root)
            elif way and root not in self.failed:
                self.making = root
                self._ready_s = now_s + self._step_s * sum(len(recipe.receipts) for recipe in way)
                self.task = asyncio.create_task(self._rebuild(way, who))

    def _way_to(self, root: str) -> list[Recipe]:
        """The segments to replay, oldest first, from a state that is here; none where there is no such way."""
        way: list[Recipe] = []
        while root in self.recipes:
            recipe = self.recipes[root]
            way.insert(0, recipe)
            root = recipe.start_root
            if recipe.opens_round and not self.blobs.has(recipe.public_root):
                return []
            if not root or self.blobs.has(root):
                return way
        return []

    def hold(self, root: str, who: str) -> None:
        """A validator comes for a state that is here: one that could be dropped again stays for it."""
        if root in self.recipes:
            self._keep_for(who, root)

    def _keep_for(self, who: str, root: str) -> None:
        """A state that was made again stays until whoever asked for it has had as many others made."""
        made = self.rebuilt.setdefault(who, deque(maxlen=REBUILT))
        if root not in made:
            made.append(root)

    async def _rebuild(self, way: list[Recipe], who: str) -> None:
        """Replay segment after segment, and keep the last state."""
        began_s, recipe = self.clock(), way[-1]
        try:
            data = await asyncio.get_running_loop().run_in_executor(self._thread, self._replayed, way)
            self.retention.keep(recipe.round, recipe.root, data)
            self._keep_for(who, recipe.root)
            self.count += len(way)
            self.thin()
        except (SubnetError, ArithmeticError, LookupError, MemoryError, RuntimeError, ValueError) as error:
            if not _passes(error):
                self.failed.add(recipe.root)
            log.error("state=%s not rebuilt reason=%r", recipe.root[:12], str(error))
        else:
            log.info("state=%s rebuilt segments=%d seconds=%.1f", recipe.root[:12], len(way), self.clock() - began_s)
        finally:
            took_s = self.clock() - began_s
            self._step_s = took_s / sum(len(each.receipts) for each in way)
            self._rests_until_s[who] = self.clock() + took_s * (PUBLIC_REST if who == ANYBODY else REST)
            self.task = None
        self._begin()

    def _replayed(self, way: list[Recipe]) -> bytes:
        """The bytes of the last state. Raises EvidenceError where a state is not the committed one."""
        first, data = way[0], b""
        if first.start_root:
            data = self.blobs.get(first.start_root)
        for recipe in way:
            case, frames = recipe.case(), dict.fromkeys(name for each in recipe.receipts for _, name in inbound(each))
            parameter_bytes = StateLayout(self.run, case.stage).section_bytes
            evidence = Evidence(
                public=leading_of(self.blobs.get(recipe.public_root), parameter_bytes) if recipe.opens_round else None,
                start=data or None,
                frames={name: self.blobs.get(name) for name in frames},
            )
            end = replay(case, evidence, self.run, self.corpus).end
            data = b"" if end is None else end[:]
            if merkle_root(data) != recipe.root:
                raise EvidenceError(
                    f"expected the replay of round {recipe.round} to come to {recipe.root[:12]}, found another state; "
                    "this machine or its software has changed, keep all states (no --keep-states)"
                )
        return data

    def close(self) -> None:
        """Let the thread end."""
        self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)


def _passes(error: Exception) -> bool:
    """Whether the same replay may come to the state later: a disk or a memory that is full, or a store that is away."""
    return isinstance(error, MemoryError) or (isinstance(error, TemporaryError) and not isinstance(error, BlobMissing))
