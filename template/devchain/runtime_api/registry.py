"""The table of runtime APIs: decodes the arguments, runs the function, encodes its answer.

An API that is not in the table is refused by name, never answered with
made-up values.
"""

from typing import Protocol

from template.devchain.blocks import Block
from template.devchain.metadata import RuntimeInfo
from template.devchain.runtime_api import accounts, delegates, hyperparameters, neurons, prices, stakes, subnets
from template.devchain.runtime_api.query import Function, Query
from template.devchain.state import View


class UnknownApi(Exception):
    """This chain has no such runtime API."""


class Readable(Protocol):
    """What a call needs of a chain."""

    runtime: RuntimeInfo

    def view(self, number: int) -> View:
        """Storage at the end of that block."""


APIS: dict[str, Function] = {
    **accounts.APIS,
    **delegates.APIS,
    **hyperparameters.APIS,
    **neurons.APIS,
    **prices.APIS,
    **stakes.APIS,
    **subnets.APIS,
}


def call_runtime_api(chain: Readable, block: Block, name: str, argument: bytes) -> bytes:
    """Answer `Api_method` at a block; raises UnknownApi when this chain does not have it."""
    api, _, method = name.partition("_")
    definition = chain.runtime.apis.get(api, {}).get(method)
    function = APIS.get(name)
    if definition is None:
        raise UnknownApi(f"Exported method {name} is not found")
    query = Query(chain.view(block.number), chain.runtime, block.number)
    if name in accounts.RAW_APIS:
        return bytes(chain.runtime.codec.encode(definition["output"], accounts.RAW_APIS[name](query, argument)))
    if function is None:
        raise UnknownApi(f"the dev chain does not answer the runtime API {name}: use a full node for it")
    values, rest = [], argument
    for _, type_name in definition["inputs"]:
        value = chain.runtime.codec.decode(type_name, rest, False)
        values.append(value)
        rest = rest[len(bytes(chain.runtime.codec.encode(type_name, value))) :]
    return bytes(chain.runtime.codec.encode(definition["output"], function(query, *values)))
