"""What merging costs in loss: replicas of a small model train and merge in one process, as those of a run do.

The closed set, the reduction and the outer step are those of a run; what a liar contributes instead of its own is one
of `LIES`. The codec is a function, so that any can be measured. Knows nothing of networks and of audits: nobody here is
ever found out.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float32

from subnet.canonical import digest
from subnet.config import ReduceConfig
from subnet.data.pack import Corpus
from subnet.merge.closed import Offer, close_set
from subnet.merge.outer import OUTER_STEPS, Merged, Slow
from subnet.merge.outer_apart import due, fragments, gather, mixed, pairs
from subnet.merge.reduce import reduce_stage
from subnet.merge.robust import reduce_by
from subnet.merge.squares import root, sum_of_squares
from subnet.sim.stacked import Replicas, Shape, batches, heldout_loss

Flat = Float32[np.ndarray, " parameters"]
Codec = Callable[[int, Flat], Flat]  # a replica's number and its pseudo-gradient; what others read of it
Lie = Callable[[Flat, list[Flat], np.random.Generator], Flat]  # its own, those of honest replicas; what it hands in

KEPT_FRAC = 0.5  # of its own that a replica keeps when a fragment comes in: the paper's

LIES: dict[str, Lie] = {
    "signflip": lambda own, honest, chance: -own,
    "scale": lambda own, honest, chance: own * np.float32(10),
    "noise": lambda own, honest, chance: _noise(_norm(own), own.size, chance),
    "copy": lambda own, honest, chance: honest[0].copy(),
}


def _noise(length: float, size: int, chance: np.random.Generator) -> Flat:
    values = chance.standard_normal(size).astype(np.float32)
    return values * np.float32(length / _norm(values))


def _norm(values: Flat) -> float:
    return root(sum_of_squares(values))


def as_it_is(replica: int, values: Flat) -> Flat:
    """No codec."""
    return values


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One training run. outer: one of OUTER_STEPS, or "none" for replicas that never merge."""

    replicas: int = 4
    rounds: int = 10
    steps: int = 50  # of a round
    batch: int = 8  # sequences of a replica's step
    lr: float = 4e-3
    outer: str = "diloco"
    outer_lr: float = 0.7
    momentum: float = 0.9
    rule: ReduceConfig = field(default_factory=ReduceConfig)
    liars: int = 0
    lie: str = ""
    codec: Codec = as_it_is
    num_fragments: int = 4  # of streaming
    overlap_steps: int = 5  # of streaming: so many later what was merged is there
    seed: int = 0
    shape: Shape = field(default_factory=Shape)
    heldout: int = 512  # sequences

    @property
    def total_steps(self) -> int:
        """Inner steps of each replica."""
        return self.rounds * self.steps


