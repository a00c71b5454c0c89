"""Every error of the SDK, by name, and what it becomes here, with the remedy. Plain tables: imports no SDK.

Looked up in this order: words in the message (what the SDK does not class), the chain's own name, the class of the
exception, then its code. A test lists the SDK's classes and codes and fails on one that has no place here.
"""

import re
from dataclasses import dataclass

from template.errors import (
    BaseNeuronError,
    ChainBusy,
    ChainRefused,
    ChainUnreachable,
    InsufficientBalance,
    NotPermitted,
    NotRegistered,
    RateLimited,
    SpendLimit,
    SubnetNotFound,
    UpdateNeeded,
    WalletError,
)


@dataclass(frozen=True)
class Meaning:
    """Our class for an error, and what to do about it."""

    kind: type[BaseNeuronError]
    remedy: str


_LATER = Meaning(ChainBusy, "the same call may work in the next block; it is tried again")
_REFUSED = Meaning(ChainRefused, "check the values that were sent")
_ENDPOINT = Meaning(ChainUnreachable, "check the address and the connection, or name another node as a fallback")
_REPLACED = Meaning(ChainUnreachable, "the block was replaced, or this node does not have it yet; it is asked again")
_BALANCE = Meaning(InsufficientBalance, "fund the coldkey (`btcli wallet balance` shows what it has)")
_FAULT = Meaning(ChainRefused, "nothing is wrong on this side; report it if it persists")
_KEY = Meaning(
    WalletError, "give the right password, or restore the key from its mnemonic (`btcli wallet regen-hotkey`)"
)
_PASSWORD = Meaning(
    WalletError, "give the coldkey's password: on a terminal, in BT_WALLET_PASSWORD, or in BT_WALLET_PASSWORD_FILE"
)
_PERMIT = Meaning(
    NotPermitted, "a validator permit needs more stake (the subnet's top validators hold one) and an epoch"
)
_ADDRESS = Meaning(ChainRefused, "announce an address that others can reach; on one machine use 198.18.0.1 and map it")

CODES: dict[str, Meaning] = {
    "insufficient_balance": _BALANCE,
    "insufficient_liquidity": Meaning(ChainRefused, "the subnet's pool cannot fill this; use a smaller amount"),
    "rate_limited": Meaning(RateLimited, "wait until the window has passed"),
    "not_registered": Meaning(NotRegistered, "register the hotkey on this subnet first (`strata register`)"),
    "not_authorized": Meaning(NotPermitted, "sign with the key that owns this"),
    "already_exists": Meaning(ChainRefused, "it is there already, so nothing has to be done"),
    "not_found": Meaning(ChainRefused, "check the identifier: the chain does not have it"),
    "subnet_not_exists": Meaning(SubnetNotFound, "give an existing --netuid (`btcli subnets list`)"),
    "subtoken_disabled": Meaning(SubnetNotFound, "the subnet has not been started; its owner has to start it"),
    "disabled": Meaning(ChainRefused, "this is switched off on this network or subnet; ask the subnet's owner"),
    "too_early": Meaning(ChainBusy, "the window has not opened yet; wait some blocks"),
    "expired": Meaning(ChainBusy, "the window has closed; it is tried again with fresh state"),
    "limit_exceeded": Meaning(ChainRefused, "send less, or wait until there is room"),
    "unit_mismatch": _REFUSED,
    "invalid_argument": _REFUSED,
    "policy_violation": Meaning(ChainRefused, "a safety policy of this wallet forbids it; change the policy"),
    "internal": _FAULT,
    "unknown": Meaning(ChainRefused, "the message above is all that the chain says"),
}

NAMES: dict[str, Meaning] = {
    **dict.fromkeys(("Stale", "Future", "PriorityTooLow", "AlreadyImported", "AncientBirthBlock"), _LATER),
    **dict.fromkeys(("Dropped", "Usurped", "Retracted", "Invalid", "FinalityTimeout", "ExhaustsResources"), _LATER),
    **dict.fromkeys(("NeuronNoValidatorPermit", "NotEnoughStakeToSetWeights", "StakeAmountTooLow"), _PERMIT),
    **dict.fromkeys(("InvalidIpAddress", "InvalidIpType", "InvalidPort"), _ADDRESS),
    "Payment": _BALANCE,
    "NonAssociatedColdKey": Meaning(NotPermitted, "this hotkey belongs to another coldkey; use that wallet"),
    "IncorrectWeightVersionKey": Meaning(UpdateNeeded, "this software is older than the subnet asks for; update it"),
    "SubNetRegistrationDisabled": Meaning(ChainRefused, "registration is closed; ask the subnet's owner"),
    "NoNeuronIdAvailable": Meaning(ChainBusy, "every seat is taken and immune; wait until one can be replaced"),
    "AccountNotAllowedCommit": Meaning(NotRegistered, "register the hotkey on this subnet first (`strata register`)"),
    "RegistrationPriceLimitExceeded": Meaning(SpendLimit, "the price rose meanwhile; raise the limit, or wait"),
    "SpaceLimitExceeded": Meaning(RateLimited, "this epoch's space for commitments is used up; wait for the next"),
}

