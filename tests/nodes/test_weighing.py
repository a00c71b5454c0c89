"""A validator's weights: once per tempo, from a fresh view, by hotkey; what is in the way is said with its remedy."""

import logging
import math
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from subnet.incentive.submission import WEIGHTS_VERSION_KEY
from subnet.nodes.weighing import Weighing
from template.errors import ChainUnreachable
from template.fake.chain import FakeChain, FakeNetwork, FakeRules
from template.fake.keys import fake_address
from template.values import DRAND_GENESIS_S, DRAND_PERIOD_S, ChainView, PendingWeights, Submitted

TEMPO = 20
ME, ANN, EVE = (fake_address(name) for name in ("me", "ann", "eve"))


class Chain(FakeChain):
    """Notes every submission; fails or does something first when a test asks for it."""

    def __init__(self, network: FakeNetwork, **options: int) -> None:
        super().__init__(network, ME, fake_address("me/cold"), **options)
        self.submitted: list[tuple[int, dict[int, float]]] = []
        self.faults: list[Exception] = []
        self.pending: tuple[PendingWeights, ...] = ()
        self.before_view: Callable[[], object] | None = None

    async def view(self, block: int | None = None) -> ChainView:
        if self.before_view is not None:
            todo, self.before_view = self.before_view, None
            todo()
        return await super().view(block)

    async def pending_weights(self, *, everybody: bool = False) -> tuple[PendingWeights, ...]:
        return self.pending

    async def set_weights(self, weights: dict[int, float]) -> Submitted:
        if self.faults:
            raise self.faults.pop(0)
        done = await super().set_weights(weights)
        self.submitted.append((done.block or 0, dict(weights)))
        return done


@dataclass(kw_only=True)
class Room:
    """A network, a validator's chain, and scores by hotkey."""

    network: FakeNetwork
    chain: Chain
    weighing: Weighing
    scores: dict[str, float] = field(default_factory=lambda: {ANN: 1.0})

    async def live(self, blocks: int) -> None:
        """So many blocks, each looked at."""
        for _ in range(blocks):
            self.network.advance()
            await self.weighing.look(await self.chain.view())


def room(*, version_key: int = 0, **rules: float) -> Room:
    """Me with a permit (uid 0), Ann (uid 1), and the rate limit long over."""
    values = {"tempo": TEMPO, "genesis_time_s": time.time() - 60.0, "block_time_s": 0.5, "weights_rate_limit_blocks": 2}
    network = FakeNetwork(rules=FakeRules(**(values | rules)))
    network.add(ME, fake_address("me/cold"), stake_rao=10**12, permit=True)
    network.add(ANN, fake_address("ann/cold"))
    network.advance(5)
    chain = Chain(network, version_key=version_key)
    made = Room(network=network, chain=chain, weighing=Weighing(chain, lambda view: by_hotkey(made.scores, view)))
    return made


def by_hotkey(scores: dict[str, float], view: ChainView) -> dict[int, float]:
    return {neuron.uid: scores[neuron.hotkey] for neuron in view.neurons if neuron.hotkey in scores}


async def test_a_pending_commit_is_shown_with_its_block_and_about_when_it_is_revealed() -> None:
    here = room()
    await here.live(1)
    assert here.weighing.health()["weights_pending"] == []
    view = await here.chain.view()
    reveal_round = math.ceil((view.time_s + 30.0 - DRAND_GENESIS_S) / DRAND_PERIOD_S) + 1
    here.chain.pending = (PendingWeights(hotkey=ME, block=view.block, epoch=1, reveal_round=reveal_round),)
    await here.live(1)
    (shown,) = here.weighing.health()["weights_pending"]
    assert shown["block"] == view.block and shown["reveal_round"] == reveal_round
    assert 58 <= shown["reveal_block"] - view.block <= 68, "30 to 33 s away, two blocks a second"


async def test_weights_are_set_once_per_tempo_and_a_restart_changes_nothing() -> None:
    here = room()
    await here.live(TEMPO)
    assert len(here.chain.submitted) == 1 and here.weighing.state == "set"
    here.weighing = Weighing(here.chain, lambda view: by_hotkey(here.scores, view))
    await here.live(2 * TEMPO)
    assert len(here.chain.submitted) == 3
    assert here.weighing.health()["weights"] == {"1": 1.0}


async def test_who_took_a_uid_while_the_block_was_worked_on_inherits_nothing() -> None:
    """The uid goes to another hotkey after the view that the round of work began with: one block read shows it."""
    here = room()
    while not here.weighing._is_time(await here.chain.view()):
        here.network.advance()
    old = await here.chain.view()
    here.chain.before_view = lambda: here.network.replace(1, EVE, fake_address("eve/cold"))
    await here.weighing.look(old)
    assert here.chain.submitted == [] and here.weighing.state == "no-scores"
    assert here.scores == {ANN: 1.0}, "what Ann did stays under her name"


