"""The law of submissions: one per tempo, inside the window before the epoch, never too soon, never from an old view."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.incentive.submission import STALE_S, blocks_to_wait, is_due, is_stale
from template.values import ChainView, NeuronInfo

NEURON = NeuronInfo(
    uid=1,
    hotkey="5Validator",
    coldkey="5Cold",
    stake_rao=1,
    validator_permit=True,
    active=True,
    incentive_u16=0,
    dividends_u16=0,
    emission_rao=0,
    endpoint=None,
    last_update=0,
    registered_at=0,
)
VIEW = ChainView(
    netuid=1,
    block=100,
    block_hash="0x00",
    time_s=1000.0,
    block_time_s=1.0,
    tempo=20,
    last_epoch_block=100,
    weights_rate_limit_blocks=10,
    owner_hotkey="5Owner",
    owner_coldkey="5OwnerCold",
    neurons=(NEURON,),
)


def submissions(*, tempo: int, limit: int, blocks: int, registered_at: int = 0) -> list[int]:
    """The blocks at which a validator that looks at every block submits."""
    neuron, made, last_epoch = replace(NEURON, last_update=registered_at, registered_at=registered_at), [], 0
    for block in range(1, blocks):
        if block - last_epoch >= tempo:
            last_epoch = block
        view = replace(
            VIEW, block=block, last_epoch_block=last_epoch, tempo=tempo, weights_rate_limit_blocks=limit,
            time_s=float(block),
        )  # fmt: skip
        if is_due(view, neuron, now_s=float(block)):
            made.append(block)
            neuron = replace(neuron, last_update=block)
    return made


@settings(max_examples=25)
@given(tempo=st.integers(6, 100), limit=st.integers(0, 50))
def test_there_is_one_submission_per_tempo_where_the_rate_limit_allows_it(tempo: int, limit: int) -> None:
    made = submissions(tempo=tempo, limit=limit, blocks=8 * tempo)
    epochs = [block // tempo for block in made]
    assert len(set(epochs)) == len(epochs)
    assert all(later - earlier >= limit for earlier, later in zip(made, made[1:], strict=False))
    if limit <= tempo:
        assert len(made) >= 7


def test_a_restart_neither_loses_nor_doubles_a_submission() -> None:
    """The decision has no memory but the chain's: the same view gives the same answer in a new process."""
    view = replace(VIEW, block=113)
    assert is_due(view, NEURON, now_s=1000.0)
    assert not is_due(view, replace(NEURON, last_update=112), now_s=1000.0)


def test_a_fresh_registration_waits_for_the_rate_limit_only() -> None:
    """The chain sets last_update at registration: that is no submission, but the rate limit counts from it."""
    neuron = replace(NEURON, last_update=105, registered_at=105)
    assert blocks_to_wait(replace(VIEW, block=113), neuron) == 2
    assert blocks_to_wait(replace(VIEW, block=115), neuron) == 0


def test_nothing_is_submitted_from_an_old_view_or_without_a_permit() -> None:
    view = replace(VIEW, block=113)
    assert is_stale(view, now_s=view.time_s + STALE_S + 1)
    assert not is_due(view, NEURON, now_s=view.time_s + STALE_S + 1)
    assert not is_due(view, replace(NEURON, validator_permit=False), now_s=view.time_s)
