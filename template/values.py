"""The base's values: what a neuron knows about its subnet, at one block. All frozen, none knows where it came from.

Amounts are whole rao (1 TAO or alpha = 10^9 rao), shares are the chain's own u16 (65535 = all of it), so that two
machines that read the same block hold equal values. Scores follow hotkeys: a uid is only a seat, and is reused.
"""

import math
from dataclasses import dataclass
from functools import cached_property

Hotkey = str
"""An ss58 address of an sr25519 key."""

Coldkey = str
Uid = int

RAO_PER_TAO = 10**9
DRAND_GENESIS_S, DRAND_PERIOD_S = 1_692_803_367, 3  # of quicknet, whose rounds open timelocked weights
U16_MAX = 65535
COMMITMENT_LIMIT_BYTES = 128


@dataclass(frozen=True, kw_only=True)
class NeuronInfo:
    """One registered neuron. `endpoint` is "ip:port" as the chain stores it, or None when nothing is served."""

    uid: Uid
    hotkey: Hotkey
    coldkey: Coldkey
    stake_rao: int
    validator_permit: bool
    active: bool
    incentive_u16: int
    dividends_u16: int
    emission_rao: int
    endpoint: str | None
    last_update: int
    registered_at: int

    @property
    def incentive(self) -> float:
        """The neuron's share of the miners' incentive, 0 to 1."""
        return self.incentive_u16 / U16_MAX

    @property
    def dividends(self) -> float:
        """The neuron's share of the validators' dividends, 0 to 1."""
        return self.dividends_u16 / U16_MAX


@dataclass(frozen=True, kw_only=True)
class ChainView:
    """A subnet at one block: everybody who names the same block holds an equal view.

    `time_s` is the block's own timestamp (unix seconds), `block_time_s` the chain's slot length. Nobody is paid on a
    subnet that its owner has not `started`.
    """

    netuid: int
    block: int
    block_hash: str
    time_s: float
    block_time_s: float
    tempo: int
    last_epoch_block: int
    weights_rate_limit_blocks: int
    owner_hotkey: Hotkey
    owner_coldkey: Coldkey
    neurons: tuple[NeuronInfo, ...]
    started: bool = True

    @cached_property
    def _by_hotkey(self) -> dict[Hotkey, NeuronInfo]:
        return {neuron.hotkey: neuron for neuron in self.neurons}

    def neuron(self, hotkey: Hotkey) -> NeuronInfo | None:
        """The neuron registered under this hotkey, or None."""
        return self._by_hotkey.get(hotkey)

    def at_uid(self, uid: Uid) -> NeuronInfo | None:
        """The neuron that holds this uid at this block, or None."""
        return self.neurons[uid] if 0 <= uid < len(self.neurons) else None

    @property
    def owner(self) -> NeuronInfo | None:
        """The subnet owner's neuron, where it is registered."""
        return self.neuron(self.owner_hotkey)

    @property
    def validators(self) -> tuple[NeuronInfo, ...]:
        """The neurons that hold a validator permit, by uid."""
        return tuple(neuron for neuron in self.neurons if neuron.validator_permit)

    @property
    def next_epoch_block(self) -> int:
        """The block at which the next epoch is due, if nobody triggers one earlier."""
        return self.last_epoch_block + self.tempo

    def age_s(self, now_s: float) -> float:
        """How old this view is, by the block's own clock; never negative."""
        return max(0.0, now_s - self.time_s)


@dataclass(frozen=True, kw_only=True)
class Record:
    """Bytes that a hotkey committed on the chain. `extrinsic_index` is None where the block's body is not readable."""

    hotkey: Hotkey
    data: bytes
    block: int
    extrinsic_index: int | None


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """An extrinsic that the chain included and finalised. Both positions are None when nothing had to be sent.

    `reveal_round` is the drand round at which the chain opens what was committed, where that is how it takes weights.
    """

    block: int | None
    extrinsic_index: int | None
    message: str
    reveal_round: int | None = None


@dataclass(frozen=True, kw_only=True)
class PendingWeights:
    """Weights that a hotkey committed at `block` and that the chain has not revealed yet."""

    hotkey: Hotkey
    block: int
    epoch: int
    reveal_round: int

    @property
    def reveal_time_s(self) -> float:
        """When the round's signature comes out (unix seconds)."""
        return DRAND_GENESIS_S + DRAND_PERIOD_S * (self.reveal_round - 1)

    def reveal_block(self, view: ChainView) -> int:
        """At about which block the chain reveals them: the view's own block when the signature should be out."""
        return view.block + max(0, math.ceil((self.reveal_time_s - view.time_s) / view.block_time_s))


def tao_text(rao: int) -> str:
    """An amount of rao in TAO, exact and without needless zeros."""
    return f"{rao // RAO_PER_TAO}.{rao % RAO_PER_TAO:09d}".rstrip("0").rstrip(".")
