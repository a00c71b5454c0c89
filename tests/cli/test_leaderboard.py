"""Laws of `strata leaderboard`: the same facts from an orchestrator or recomputed from its log, in every form."""

import asyncio
import json
from pathlib import Path

import pytest

from subnet.board.page import board_routes
from subnet.canonical import canonical
from subnet.cli.fetch import fetch_board
from subnet.cli.leaderboard import LOOK_S, from_run
from subnet.cli.main import run
from subnet.errors import MessageError
from template.errors import PeerRefused, PeerUnreachable
from template.fake.transport import FakePeers, FakeTransport
from template.transport import Reply, Route
from template.web import application
from tests.board.made_up import made_up
from tests.board.small_run import CHEATER, hotkey, small_run


@pytest.fixture
def export(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b"".join(canonical(event) + b"\n" for event in small_run().events))
    return path


def test_the_board_is_recomputed_from_a_copy_of_the_log(export: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["leaderboard", "--ledger", str(export), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    refuted = {row["hotkey"] for row in document["miners"] if row["work_refuted"]}
    assert refuted == {hotkey(CHEATER)}


def test_once_shows_the_board_and_ends(export: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["leaderboard", "--ledger", str(export), "--once"]) == 0
    shown = capsys.readouterr().out
    assert "about a quarter of all segments are audited (2 of 8)" in shown
    assert "round 0: activation" in shown


def test_watching_a_run_that_is_done_ends_with_the_board(export: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["leaderboard", "--ledger", str(export)]) == 0
    assert "refuted: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "expected either --run URL or --ledger FILE, found neither"),
        (["--run", "x", "--ledger", "y"], 2, "found both"),
        (["--run", "ftp://x"], 2, "expected --run with an http:// address"),
        (["--run", "127.0.0.1:9", "--once", "--patience", "0"], 75, "check that it runs"),
        (["--ledger", "/nowhere"], 2, "no such file"),
        (["--ledger", "http://x"], 2, "use --run"),
    ],
)
def test_faults_are_one_sentence_with_their_code(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
):
    assert run(["leaderboard", *words]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


async def test_the_orchestrator_s_facts_are_taken_as_they_are():
    peers = FakePeers()
    peers.apps["http://o:1"] = application(board_routes(lambda: made_up(2)), None)
    assert await fetch_board(FakeTransport(peers, None), "http://o:1") == made_up(2)


async def test_an_orchestrator_that_is_just_starting_is_waited_for(capsys: pytest.CaptureFixture[str]):
    """First nobody listens, then a board without a run, then the run: said once, and no error."""
    peers, ready = FakePeers(), False
    peers.apps["http://o:1"] = application(board_routes(lambda: made_up(2) if ready else None, refresh_s=0.0), None)
    peers.down.add("http://o:1")
    asking = asyncio.create_task(from_run(FakeTransport(peers, None), "o:1")())
    while not capsys.readouterr().err:
        await asyncio.sleep(0.01)
    peers.down.clear()
    await asyncio.sleep(2 * LOOK_S)
    assert not asking.done()
    ready = True
    assert await asking == made_up(2)
    assert capsys.readouterr().err == ""


async def test_the_wait_is_one_line_and_has_an_end(capsys: pytest.CaptureFixture[str]):
    source = from_run(FakeTransport(FakePeers(), None), "o:1", patience_s=2.5 * LOOK_S)
    with pytest.raises(PeerUnreachable, match="nobody listens"):
        await source()
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "waiting for the orchestrator at http://o:1 for up to 1 s; Ctrl-C ends it"


async def test_another_server_is_not_waited_for():
    peers = FakePeers()
    peers.apps["http://o:1"] = application([], None)
    with pytest.raises(PeerRefused, match="not_found"):
        await from_run(FakeTransport(peers, None), "o:1")()


async def test_once_it_was_seen_a_short_silence_keeps_the_last_facts():
    peers = FakePeers()
    peers.apps["http://o:1"] = application(board_routes(lambda: made_up(2)), None)
    source = from_run(FakeTransport(peers, None), "o:1")
    assert await source() == made_up(2)
    peers.down.add("http://o:1")
    assert await source() == made_up(2)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"a": 1}'])
async def test_another_server_s_answer_is_refused(body: bytes):
    async def answer(_: object) -> Reply:
        return Reply(body=body)

    peers = FakePeers()
    peers.apps["http://o:1"] = application([Route(method="GET", path="/v1/board", handler=answer, signed=False)], None)
    with pytest.raises(MessageError, match="check the address"):
        await fetch_board(FakeTransport(peers, None), "http://o:1")
