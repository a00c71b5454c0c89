"""JSON-RPC as other tools see it: batches, errors, pruned states, controls."""

import json
import time
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect as websocket


@pytest.fixture(scope="module")
def lab(start_chain: Any, genesis_for: Any) -> Any:
    """A chain with test controls that stands still unless it is told to step."""
    with start_chain(genesis_for(state_window_blocks=5, finality_lag_blocks=1), dev_controls=True) as running:
        yield running


@pytest.fixture
def ask(lab: Any, rpc: Any) -> Any:
    rpc(lab.url, "dev_pause")
    return lambda method, *params: rpc(lab.url, method, *params)


def test_a_batch_is_answered_as_an_array(lab: Any) -> None:
    requests = [{"jsonrpc": "2.0", "id": each, "method": "chain_getHead", "params": []} for each in (7, 8)]
    with websocket(lab.url) as socket:
        socket.send(json.dumps(requests))
        assert [each["id"] for each in json.loads(socket.recv(timeout=60))] == [7, 8]


def test_bad_requests_get_the_standard_errors(lab: Any, ask: Any) -> None:
    with websocket(lab.url) as socket:
        socket.send("this is not JSON")
        assert json.loads(socket.recv(timeout=60))["error"]["code"] == -32700
        socket.send('{"id": 1}')
        assert json.loads(socket.recv(timeout=60))["error"]["code"] == -32600
    assert ask("no_such_method")["error"]["code"] == -32601
    assert ask("state_getStorage", "zz")["error"]["code"] == -32602
    assert ask("chain_getBlockHash", "zz")["error"]["code"] == -32602
    assert ask("author_submitExtrinsic", 5)["error"]["code"] == -32602
    assert ask("account_nextIndex", "nobody")["error"]["code"] == -32602


def test_an_unknown_runtime_api_is_refused_by_name(ask: Any, caplog: pytest.LogCaptureFixture) -> None:
    answer = ask("state_call", "EthereumRuntimeRPCApi_chain_id", "0x")
    assert caplog.messages == ["event=runtime_api_refused name=EthereumRuntimeRPCApi_chain_id"]
    assert "does not answer the runtime API EthereumRuntimeRPCApi_chain_id" in answer["error"]["data"]
    assert "Exported method Nonsense_call is not found" in ask("state_call", "Nonsense_call", "0x")["error"]["data"]
    assert "expected the arguments" in ask("state_call", "SubnetInfoRuntimeApi_get_metagraph", "0x")["error"]["data"]


def test_an_unknown_block_is_null_or_an_error_as_on_a_node(ask: Any) -> None:
    nowhere = "0x" + "11" * 32
    assert ask("chain_getHeader", nowhere)["result"] is None
    assert ask("chain_getBlock", nowhere)["result"] is None
    assert ask("chain_getBlockHash", 10**9)["result"] is None
    assert "Unknown block" in ask("state_getStorage", "0x00", nowhere)["error"]["data"]


def test_a_state_outside_the_window_answers_like_a_pruned_node(ask: Any) -> None:
    ask("dev_step", 12)
    old = ask("chain_getBlockHash", 1)["result"]
    assert ask("state_getStorage", "0x00", old)["error"]["data"] == f"State already discarded for {old}"
    assert ask("chain_getBlock", old)["result"]["block"]["header"]["number"] == "0x1"


def test_keys_come_in_pages(ask: Any) -> None:
    prefix = "0x26aa394eea5630e07c48ae0c9558cef7b99d880ec681799c0cf30e8886371da9"  # System.Account
    every = ask("state_getKeysPaged", prefix, 1000, prefix)["result"]
    first = ask("state_getKeysPaged", prefix, 2, prefix)["result"]
    second = ask("state_getKeysPaged", prefix, 2, first[-1])["result"]
    assert len(every) > 3 and every[:4] == first + second
    assert ask("state_getKeysPaged", prefix, 5000, prefix)["error"]["code"] == -32701


def test_finality_lags_and_header_hashes_chain(ask: Any) -> None:
    ask("dev_step", 2)
    head, final = ask("chain_getHeader")["result"], ask("chain_getFinalizedHead")["result"]
    assert ask("chain_getHeader", final)["result"]["number"] == hex(int(head["number"], 16) - 1)
    assert head["parentHash"] == final


