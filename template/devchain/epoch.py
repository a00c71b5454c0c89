"""Yuma consensus: one epoch of one subnet, in the chain's fixed-point integers.

Pure: numbers in, numbers out. Matrices are sparse, one dict of column to
value per row. Owns no storage and does not know who is paid; coinbase does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from template.devchain.fixed import FRAC_BITS, ONE, U16_MAX, div, exp, mul, normalize, ratio, to_u16

Row = dict[int, int]


@dataclass(frozen=True, kw_only=True)
class EpochParams:
    """A subnet's hyperparameters, as stored on the chain."""

    tempo: int
    activity_cutoff: int = 5000
    kappa: int = 32767
    max_validators: int = 128
    bonds_penalty: int = U16_MAX
    bonds_moving_average: int = 900_000
    yuma3: bool = False
    liquid_alpha: bool = False
    alpha_low: int = 45875
    alpha_high: int = 58982
    alpha_steepness: int = 1000


@dataclass(frozen=True, kw_only=True)
class EpochInput:
    """What the chain knows of n neurons when the epoch starts; lists are by uid."""

    block: int
    last_step_block: int = 0
    stake: Sequence[int]
    last_update: Sequence[int]
    registered_at: Sequence[int]
    permits: Sequence[bool]
    weights: dict[int, list[tuple[int, int]]]
    bonds: dict[int, list[tuple[int, int]]]
    owner_uid: int | None = None
    first_commit: dict[int, int] = field(default_factory=dict)  # earliest live commit block by uid, commit-reveal on


@dataclass(frozen=True, kw_only=True)
class EpochResult:
    """What an epoch gives; u16 lists as the chain stores them, proportions as I32F32."""

    active: list[bool]
    stake_weight: list[int]
    permits: list[bool]
    consensus: list[int]
    incentive: list[int]
    dividends: list[int]
    validator_trust: list[int]
    bonds: dict[int, list[tuple[int, int]]]
    server: list[int]
    validator: list[int]
    combined: list[int]

    def amounts(self, proportions: list[int], emission_rao: int) -> list[int]:
        """Proportions of an emission in rao, rounded down."""
        return [(share * emission_rao) >> FRAC_BITS for share in proportions]


def run_epoch(state: EpochInput, params: EpochParams) -> EpochResult:
    """Run the epoch: weights and bonds of validators to consensus, incentive, dividends and shares of emission."""
    size = len(state.stake)
    active = [update + params.activity_cutoff >= state.block for update in state.last_update]
    stake = _stake_shares(state.stake)
    permits = _top_validators(stake, params.max_validators, state.owner_uid)
    may_vote = [permit or uid == state.owner_uid for uid, permit in enumerate(state.permits)]
    masked = [share if active[uid] and may_vote[uid] else 0 for uid, share in enumerate(stake)]
    active_stake = normalize(masked)
    weights = _valid_weights(state, may_vote)
    consensus = _weighted_median(active_stake, weights, size, ratio(params.kappa, U16_MAX))
    clipped = _clip(weights, consensus)
    incentive = normalize(_weighted_columns(clipped, active_stake, size))
    for_bonds = _interpolate(weights, clipped, params.bonds_penalty)
    old_bonds = _valid_bonds(state, params)
    if params.yuma3:
        bonds, dividends = _yuma3(params, (for_bonds, old_bonds), (consensus, incentive), active_stake)
    else:
        bonds, dividends = _classic(params, (for_bonds, old_bonds), incentive, active_stake)
    server, validator, combined = _shares(incentive, dividends, active_stake if sum(active_stake) else stake)
    return EpochResult(
        active=active,
        stake_weight=[to_u16(share) for share in stake],
        permits=permits,
        consensus=[to_u16(value) for value in consensus],
        incentive=[to_u16(value) for value in incentive],
        dividends=[to_u16(value) for value in dividends],
        validator_trust=[to_u16(sum(row.values())) for row in clipped],
        bonds=_stored_bonds(bonds, permits),
        server=server,
        validator=validator,
        combined=combined,
    )


