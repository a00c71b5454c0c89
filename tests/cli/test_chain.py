"""Laws of `strata chain`: a genesis is read or refused in one sentence; the port is said, the end clean."""

import json
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from subnet.cli.chain import open_chain, read_fund, read_genesis
from subnet.cli.main import run
from template.devchain.genesis import default_genesis, development_address, genesis_to_dict
from template.devchain.snapshot import save_chain
from template.errors import UsageError

ALICE = development_address("//Alice")


def test_funds_are_added_to_the_default_genesis():
    genesis = read_genesis(None, funds=(read_fund(f"{ALICE}=12.5"),), block_time_s=0.25)
    assert genesis.funds_tao[-1] == (ALICE, 12.5)
    assert genesis.block_time_s == 0.25
    assert genesis.funds_tao[:-1] == default_genesis().funds_tao


def test_a_genesis_file_is_read_and_options_add_to_it(tmp_path: Path):
    path = tmp_path / "genesis.json"
    path.write_text(json.dumps(genesis_to_dict(default_genesis(tempo=7))))
    genesis = read_genesis(path, funds=((ALICE, 1.0),), block_time_s=None)
    assert genesis.tempo == 7
    assert genesis.funds_tao[-1] == (ALICE, 1.0)


@pytest.mark.parametrize("entry", ["", "x", "=3", f"{ALICE}=", f"{ALICE}=much", f"{ALICE}=-1", f"{ALICE}=nan"])
def test_a_malformed_fund_is_refused(entry: str):
    with pytest.raises(UsageError, match="expected --fund ADDRESS=TAO"):
        read_fund(entry)


@pytest.mark.parametrize("content", ["{", "[]", '{"nonsense": 1}', '{"owner_coldkey": "x"}', '{"validators": 3}'])
def test_a_file_that_is_no_genesis_is_refused(content: str, tmp_path: Path):
    path = tmp_path / "genesis.json"
    path.write_text(content)
    with pytest.raises(UsageError, match="expected a"):
        read_genesis(path, funds=(), block_time_s=None)


@pytest.mark.parametrize(
    "words", [["--fund", "x"], ["--fund", "5x=3"], ["--block-time", "0"], ["--genesis", "/nowhere/genesis.json"]]
)
def test_faults_are_one_sentence_and_end_with_2(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert run(["chain", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1


@pytest.mark.flow
def test_the_chain_says_its_port_refuses_a_busy_one_and_ends_on_sigterm(repository: Path):
    command = [sys.executable, "-m", "subnet.cli.main", "chain", "--port"]
    chain = subprocess.Popen([*command, "0"], cwd=repository, stdout=subprocess.PIPE, text=True)
    try:
        assert chain.stdout is not None
        said = chain.stdout.readline()
        assert said.startswith("dev chain on ws://127.0.0.1:")
        port = said.split(",")[0].rpartition(":")[2]
        second = subprocess.run([*command, port], cwd=repository, capture_output=True, text=True)
        assert second.returncode == 2
        assert f"expected port {port} on 127.0.0.1 to be free, found it held by process {chain.pid}" in second.stderr
        assert second.stderr.count("\n") == 1
        chain.send_signal(signal.SIGTERM)
        assert chain.wait(timeout=120) == 0
    finally:
        chain.kill()
        chain.communicate()


def test_a_chain_goes_on_from_its_saved_state(tmp_path: Path):
    """What was saved is what is loaded; options for a new chain are refused beside it, and so is another file."""
    state = tmp_path / "chain.db"
    with closing(open_chain(state, None, funds=((ALICE, 3.0),), block_time_s=0.25)) as chain:
        genesis = chain.blocks.genesis.hash
        save_chain(chain, state)
    with closing(open_chain(state, None, funds=(), block_time_s=None)) as chain:
        assert chain.blocks.genesis.hash == genesis and chain.genesis.funds_tao[-1] == (ALICE, 3.0)
    with pytest.raises(UsageError, match="found options for a new one; leave them out"):
        open_chain(state, None, funds=((ALICE, 1.0),), block_time_s=None)
    other = tmp_path / "other"
    other.write_text("no chain")
    with pytest.raises(UsageError, match="expected a saved chain in .*other"):
        open_chain(other, None, funds=(), block_time_s=None)


def test_a_place_where_nothing_can_be_saved_is_said_before_the_first_block(tmp_path: Path) -> None:
    """Not after hours, when the chain is over and lost."""
    with pytest.raises(UsageError, match="expected a folder at .*nowhere that can be written, found none; make it"):
        open_chain(tmp_path / "nowhere" / "chain.db", None, funds=(), block_time_s=None)
