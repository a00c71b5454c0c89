"""`strata replay VERDICT` as its users run it: on the ledger and the blobs that a real run left, and over HTTP."""

import json
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from subnet.canonical import canonical
from subnet.edges.ledger import SqlLedger
from subnet.ledger.events import Event, Said, make_event
from subnet.wire.messages import Verdict, make_signed, read_signed
from template.sdk import HotkeySigner, load_wallet
from tests.flow.conftest import Command, Machine, machine_in

pytestmark = pytest.mark.flow

ARGUMENTS = ("--model", "nano", "--port", "0", "--rounds", "1", "--steps", "12", "--cheats", "none", "--keep")


@dataclass(frozen=True, kw_only=True)
class Left:
    """A run that has ended: its folder, one verdict of it, and what `strata replay` said of that over HTTP."""

    machine: Machine
    folder: Path
    passed: str
    over_http: Command

    @property
    def ledger(self) -> str:
        return str(self.folder / "data" / "orchestrator" / "ledger.sqlite")

    @property
    def blobs(self) -> tuple[str, str]:
        return "--blobs", str(self.folder / "data")


def events_of(ledger: str) -> list[Event]:
    log = SqlLedger(f"sqlite:///{ledger}")
    try:
        return log.events()
    finally:
        log.close()


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[Left]:
    """Four honest miners, real keys, one process each; two validators draw 4 first segments with chance 1/2 each."""
    with machine_in(tmp_path_factory.mktemp("replay"), repository) as machine:
        folder = machine.folder / "out"
        command = machine.start("up", *ARGUMENTS, "--json", "--out", str(folder))
        command.until("still running")
        page = re.search(r"page at (http://[0-9.:]+)", command.err)
        audits = json.loads((folder / "summary.json").read_bytes())["audits"]
        assert page is not None
        passed = next(row["id"] for row in audits if row["verdict"] == "pass" and row["distance"] is not None)
        over_http = machine.run("replay", passed, "--run", page.group(1))
        told_s = time.monotonic()
        command.process.send_signal(signal.SIGINT)
        machine.gone_s(told_s)
        yield Left(machine=machine, folder=folder, passed=passed, over_http=over_http)


def test_a_verdict_is_repeated_from_a_running_network(left: Left) -> None:
    """The ledger and the store at the orchestrator's URL, the rest from the miner at the address in the ledger."""
    assert left.over_http.process.returncode == 0, left.over_http.err
    assert left.over_http.out.splitlines()[-1] == "claimed pass (ok), recomputed pass (ok): agrees"


def test_a_verdict_is_repeated_from_files_alone(left: Left) -> None:
    done = left.machine.run("replay", left.passed[:12], "--ledger", left.ledger, *left.blobs, "--json")
    assert done.process.returncode == 0, done.err
    facts = json.loads(done.out)
    assert facts["agrees"] and facts["id"] == left.passed and facts["checks"]
    assert all(check["claimed"] == check["recomputed"] for check in facts["checks"])


def test_a_false_accusation_does_not_agree(left: Left) -> None:
    """A validator's own signature under a fail of honest work, at the end of a copy of the ledger."""
    events = events_of(left.ledger)
    said = [event.body.signed for event in events if isinstance(event.body, Said)]
    true = read_signed(next(signed for signed in said if signed.digest == left.passed), Verdict)
    wallets = [load_wallet(f"validator-{n}", "default", str(left.folder / "wallets")) for n in range(2)]
    (signer,) = (s for s in map(HotkeySigner, wallets) if s.hotkey == true.validator)
    lie = make_signed(replace(true, verdict="fail", reason="activation", distance=0.5, tolerance=1e-4), signer)
    last = events[-1]
    forged = make_event(Said(signed=lie), n=last.n + 1, previous=last.digest, time_ms=last.time_ms)
    copy = left.machine.folder / "forged.jsonl"
    copy.write_bytes(b"".join(canonical(event) + b"\n" for event in [*events, forged]))
    done = left.machine.run("replay", lie.digest[:12], "--ledger", str(copy), *left.blobs)
    assert done.process.returncode == 1, done.err
    assert done.out.splitlines()[-1] == "claimed fail (activation), recomputed pass (ok): DOES NOT AGREE"


def test_evidence_that_is_gone_is_said_in_one_sentence(left: Left) -> None:
    done = left.machine.run("replay", left.passed, "--ledger", left.ledger)
    assert (done.process.returncode, done.out) == (1, "")
    sentence = done.err.splitlines()[-1]
    assert f"expected the evidence of {left.passed[:12]} (a pass of round 0), found " in sentence
    assert "give copies with --blobs" in sentence and "Traceback" not in done.err


@pytest.mark.parametrize(
    ("prefix", "said"),
    [("0" * 20, "expected one verdict whose id begins with '00000000000000000000', found none"), ("ab", "at least 4")],
)
def test_an_id_that_names_no_verdict_is_refused(left: Left, prefix: str, said: str) -> None:
    done = left.machine.run("replay", prefix, "--ledger", left.ledger, *left.blobs)
    assert (done.process.returncode, done.out) == (2, "")
    assert said in done.err.splitlines()[-1] and "Traceback" not in done.err
