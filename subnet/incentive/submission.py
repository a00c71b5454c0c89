"""When a validator submits its weights: once per tempo, shortly before the epoch that reads them. Pure.

What was submitted is read from the chain (a neuron's last update), so a restart neither loses nor doubles a submission.
Weights are never made from a view that is old. What the weights are is `subnet.incentive.weights`' business.
"""

from template.values import ChainView, NeuronInfo

WINDOW_FRAC = 0.4  # of a tempo, before its end: late enough to know its work, early enough to try again
LEAST_WINDOW_BLOCKS = 5
STALE_BLOCKS = 5
STALE_S = 60.0  # a view older than this and than STALE_BLOCKS blocks is not acted on

WEIGHTS_VERSION_KEY = 10
"""Names the rules that make weights here: 1000 x major + 10 x minor + patch of the version that last changed them. The
subnet's owner who raises the chain's key to a new one retires validators that still have the old rules."""


def is_due(view: ChainView, neuron: NeuronInfo, *, now_s: float) -> bool:
    """Whether to submit now: permitted, in the window before the epoch, not submitted since the last epoch, allowed by
    the rate limit, and the view is fresh."""
    return neuron.validator_permit and not is_stale(view, now_s=now_s) and blocks_to_wait(view, neuron) == 0


def is_stale(view: ChainView, *, now_s: float) -> bool:
    """Whether the view is too old to act on."""
    return view.age_s(now_s) > max(STALE_S, STALE_BLOCKS * view.block_time_s)


def blocks_to_wait(view: ChainView, neuron: NeuronInfo) -> int:
    """Blocks until the neuron's next submission is due; 0 is now."""
    window = max(LEAST_WINDOW_BLOCKS, int(WINDOW_FRAC * view.tempo))
    opens = view.next_epoch_block - window
    submitted = neuron.last_update > view.last_epoch_block and neuron.last_update > neuron.registered_at
    if submitted:
        opens += view.tempo
    allowed = neuron.last_update + view.weights_rate_limit_blocks if neuron.last_update else 0
    return max(0, opens - view.block, allowed - view.block)
