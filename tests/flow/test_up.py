"""`strata up` as its users run it: one run of the whole product, looked at from every side; and how it is stopped.

The run is as short as it can be while the chance that no validator draws the cheater stays under 1 in 100,000: it has
24 segments of work (3 rounds of 8) of about the same pay, the first three with a rate of 1, then 2/3, 1/2, 2/5, and
1/3 from the seventh on. Each of 2 validators draws with half of that: (1/2)^6 (2/3)^2 (3/4)^2 (4/5)^2 (5/6)^36, which
is below 0.000004.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from subnet.canonical import parse
from subnet.config import RunConfig
from subnet.edges.ledger import SqlLedger
from subnet.ledger.events import Commitment, Event, Said, StepEnd
from subnet.ledger.record import read_record
from template.sdk import SdkChain, load_wallet
from template.values import ChainView
from template.values import Record as ChainRecord
from tests.cli.test_summary import faults
from tests.flow.conftest import GONE_S, Machine, machine_in

pytestmark = pytest.mark.flow

ROUNDS, STEPS = 3, 30
SHORT = ("--model", "nano", "--port", "0")
TRAINING = r"train +round 1/\d+ step [1-9]"


@dataclass(frozen=True, kw_only=True)
class Finished:
    """What is left of a run, and what was seen of it while its processes still lived."""

    begun_s: float  # when the command was given, Unix time
    code: int
    gone_s: float  # from Ctrl-C to the end of the last process
    shown: str  # stdout
    said: str  # stderr
    summary: dict[str, Any]
    folder: Path
    machine: Machine
    view: ChainView
    weights: dict[int, dict[int, float]]
    records: list[tuple[Commitment, ChainRecord | None]]
    with_torch: set[str]  # the processes that have torch in memory
    verified: dict[str, Any]  # strata ledger verify --network --json

    @property
    def run(self) -> RunConfig:
        """The configuration as it was written down."""
        return parse((self.folder / "run.json").read_bytes(), RunConfig)

    @property
    def events(self) -> list[Event]:
        """The ledger on disk."""
        ledger = SqlLedger(f"sqlite:///{self.folder}/data/orchestrator/ledger.sqlite")
        try:
            return ledger.events()
        finally:
            ledger.close()

    @property
    def honest(self) -> list[dict[str, Any]]:
        return [miner for miner in self.summary["miners"] if miner["cheat"] is None]

    @property
    def cheater(self) -> dict[str, Any]:
        (found,) = (miner for miner in self.summary["miners"] if miner["cheat"] is not None)
        return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[Finished]:
    """The run: kept after its end, so that its chain can still be asked, then ended by Ctrl-C."""
    with machine_in(tmp_path_factory.mktemp("up"), repository) as machine:
        folder = machine.folder / "out"
        words = ("--rounds", str(ROUNDS), "--steps", str(STEPS), "--json", "--keep", "--out", str(folder))
        begun_s = time.time()
        command = machine.start("up", *SHORT, *words)
        command.until("still running")
        shown, with_torch = command.out, processes_with_torch(machine)
        verified = json.loads(machine.run("ledger", "verify", *ledger_words(folder)).out)
        document = json.loads((folder / "summary.json").read_bytes())
        view, weights, records = asyncio.run(on_the_chain(folder))
        told_s = time.monotonic()
        command.process.send_signal(signal.SIGINT)
        gone_s = machine.gone_s(told_s)
        yield Finished(
            begun_s=begun_s,
            code=command.process.wait(),
            gone_s=gone_s,
            shown=shown,
            said=command.err,
            summary=document,
            folder=folder,
            machine=machine,
            view=view,
            weights=weights,
            records=records,
            with_torch=with_torch,
            verified=verified,
        )


def endpoint_of(folder: Path) -> str:
    """Where the run's chain answers."""
    found = re.search(r"ws://[0-9.:]+", (folder / "logs" / "chain.log").read_text())
    assert found is not None
    return found.group()


def ledger_words(folder: Path) -> tuple[str, ...]:
    key = ("--wallet", "owner", "--wallet-path", str(folder / "wallets"))
    return str(folder / "data" / "orchestrator" / "ledger.sqlite"), "--network", endpoint_of(folder), *key, "--json"


