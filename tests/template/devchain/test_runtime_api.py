"""Every runtime API in the table answers with bytes that decode as its metadata says."""

from collections.abc import Callable
from typing import Any

import pytest

from template.devchain import stakes
from template.devchain.chain import Chain
from template.devchain.genesis import Genesis, development_address
from template.devchain.methods import Methods
from template.devchain.runtime_api.registry import APIS

HOTKEY, COLDKEY = development_address("//validator0//hot"), development_address("//validator0")
ARGUMENTS: dict[str, Any] = {
    "account": COLDKEY,
    "amount": 10**9,
    "alpha": 10**9,
    "coldkey": COLDKEY,
    "coldkey_account": COLDKEY,
    "coldkey_accounts": [COLDKEY],
    "delegate_account": HOTKEY,
    "delegatee_account": COLDKEY,
    "destination": (HOTKEY, 1),
    "destination_coldkey_account": COLDKEY,
    "hotkey": HOTKEY,
    "hotkey_account": HOTKEY,
    "mecid": 0,
    "netuid": 1,
    "netuids": None,
    "origin": None,
    "origin_coldkey_account": COLDKEY,
    "tao": 10**9,
    "uid": 1,
}


@pytest.fixture(scope="module")
def chain(genesis_for: Callable[..., Genesis]) -> Chain:
    chain = Chain(genesis_for(), start_ms=1)
    for number in range(1, 25):
        chain.produce(number * 250)
    return chain


def ask(chain: Chain, name: str, **changes: Any) -> Any:
    api, _, method = name.partition("_")
    definition = chain.runtime.apis[api][method]
    values = ARGUMENTS | changes
    codec = chain.runtime.codec
    argument = b"".join(bytes(codec.encode(kind, values[field])) for field, kind in definition["inputs"])
    answer = Methods(chain).call("state_call", [name, "0x" + argument.hex()])
    return codec.decode(definition["output"], bytes.fromhex(answer[2:]))


@pytest.mark.parametrize("name", sorted(APIS))
def test_it_answers_and_the_answer_decodes_to_the_last_byte(chain: Chain, name: str) -> None:
    ask(chain, name)


@pytest.mark.parametrize(
    "name", [each for each in sorted(APIS) if "subnet_info" in each or "hyperparams" in each or "metagraph" in each]
)
def test_a_subnet_that_does_not_exist_is_none(chain: Chain, name: str) -> None:
    if "all" not in name and "subnets" not in name:
        assert ask(chain, name, netuid=77) is None


def test_the_metagraph_agrees_with_storage(chain: Chain) -> None:
    graph = ask(chain, "SubnetInfoRuntimeApi_get_metagraph")
    assert graph["hotkeys"] == [chain.storage.get("Keys", 1, uid) for uid in range(3)]
    assert graph["total_stake"] == [stakes.stake_weight(chain.storage, hotkey, 1)[0] for hotkey in graph["hotkeys"]]
    assert graph["emission"] == chain.storage.get("Emission", 1)
    assert graph["block"] == 24 and bytes(graph["name"]).decode() == "strata"
    assert graph["tao_in"] == graph["alpha_in"]


def test_neurons_and_delegates_agree_on_stake(chain: Chain) -> None:
    neuron = ask(chain, "NeuronInfoRuntimeApi_get_neuron")
    delegate = ask(chain, "DelegateInfoRuntimeApi_get_delegate")
    info = ask(chain, "StakeInfoRuntimeApi_get_stake_info_for_hotkey_coldkey_netuid")
    assert neuron["hotkey"] == HOTKEY and neuron["stake"] == [(COLDKEY, info["stake"])]
    assert delegate["nominators"] == [(COLDKEY, [(1, info["stake"])])]
    assert delegate["validator_permits"] == [1]
    assert ask(chain, "NeuronInfoRuntimeApi_get_neuron", uid=77) is None


def test_the_three_forms_of_hyperparameters_agree(chain: Chain) -> None:
    first = ask(chain, "SubnetInfoRuntimeApi_get_subnet_hyperparams")
    second = ask(chain, "SubnetInfoRuntimeApi_get_subnet_hyperparams_v2")
    third = {
        each["name"]: next(iter(each["value"].values()))
        for each in ask(chain, "SubnetInfoRuntimeApi_get_subnet_hyperparams_v3")
    }
    assert first.items() <= second.items()
    assert {name: third[name] for name in first} == first
    assert third["yuma_version"] == second["yuma_version"] == 2
