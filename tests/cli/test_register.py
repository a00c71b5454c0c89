"""Laws of `strata register`: the price is known before anything is paid, and who is registered pays nothing."""

import pytest

from subnet.cli.main import run
from subnet.cli.register import register_on, tao
from template.errors import InsufficientBalance, SpendLimit, UsageError
from template.fake.chain import FakeChain, FakeNetwork
from template.fake.keys import fake_address


def new_chain(*, funds_rao: int = 10**12) -> FakeChain:
    network = FakeNetwork()
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
    with pytest.raises(SpendLimit):
        await register_on(chain, limit_tao=1e-9, yes=True)
    assert await chain.balance_rao() == 10**12


async def test_an_empty_coldkey_is_told_before_it_is_asked():
    with pytest.raises(InsufficientBalance, match=r"found 0; fund the wallet's coldkey"):
        await register_on(new_chain(funds_rao=0), limit_tao=None, yes=False)


async def test_without_a_terminal_the_answer_must_be_given_beforehand():
    with pytest.raises(UsageError, match="expected --yes where nobody can be asked"):
        await register_on(new_chain(), limit_tao=None, yes=False)


@pytest.mark.parametrize(("rao", "text"), [(0, "0"), (1, "0.000000001"), (10**9, "1"), (1_500_000_000, "1.5")])
def test_amounts_are_shown_exactly(rao: int, text: str):
    assert tao(rao) == text


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
