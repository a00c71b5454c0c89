"""What a hotkey is paid over its life, by the real books and the real weights, in a network of steady honest others.

One round is one epoch of the chain: at its end the weights are made and the round's emission is shared out. Owns the
only translation of scores into money that the simulator has. Pure: no chance, no clock.
"""

import numpy as np

from subnet.config import RunConfig
from subnet.incentive.score import Book, books
from subnet.incentive.weights import to_weights
from subnet.ledger.events import RosterEntry
from subnet.ledger.state import Member, RunState, Segment
from subnet.ledger.window import window_rounds
from template.values import ChainView, NeuronInfo

SELF, OTHERS, OWNER = "self", "others", "owner"
WORK = 1_000_000  # of one segment


def bare_state(run: RunConfig, stakes: dict[str, int], miners: tuple[str, ...]) -> RunState:
    """A run with these validators and miners, each under a coldkey of its own, and nothing logged."""
    state = RunState(config=run, orchestrator=OWNER, netuid=1, phase="train")
    for uid, name in enumerate((*miners, *stakes)):
        state.roster[name] = RosterEntry(
            uid=uid, hotkey=name, coldkey=f"{name}/coldkey", stake_rao=stakes.get(name, 0), permit=name in stakes
        )
    for name in miners:
        state.members[name] = Member(hotkey=name, coldkey=f"{name}/coldkey", address="", stage=0)
    return state


def commit(state: RunState, hotkey: str, name: str, *, round_number: int, time_ms: int) -> Segment:
    """Log one segment that carries on from the one before."""
    chain = state.chains.setdefault(hotkey, [])
    segment = Segment(
        id=name,
        hotkey=hotkey,
        stage=0,
        round=round_number,
        start_root="ab" * 32 if chain else "",
        start_bytes=0,
        end_root="cd" * 32,
        end_bytes=0,
        opens_round=False,
        receipts=(name,),
        plans=(),
        work=WORK,
        unpaid=0,
        event=state.count,
        time_ms=time_ms,
        tainted=state.members[hotkey].tainted,
    )
    state.members[hotkey].state_root = segment.end_root
    state.segments[name] = segment
    chain.append(name)
    state.count, state.time_ms = state.count + 1, time_ms
    return segment


def view_of(hotkeys: tuple[str, ...]) -> ChainView:
    """A chain on which these hotkeys, and nobody else, are registered."""
    neurons = tuple(
        NeuronInfo(
            uid=uid,
            hotkey=hotkey,
            coldkey=f"{hotkey}/coldkey",
            stake_rao=0,
            validator_permit=False,
            active=True,
            incentive_u16=0,
            dividends_u16=0,
            emission_rao=0,
            endpoint=None,
            last_update=0,
            registered_at=0,
        )
        for uid, hotkey in enumerate(hotkeys)
    )
    return ChainView(
        netuid=1,
        block=1,
        block_hash="00",
        time_s=0.0,
        block_time_s=1.0,
        tempo=1,
        last_epoch_block=0,
        weights_rate_limit_blocks=1,
        owner_hotkey=OWNER,
        owner_coldkey=f"{OWNER}/coldkey",
        neurons=neurons,
    )


class Payments:
    """Cumulative pay by the end of each round, for lives of one hotkey that has 1/hotkeys of a machine's work."""

    def __init__(self, run: RunConfig, *, others: int, hotkeys: int = 1, segment_s: float = 60.0) -> None:
        self.run = run
        self.hotkeys = hotkeys
        self.segment_ms = round(1000 * segment_s)
        self.per_round = -(-run.train.steps_per_round // run.train.segment_steps)
        self.window = window_rounds(run)
        siblings = WORK - WORK // hotkeys  # the machine's other hotkeys earn as well
        self.steady = Book(hotkey=OTHERS, score=(others * WORK + siblings) * self.window * self.per_round)
        self.emission = (others + 1) * self.per_round  # so that a steady full-time replica earns 1 per segment
        self.view = view_of((SELF, OTHERS))
        self._curves: dict[int, np.ndarray] = {}

    def round_of(self, number: int) -> int:
        """In which round of its life the hotkey commits its segment of this number."""
        return number * self.hotkeys // self.per_round

    def total(self, segments: int) -> float:
        """What a life of so many segments is paid in all. After a whole window another round adds the same."""
        full = self.window * self.per_round // self.hotkeys
        more = max(0, -(-(segments - full) * self.hotkeys // self.per_round))
        rest = segments - more * self.per_round // self.hotkeys
        return float(self.curve(rest)[-1]) + float(more) * self._steady_round()

    def _steady_round(self) -> float:
        full = self.window * self.per_round // self.hotkeys
        curve = self.curve(full + self.per_round)
        return float(curve[self.window] - curve[self.window - 1])

    def paid(self, segments: int, rounds: np.ndarray) -> np.ndarray:
        """What a life of so many segments was paid by the end of these rounds (0: of none yet)."""
        curve = np.concatenate([[0.0], self.curve(segments)])
        return np.asarray(curve[np.minimum(rounds, len(curve) - 1)])

    def curve(self, segments: int) -> np.ndarray:
        """Cumulative pay by the end of each round, from the life's first until nothing of it is left in the window."""
        if segments not in self._curves:
            self._curves[segments] = self._by_the_books(segments)
        return self._curves[segments]

    def _by_the_books(self, segments: int) -> np.ndarray:
        state = bare_state(self.run, {}, (SELF,))
        due = [(number, self.round_of(number)) for number in range(segments)]
        made, total = [], 0.0
        for round_number in range(self.round_of(max(0, segments - 1)) + self.window + 1):
            state.round = round_number
            while due and due[0][1] == round_number:
                number, _ = due.pop(0)
                time_ms = number * self.hotkeys * self.segment_ms
                commit(state, SELF, f"{number}", round_number=round_number, time_ms=time_ms)
            self._forget_expired(state)
            total += self.emission * self._share(state, (round_number + 1) * self.per_round * self.segment_ms)
            made.append(total)
        return np.array(made)

    def _forget_expired(self, state: RunState) -> None:
        """Leave out what no window reaches any more: the score is the same and the books are shorter."""
        for name in list(state.segments):
            if state.segments[name].round > state.round - self.window - 1:
                break
            del state.segments[name]

    def _share(self, state: RunState, now_ms: int) -> float:
        found = books(state, now_ms=now_ms, own=None)
        return to_weights({**found, OTHERS: self.steady}, self.view, self.run).get(0, 0.0)
