"""What is checked before anything is signed: the price of a registration, what is announced, committed, and weighed.

Pure, and the same for the chain in memory and the real one. What the SDK checks by itself is not repeated here.
"""

import math
from collections.abc import Mapping

from template.errors import (
    ChainRefused,
    NotPermitted,
    NotRegistered,
    RateLimited,
    SpendLimit,
    SubnetNotFound,
    UpdateNeeded,
)
from template.sdk_decode import endpoint_text
from template.values import COMMITMENT_LIMIT_BYTES, ChainView, Hotkey, Uid, tao_text


def no_subnet(netuid: int, endpoint: str) -> SubnetNotFound:
    """The error of a subnet that is not there."""
    return SubnetNotFound(f"expected subnet {netuid} on {endpoint}, found none; check --netuid")


def check_price(price_rao: int, limit_rao: int | None) -> None:
    """Raise SpendLimit when a registration costs more than the user's limit."""
    if limit_rao is not None and price_rao > limit_rao:
        raise SpendLimit(
            f"expected a price of at most {tao_text(limit_rao)} TAO, found {tao_text(price_rao)}; raise the limit, or "
            "wait: the price falls until somebody registers"
        )


def check_endpoint(host: str, port: int) -> str:
    """The "ip:port" to announce. Raises ChainRefused when the host is no address."""
    try:
        return endpoint_text(host, port)
    except ValueError as error:
        raise ChainRefused(f"expected an IP address to announce, found {host!r}; give the number") from error


def check_record(data: bytes) -> None:
    """Raise ChainRefused when these bytes are nothing, or more than the chain takes under one hotkey."""
    if not 0 < len(data) <= COMMITMENT_LIMIT_BYTES:
        raise ChainRefused(f"expected 1 to {COMMITMENT_LIMIT_BYTES} bytes, found {len(data)}; commit a digest")


def check_serving(served_at: int, limit_blocks: int, block: int) -> None:
    """Raise RateLimited when the endpoint was announced so recently that the chain takes no other."""
    wait = served_at + limit_blocks - block
    if served_at and wait > 0:
        raise RateLimited(f"the endpoint was changed too recently; wait {wait} blocks", blocks_to_wait=wait)


def check_vector(weights: Mapping[Uid, float]) -> None:
    """Raise ChainRefused for a vector of which no share can be made, naming the uid that spoils it.

    One number that is none would spoil the sum of all, and whoever goes on gives everybody the same, or nothing.
    """
    for uid, weight in weights.items():
        if not (math.isfinite(weight) and weight >= 0):
            raise ChainRefused(
                f"expected finite weights of at least 0, found {weight} for uid {uid}; correct the scores"
            )
    if not any(weights.values()):
        raise ChainRefused("expected a positive weight, found none; set weights once somebody has a score")


def check_weights(
    view: ChainView, hotkey: Hotkey, weights: Mapping[Uid, float], *, keys: tuple[int, int], least_stake_rao: int
) -> None:
    """Raise what the chain would say of weights from this hotkey; `keys` are its version key and the least required."""
    mine, (own_key, least_key) = view.neuron(hotkey), keys
    check_vector(weights)
    if mine is None:
        raise NotRegistered(
            f"expected hotkey {hotkey} on subnet {view.netuid}, found it unregistered at block {view.block}; register "
            "the hotkey on this subnet first (`strata register`)"
        )
    if mine.stake_rao < least_stake_rao and hotkey != view.owner_hotkey:
        raise NotPermitted(
            f"expected a stake of at least {tao_text(least_stake_rao)} on {hotkey} to set weights, found "
            f"{tao_text(mine.stake_rao)} on subnet {view.netuid}; stake more on it (`btcli stake add`)"
        )
    if own_key < least_key:
        raise UpdateNeeded(
            f"expected weights of version {least_key} or later on subnet {view.netuid}, found that this software makes "
            f"version {own_key}; update it",
            name="IncorrectWeightVersionKey",
        )
    if not mine.validator_permit and hotkey != view.owner_hotkey and set(weights) != {mine.uid}:
        raise NotPermitted(
            f"expected a validator permit for {hotkey} on subnet {view.netuid}, found none; stake more on it and wait "
            f"for an epoch (the next is due at block {view.next_epoch_block})"
        )
