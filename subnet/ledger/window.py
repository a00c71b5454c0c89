"""The pay window: which segments of a hotkey still count for its score, by segments and by rounds. Pure."""

from collections.abc import Iterable

from subnet.config import RunConfig
from subnet.ledger.state import Segment


def window_rounds(run: RunConfig) -> int:
    """How many rounds a window of `window_segments` lasts for a replica that is never idle; it ends for all alike."""
    per_round = -(-run.train.steps_per_round // run.train.segment_steps)
    return -(-run.pay.window_segments // per_round)


def in_window(chain: Iterable[Segment], run: RunConfig, *, round: int | None = None) -> list[Segment]:
    """The segments of one hotkey whose pay is not expired: its last `window_segments` with work, and of those only
    the ones of the last rounds, so that who leaves is not paid for ever (`round`: the present one, or its own last)."""
    worked = [segment for segment in chain if segment.work][-run.pay.window_segments :]
    last = max((segment.round for segment in worked), default=0) if round is None else round
    return [segment for segment in worked if segment.round > last - window_rounds(run)]