def _stake_shares(stake: Sequence[int]) -> list[int]:
    """Stake over its sum: divided in I64F64, then cut to I32F32."""
    total = sum(stake)
    return [((value << 64) // total) >> 32 if total else 0 for value in stake]


def _top_validators(stake: list[int], limit: int, owner_uid: int | None) -> list[bool]:
    """The uids with the most stake, those without any left out; among equals the later uid wins. The owner stays."""
    permits = [share > 0 for share in stake]
    for uid in sorted(range(len(stake)), key=lambda each: stake[each])[: max(0, len(stake) - limit)]:
        permits[uid] = False
    if owner_uid is not None:
        permits[owner_uid] = True
    return permits


def _valid_weights(state: EpochInput, may_vote: list[bool]) -> list[Row]:
    """Normalised rows of those who may vote, without self weights and without votes for someone registered later."""
    rows: list[Row] = []
    for uid, votes in enumerate(may_vote):
        seen = state.last_update[uid]
        committed = state.first_commit.get(uid)
        row = {
            column: value << FRAC_BITS
            for column, value in (state.weights.get(uid, ()) if votes else ())
            if (column != uid or uid == state.owner_uid)
            and seen > state.registered_at[column]
            and (committed is None or committed >= state.registered_at[column])
        }
        total = sum(row.values())
        rows.append({column: div(value, total) for column, value in row.items()} if total else row)
    return rows


def _valid_bonds(state: EpochInput, params: EpochParams) -> list[Row]:
    """Bonds as whole numbers, without those to someone registered since the last epoch."""
    last = state.last_step_block + 1 if state.last_step_block else max(0, state.block - params.tempo)
    return [
        {column: value for column, value in state.bonds.get(uid, ()) if last > state.registered_at[column]}
        for uid in range(len(state.stake))
    ]


def _weighted_median(active_stake: list[int], weights: list[Row], size: int, kappa: int) -> list[int]:
    """Per column the largest weight that a share kappa of the stake agrees on."""
    voters = [uid for uid, share in enumerate(active_stake) if share > 0]
    stake = normalize([active_stake[uid] for uid in voters])
    total = sum(stake)
    columns: list[list[int] | None] = [None] * size
    for index, uid in enumerate(voters):
        for column, value in weights[uid].items():
            scores = columns[column]
            if scores is None:
                scores = columns[column] = [0] * len(voters)
            scores[index] = value
    return [0 if scores is None else _median(stake, scores, total - kappa, total) for scores in columns]


def _median(stake: list[int], scores: list[int], minority: int, total: int) -> int:
    """Quickselect with the middle element as pivot, exactly as the chain does it."""
    members, low, high = list(range(len(scores))), 0, total
    while len(members) > 1:
        pivot = scores[members[len(members) // 2]]
        below = [each for each in members if scores[each] < pivot]
        above = [each for each in members if scores[each] > pivot]
        stake_below = sum(stake[each] for each in below)
        stake_above = sum(stake[each] for each in above)
        if minority < low + stake_below and below:
            members, high = below, low + stake_below
        elif high - stake_above <= minority and above:
            members, low = above, high - stake_above
        else:
            return pivot
    return scores[members[0]] if members else 0


def _clip(weights: list[Row], consensus: list[int]) -> list[Row]:
    """Weights cut at the consensus; none where the consensus is zero and the weight is not."""
    return [
        {
            column: min(value, consensus[column])
            for column, value in row.items()
            if value <= consensus[column] or consensus[column] > 0
        }
        for row in weights
    ]


def _weighted_columns(rows: list[Row], stake: list[int], size: int) -> list[int]:
    """Column sums weighted by the row's stake."""
    totals = [0] * size
    for uid, row in enumerate(rows):
        if stake[uid]:
            for column, value in row.items():
                totals[column] += mul(value, stake[uid])
    return totals


def _interpolate(weights: list[Row], clipped: list[Row], penalty: int) -> list[Row]:
    """Weights that bonds follow: between as set (penalty 0) and as clipped (penalty 65535)."""
    if penalty == 0:
        return weights
    if penalty >= U16_MAX:
        return clipped
    share = ratio(penalty, U16_MAX)
    mixed: list[Row] = []
    for row, cut in zip(weights, clipped, strict=True):
        values = {column: value + mul(share, cut.get(column, 0) - value) for column, value in row.items()}
        mixed.append({column: value for column, value in values.items() if value > 0})
    return mixed


def _column_normalize(rows: list[Row]) -> list[Row]:
    """Every column over its sum."""
    totals: Row = {}
    for row in rows:
        for column, value in row.items():
            totals[column] = totals.get(column, 0) + value
    return [{column: div(value, totals[column]) for column, value in row.items()} for row in rows]


def _moving_average(new: list[Row], old: list[Row], alpha: int) -> list[Row]:
    """alpha x new + (1 - alpha) x old."""
    rest = ONE - alpha
    rows: list[Row] = []
    for fresh, past in zip(new, old, strict=True):
        row = {column: mul(alpha, value) for column, value in fresh.items()}
        for column, value in past.items():
            row[column] = row.get(column, 0) + mul(rest, value)
        rows.append({column: value for column, value in row.items() if value > 0})
    return rows


def _alpha(params: EpochParams) -> int:
    """1 - the bonds' moving average, which is in millionths."""
    return ONE - ratio(params.bonds_moving_average, 1_000_000)


def _classic(
    params: EpochParams, matrices: tuple[list[Row], list[Row]], incentive: list[int], stake: list[int]
) -> tuple[list[Row], list[int]]:
    """Yuma 2: bonds are shares of a column. Returns bonds scaled to a column maximum of 1, and dividends."""
    for_bonds, stored = matrices
    old = _column_normalize([{column: value << FRAC_BITS for column, value in row.items()} for row in stored])
    delta = [{column: mul(value, stake[uid]) for column, value in row.items()} for uid, row in enumerate(for_bonds)]
    bonds = _column_normalize(_moving_average(_column_normalize(delta), old, _alpha(params)))
    dividends = normalize([sum(mul(value, incentive[column]) for column, value in row.items()) for row in bonds])
    return _column_upscale(bonds), dividends


def _column_upscale(rows: list[Row]) -> list[Row]:
    """Every column over its maximum."""
    top: Row = {}
    for row in rows:
        for column, value in row.items():
            top[column] = max(top.get(column, 0), value)
    return [{column: div(value, top[column]) for column, value in row.items()} for row in rows]


def _yuma3(
    params: EpochParams,
    matrices: tuple[list[Row], list[Row]],
    outcome: tuple[list[int], list[int]],
    stake: list[int],
) -> tuple[list[Row], list[int]]:
    """Yuma 3: a bond is a validator's own, between 0 and 1, and stake counts when dividends are paid."""
    for_bonds, stored = matrices
    consensus, incentive = outcome
    old = [{column: ratio(value, U16_MAX) for column, value in row.items()} for row in stored]
    if params.liquid_alpha and any(consensus):
        bonds = _liquid_average(params, for_bonds, old, consensus)
    else:
        bonds = _moving_average(for_bonds, old, _alpha(params))
    shares = _column_normalize(bonds)
    earned = [sum(mul(value, incentive[column]) for column, value in row.items()) for row in shares]
    return bonds, normalize([mul(value, stake[uid]) for uid, value in enumerate(earned)])


def _liquid_average(params: EpochParams, new: list[Row], old: list[Row], consensus: list[int]) -> list[Row]:
    """Every bond moves at its own speed: faster, the further its weight is from consensus."""
    low, high = ratio(params.alpha_low, U16_MAX), ratio(params.alpha_high, U16_MAX)
    steepness = ratio(params.alpha_steepness, 100)
    rows: list[Row] = []
    for fresh, past in zip(new, old, strict=True):
        row: Row = {}
        for column, weight in fresh.items():
            bond = past.get(column, 0)
            distance = weight - consensus[column] if weight >= bond else bond - weight
            distance = min(ONE, max(0, distance))
            sigmoid = div(ONE, ONE + exp(-mul(steepness, distance - ONE // 2)))
            alpha = min(high, max(low, low + mul(sigmoid, high - low)))
            row[column] = min(ONE, mul(alpha, weight) + mul(ONE - alpha, bond))
        rows.append({column: value for column, value in row.items() if value > 0})
    return rows


def _shares(incentive: list[int], dividends: list[int], fallback: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Shares of the emission: of servers, of validators, and of both; stake shares when nobody earned any."""
    combined = [server + validator for server, validator in zip(incentive, dividends, strict=True)]
    total = sum(combined)
    if total == 0:
        return list(incentive), list(fallback), list(fallback)
    return [div(value, total) for value in incentive], [div(value, total) for value in dividends], normalize(combined)


def _stored_bonds(bonds: list[Row], permits: list[bool]) -> dict[int, list[tuple[int, int]]]:
    """Bonds as the chain stores them: rows of permitted validators, u16, by column."""
    stored = {}
    for uid, row in enumerate(bonds):
        if permits[uid]:
            values = [(column, to_u16(value)) for column, value in sorted(row.items())]
            stored[uid] = [(column, value) for column, value in values if value]
    return stored