async def on_the_chain(folder: Path) -> tuple[ChainView, dict[int, dict[int, float]], list[Any]]:
    """The view, the weights, and for each commitment in the ledger what stands at its place in the block."""
    chain = SdkChain(endpoint_of(folder), 1, load_wallet("owner", "default", str(folder / "wallets")))
    ledger = SqlLedger(f"sqlite:///{folder}/data/orchestrator/ledger.sqlite")
    try:
        commitments = [event.body for event in ledger.events() if isinstance(event.body, Commitment)]
        records = [(each, await chain.commit_at(each.block, each.extrinsic_index)) for each in commitments]
        return await chain.view(), await chain.weights(), records
    finally:
        ledger.close()
        await chain.close()


def processes_with_torch(machine: Machine) -> set[str]:
    """The commands of the running processes that have torch's library in memory; forked roles are "forked"."""
    found = set()
    for pid, line in machine.running().items():
        if "libtorch" in Path(f"/proc/{pid}/maps").read_text():
            name = re.search(r"subnet\.cli\.main (\w+)", line)
            found.add(name.group(1) if name else "forked")
    return found


def test_it_ends_well_and_prints_its_summary(finished: Finished):
    assert finished.code == 0
    assert json.loads(finished.shown) == finished.summary


def test_it_shows_progress_without_noise(finished: Finished):
    """Every line of stderr is one that the product means to say."""
    own = ("writing to", "starting ", "page at", "waiting ", "train ", "close ", "merge ", "done ", "training is done")
    odd = [line for line in finished.said.splitlines() if not line.startswith((*own, "still running", "stopping"))]
    assert odd == []


def test_every_field_of_the_summary_is_there(finished: Finished, repository: Path):
    schema = json.loads((repository / "docs" / "summary.schema.json").read_text())
    assert faults(finished.summary, schema) == []
    assert finished.summary["run_id"] == finished.run.run_id
    assert finished.summary["model"]["stages"] == 2
    assert len(finished.summary["miners"]) == 5


def test_rounds_add_up(finished: Finished):
    """Tokens are those of the microbatches that the ledger counts; bytes follow from them."""
    run, rounds = finished.run, finished.summary["rounds"]
    tokens = run.train.microbatch_sequences * run.data.sequence_tokens
    activation_bytes = tokens * run.model.values["hidden_size"] * 4
    counted: Counter[int] = Counter()
    for event in finished.events:
        if isinstance(event.body, StepEnd):
            counted[event.body.round] += len(event.body.done)
    assert [row["round"] for row in rounds] == list(range(ROUNDS))
    for row in rounds:
        assert 1 <= row["steps"] <= STEPS
        assert row["tokens"] == counted[row["round"]] * tokens
        assert row["bytes_activations"] == 2 * counted[row["round"]] * activation_bytes
        assert row["tokens_per_s"] == pytest.approx(row["tokens"] / row["seconds"], rel=0.01)
        assert row["bytes_sync"] > 0
    assert finished.summary["seconds"] > sum(row["seconds"] for row in rounds)


def test_heldout_loss_falls_every_round(finished: Finished):
    """From about ln(256) = 5.545, where a model knows nothing of bytes."""
    losses = [row["heldout_loss"] for row in finished.summary["rounds"]]
    assert losses[0] < 5.545
    assert all(later < earlier for earlier, later in pairwise(losses))
    assert losses[-1] < 4.0
    assert all(row["train_loss"] < 5.6 for row in finished.summary["rounds"])


def test_the_cheater_loses_everything_and_nobody_else_anything(finished: Finished):
    cheater = finished.cheater
    assert cheater["cheat"] == "scale"
    assert cheater["work_refuted"] == cheater["work_committed"] > 0
    assert cheater["score"] == 0
    assert cheater["weight"] == cheater["incentive"] == 0.0
    assert all(miner["work_refuted"] == 0 and miner["weight"] > 0 for miner in finished.honest)


def test_weights_are_shares_of_the_score(finished: Finished):
    """To the chain's resolution: a weight is a part of 65535 of the largest."""
    miners = finished.summary["miners"]
    whole = sum(miner["score"] for miner in miners)
    assert [miner["score"] for miner in miners] == sorted((miner["score"] for miner in miners), reverse=True)
    for miner in miners:
        assert miner["score"] == miner["work_committed"] - miner["work_refuted"]
        assert miner["weight"] == pytest.approx(miner["score"] / whole, abs=1e-4)
        assert miner["incentive"] == pytest.approx(miner["weight"], abs=1e-3)