class Run:
    """A run as it goes: replicas, the slow state of each (all the same where everything is merged with everybody)."""

    def __init__(self, setting: Setting, corpus: Corpus) -> None:
        self.setting = setting
        self._corpus = corpus
        self.replicas = Replicas(
            setting.shape, setting.replicas, seed=setting.seed, lr=setting.lr, steps=setting.total_steps
        )
        start = self.replicas.ends()[0]
        self.slow = [Slow(parameters=start, momentum=np.zeros_like(start)) for _ in range(setting.replicas)]
        self._chance = np.random.default_rng([setting.seed, 1])
        self._parts = fragments(setting.shape.slices(), setting.num_fragments)
        self._under_way: dict[int, int] = {}  # fragments that were merged, by the step at which they come in

    def train(self) -> float:
        """Everything; the held-out loss at the end, averaged over replicas that end differently."""
        setting = self.setting
        data = batches(self._corpus, setting.shape, setting.replicas, setting.batch, seed=setting.seed)
        for number in range(1, setting.total_steps + 1):
            self.replicas.step(*next(data))
            self._merge(number)
        ends = self.replicas.ends() if setting.outer in ("none", "streaming") else self._distinct()
        return float(np.mean([heldout_loss(setting.shape, end, self._corpus, num=setting.heldout) for end in ends]))

    def _distinct(self) -> list[Flat]:
        return list({each.parameters.tobytes(): each.parameters for each in self.slow}.values())

    def _merge(self, number: int) -> None:
        if self.setting.outer == "streaming":
            self._stream(number)
        elif self.setting.outer != "none" and number % self.setting.steps == 0:
            if self.setting.outer == "noloco":
                self._pair(number)
            else:
                self._merge_all()

    def _merge_all(self) -> None:
        """A round's end in a run: contributions, closed set, reduction, outer step; all start from the same again."""
        contributions = self._contributions(self.replicas.ends())
        after = self._step(self.slow[0], Merged(gradient=self._reduced(contributions)))
        self.slow = [after] * self.setting.replicas
        for place in range(self.setting.replicas):
            self.replicas.put(place, after.parameters)

    def _contributions(self, ends: list[Flat]) -> list[Flat]:
        honest = self.setting.replicas - self.setting.liars
        own = [slow.parameters - end for slow, end in zip(self.slow, ends, strict=True)]
        lies = [LIES[self.setting.lie](each, own[:honest], self._chance) for each in own[honest:]]
        return [self.setting.codec(place, values) for place, values in enumerate([*own[:honest], *lies])]

    def _reduced(self, contributions: list[Flat]) -> Flat:
        tokens = self.setting.steps * self.setting.batch * self.setting.shape.tokens
        names = [digest(values.tobytes()) for values in contributions]
        offers = [
            Offer(hotkey=f"{place}", digest=name, tokens=tokens, norm=_norm(values), position=place)
            for place, (name, values) in enumerate(zip(names, contributions, strict=True))
        ]
        closed = close_set(offers, last_position=len(offers), readable=set(names))
        return reduce_by(
            self.setting.rule,
            [contributions[int(share.hotkey)] for share in closed],
            [share.tokens for share in closed],
            [share.factor for share in closed],
            self.slow[0].momentum * np.float32(1 - self.setting.momentum),
        )

    def _step(self, slow: Slow, merged: Merged) -> Slow:
        step = OUTER_STEPS[self.setting.outer]
        return step(slow, merged, lr=self.setting.outer_lr, momentum=self.setting.momentum)

    def _stream(self, number: int) -> None:
        """Send the fragment that is due, and mix in the one that has come back."""
        setting = self.setting
        place = due(number, every=setting.steps, count=setting.num_fragments)
        if place is not None:
            spans = self._parts[place]
            values = [gather(each, spans) for each in self._contributions(self.replicas.ends())]
            gradient = reduce_stage(values, [1] * len(values), [1.0] * len(values))
            self.slow = [self._step(self.slow[0], Merged(gradient=gradient, spans=spans))] * setting.replicas
            self._under_way[number + setting.overlap_steps] = place
        arrived = self._under_way.pop(number, None)
        if arrived is not None:
            for replica, end in enumerate(self.replicas.ends()):
                for span in self._parts[arrived]:
                    end[span] = mixed(end[span], self.slow[0].parameters[span], kept_frac=KEPT_FRAC)
                self.replicas.put(replica, end)

    def _pair(self, number: int) -> None:
        """Everybody merges with one other."""
        contributions, before = self._contributions(self.replicas.ends()), list(self.slow)
        for pair in pairs([f"{place}" for place in range(self.setting.replicas)], f"{self.setting.seed}/{number}"):
            places = [int(name) for name in pair]
            ones, factors = [1] * len(places), [1.0] * len(places)
            merged = Merged(
                gradient=reduce_stage([contributions[place] for place in places], ones, factors),
                parameters=reduce_stage([before[place].parameters for place in places], ones, factors),
            )
            for place in places:
                self.slow[place] = self._step(before[place], merged)
                self.replicas.put(place, self.slow[place].parameters)


def trained(setting: Setting, corpus: Corpus) -> float:
    """The held-out loss in nats per token that a run of this setting comes to."""
    return Run(setting, corpus).train()
