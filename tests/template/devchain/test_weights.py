"""Every rule a weight vector has to pass, in the chain's order, and how it is stored."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from template.devchain import weights
from template.devchain.blocks import blake2_256
from template.devchain.chain import Chain
from template.devchain.context import DispatchError, Origin, PoolError
from template.devchain.dispatch import CALLS
from template.devchain.genesis import Genesis, development_address
from template.devchain.validity import check_call

OWNER, VALIDATOR = development_address("//Owner//hot"), development_address("//validator0//hot")


@pytest.fixture
def chain(genesis_for: Callable[..., Genesis]) -> Chain:
    """Uids 0 (owner), 1 and 2 (validators), at block 50, where no rate limit holds any more."""
    chain = Chain(genesis_for(weights_rate_limit=10), start_ms=1)
    chain.storage.begin_block(50)
    chain.context.put("LastUpdate", 1, [1, 1, 1])
    return chain


def run(chain: Chain, hotkey: str, name: str, **args: Any) -> str | None:
    """Run a SubtensorModule call; gives the name of its failure, or None."""
    try:
        with chain.context.undone_on_failure():
            CALLS[f"SubtensorModule.{name}"](chain.context, Origin(hotkey), args)
    except DispatchError as error:
        return str(error.reason).removeprefix("SubtensorModule.")
    return None


def set_weights(chain: Chain, hotkey: str = VALIDATOR, **changes: Any) -> str | None:
    args = {"netuid": 1, "dests": [0, 2], "weights": [65535, 1], "version_key": 0}
    return run(chain, hotkey, "set_weights", **args | changes)


def test_a_good_vector_is_stored_and_noted(chain: Chain) -> None:
    assert set_weights(chain) is None
    assert chain.storage.get("Weights", 1, 1) == [(0, 65535), (2, 1)]
    assert chain.storage.get("LastUpdate", 1) == [1, 50, 1]


@pytest.mark.parametrize(
    ("changes", "item", "value", "error"),
    [
        ({"netuid": 0}, "CommitRevealWeightsEnabled", False, "CanNotSetRootNetworkWeights"),
        ({"weights": [1]}, None, None, "WeightVecNotEqualSize"),
        ({"netuid": 9}, "CommitRevealWeightsEnabled", False, "MechanismDoesNotExist"),
        ({"netuid": 9}, None, None, "CommitRevealEnabled"),
        ({"dests": [0, 1, 2, 2], "weights": [1] * 4}, None, None, "UidsLengthExceedUidsInSubNet"),
        ({}, "StakeThreshold", 10**15, "NotEnoughStakeToSetWeights"),
        ({"version_key": 4}, "WeightsVersionKey", 5, "IncorrectWeightVersionKey"),
        ({}, "LastUpdate", [1, 45, 1], "SettingWeightsTooFast"),
        ({}, "ValidatorPermit", [True, False, True], "NeuronNoValidatorPermit"),
        ({"dests": [2, 2]}, None, None, "DuplicateUids"),
        ({"dests": [0, 7]}, None, None, "UidVecContainInvalidOne"),
        ({}, "MinAllowedWeights", 3, "WeightVecLengthIsLow"),
        ({}, "MaxWeightsLimit", 32767, "MaxWeightExceeded"),
        ({}, "CommitRevealWeightsEnabled", True, "CommitRevealEnabled"),
    ],
)
def test_a_broken_rule_has_its_own_error(
    chain: Chain, changes: dict[str, Any], item: str | None, value: Any, error: str
) -> None:
    if item == "StakeThreshold":
        chain.context.put(item, value)
    elif item is not None:
        chain.context.put(item, changes.get("netuid", 1), value)
    assert set_weights(chain, **changes) == error
    assert not chain.storage.has("Weights", 1, 1)


def test_a_stranger_is_not_registered(chain: Chain) -> None:
    assert set_weights(chain, development_address("//stranger")) == "HotKeyNotRegisteredInSubNet"


def test_the_owner_needs_neither_stake_nor_permit(chain: Chain) -> None:
    chain.context.put("StakeThreshold", 10**15)
    chain.context.put("ValidatorPermit", 1, [False, False, False])
    assert set_weights(chain, OWNER, dests=[1, 2]) is None


def test_a_vote_for_oneself_alone_needs_no_permit(chain: Chain) -> None:
    chain.context.put("ValidatorPermit", 1, [False, False, False])
    chain.context.put("MinAllowedWeights", 1, 3)
    assert set_weights(chain, dests=[1], weights=[5]) is None
    assert chain.storage.get("Weights", 1, 1) == [(1, 65535)]


def test_fewer_neurons_than_the_minimum_need_fewer_weights(chain: Chain) -> None:
    chain.context.put("MinAllowedWeights", 1, 200)
    assert set_weights(chain, dests=[0, 1, 2], weights=[1, 1, 1]) is None


@given(st.lists(st.integers(0, 65535), min_size=1, max_size=20))
def test_the_largest_weight_becomes_65535_and_ratios_stay(values: list[int]) -> None:
    """A stored weight differs from the exact ratio by less than one part in 65535, plus rounding."""
    scaled = weights.upscale(values)
    top = max(values)
    if top == 0:
        assert scaled == values
    else:
        assert max(scaled) == 65535
        assert all(abs(new - old * 65535 / top) < 0.51 for old, new in zip(values, scaled, strict=True))


@pytest.mark.parametrize(("values", "limit", "holds"), [([1, 1], 32767, False), ([1, 1], 32768, True), ([0], 1, True)])
def test_no_share_may_exceed_the_limit(values: list[int], limit: int, holds: bool) -> None:
    assert weights.is_limited(values, limit) is holds


def hash_commit(chain: Chain, salt: list[int]) -> str:
    codec = chain.runtime.codec
    parts = [("AccountId", VALIDATOR), ("u16", 1), ("Vec<u16>", [0, 2]), ("Vec<u16>", [3, 1]), ("Vec<u16>", salt)]
    data = b"".join(bytes(codec.encode(kind, value)) for kind, value in [*parts, ("u64", 0)])
    return "0x" + blake2_256(data).hex()


def test_weights_committed_by_hash_are_revealed_in_their_epoch_only(chain: Chain) -> None:
    """Tempo 10, one epoch of delay: committed at block 50, revealed from block 60 to 69."""
    chain.context.put("CommitRevealWeightsEnabled", 1, True)
    chain.context.put("LastEpochBlock", 1, 50)
    reveal = {"netuid": 1, "uids": [0, 2], "values": [3, 1], "salt": [7], "version_key": 0}
    assert run(chain, VALIDATOR, "reveal_weights", **reveal) == "NoWeightsCommitFound"
    assert run(chain, VALIDATOR, "commit_weights", netuid=1, commit_hash=hash_commit(chain, [7])) is None
    assert run(chain, VALIDATOR, "commit_weights", netuid=1, commit_hash="0x" + "00" * 32) == "CommittingWeightsTooFast"
    assert run(chain, VALIDATOR, "reveal_weights", **reveal) == "RevealTooEarly"
    chain.storage.begin_block(70)
    assert run(chain, VALIDATOR, "reveal_weights", **reveal) == "ExpiredWeightCommit"
    chain.storage.begin_block(69)
    assert run(chain, VALIDATOR, "reveal_weights", **reveal | {"salt": [8]}) == "InvalidRevealCommitHashNotMatch"
    assert run(chain, VALIDATOR, "reveal_weights", **reveal) is None
    assert chain.storage.get("Weights", 1, 1) == [(0, 65535), (2, 21845)]
    assert run(chain, VALIDATOR, "reveal_weights", **reveal) == "NoWeightsCommitFound"


@pytest.mark.parametrize(
    ("setup", "changes", "error"),
    [
        ({"CommitRevealWeightsEnabled": False}, {}, "CommitRevealDisabled"),
        ({}, {"commit_reveal_version": 3}, "IncorrectCommitRevealVersion"),
        ({"LastUpdate": [1, 45, 1]}, {}, "CommittingWeightsTooFast"),
        ({}, {"netuid": 9}, "MechanismDoesNotExist"),
    ],
)
def test_a_broken_rule_of_timelocked_commits_has_its_own_error(
    chain: Chain, setup: dict[str, Any], changes: dict[str, Any], error: str
) -> None:
    for name, value in ({"CommitRevealWeightsEnabled": True} | setup).items():
        chain.context.put(name, 1, value)
    args = {"netuid": 1, "commit": b"sealed", "reveal_round": 5, "commit_reveal_version": 4}
    assert run(chain, VALIDATOR, "commit_timelocked_weights", **args | changes) == error


def test_ten_commits_an_epoch_are_kept_and_no_more(chain: Chain) -> None:
    chain.context.put("CommitRevealWeightsEnabled", 1, True)
    chain.context.put("WeightsSetRateLimit", 1, 0)
    args = {"netuid": 1, "commit": b"sealed", "reveal_round": 5, "commit_reveal_version": 4}
    outcomes = [run(chain, VALIDATOR, "commit_timelocked_weights", **args) for _ in range(11)]
    assert outcomes == [None] * 10 + ["TooManyUnrevealedCommits"]


@pytest.mark.parametrize(
    ("call", "changes", "code"),
    [
        ("set_weights", {"netuid": 9}, 3),
        ("set_weights", {"hotkey": "//stranger"}, 19),
        ("set_weights", {"threshold": 10**15}, 1),
        ("set_weights", {"last": 45}, 6),
        ("serve_axon", {"hotkey": "//stranger"}, 10),
        ("serve_axon", {"ip": 0x7F000001}, 11),
        ("serve_axon", {"served": 50}, 12),
        ("serve_axon", {"port": 0}, 13),
    ],
)
def test_the_pool_refuses_with_the_runtimes_numbers(
    chain: Chain, call: str, changes: dict[str, Any], code: int
) -> None:
    hotkey = development_address(changes["hotkey"]) if "hotkey" in changes else VALIDATOR
    chain.context.put("StakeThreshold", changes.get("threshold", 0))
    chain.context.put("LastUpdate", 1, [1, changes.get("last", 1), 1])
    axon = {"version": 1, "ip": changes.get("ip", 1), "port": changes.get("port", 1), "ip_type": 4}
    rest = {"protocol": 4, "placeholder1": 0, "placeholder2": 0}
    if "served" in changes:
        chain.context.put("Axons", 1, hotkey, {"block": changes["served"]} | axon | rest)
    netuid = {"netuid": changes.get("netuid", 1)}
    values = {"dests": [0], "weights": [1], "version_key": 0} if call == "set_weights" else axon | rest
    arguments = [{"name": name, "value": value} for name, value in (netuid | values).items()]
    decoded = {"call_module": "SubtensorModule", "call_function": call, "call_args": arguments}
    with pytest.raises(PoolError, match=f"Custom error: {code}$"):
        check_call(chain.storage, hotkey, decoded, 50)