def test_audits_say_what_was_found(finished: Finished):
    audits = finished.summary["audits"]
    guilty = {audit["hotkey"] for audit in audits if audit["verdict"] == "fail"}
    assert guilty == {finished.cheater["hotkey"]}
    assert len({audit["id"] for audit in audits}) == len(audits)
    for audit in audits:
        if audit["verdict"] == "fail":
            assert audit["reason"] in ("activation", "gradient")
            assert audit["distance"] == pytest.approx(0.2, rel=1e-3)
            assert audit["distance"] > audit["tolerance"]
        elif audit["verdict"] == "pass":
            assert audit["reason"] == "ok"
            assert audit["distance"] <= audit["tolerance"]


def test_both_validators_have_set_the_weights_on_the_chain(finished: Finished):
    """And what the summary says is what the chain holds."""
    validators = {neuron.uid for neuron in finished.view.neurons if neuron.validator_permit and neuron.stake_rao}
    assert finished.summary["chain"]["weights_set"] == 2
    assert len(finished.weights) == 2
    assert set(finished.weights) <= validators
    for miner in finished.summary["miners"]:
        mean = sum(row.get(miner["uid"], 0.0) for row in finished.weights.values()) / 2
        assert miner["weight"] == pytest.approx(mean, abs=1e-6)


def test_the_chain_holds_the_records_of_the_run(finished: Finished):
    """Each commitment in the ledger names the block and extrinsic where the orchestrator's record stands."""
    rounds = [each.round for each, _ in finished.records]
    assert rounds == sorted(rounds)
    assert len(rounds) > ROUNDS
    events = finished.events
    for each, found in finished.records:
        assert found is not None
        record = read_record(found.data)
        assert (record.run_id, record.round, record.count) == (finished.run.run_id, each.round, each.count)
        assert record.root == each.root == events[each.count - 1].digest


def test_the_ledger_verifies_with_the_chain_and_without(finished: Finished):
    path = finished.folder / "data" / "orchestrator" / "ledger.sqlite"
    command = finished.machine.run("ledger", "verify", str(path), "--json")
    assert command.process.returncode == 0
    alone = json.loads(command.out)
    assert alone["run_id"] == finished.verified["run_id"] == finished.run.run_id
    assert alone["signatures"] == sum(isinstance(event.body, Said) for event in finished.events)
    assert finished.verified["commitments_on_chain"] == len(finished.records)


def test_the_checkpoint_gives_the_loss_that_was_reported(finished: Finished):
    """By `from_pretrained` and plain cross-entropy, to 1e-4 nats per token."""
    import torch
    from transformers import AutoModelForCausalLM

    from subnet.data.pack import heldout_microbatch
    from subnet.edges.data import load_corpus

    run, model = finished.run, AutoModelForCausalLM.from_pretrained(finished.summary["checkpoint"])
    corpus, total, count = load_corpus(run.data), 0.0, 0
    with torch.no_grad():
        for index in range(run.data.heldout_microbatches):
            tokens, labels = (torch.from_numpy(part) for part in heldout_microbatch(run, corpus, index))
            logits = model(input_ids=tokens).logits.double()
            total += torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum").item()
            count += labels.numel()
    assert total / count == pytest.approx(finished.summary["rounds"][-1]["heldout_loss"], abs=1e-4)