def test_a_paused_chain_stands_still_and_steps(ask: Any) -> None:
    before = ask("dev_pause")["result"]
    time.sleep(0.6)
    assert int(ask("chain_getHeader")["result"]["number"], 16) == before
    assert ask("dev_step", 3)["result"] == before + 3


def test_a_fork_changes_the_hash_of_a_height(ask: Any) -> None:
    number = ask("dev_step", 1)["result"]
    old = ask("chain_getBlockHash", number)["result"]
    assert ask("dev_fork", 1)["result"] == number - 1
    assert ask("chain_getBlockHash", number)["result"] is None
    time.sleep(0.01)
    assert ask("dev_step", 1)["result"] == number
    assert ask("chain_getBlockHash", number)["result"] != old


def test_a_mute_node_answers_nothing_but_its_controls(lab: Any, ask: Any) -> None:
    assert ask("dev_setMute", True)["result"] is True
    with websocket(lab.url) as socket:
        socket.send('{"jsonrpc": "2.0", "id": 1, "method": "chain_getHead", "params": []}')
        with pytest.raises(TimeoutError):
            socket.recv(timeout=0.3)
    assert ask("dev_setMute", False)["result"] is False
    assert ask("chain_getHead")["result"].startswith("0x")


def test_a_node_that_drops_connections_cuts_later_ones_only(lab: Any, ask: Any) -> None:
    with websocket(lab.url) as kept:
        ask("dev_setDrop", 0.1)
        with websocket(lab.url) as socket, pytest.raises(ConnectionClosed):
            socket.recv(timeout=60)
        kept.send('{"jsonrpc": "2.0", "id": 1, "method": "chain_getHead", "params": []}')
        assert json.loads(kept.recv(timeout=60))["id"] == 1
    ask("dev_setDrop", 0)


def test_a_node_can_show_a_runtime_without_an_item(ask: Any) -> None:
    """As an older node's; the chain itself keeps the item, and its hash stays."""

    def shown() -> str:
        return str(ask("state_call", "Metadata_metadata_at_version", "0x0f000000")["result"])

    name, item, whole = b"SubnetEpochConsensus".hex(), ["SubtensorModule.SubnetEpochConsensus"], shown()
    first = ask("chain_getBlockHash", 0)["result"]
    assert ask("dev_setMissing", item)["result"] == item
    assert name in whole and name not in shown()
    assert ask("chain_getBlockHash", 0)["result"] == first
    ask("dev_step", 1)
    assert "found SubtensorModule.Nothing" in ask("dev_setMissing", ["SubtensorModule.Nothing"])["error"]["data"]
    assert ask("dev_setMissing", [])["result"] == [] and shown() == whole


def test_a_slow_node_answers_late(ask: Any) -> None:
    ask("dev_setDelay", 0.3)
    started = time.monotonic()
    ask("chain_getHead")
    assert time.monotonic() - started >= 0.3
    ask("dev_setDelay", 0)


def test_the_clock_can_be_shifted(ask: Any) -> None:
    key = "0xf0c365c3cf59d671eb72da0e7a4113c49f1f0515f462cdcf84e0f1d6045dfcbb"  # Timestamp.Now
    begun_s = time.time()
    ask("dev_setClock", 60)
    ask("dev_step", 1)
    now_ms = int.from_bytes(bytes.fromhex(ask("state_getStorage", key)["result"][2:]), "little")
    assert begun_s - 0.1 <= now_ms / 1000 - 60 <= time.time() + 0.1
    ask("dev_setClock", 0)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("dev_step", [0]),
        ("dev_fork", [10**6]),
        ("dev_setDelay", [-1]),
        ("dev_submitPulse", ["x"]),
        ("dev_save", []),
        ("dev_setMissing", ["x"]),
    ],
)
def test_a_control_refuses_what_makes_no_sense(ask: Any, method: str, params: list[Any]) -> None:
    assert ask(method, *params)["error"]["code"] == -32602


def test_controls_do_not_exist_on_an_ordinary_chain(chain: Any, rpc: Any) -> None:
    for method in ("dev_pause", "dev_step", "dev_fork", "dev_submitPulse", "dev_save", "dev_setMissing"):
        assert rpc(chain.url, method)["error"]["code"] == -32601


def test_the_listing_names_what_is_served(ask: Any) -> None:
    methods = ask("rpc_methods")["result"]["methods"]
    assert {"state_call", "author_submitAndWatchExtrinsic", "dev_step"} <= set(methods)
