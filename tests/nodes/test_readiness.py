"""Whether a process is ready: it says so while it works, and names what stands still or is refused again and again."""

import json
from pathlib import Path

import pytest

from subnet.nodes.readiness import REFUSED_IN_A_ROW, SILENT_S, Readiness, ready_route
from template.web import application
from tests.nodes.asking import ask
from tests.nodes.served import served, served_miner
from tests.nodes.test_orchestrator_routes import in_phase


class Clock:
    """Seconds that a test lets pass."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_process_that_has_just_begun_is_not_ready_yet(clock: Clock) -> None:
    readiness = Readiness(clock=clock)
    (fault,) = readiness.faults()
    assert fault == "expected the work to have begun, found it still starting; ask again in a moment"
    readiness.went_well("a block")
    assert readiness.faults() == []


def test_what_stands_still_is_named_alone_and_comes_back(clock: Clock) -> None:
    """A heartbeat of another part hides nothing."""
    readiness = Readiness(clock=clock)
    readiness.went_well("a block of the chain")
    readiness.went_well("an answer")
    clock.now_s += SILENT_S
    readiness.went_well("an answer")
    assert readiness.faults() == []
    clock.now_s += 1
    assert readiness.faults() == ["expected a block of the chain within 120 s, found none for 121 s"]
    readiness.went_well("a block of the chain")
    assert readiness.faults() == []


def test_refusals_in_a_row_are_an_alarm_and_one_that_is_taken_ends_it(clock: Clock) -> None:
    """One comes too late now and then; when nothing is taken any more, training goes on for nothing."""
    readiness = Readiness(clock=clock)
    readiness.went_well("an answer")
    for number in range(REFUSED_IN_A_ROW):
        assert readiness.faults() == []
        readiness.said(f"refused: reason {number}")
    assert readiness.faults() == ["expected what is sent to be taken, found the last 3 refused: refused: reason 2"]
    readiness.said()
    assert readiness.faults() == []


async def test_the_route_answers_503_with_the_reasons(clock: Clock) -> None:
    readiness = Readiness(clock=clock)
    app = application([ready_route(readiness)], None)
    readiness.went_well("an answer")
    found = await ask(app, "GET", "/readyz")
    assert (found.status, json.loads(found.body)) == (200, {"ready": True, "faults": []})
    clock.now_s += SILENT_S + 1
    found = await ask(app, "GET", "/readyz")
    assert found.status == 503 and json.loads(found.body)["faults"] == readiness.faults() != []


async def test_a_miner_that_gets_no_answer_still_tells_its_health_but_is_not_ready(tmp_path: Path) -> None:
    miner = served_miner(tmp_path)
    assert (await ask(miner.app, "GET", "/healthz")).status == 200
    assert (await ask(miner.app, "GET", "/readyz")).status == 503
    miner.miner.readiness.went_well("an answer of the orchestrator")
    assert (await ask(miner.app, "GET", "/readyz")).status == 200


async def test_an_orchestrator_is_ready_once_it_decides() -> None:
    node = (await served(in_phase("train"))).node
    assert node.readiness.faults() != []
