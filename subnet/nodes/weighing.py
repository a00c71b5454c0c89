"""A validator's weights: submitted once per tempo from a fresh view, and what stands in their way or became of them.

When to submit is `subnet.incentive.submission`'s business, what to submit its caller's. Whether it was done is read
from the chain, so a restart neither loses nor doubles a submission. What is kept here is for the health page.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

from subnet.incentive.submission import blocks_to_wait, is_due, is_stale
from template.chain import Chain
from template.errors import ChainRefused, NotPermitted, RateLimited, UpdateNeeded
from template.values import ChainView, NeuronInfo, PendingWeights

log = logging.getLogger("strata.validator")

CLOCK_S = 15.0  # a block's own time may be this far ahead of ours
LASTING = ("set", "committed", "no-scores", "refused", "update-needed")  # shown until the next submission is due


class Weighing:
    """The weights of one validator hotkey. `scores` gives the weights for a view; empty while nobody has a score."""

    def __init__(self, chain: Chain, scores: Callable[[ChainView], dict[int, float]]) -> None:
        self.chain = chain
        self.block: int | None = None
        self.weights: dict[int, float] = {}
        self.message = ""  # what the chain said of them: a refusal, or when a commitment is revealed
        self.state = ""
        self.due_block: int | None = None
        self.pending: tuple[PendingWeights, ...] = ()
        self.inherited: dict[int, str] = {}  # uids that another hotkey holds since they were given weight
        self._view: ChainView | None = None
        self._scores = scores
        self._hotkeys: dict[int, str] = {}
        self._refused_epoch = -1
        self._not_before_block = 0
        self._clock_said = False

    async def look(self, view: ChainView) -> None:
        """At a new block: say what happened to earlier weights, and submit new ones when it is time."""
        self._view = view
        self._look_for_heirs(view)
        self._look_at_clock(view)
        if self._is_time(view):
            fresh = await self.chain.view()  # what was done since the block came may have taken long
            if self._is_time(fresh):
                await self._submit(fresh)
        self.pending = await self.chain.pending_weights()  # last: nothing that is only shown may hold weights up

    def _is_time(self, view: ChainView) -> bool:
        mine = view.neuron(self.chain.hotkey)
        if mine is None:
            self._say("unregistered", f"{self.chain.hotkey} has no uid on subnet {view.netuid}; register it again")
        elif not mine.validator_permit:
            self._say("no-permit", f"stake more on {mine.hotkey} and wait for the epoch after {view.next_epoch_block}")
        elif is_stale(view, now_s=time.time()):
            age_s = view.age_s(time.time())
            self._say("stale", f"the last block is {age_s:.0f} s old: check the node, and this machine's clock")
        else:
            return self._is_turn(view, mine)
        return False

    def _is_turn(self, view: ChainView, mine: NeuronInfo) -> bool:
        if self._refused_epoch == view.last_epoch_block:
            return False
        wait = max(blocks_to_wait(view, mine), self._not_before_block - view.block)
        self.due_block = view.block + max(0, wait)
        if wait > 0 and self.state not in LASTING:
            self._say("waiting", f"the next submission is due at block {self.due_block}", blocks=wait)
        return wait <= 0 and is_due(view, mine, now_s=time.time())

    async def _submit(self, view: ChainView) -> None:
        weights = self._scores(view)
        if not weights:
            self._say("no-scores", "nobody has a score that could be paid")
            return
        try:
            done = await self.chain.set_weights(weights)
        except RateLimited as limited:
            self.due_block = self._not_before_block = view.block + (limited.blocks_to_wait or 1)
            self._say("waiting", str(limited), blocks=limited.blocks_to_wait)
            return
        except (ChainRefused, NotPermitted) as refused:
            self._refused_epoch = view.last_epoch_block
            self._say("update-needed" if isinstance(refused, UpdateNeeded) else "refused", str(refused), error=True)
            return
        self.block, self.weights, self.inherited = done.block or view.block, weights, {}
        self._hotkeys = {neuron.uid: neuron.hotkey for neuron in view.neurons if neuron.uid in weights}
        self.state, self.message = "set" if done.reveal_round is None else "committed", done.message
        if done.block is None:  # found on the chain after a failure, which shows where it stands if it is a commitment
            later = [each for each in await self.chain.pending_weights() if each.block > view.block]
            self.state, self.block = ("committed", later[-1].block) if later else (self.state, self.block)
        log.info("weights=%s block=%s uids=%s note=%r", self.state, self.block, sorted(weights), done.message)

    def _look_for_heirs(self, view: ChainView) -> None:
        """Say once whose weight another hotkey has taken over with the uid; the next submission corrects it."""
        for uid, hotkey in self._hotkeys.items():
            now = view.at_uid(uid)
            if now is not None and now.hotkey != hotkey and self.inherited.get(uid) != now.hotkey:
                self.inherited[uid] = now.hotkey
                log.warning(
                    "weights=inherited uid=%d from=%s by=%s; the next submission corrects it", uid, hotkey, now.hotkey
                )

    def _look_at_clock(self, view: ChainView) -> None:
        """Say once that this machine's clock is behind the chain's; one that is ahead makes every view look old."""
        behind_s = view.time_s - time.time()
        if behind_s > CLOCK_S and not self._clock_said:
            log.warning("clock=%.0f s behind the chain's; set this machine's (timedatectl set-ntp true)", behind_s)
        self._clock_said = behind_s > CLOCK_S

    def _say(self, state: str, message: str, *, blocks: int | None = None, error: bool = False) -> None:
        """Note the state, and log it when it is another than before."""
        if state != self.state:
            level = logging.ERROR if error else logging.INFO
            more = "" if blocks is None else f" blocks={blocks}"
            log.log(level, "weights=%s%s reason=%r", state, more, message)
        self.state, self.message = state, message

    def health(self) -> dict[str, Any]:
        """The health page's facts of the weights."""
        return {
            "weights_state": self.state,
            "weights_block": self.block,
            "weights_message": self.message,
            "weights_due_block": self.due_block,
            "weights": {str(uid): weight for uid, weight in self.weights.items()},
            "weights_inherited": {str(uid): hotkey for uid, hotkey in self.inherited.items()},
            "weights_pending": [
                {
                    "block": each.block,
                    "reveal_block": each.reveal_block(self._view),
                    "reveal_round": each.reveal_round,
                    "reveal_time_s": each.reveal_time_s,
                }
                for each in self.pending
                if self._view is not None
            ],
        }
