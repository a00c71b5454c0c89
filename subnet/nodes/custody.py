"""A miner's custody of its replica: which state it is in, what it has committed, and its chain of receipts.

Owns the replica, the public states it started from, and the small file (with a copy) by which a restarted miner finds
its last committed state. Knows nothing of lanes, of the network, or of when a round begins.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from subnet.cheats.base import Cheat
from subnet.config import RunConfig
from subnet.edges.blobs import BlobStore
from subnet.edges.origin import opening_public
from subnet.errors import CheckpointError, ConfigError, EvidenceError, StoreError
from subnet.model.partition import initial_tensors
from subnet.nodes.retention import write_note
from subnet.stage.state import (
    Flat,
    PublicState,
    Replica,
    StateLayout,
    public_from_bytes,
    public_to_bytes,
    state_from_bytes,
)
from subnet.wire.merkle import merkle_root

log = logging.getLogger("strata.miner")

NOTES = ("replica.json", "replica.json.bak")


@dataclass(kw_only=True)
class Custody:
    """The replica of one stage, and what of it is committed."""

    run: RunConfig
    stage: int
    blobs: BlobStore
    folder: Path
    start: Callable[..., None] = Cheat(0.0).start  # puts the replica where a round begins
    recompute: bool = False  # spare memory; see `Stage`
    replica: Replica = field(init=False)
    layout: StateLayout = field(init=False)
    publics: dict[int, PublicState] = field(default_factory=dict)  # by round
    head: str = ""  # digest of the last receipt
    root: str = ""  # last committed state
    root_steps: int = 0
    steps: int = 0  # inner steps since the moments were zero
    opened_round: int = -1
    round_tokens: int = 0  # trained in this round, by receipts that count
    root_tokens: int = 0  # of them, those up to the last committed state

    def __post_init__(self) -> None:
        self.replica = Replica(self.run, self.stage, recompute=self.recompute)
        self.layout = self.replica.layout

    @property
    def uncommitted_steps(self) -> int:
        """Inner steps since the last committed state."""
        return self.steps - self.root_steps

    def take_public(self, round_number: int, data: bytes) -> None:
        """Keep a round's public state; rounds before the last one are forgotten."""
        self.publics[round_number] = public_from_bytes(self.layout, data)
        for old in [number for number in self.publics if number < round_number - 1]:
            del self.publics[old]

    def begin_round(self, round_number: int) -> None:
        """Start a round: its public parameters, with the moments of the last committed state, or zeros."""
        moments = None
        if self.root:
            moments = state_from_bytes(self.layout, self.blobs.get(self.root)).moments
        self.start(self.replica.start, self.publics[round_number].parameters, moments)
        self.steps = self.root_steps if self.root else 0
        self.round_tokens = self.root_tokens = 0

    def restore(self, round_number: int) -> None:
        """Go back to the last committed state: inside the round where it was committed there, else to its begin."""
        if self.opened_round == round_number:
            self.replica.restore(self.blobs.get(self.root))
            self.steps, self.round_tokens = self.root_steps, self.root_tokens
        else:
            self.begin_round(round_number)

    def commit(self) -> tuple[str, int]:
        """Keep the state's bytes as evidence: (root, length). It counts once `committed` is told."""
        data = self.replica.commit()
        root = merkle_root(data)
        self.blobs.put_named(root, data)
        return root, len(data)

    def committed(self, round_number: int, root: str) -> None:
        """The orchestrator has logged this root: from here on nothing rolls back across it."""
        self.root, self.root_steps, self.opened_round = root, self.steps, round_number
        self.root_tokens = self.round_tokens
        self.remember()

    def start_afresh(self) -> None:
        """The orchestrator has logged that nothing of the last committed state is used any more."""
        self.root, self.root_steps, self.root_tokens = "", 0, 0
        self.remember()

    def remember(self) -> None:
        """Write down the last committed state, for after a restart: two copies, so that one may be damaged."""
        note = json.dumps({"run_id": self.run.run_id, "stage": self.stage, "root": self.root})
        for name in NOTES:
            write_note(self.folder / name, note)

    def pseudo_gradient(self, round_number: int) -> tuple[Flat, Flat]:
        """The ends of this round's trajectory: its public parameters and the replica's own."""
        return self.publics[round_number].parameters, self.replica.stage.parameters_flat()


def remembered(folder: Path, run: RunConfig, blobs: BlobStore) -> str:
    """The last committed state of an earlier process in this folder, if its bytes are still there; else empty."""
    return next((root for name in NOTES if (root := _noted(folder / name, run)) and holds(blobs, root)), "")


def _noted(path: Path, run: RunConfig) -> str:
    """The root in one copy of the note; empty when it is missing, damaged or another run's."""
    try:
        note = json.loads(path.read_text())
    except (OSError, ValueError):
        return ""
    root = note.get("root", "") if isinstance(note, dict) and note.get("run_id") == run.run_id else ""
    return root if isinstance(root, str) else ""


def holds(blobs: BlobStore, root: str) -> bool:
    """Whether these bytes are in the store; a store that cannot tell, or a name that is none, is a no."""
    try:
        return blobs.has(root)
    except (StoreError, EvidenceError):
        return False


def own_initial(run: RunConfig, stage: int) -> bytes:
    """The stage's first public state as it can be made here; empty where the run's model cannot be read here."""
    try:
        return initial_public(run, stage)
    except (CheckpointError, ConfigError, StoreError) as error:
        log.info("stage=%d downloading the first state, as it cannot be read here reason=%r", stage, str(error))
        return b""


def initial_public(run: RunConfig, stage: int) -> bytes:
    """The public state of a stage in round 0: that of the model that the run starts from, else initial parameters and
    no outer momentum. Raises CheckpointError or StoreError when the model cannot be read here, or is another one."""
    if run.start is not None:
        return opening_public(run, stage)
    layout = StateLayout(run, stage)
    tensors = {name: tensor.numpy() for name, tensor in initial_tensors(run, stage).items()}
    parameters = layout.join(tensors)
    momentum = np.zeros(layout.num_parameters, dtype=np.float32)
    return public_to_bytes(layout, PublicState(parameters=parameters, outer_momentum=momentum))
