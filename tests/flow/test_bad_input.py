"""What a user can get wrong: one sentence that says what was expected, what was found and what to do; an exit code that
tells a process manager whether to try again; nothing half-written and nothing left running."""

import asyncio
import contextlib
import json
import os
import re
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from subnet.cheats.registry import NAMES
from subnet.cli.main import run
from subnet.ledger.record import Record, make_record
from template.devchain.genesis import Genesis, genesis_to_dict
from template.sdk import SdkChain, create_wallet
from template.web import bind
from tests.flow.conftest import LONGEST_S, Command, Machine, machine_in
from tests.ports import reserved_port

SENTENCE = re.compile(r"^(error|strata \w+): expected .+, found.+; .+$")
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 88,
    "max_position_embeddings": 32,
    "num_attention_heads": 2,
    "num_hidden_layers": 4,
    "vocab_size": 256,
}
MODELS = {
    "gpt2": LLAMA | {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"},
    "window": LLAMA
    | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "use_sliding_window": True, "sliding_window": 16},
    "heads": LLAMA | {"num_attention_heads": 3},
    "blocks": LLAMA | {"num_hidden_layers": 0},
    "words": LLAMA | {"vocab_size": 100},
    "list": [LLAMA],
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to type commands in, with texts and models of every kind."""
    monkeypatch.chdir(tmp_path)
    for name in ("text", "empty", "binary", "short", "full"):
        (tmp_path / name).mkdir()
    (tmp_path / "text" / "a.txt").write_text("The quick brown fox jumps over the lazy dog. " * 1000)
    (tmp_path / "binary" / "a.txt").write_bytes(bytes(range(256)) * 400)
    (tmp_path / "short" / "a.txt").write_text("Hi.")
    (tmp_path / "full" / "letter.txt").write_text("Dear reader")
    (tmp_path / "file").write_text("a file")
    for name, settings in MODELS.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(settings))
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "cheat.py").write_text("class Honest:\n    pass\n")
    return tmp_path


UP = [
    ("--stages 0", "expected 1 to 4 stages for a model of 4 blocks, found 0; change --stages"),
    ("--stages 99", "expected 1 to 4 stages for a model of 4 blocks, found 99; change --stages"),
    ("--miners 1", "expected at least 2 honest miners for 2 stages, found 1; raise --miners"),
    ("--validators 0", "expected at least 1 validator, found 0; raise --validators"),
    ("--rounds 0", "expected rounds of at least 1, found 0; raise it"),
    ("--steps 0", "expected steps_per_round of at least 1, found 0; raise it"),
    ("--model gpt2.json", "expected a model of LlamaForCausalLM or Qwen3ForCausalLM, found 'GPT2LMHeadModel'"),
    ("--model window.json", "expected full attention in every block, found a sliding window; switch it off"),
    ("--model heads.json", "The hidden size (32) is not a multiple of the number of attention heads (3)."),
    ("--model blocks.json", "expected num_hidden_layers of at least 1 in the model's configuration, found 0"),
    ("--model words.json", "found 100; choose the model's own tokenizer"),
    ("--model list.json", "expected an object in list.json, found a list; use the model's config.json"),
    ("--model broken.json", "expected JSON in broken.json, found "),
    ("--model nowhere", "expected a model of tiny, nano or a config.json, found nothing at nowhere; check --model"),
    ("--cheats lazy=1", f"expected a cheat of {NAMES}, or FILE.py:Class, found 'lazy'"),
    ("--cheats scale:much=1", "found 'much'; write scale:0.2=1, for example"),
    ("--cheats scale:nan=1", "found 'nan'; write scale:0.2=1, for example"),
    ("--cheats scale=0", "expected at least 1 miner of cheat 'scale=0', found 0; leave it out instead"),
    ("--cheats none.py:Lazy=1", "expected a file of cheats at none.py, found none; check the path before the colon"),
    ("--cheats cheat.py:Honest=1", "expected a subclass 'Honest' of subnet.cheats.base.Cheat in cheat.py, found none"),
    ("--data nowhere", "expected a folder of text files at nowhere, found no such folder; check the path"),
    ("--data empty", "expected text files in empty, found an empty folder; put UTF-8 text files there"),
    ("--data binary", "expected a text file at binary/a.txt, found a binary file"),
    ("--data short", "expected at least 1281 tokens of text in short, found 4"),
    ("--out file", "expected a folder at file, found a file; choose another --out"),
    ("--out file/x", "expected to write to file/x, found: Not a directory; choose another --out"),
    ("--out /proc/strata", "expected to write to /proc/strata, found: "),
    ("--out full", "expected a new or empty folder at full, found files in it; delete them or choose another --out"),
]


def complaint(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code of a command and the one line that it wrote, to stderr."""
    code = run(words)
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert SENTENCE.match(line), line
    return code, line


@pytest.mark.parametrize(("words", "sentence"), UP, ids=[words for words, _ in UP])
def test_up_refuses_before_it_starts_anything(
    words: str, sentence: str, place: Path, capsys: pytest.CaptureFixture[str]
):
    """And writes nothing: the folder for the run is made last."""
    before = sorted(place.rglob("*"))
    given = ["up", "--model", "nano", "--data", "text", "--out", "new", "--port", "0", *words.split()]
    code, line = complaint(given, capsys)
    assert code == 2
    assert sentence in line
    assert [path for path in sorted(place.rglob("*")) if "__pycache__" not in path.parts] == before


def test_up_names_who_holds_its_port(place: Path, capsys: pytest.CaptureFixture[str]):
    with bind("127.0.0.1", 0) as held:
        port = held.getsockname()[1]
        code, line = complaint(["up", "--model", "nano", "--data", "text", "--port", str(port)], capsys)
    assert code == 2
    assert f"expected port {port} on 127.0.0.1 to be free, found it held by process {os.getpid()} (" in line
    assert line.endswith("; stop that or give another --port")
    assert not (place / "out").exists()


def test_up_wants_room_for_the_whole_run(place: Path, capsys: pytest.CaptureFixture[str]):
    """A thousand million checkpoints have room nowhere."""
    code, line = complaint(
        ["up", "--model", "nano", "--data", "text", "--port", "0", "--rounds", "1000000000", "--out", "new"], capsys
    )
    assert code == 1
    assert re.search(r"expected \d+ MB free for this run at \S+, found \d+ MB; free the disk, or choose --out", line)
    assert list((place / "new").iterdir()) == []


ROLES = [
    ("miner -w nobody", "expected a wallet 'nobody' in wallets, found alice; name one of those, or make it with"),
    ("validator -w alice -H cold", "expected a hotkey 'cold' in wallets/alice/hotkeys, found default"),
    ("orchestrator -w ../alice --model nano --data text", "expected a wallet name that is one path part"),
    ("miner -w alice -n mars", "expected a network that is one of finney, test, local or a ws:// or wss:// address"),
    ("miner -w alice --netuid 70000", "expected a netuid from 0 to 65535, found 70000; give it with --netuid"),
    ("miner -w alice --cheat lazy", f"expected a cheat of {NAMES}, or FILE.py:Class, found 'lazy'"),
    (
        "miner -w alice --data-dir file/x",
        "expected a data folder at file/x that can be written, found: Not a directory",
    ),
    ("miner -w alice --external-ip 127.0.0.1", "expected an external address that others can reach, found 127.0.0.1"),
    ("miner -w alice --address-map x", "expected an address map entry such as 198.18.0.1=127.0.0.1"),
    (
        "orchestrator -w alice --network test",
        "found none: it listens at all of the machine's (0.0.0.0); give it with --",
    ),
    ("orchestrator -w alice -n ws://10.0.0.1:99 --host ::", "found none: it listens at all of the machine's (::)"),
    ("orchestrator -w alice --config no.json", "expected a run's configuration at no.json, found: No such file"),
    ("orchestrator -w alice --config broken.json", "expected a run's configuration in canonical JSON in broken.json"),
    ("orchestrator -w alice --model nano --data text --stages 9", "expected 1 to 4 stages for a model of 4 blocks"),
    (
        "orchestrator -w alice --model window.json --data text",
        "expected full attention in every block, found a sliding",
    ),
    ("publisher -w alice --out file", "expected a folder at file, found: File exists; choose another --out"),
]


@pytest.mark.parametrize(("words", "sentence"), ROLES, ids=[words for words, _ in ROLES])
def test_a_role_refuses_before_it_connects(words: str, sentence: str, place: Path, capsys: pytest.CaptureFixture[str]):
    hotkeys = place / "wallets" / "alice" / "hotkeys"
    hotkeys.mkdir(parents=True)
    (hotkeys / "default").write_text("{}")
    before = sorted(place.rglob("*"))
    role, *more = words.split()
    given = ["--wallet-path", "wallets", "--data-dir", "data", *more]
    code, line = complaint([role, *given], capsys)
    assert code == 2
    assert sentence in line
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize("words", ["up --port -1", "up --port 65536", "up --stages two", "orchestrator --wait-for 0"])
def test_a_value_out_of_its_range_is_wrong_usage(words: str, capsys: pytest.CaptureFixture[str]):
    """Three lines here: how to use the command, where its help is, and the sentence."""
    assert run(words.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines()[-1].startswith("Error: Invalid value for '--")


@dataclass(frozen=True, kw_only=True)
class Net:
    """A chain with an orchestrator that waits for miners: what a role can be wrong about once it connects."""

    machine: Machine
    endpoint: str
    port: int
    orchestrator: Command

    @property
    def wallets(self) -> Path:
        return self.machine.folder / "wallets"

    def words(self, wallet: str, data: str = "data") -> list[str]:
        place = ["--network", self.endpoint, "--netuid", "1", "--wallet-path", str(self.wallets)]
        return [*place, "--wallet", wallet, "--data-dir", str(self.machine.folder / data)]

    def plan(self) -> list[str]:
        text = str(self.machine.folder / "text")
        return ["--model", "nano", "--data", text, "--wait-for", "9", "--host", "127.0.0.1"]

    def complaint(self, *words: str) -> tuple[int, str]:
        """The exit code of a command and its only line that is not a line of its log."""
        command = self.machine.run(*words)
        assert "Traceback" not in command.err
        (line,) = (line for line in command.err.splitlines() if not line.startswith("time="))
        return command.process.returncode, line


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[Net]:
    """Wallets `owner`, who has a uid, and `stranger`, who has none; a chain; an orchestrator."""
    with contextlib.ExitStack() as reserved, machine_in(tmp_path_factory.mktemp("net"), repository) as machine:
        (machine.folder / "text").mkdir()
        (machine.folder / "text" / "a.txt").write_text("The quick brown fox jumps over the lazy dog. " * 1000)
        keys = {name: create_wallet(name, "default", machine.folder / "wallets") for name in ("owner", "stranger")}
        cold, hot = keys["owner"].coldkeypub.ss58_address, keys["owner"].hotkey.ss58_address
        genesis = Genesis(
            owner_coldkey=cold,
            owner_hotkey=hot,
            sudo=cold,
            validators=(),
            funds_tao=tuple((key.coldkeypub.ss58_address, 100.0) for key in keys.values()),
            block_time_s=0.25,
        )
        (machine.folder / "genesis.json").write_text(json.dumps(genesis_to_dict(genesis)))
        chain = machine.start("chain", "--genesis", str(machine.folder / "genesis.json"), "--port", "0")
        while "dev chain on" not in chain.out:
            assert chain.process.poll() is None, chain.err
        found = re.search(r"ws://[0-9.:]+", chain.out)
        assert found is not None
        port = reserved.enter_context(reserved_port())
        half = Net(machine=machine, endpoint=found.group(), port=port, orchestrator=chain)
        words = [*half.words("owner", "data-owner"), "--port", str(port), "--external-ip", "198.18.0.1"]
        orchestrator = machine.start("orchestrator", *words, *half.plan())
        orchestrator.until("kind=commitment")
        yield Net(machine=machine, endpoint=half.endpoint, port=port, orchestrator=orchestrator)
        for command in (orchestrator, chain):
            command.process.terminate()
            assert command.process.wait(LONGEST_S) == 0


@pytest.mark.flow
@pytest.mark.parametrize("role", ["miner", "validator"])
def test_a_hotkey_that_is_not_registered_is_told_how(role: str, net: Net):
    code, line = net.complaint(role, *net.words("stranger"))
    assert code == 2
    assert re.match(
        rf"strata {role}: expected hotkey 5\w+ on subnet 1 of {net.endpoint}, found it unregistered; ", line
    )
    assert line.endswith(
        f"; run strata register --network {net.endpoint} --netuid 1 --wallet-path {net.wallets} --wallet stranger "
        "--hotkey default"
    )


@pytest.mark.flow
def test_a_subnet_that_does_not_exist_is_wrong_usage(net: Net):
    code, line = net.complaint("miner", *net.words("stranger"), "--netuid", "77")
    assert (code, line) == (2, f"strata miner: expected subnet 77 on {net.endpoint}, found none; check --netuid")


@pytest.mark.flow
def test_a_corrupt_wallet_is_wrong_usage(net: Net):
    file = net.wallets / "stranger" / "hotkeys" / "corrupt"
    file.write_bytes(b"\x00\xff{")
    code, line = net.complaint("miner", *net.words("stranger"), "--hotkey", "corrupt")
    assert code == 2
    assert f"expected a hotkey in {file}, found a file that is not one" in line
    assert "; restore it with `btcli wallet regen-hotkey" in line


@pytest.mark.flow
def test_an_unreachable_chain_is_waited_for_and_named(net: Net):
    """In one line; told to stop meanwhile, the miner leaves without complaint."""
    command = net.machine.start("miner", *net.words("stranger"), "--network", "ws://127.0.0.1:9")
    command.until("waiting for=chain endpoint=ws://127.0.0.1:9 gone_s=0 reason=.could not connect to ws://127.0.0.1:9")
    command.process.terminate()
    assert command.process.wait(LONGEST_S) == 0
    assert "; check the address and the connection, or name another node as a fallback" in command.err
    assert "Traceback" not in command.err and command.err.count("waiting for=chain") == 1


@pytest.mark.flow
def test_a_second_process_of_a_hotkey_is_refused_with_the_address_of_the_first(net: Net):
    words = [*net.words("owner", "data-owner"), "--port", "0"]
    code, line = net.complaint("orchestrator", *words, *net.plan())
    assert code == 2
    first = (
        f"found process {net.orchestrator.process.pid} at http://127.0.0.1:{net.port}; stop that one, or use another"
    )
    assert "expected to be the only process of hotkey owner-default on " in line
    assert first in line
    assert net.orchestrator.process.poll() is None


@pytest.mark.flow
def test_the_orchestrator_names_who_holds_its_port(net: Net):
    words = [*net.words("owner", "data-second"), "--port", str(net.port)]
    code, line = net.complaint("orchestrator", *words, *net.plan())
    assert code == 2
    held = f"found it held by process {net.orchestrator.process.pid} ("
    assert f"expected port {net.port} on 127.0.0.1 to be free, {held}" in line


@pytest.mark.flow
def test_a_disk_that_takes_no_more_ends_the_orchestrator_with_a_sentence(net: Net):
    """The limit on a file's size stands for a full disk, which a test may not make everywhere."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    words = [*net.words("owner", "data-limited"), "--port", "0"]
    command = net.machine.run("orchestrator", *words, *net.plan(), limits=limit)
    assert command.process.returncode == 75
    assert "Traceback" not in command.err
    assert SENTENCE.match(command.err.splitlines()[-1])


@pytest.mark.flow
def test_an_orchestrator_that_does_not_answer_is_waited_for_and_named(net: Net):
    """The announced address leads nowhere; told to stop meanwhile, the publisher leaves without complaint."""
    words = [*net.words("owner", "data-publisher"), "--address-map", "198.18.0.1=127.0.0.9"]
    command = net.machine.start("publisher", *words, "--out", str(net.machine.folder / "checkpoints"))
    command.until(f"waiting for=orchestrator peer=198.18.0.1:{net.port} reason=")
    command.process.terminate()
    assert command.process.wait(LONGEST_S) == 0
    assert "Traceback" not in command.err


@pytest.mark.flow
def test_a_publisher_with_another_hotkey_is_refused(net: Net):
    words = [*net.words("stranger", "data-other"), "--address-map", "198.18.0.1=127.0.0.1"]
    code, line = net.complaint("publisher", *words, "--out", str(net.machine.folder / "checkpoints"))
    assert code == 2
    assert line.startswith("strata publisher: expected the orchestrator's own hotkey 5")


@pytest.mark.flow
def test_a_run_that_the_chain_s_record_contradicts_is_not_joined(net: Net):
    """The record on the chain names another run than the orchestrator serves."""

    async def commit_another() -> None:
        owner = create_wallet("owner", "default", net.wallets)
        chain = SdkChain(net.endpoint, 1, owner)
        try:
            record = Record(run_id="ab" * 32, round=0, root="cd" * 32, count=1)
            await chain.commit(make_record(record))
        finally:
            await chain.close()

    asyncio.run(commit_another())
    words = [*net.words("owner", "data-third"), "--address-map", "198.18.0.1=127.0.0.1"]
    for role, more in (
        ("publisher", ["--out", str(net.machine.folder / "checkpoints")]),
        ("miner", []),
        ("validator", []),
    ):
        code, line = net.complaint(role, *words, *more)
        assert code == 2
        assert "expected the run abababababab that " in line
        assert line.endswith("; do not join, ask the subnet's owner")
