"""Every error of the SDK has a place in our tree. The test fails on one that a new version adds."""

import importlib
import inspect
import pkgutil

import bittensor as bt
import pytest

from template import errors
from template.errors import (
    ChainBusy,
    ChainError,
    ChainRefused,
    ChainUnreachable,
    InsufficientBalance,
    NotPermitted,
    NotRegistered,
    RateLimited,
    SubnetNotFound,
    WalletError,
)
from template.sdk import AUTH_ERRORS
from template.sdk_errors import CLASSES, CODES, NAMES, WORDS, meaning_of, our_error

ROOTS = {"BittensorError", "ChainError"}
NOT_OURS = {"SystemExit"}


def sdk_error_classes() -> set[type[BaseException]]:
    """Every exception class that a module of the SDK defines."""
    found: set[type[BaseException]] = set()
    for module in pkgutil.walk_packages(bt.__path__, "bittensor."):
        if ".cli" in module.name or ".evm" in module.name or module.name.endswith("__main__"):
            continue
        for _, value in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(value, BaseException) and value.__module__.split(".")[0] in ("bittensor", "bittensor_core"):
                found.add(value)
    return found


def test_every_error_class_of_the_sdk_has_a_place() -> None:
    classes = sdk_error_classes()
    assert len(classes) > 20
    unplaced = {
        kind.__name__
        for kind in classes
        if kind.__name__ not in ROOTS and not any(base.__name__ in CLASSES for base in kind.__mro__)
    }
    assert unplaced == set(), "place the class in CLASSES of template/sdk_errors.py"


def test_every_error_code_of_the_sdk_has_a_place() -> None:
    assert {code.value for code in bt.ErrorCode} == set(CODES)


def test_every_auth_error_of_the_sdk_has_a_place() -> None:
    kinds = {kind for kind in sdk_error_classes() if issubclass(kind, bt.http_auth.AuthError)}
    assert kinds - {bt.http_auth.AuthError} == set(AUTH_ERRORS)


def test_every_name_in_our_tables_is_one_of_the_sdks() -> None:
    known = set(bt.error_map.NAME_TO_CODE) | set(bt.error_map.DISPATCH_ERRORS)
    assert set(NAMES) <= known | {"AccountNotAllowedCommit", "SpaceLimitExceeded"}


def test_every_meaning_has_a_remedy_and_an_exit_code() -> None:
    meanings = [*CODES.values(), *NAMES.values(), *CLASSES.values(), *(meaning for _, meaning in WORDS)]
    for meaning in meanings:
        assert len(meaning.remedy) > 10 and not meaning.remedy.endswith(".")
        assert issubclass(meaning.kind, ChainError | WalletError)
        assert meaning.kind.exit_code in (1, 2, 75)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (bt.ChainError("nonce", "Stale"), ChainBusy),
        (bt.ChainError("no", "NotEnoughBalanceToStake"), InsufficientBalance),
        (bt.ChainError("no", "Payment"), InsufficientBalance),
        (bt.ChainError("no", "HotKeyNotRegisteredInSubNet"), NotRegistered),
        (bt.ChainError("no", "NeuronNoValidatorPermit"), NotPermitted),
        (bt.ChainError("no", "SettingWeightsTooFast"), RateLimited),
        (bt.ChainError("no", "SubnetNotExists"), SubnetNotFound),
        (bt.ChainError("no", "SubtokenDisabled"), SubnetNotFound),
        (bt.ChainError("no", "InvalidIpAddress"), ChainRefused),
        (bt.ChainError("something new"), ChainRefused),
        (bt.ChainError("Connection lost while waiting for a subscription response (e.g. x)."), ChainUnreachable),
        (bt.ChainError("Connection dropped while an extrinsic submission was in flight; ..."), ChainUnreachable),
        (bt.ChainError("MEV Shield NextKey not available; is the MevShield pallet active?"), ChainBusy),
        (bt.RpcConnectionError("gone"), ChainUnreachable),
        (bt.RpcPolicyError("HTTP 429", status_code=429), ChainUnreachable),
        (bt.BittensorError("RPC endpoint rejected the WebSocket handshake (HTTP 503)"), ChainUnreachable),
        (bt.ConnectionNotReady("closed"), ChainUnreachable),
        (bt.PolicyError(["too much"]), ChainRefused),
        (ConnectionRefusedError(111, "refused"), ChainUnreachable),
        (TimeoutError(), ChainUnreachable),
        (bt.sp_core.KeyfileError("bad"), WalletError),
        (bt.ChainError("wrong password"), WalletError),
        (ValueError("invalid base64 in wallet password env var"), WalletError),
    ],
)
def test_the_errors_that_neurons_meet_become_ours(error: Exception, kind: type[ChainError]) -> None:
    ours = our_error(error, "set weights")
    assert type(ours) is kind
    assert str(ours).startswith("could not set weights: ") and "\n" not in str(ours)
    assert str(ours).endswith(meaning_of(error).remedy)


def test_a_rate_limit_says_how_long_to_wait() -> None:
    message = "Weights on netuid 1 were last set 3 blocks ago; the rate limit is 10 blocks. Retry in ~7 blocks (~84s)."
    ours = our_error(bt.ChainError(message, code=bt.ErrorCode.RATE_LIMITED), "set weights")
    assert isinstance(ours, RateLimited) and ours.blocks_to_wait == 7
    assert str(ours).endswith("the rate limit is 10 blocks; wait 7 blocks (about 84 s)")


def test_the_chains_own_name_is_kept() -> None:
    ours = our_error(bt.ChainError("An invalid IP address", "InvalidIpAddress"), "announce 127.0.0.1:1")
    assert isinstance(ours, ChainRefused) and ours.name == "InvalidIpAddress"
    assert "(InvalidIpAddress)" in str(ours)


def test_the_tree_in_the_docstring_names_every_error() -> None:
    drawn = errors.__doc__ or ""
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    assert [kind.__name__ for kind in kinds if kind.__name__ not in drawn] == []
