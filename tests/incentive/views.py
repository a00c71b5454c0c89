"""Chain views for tests of weights: a few neurons in an order of the test's choice."""

from collections.abc import Sequence

from template.values import ChainView, NeuronInfo


def view_of(hotkeys: Sequence[str], owner: str = "owner") -> ChainView:
    """The neurons with these hotkeys, uid by position."""
    neurons = tuple(
        NeuronInfo(
            uid=uid,
            hotkey=hotkey,
            coldkey=f"cold-{hotkey}",
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
        block=10,
        block_hash="00",
        time_s=0.0,
        block_time_s=1.0,
        tempo=20,
        last_epoch_block=0,
        weights_rate_limit_blocks=10,
        owner_hotkey=owner,
        owner_coldkey=f"cold-{owner}",
        neurons=neurons,
    )