def test_the_checkpoint_generates_text_without_us(finished: Finished):
    """With `transformers` alone, from the folder: our code is not even importable."""
    code = (
        "import sys; from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        "model, words = (kind.from_pretrained(sys.argv[1]) for kind in (AutoModelForCausalLM, AutoTokenizer))\n"
        "inputs = words('def main(', return_tensors='pt')\n"
        "text = words.decode(model.generate(**inputs, max_new_tokens=16, do_sample=False)[0])\n"
        "assert not {'subnet', 'template'} & set(sys.modules)\n"
        "print(repr(text))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, finished.summary["checkpoint"]],
        env={**finished.machine.environment(), "PYTHONPATH": ""},
        cwd=finished.machine.work,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("'def main(")
    assert len(done.stdout.strip()) > len("'def main('")


def test_nothing_on_disk_is_pickled(finished: Finished):
    """No pickle (protocol byte first, a stop last), no archive of one, none of their names."""
    files = [path for path in finished.folder.rglob("*") if path.is_file()]
    assert len(files) > 100
    for path in files:
        data = path.read_bytes()
        assert path.suffix not in (".pkl", ".pickle", ".pt", ".pth", ".bin", ".joblib"), path
        assert not (data[:1] == b"\x80" and data[1:2] in b"\x02\x03\x04\x05" and data[-1:] == b"."), path
        assert not data.startswith(b"PK\x03\x04"), path


def test_nothing_is_written_outside_the_folder(finished: Finished):
    """The SDK's own cache of the chain's metadata lies where its variable says."""
    machine = finished.machine
    assert list(machine.home.rglob("*")) == []
    assert list(machine.work.rglob("*")) == []
    cached = [path for path in (machine.folder / "caches").rglob("*") if path.is_file()]
    assert {path.relative_to(machine.folder / "caches").parts[0] for path in cached} <= {"bittensor"}


def test_ctrl_c_ends_every_process_of_a_kept_network(finished: Finished, capsys: pytest.CaptureFixture[str]):
    """It goes to `strata up` alone here; the promise is 5 seconds."""
    assert finished.gone_s < GONE_S
    with capsys.disabled():
        sys.stdout.write(f"\n  kept network gone {finished.gone_s:.2f} s after Ctrl-C\n")


def test_only_what_computes_has_torch_in_memory(finished: Finished):
    """Of the processes that lived: not the chain, not the orchestrator with its page, not `up` itself."""
    assert finished.with_torch == {"forked"}


@pytest.mark.parametrize("module", ["subnet.nodes.orchestrating", "subnet.cli.chain", "subnet.board.page"])
def test_what_must_stay_light_imports_neither_torch_nor_transformers(module: str, repository: Path):
    code = f"import sys, {module}; print(*({{'torch', 'transformers'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_first_step_is_shown(finished: Finished, capsys: pytest.CaptureFixture[str]):
    """Not timed; said, for whoever reads the output."""
    first = next(event for event in finished.events if isinstance(event.body, StepEnd))
    with capsys.disabled():
        sys.stdout.write(
            f"\n  first step {first.time_ms / 1000 - finished.begun_s:.0f} s after the command, the board after "
            f"{finished.summary['seconds']:.0f} s\n"
        )


def summary_of(folder: Path, repository: Path) -> dict[str, Any]:
    """A summary that can be read and fits its schema."""
    document = json.loads((folder / "summary.json").read_text())
    assert faults(document, json.loads((repository / "docs" / "summary.schema.json").read_text())) == []
    return document


def test_ctrl_c_in_a_terminal_ends_everything_and_leaves_a_summary(
    machine: Machine, repository: Path, capsys: pytest.CaptureFixture[str]
):
    """A terminal sends it to every process of the group at once."""
    folder = machine.folder / "out"
    command = machine.start("up", *SHORT, "--rounds", "50", "--out", str(folder))
    command.until(TRAINING)
    begun_s = time.monotonic()
    os.killpg(command.process.pid, signal.SIGINT)
    command.process.wait(GONE_S)
    gone_s = machine.gone_s(begun_s)
    with capsys.disabled():
        sys.stdout.write(f"\n  training network gone {gone_s:.2f} s after Ctrl-C\n")
    assert command.process.returncode == 1
    assert command.err.splitlines()[-1] == (
        f"error: expected to finish the run, told to stop before; what was done is in {folder}"
    )
    assert "Traceback" not in command.err
    document = summary_of(folder, repository)
    assert [row["round"] for row in document["rounds"]] == [0]
    assert document["rounds"][0]["tokens"] > 0
    assert "round  steps  tokens" in command.out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_can_be_stopped_before_the_chain_is_up(number: signal.Signals, machine: Machine, repository: Path):
    folder = machine.folder / "out"
    command = machine.start("up", *SHORT, "--out", str(folder))
    command.until("starting chain")
    begun_s = time.monotonic()
    command.process.send_signal(number)
    assert command.process.wait(GONE_S) == 1
    machine.gone_s(begun_s)
    assert command.err.splitlines()[-1].startswith("error: expected to finish the run, told to stop before")
    assert "Traceback" not in command.err
    document = summary_of(folder, repository)
    assert (document["rounds"], document["miners"], document["checkpoint"]) == ([], [], None)