async def test_who_takes_a_uid_after_the_submission_is_named_and_the_next_one_corrects_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    here = room()
    here.network.add(fake_address("bob"), fake_address("bob/cold"))
    here.scores[fake_address("bob")] = 1.0
    while not here.chain.submitted:
        await here.live(1)
    here.network.replace(1, EVE, fake_address("eve/cold"))
    with caplog.at_level(logging.WARNING, "strata.validator"):
        await here.live(3)
    said = f"weights=inherited uid=1 from={ANN} by={EVE}; the next submission corrects it"
    assert caplog.messages == [said]
    assert here.weighing.health()["weights_inherited"] == {"1": EVE}
    await here.live(TEMPO)
    assert here.chain.submitted[-1][1] == {2: 1.0} and here.weighing.health()["weights_inherited"] == {}


async def test_a_rate_limit_is_waited_for_to_the_block_and_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    here = room(weights_rate_limit_blocks=100)
    me = here.network.find(ME)
    assert me is not None
    me.last_update = here.network.number - 10
    due = me.last_update + 100
    with caplog.at_level(logging.INFO, "strata.validator"):
        await here.live(1)
        assert here.weighing.health()["weights_due_block"] == due
        await here.live(due - here.network.number - 1)
        assert here.chain.submitted == []
        await here.live(TEMPO)
    assert [block for block, _ in here.chain.submitted][0] in range(due, due + TEMPO)
    first = caplog.records[0]
    assert first.levelname == "INFO" and first.getMessage().startswith("weights=waiting blocks=89 reason=")
    assert not any(record.levelname == "ERROR" for record in caplog.records)


async def test_what_the_chain_calls_too_soon_is_tried_again_when_it_says() -> None:
    """Another process of the same hotkey may have submitted in a block that is not final yet."""
    here = room()
    while not here.weighing._is_time(await here.chain.view()):
        here.network.advance()
    me = here.network.find(ME)
    assert me is not None
    seen = await here.chain.view()
    me.last_update = here.network.number + 1
    await here.weighing.look(seen)
    assert here.weighing.state == "waiting" and "too recently; wait" in here.weighing.message
    me.last_update = 0
    await here.live(1)
    assert here.chain.submitted == []
    await here.live(3)
    assert len(here.chain.submitted) == 1


async def test_an_update_that_is_needed_is_a_state_and_not_a_success(caplog: pytest.LogCaptureFixture) -> None:
    """It is said once, tried once per tempo, and over as soon as the software is new enough."""
    here = room(version_key=10, weights_version_key=11)
    with caplog.at_level(logging.INFO, "strata.validator"):
        await here.live(2 * TEMPO)
    assert here.chain.submitted == [] and here.weighing.health()["weights_state"] == "update-needed"
    assert "version 11 or later" in here.weighing.message and "update it" in here.weighing.message
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
    here.chain._version_key = 11
    await here.live(TEMPO)
    assert len(here.chain.submitted) == 1 and here.weighing.state == "set"


async def test_a_permit_that_is_missing_is_said_and_weights_follow_when_it_comes() -> None:
    here = room()
    me = here.network.find(ME)
    assert me is not None
    me.permit = False
    await here.live(TEMPO)
    assert here.chain.submitted == [] and here.weighing.state == "no-permit"
    assert "stake more on" in here.weighing.message and "wait for the epoch" in here.weighing.message
    me.permit = True
    await here.live(TEMPO)
    assert len(here.chain.submitted) == 1


async def test_a_validator_that_lost_its_uid_is_told_to_register_again() -> None:
    here = room()
    here.network.replace(0, EVE, fake_address("eve/cold"))
    await here.live(1)
    assert here.weighing.state == "unregistered" and "register it again" in here.weighing.message


@pytest.mark.parametrize("behind_s", [120.0, 3600.0])
async def test_an_old_view_or_a_wrong_clock_is_named_with_its_age(behind_s: float) -> None:
    here = room(genesis_time_s=time.time() - behind_s)
    here.network.advance(TEMPO - 8)
    await here.weighing.look(await here.chain.view())
    assert here.chain.submitted == [] and here.weighing.state == "stale"
    assert "s old: check the node, and this machine's clock" in here.weighing.message


async def test_a_clock_that_is_behind_the_chain_s_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    here = room(genesis_time_s=time.time() + 60.0)
    with caplog.at_level(logging.WARNING, "strata.validator"):
        await here.live(4)
    (said,) = caplog.messages
    assert said.startswith("clock=6") and said.endswith(
        "s behind the chain's; set this machine's (timedatectl set-ntp true)"
    )


async def test_a_chain_that_goes_away_in_the_middle_loses_nothing() -> None:
    here = room()
    here.chain.faults = [ChainUnreachable("gone")] * 2
    for _ in range(2):
        with pytest.raises(ChainUnreachable):
            await here.live(TEMPO)
    await here.live(1)
    assert len(here.chain.submitted) == 1


async def test_a_validator_without_scores_submits_nothing_and_says_so() -> None:
    here = room()
    here.scores.clear()
    await here.live(TEMPO)
    assert here.chain.submitted == [] and here.weighing.state == "no-scores"


def test_the_version_key_follows_the_version(repository: Path) -> None:
    """It is that of the version that last changed how weights are made, so never newer than this one."""
    version = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["version"]
    major, minor, patch = (int(part) for part in version.split("."))
    assert 0 < WEIGHTS_VERSION_KEY <= 1000 * major + 10 * minor + patch + 10 * (major == 0 and minor == 0)
