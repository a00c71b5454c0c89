"""JSON-RPC methods that only read: chain, state, system.

Owns the translation between hex text and the chain's values, and the node's
error answers. Subscriptions and submission are in rpc.py.
"""

import logging
from collections.abc import Callable
from typing import Any

import bittensor_core

from template.devchain.blocks import Block
from template.devchain.chain import Chain
from template.devchain.runtime_api.registry import UnknownApi, call_runtime_api

logger = logging.getLogger(__name__)

_METHOD_NOT_FOUND, _INVALID_PARAMS, _UNKNOWN_BLOCK, _RUNTIME_ERROR = -32601, -32602, 4003, 4003
_MAX_PAGE = 1000


class RpcError(Exception):
    """An error answer: code, message, and the node's detail."""

    def __init__(self, code: int, message: str, data: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class Methods:
    """The read methods of one chain, by name."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self._methods: dict[str, Callable[[list[Any]], Any]] = {
            "account_nextIndex": self._next_index,
            "author_pendingExtrinsics": self._pending,
            "chain_getBlock": self._get_block,
            "chain_getBlockHash": self._get_block_hash,
            "chain_getFinalisedHead": self._get_finalized_head,
            "chain_getFinalizedHead": self._get_finalized_head,
            "chain_getHead": self._get_head,
            "chain_getHeader": self._get_header,
            "payment_queryInfo": self._query_info,
            "rpc_methods": self._list_methods,
            "state_call": self._state_call,
            "state_getKeysPaged": self._get_keys_paged,
            "state_getMetadata": lambda params: "0x" + chain.runtime.metadata.hex(),
            "state_getRuntimeVersion": self._runtime_version,
            "state_getStorage": self._get_storage,
            "state_getStorageAt": self._get_storage,
            "state_queryStorageAt": self._query_storage,
            "system_accountNextIndex": self._next_index,
            "system_chain": lambda params: "Strata dev chain",
            "system_chainType": lambda params: "Development",
            "system_health": lambda params: {"peers": 0, "isSyncing": False, "shouldHavePeers": False},
            "system_name": lambda params: "strata-devchain",
            "system_properties": self._properties,
            "system_version": lambda params: "1.0.0",
        }

    def add(self, name: str, method: Callable[[list[Any]], Any]) -> None:
        """Add a method, as test controls do."""
        self._methods[name] = method

    def call(self, name: str, params: list[Any]) -> Any:
        """Answer one request, or raise RpcError."""
        method = self._methods.get(name)
        if method is None:
            logger.warning("event=rpc_refused method=%s reason=unknown", name)
            raise RpcError(_METHOD_NOT_FOUND, "Method not found", f"this dev chain does not serve {name}")
        return method(params)

    @staticmethod
    def bytes_param(params: list[Any], index: int) -> bytes:
        """A parameter as bytes: hex with or without 0x."""
        value = params[index] if index < len(params) else None
        try:
            if not isinstance(value, str):
                raise ValueError("not a string")
            return bytes.fromhex(value.removeprefix("0x"))
        except ValueError as error:
            raise RpcError(_INVALID_PARAMS, "Invalid params", f"parameter {index} must be hex: {error}") from error

    def _block(self, params: list[Any], index: int) -> Block:
        """The block whose hash is that parameter; head when it is absent. An unknown one is an error."""
        if index >= len(params) or params[index] is None:
            return self.chain.head
        block = self.chain.blocks.by_hash(self.bytes_param(params, index))
        if block is None:
            raise RpcError(_UNKNOWN_BLOCK, "Client error: UnknownBlock", f"Unknown block {params[index]}")
        return block

    def _state(self, params: list[Any], index: int) -> Block:
        """The same, for reading state: a block whose state is gone answers as a pruned node does."""
        block = self._block(params, index)
        if block.number < self.chain.oldest_state:
            detail = f"State already discarded for 0x{block.hash.hex()}"
            raise RpcError(_RUNTIME_ERROR, f"Client error: UnknownBlock: {detail}", detail)
        return block

    def _get_head(self, params: list[Any]) -> str:
        return "0x" + self.chain.head.hash.hex()

    def _get_finalized_head(self, params: list[Any]) -> str:
        block = self.chain.blocks.by_number(self.chain.blocks.finalized)
        assert block is not None
        return "0x" + block.hash.hex()

    def _get_block_hash(self, params: list[Any]) -> Any:
        wanted = params[0] if params else None
        if isinstance(wanted, list):
            return [self._get_block_hash([each]) for each in wanted]
        if wanted is None:
            return self._get_head(params)
        try:
            number = int(wanted, 16) if isinstance(wanted, str) else int(wanted)
        except (TypeError, ValueError) as error:
            raise RpcError(_INVALID_PARAMS, "Invalid params", f"expected a block number: {error}") from error
        block = self.chain.blocks.by_number(number)
        return None if block is None else "0x" + block.hash.hex()

    def _get_header(self, params: list[Any]) -> Any:
        if params and params[0] is not None:
            block = self.chain.blocks.by_hash(self.bytes_param(params, 0))
            return None if block is None else block.header()
        return self.chain.head.header()

    def _get_block(self, params: list[Any]) -> Any:
        block = self.chain.head
        if params and params[0] is not None:
            found = self.chain.blocks.by_hash(self.bytes_param(params, 0))
            if found is None:
                return None
            block = found
        extrinsics = ["0x" + each.hex() for each in block.extrinsics]
        return {"block": {"header": block.header(), "extrinsics": extrinsics}, "justifications": None}

    def _runtime_version(self, params: list[Any]) -> dict[str, Any]:
        if params and params[0] is not None:
            self._block(params, 0)
        version = self.chain.runtime.version
        return {
            "specName": version["spec_name"],
            "implName": version["impl_name"],
            "authoringVersion": version["authoring_version"],
            "specVersion": version["spec_version"],
            "implVersion": version["impl_version"],
            "apis": [list(each) for each in version["apis"]],
            "transactionVersion": version["transaction_version"],
            "systemVersion": version["system_version"],
            "stateVersion": version["system_version"],
        }

    def _get_storage(self, params: list[Any]) -> str | None:
        block = self._state(params, 1)
        raw = self.chain.storage.raw(self.bytes_param(params, 0), block.number)
        return None if raw is None else "0x" + raw.hex()

    def _query_storage(self, params: list[Any]) -> list[Any]:
        block = self._state(params, 1)
        keys = params[0] if params and isinstance(params[0], list) else []
        changes = []
        for index, key in enumerate(keys):
            raw = self.chain.storage.raw(self.bytes_param(keys, index), block.number)
            changes.append([key, None if raw is None else "0x" + raw.hex()])
        return [{"block": "0x" + block.hash.hex(), "changes": changes}]

    def _get_keys_paged(self, params: list[Any]) -> list[str]:
        block = self._state(params, 3)
        prefix = self.bytes_param(params, 0)
        count = params[1] if len(params) > 1 else _MAX_PAGE
        start = self.bytes_param(params, 2) if len(params) > 2 and params[2] is not None else prefix
        if not isinstance(count, int) or not 0 < count <= _MAX_PAGE:
            raise RpcError(-32701, f"count exceeds maximum value. value: {count}, max: {_MAX_PAGE}")
        keys = self.chain.storage.keys(prefix, block.number)
        after = keys if start == prefix else [key for key in keys if key > start]
        return ["0x" + key.hex() for key in after[:count]]

    def _state_call(self, params: list[Any]) -> str:
        name = params[0] if params else ""
        block = self._state(params, 2)
        if name == "Metadata_metadata_at_version":
            return self._metadata_at_version(self.bytes_param(params, 1))
        try:
            answer = call_runtime_api(self.chain, block, str(name), self.bytes_param(params, 1))
        except UnknownApi as error:
            logger.warning("event=runtime_api_refused name=%s", name)
            raise RpcError(_RUNTIME_ERROR, "Client error: Execution failed", str(error)) from error
        except (ValueError, IndexError) as error:
            detail = f"expected the arguments of {name}, found other bytes: {error}"
            raise RpcError(_RUNTIME_ERROR, "Client error: Execution failed", detail) from error
        return "0x" + answer.hex()

    def _metadata_at_version(self, argument: bytes) -> str:
        if int.from_bytes(argument, "little") != 15:
            return "0x00"
        codec = self.chain.runtime.codec
        output = self.chain.runtime.apis["Metadata"]["metadata_at_version"]["output"]
        return "0x" + bytes(codec.encode(output, self.chain.runtime.metadata)).hex()

    def _next_index(self, params: list[Any]) -> int:
        try:
            bittensor_core.ss58_decode(params[0] if params else "")
        except (ValueError, TypeError) as error:
            raise RpcError(_INVALID_PARAMS, "Invalid params", f"expected an ss58 address: {error}") from error
        return self.chain.next_index(params[0])

    def _pending(self, params: list[Any]) -> list[str]:
        return ["0x" + each.raw.hex() for each in self.chain.pool.waiting()]

    def _query_info(self, params: list[Any]) -> dict[str, Any]:
        raw = self.bytes_param(params, 0)
        argument = raw + len(raw).to_bytes(4, "little")
        block = self._state(params, 1)
        answer = call_runtime_api(self.chain, block, "TransactionPaymentApi_query_info", argument)
        output = self.chain.runtime.apis["TransactionPaymentApi"]["query_info"]["output"]
        info = self.chain.runtime.codec.decode(output, answer)
        return {"weight": info["weight"], "class": info["class"].lower(), "partialFee": str(info["partial_fee"])}

    def _properties(self, params: list[Any]) -> dict[str, Any]:
        return {"ss58Format": 42, "tokenDecimals": 9, "tokenSymbol": "TAO"}

    def _list_methods(self, params: list[Any]) -> dict[str, list[str]]:
        own = ["author_submitExtrinsic", "author_submitAndWatchExtrinsic", "author_unwatchExtrinsic"]
        feeds = ["chain_subscribeNewHeads", "chain_subscribeFinalizedHeads", "chain_unsubscribeNewHeads"]
        return {"methods": sorted([*self._methods, *own, *feeds, "chain_unsubscribeFinalizedHeads"])}
