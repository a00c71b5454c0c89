"""Laws of `strata register`: the price is known before anything is paid, and who is registered pays nothing."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from subnet.cli.main import run
from subnet.cli.register import register_on
from template.errors import InsufficientBalance, SpendLimit, UsageError
from template.fake.chain import FakeChain, FakeNetwork, FakeRules
from template.fake.keys import fake_address
from template.values import tao_text


def new_chain(*, funds_rao: int = 10**12, started: bool = True) -> FakeChain:
    network = FakeNetwork(rules=FakeRules(started=started))
    coldkey = fake_address("cold")
    network.fund(coldkey, funds_rao)
    network.advance()
    return FakeChain(network, fake_address("hot"), coldkey)


async def test_a_new_hotkey_gets_a_uid_for_the_price_that_was_shown():
    chain = new_chain()
    price = await chain.burn_rao()
    facts = await register_on(chain, limit_tao=None, yes=True)
    view = await chain.view()
    assert view.neuron(chain.hotkey).uid == facts["uid"]
    assert facts == {
        "netuid": chain.netuid,
        "hotkey": chain.hotkey,
        "uid": facts["uid"],
        "already": False,
        "price_rao": price,
    }
    assert await chain.balance_rao() == 10**12 - price


async def test_registering_twice_is_success_and_costs_nothing():
    chain = new_chain()
    first = await register_on(chain, limit_tao=None, yes=True)
    balance = await chain.balance_rao()
    again = await register_on(chain, limit_tao=None, yes=False)
    assert (again["uid"], again["already"], again["price_rao"]) == (first["uid"], True, 0)
    assert await chain.balance_rao() == balance


async def test_nothing_is_paid_above_the_limit():
    chain = new_chain()
    price = tao_text(await chain.burn_rao())
    said = f"expected subnet 1 to cost at most 0.000000001 TAO, found {price}; raise --limit"
    with pytest.raises(SpendLimit, match=re.escape(said)):
        await register_on(chain, limit_tao=1e-9, yes=True)
    assert await chain.balance_rao() == 10**12


async def test_a_limit_above_the_price_costs_the_price():
    chain = new_chain()
    price = await chain.burn_rao()
    await register_on(chain, limit_tao=2 * price / 10**9, yes=True)
    assert await chain.balance_rao() == 10**12 - price


async def test_an_empty_coldkey_is_told_before_it_is_asked():
    with pytest.raises(InsufficientBalance, match=r"found 0; fund the wallet's coldkey"):
        await register_on(new_chain(funds_rao=0), limit_tao=None, yes=False)


async def test_on_a_subnet_that_was_not_started_the_question_says_that_nobody_is_paid():
    with pytest.raises(UsageError, match="its owner has not started it, so nobody is paid yet"):
        await register_on(new_chain(started=False), limit_tao=None, yes=False)


async def test_without_a_terminal_the_answer_must_be_given_beforehand():
    with pytest.raises(UsageError, match="expected a terminal to ask on .*found none; say yes beforehand with --yes"):
        await register_on(new_chain(), limit_tao=None, yes=False)


@pytest.mark.parametrize(("rao", "text"), [(0, "0"), (1, "0.000000001"), (10**9, "1"), (1_500_000_000, "1.5")])
def test_amounts_are_shown_exactly(rao: int, text: str):
    assert tao_text(rao) == text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--wallet-path", "/nowhere"], "expected a wallet 'default' in /nowhere, found no such folder"),
        (["--wallet", "a/b"], "expected a wallet name that is one path part"),
    ],
)
def test_a_missing_wallet_is_one_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    assert run(["register", "--network", "local", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


RICH, POOR, LOCKED = "rich", "poor", "locked"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[dict[str, Any]]:
    """A dev chain, a wallet with coins, one without, and one whose coldkey is locked."""
    from template.sdk import create_wallet

    folder = tmp_path_factory.mktemp("register")
    wallets = {name: create_wallet(name, "default", folder) for name in (RICH, POOR, LOCKED)}
    Path(wallets[LOCKED].coldkey_file.path).write_bytes(b"$NACL" + bytes(200))
    funds = [word for name in (RICH, LOCKED) for word in ("--fund", f"{wallets[name].coldkeypub.ss58_address}=100")]
    command = [sys.executable, "-m", "subnet.cli.main", "chain", "--port", "0", "--block-time", "0.1", *funds]
    chain = subprocess.Popen(command, cwd=repository, stdout=subprocess.PIPE, text=True)
    try:
        assert chain.stdout is not None
        yield {"folder": folder, "endpoint": chain.stdout.readline().split()[3].rstrip(",")}
    finally:
        chain.send_signal(signal.SIGTERM)
        chain.communicate(timeout=120)


class Done(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


@pytest.fixture
def register(place: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """`strata register` against that chain, without a terminal."""

    def call(wallet: str, *words: str) -> Done:
        common = ["--network", place["endpoint"], "--wallet-path", str(place["folder"]), "--wallet", wallet]
        assert not sys.stdin.isatty()
        code = run(["register", *common, *words])
        return Done(code, *capsys.readouterr())

    return call


@pytest.mark.flow
def test_on_a_chain_a_uid_is_bought_once_and_known_the_second_time(register: Callable[..., Done]):
    first = json.loads(register(RICH, "--yes", "--json").out)
    again = json.loads(register(RICH, "--json").out)
    assert (first["already"], again["already"]) == (False, True)
    assert first["uid"] == again["uid"]
    assert (first["price_rao"] > 0, again["price_rao"]) == (True, 0)
    assert "is registered on subnet 1 already" in register(RICH).out


@pytest.mark.parametrize(
    ("wallet", "words", "said"),
    [
        (POOR, ["--yes"], "found 0; fund the wallet's coldkey"),
        (LOCKED, ["--yes", "--limit", "0.000001"], "to cost at most 0.000001 TAO, found 0."),
        (LOCKED, [], "expected a terminal to ask on (register "),
        (LOCKED, ["--yes"], "found no terminal to ask on; set BT_WALLET_PASSWORD or BT_WALLET_PASSWORD_FILE"),
        (LOCKED, ["--yes", "--netuid", "9"], "expected subnet 9 on "),
    ],
)
@pytest.mark.flow
def test_on_a_chain_what_cannot_be_is_one_sentence_and_ends_with_2(
    wallet: str, words: list[str], said: str, register: Callable[..., Done]
):
    done = register(wallet, *words)
    assert said in done.err
    assert (done.code, done.err.count("\n"), done.out) == (2, 1, "")