CLASSES: dict[str, Meaning] = {
    "ConnectionNotReady": _ENDPOINT,
    "RpcConnectionError": _ENDPOINT,
    "RpcPolicyError": Meaning(ChainUnreachable, "the node turns this address away; ask less often or use another node"),
    "MaxRetriesExceeded": _ENDPOINT,
    "RpcPolicyRejection": Meaning(ChainUnreachable, "the node turns this address away; use another node"),
    "StateDiscardedError": Meaning(ChainRefused, "that block's state is gone; name an archive node as a fallback"),
    "BlockNotFound": Meaning(ChainRefused, "wait until that block exists"),
    "ExtrinsicNotFound": Meaning(ChainRefused, "that block does not hold the extrinsic; check the position"),
    "SubstrateRequestException": _ENDPOINT,
    "StorageFunctionNotFound": Meaning(
        ChainRefused, "the node's runtime lacks that item; use a node that is up to date"
    ),
    "PolicyError": CODES["policy_violation"],
    "TimelockError": Meaning(ChainRefused, "the time lock could not be made; check the clock and the connection"),
    "TimelockNotReady": Meaning(ChainBusy, "the drand round has not come yet; wait"),
    "MultisigFundingError": _BALANCE,
    "UnitMismatchError": _REFUSED,
    "KeyfileError": _KEY,
    "WrongPasswordError": _KEY,
    "VaultError": Meaning(WalletError, "sign with a wallet on this machine"),
    "VaultPageError": Meaning(WalletError, "sign with a wallet on this machine"),
    "BridgeError": Meaning(WalletError, "sign with a wallet on this machine"),
    "LedgerError": Meaning(WalletError, "sign with a wallet on this machine"),
    "EvmRpcError": _REFUSED,
    "AuthError": _REFUSED,
    "TimeoutError": _ENDPOINT,
    "OSError": _ENDPOINT,
}

WORDS: tuple[tuple[str, Meaning], ...] = (
    ("connection lost", _ENDPOINT),
    ("connection dropped", _ENDPOINT),
    ("rpc session closed", _ENDPOINT),
    ("subscription ended", _ENDPOINT),
    ("rejected the websocket handshake (http 5", _ENDPOINT),  # of a reconnect: of no class of its own
    ("state discarded", CLASSES["StateDiscardedError"]),
    ("block not found for", _REPLACED),
    ("unknown block", _REPLACED),
    ("no block at height", CLASSES["BlockNotFound"]),
    ("nonce is below", _LATER),
    ("wrong password", _PASSWORD),
    ("wallet password", _PASSWORD),
    ("nextkey not available", _LATER),
)

_BLOCKS_TO_WAIT = re.compile(r"in ~?(\d+) blocks(?: \(~?(\d+)s\))?")


def our_error(error: BaseException, doing: str) -> BaseNeuronError:
    """Our error for one of the SDK's, as one sentence with its remedy."""
    name, message = getattr(error, "name", None), str(error).strip() or type(error).__name__
    meaning = meaning_of(error)
    text = f"could not {doing}: {' '.join(message.split()).partition('. ')[0].rstrip('.')}"
    if name and name not in message:
        text += f" ({name})"
    if meaning.kind is RateLimited and (wait := _BLOCKS_TO_WAIT.search(message)):
        about = f" (about {int(wait[2])} s)" if wait[2] else ""
        return RateLimited(f"{text}; wait {wait[1]} blocks{about}", blocks_to_wait=int(wait[1]))
    text += f"; {meaning.remedy}"
    if issubclass(meaning.kind, ChainRefused):
        return meaning.kind(text, name=name)
    return meaning.kind(text)


def meaning_of(error: BaseException) -> Meaning:
    """What an error of the SDK means. Falls back on `unknown`, so that nothing of the SDK's gets past."""
    lowered = str(error).lower()
    for words, meaning in WORDS:
        if words in lowered:
            return meaning
    name = getattr(error, "name", None)
    if name in NAMES:
        return NAMES[name]
    for base in type(error).__mro__:
        if base.__name__ in CLASSES:
            return CLASSES[base.__name__]
    code = getattr(error, "code", None)
    return CODES.get(getattr(code, "value", None) or "unknown", CODES["unknown"])
