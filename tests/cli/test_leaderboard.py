"""Laws of `strata leaderboard`: the same facts from an orchestrator or recomputed from its log, in every form."""

import json
from pathlib import Path

import pytest

from subnet.board.page import board_routes
from subnet.canonical import canonical
from subnet.cli.fetch import fetch_board
from subnet.cli.main import run
from subnet.errors import MessageError
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
        (["--run", "127.0.0.1:9", "--once"], 75, "check that it runs"),
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


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"a": 1}'])
async def test_another_server_s_answer_is_refused(body: bytes):
    async def answer(_: object) -> Reply:
        return Reply(body=body)

    peers = FakePeers()
    peers.apps["http://o:1"] = application([Route(method="GET", path="/v1/board", handler=answer, signed=False)], None)
    with pytest.raises(MessageError, match="check the address"):
        await fetch_board(FakeTransport(peers, None), "http://o:1")
