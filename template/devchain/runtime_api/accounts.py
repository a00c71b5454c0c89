"""AccountNonceApi, TransactionPaymentApi and Core: nonces, fees and the runtime's version."""

from typing import Any

from template.devchain import dispatch
from template.devchain.runtime_api.query import Function, Query


def account_nonce(query: Query, account: str) -> int:
    """The account's nonce, the pool not counted."""
    nonce: int = query.get("System.Account", account)["nonce"]
    return nonce


def query_info(query: Query, argument: bytes) -> dict[str, Any]:
    """Weight and fee of an extrinsic (its bytes, then its length as u32); its signature is not looked at."""
    length = int.from_bytes(argument[-4:], "little")
    call = query.runtime.codec.decode_extrinsic(argument[:-4])["call"]
    info = dispatch.dispatch_info(call)
    return {"weight": info["weight"], "class": info["class"], "partial_fee": dispatch.fee_of(call, length)}


def version(query: Query) -> dict[str, Any]:
    """The runtime's version."""
    return query.runtime.version


APIS: dict[str, Function] = {
    "AccountNonceApi_account_nonce": account_nonce,
    "Core_version": version,
}
RAW_APIS = {"TransactionPaymentApi_query_info": query_info}  # these take their argument undecoded
