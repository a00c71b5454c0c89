"""Sessions: what is tried again, what is not, and what a wait costs. No network and no SDK."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from template.errors import (
    BaseNeuronError,
    ChainBusy,
    ChainRefused,
    ChainUnreachable,
)
from template.session import ATTEMPTS, Patience, Sessions
from template.values import Submitted

DONE = Submitted(block=7, extrinsic_index=1, message="Success")
QUICK = Patience(connect_s=0.1, read_s=0.1, close_s=0.1, pause_s=0.001, outage_s=0.2)


class Fault(Exception):
    """A foreign error, translated to the kind that its text names."""


class Plain:
    """A session that counts, and fails to connect or close when told to."""

    def __init__(self, made: list["Plain"], connecting: Callable[[], Awaitable[None]], turn: int) -> None:
        self.closed = False
        self.final, self.beat, self.ahead = 5, 0, -1
        self.turn = turn
        self._connecting = connecting
        if made:
            self.final, self.beat, self.ahead = made[-1].final, made[-1].beat, made[-1].ahead
        made.append(self)

    async def connect(self) -> None:
        await self._connecting()

    async def close(self) -> None:
        self.closed = True
        raise AssertionError("a close that fails is nobody's business")

    async def block_time_s(self) -> float:
        return 0.01

    async def finalised(self) -> int:
        self.final += self.beat
        return self.final

    async def newest(self) -> int:
        return self.final + self.ahead


def translate(error: BaseException, doing: str) -> BaseNeuronError:
    kinds = {"gone": ChainUnreachable, "busy": ChainBusy}
    return kinds.get(str(error), ChainRefused)(f"could not {doing}: {error}")


async def at_once() -> None:
    return None


def sessions(made: list[Plain], connecting: Callable[[], Awaitable[None]] = at_once) -> Sessions[Plain]:
    def make(turn: int) -> Plain:
        return Plain(made, connecting, turn)

    return Sessions("ws://node", make, faults=(Fault,), translate=translate, patience=QUICK)


async def not_landed(start: int) -> bool:
    return False


async def test_a_session_is_made_once_and_kept() -> None:
    made: list[Plain] = []
    chain = sessions(made)
    blocks = await asyncio.gather(*(chain.read("read", lambda session: session.finalised()) for _ in range(5)))
    assert blocks == [5] * 5 and len(made) == 1
    await chain.close()
    assert made[0].closed


async def test_a_read_is_tried_again_on_a_new_session() -> None:
    made: list[Plain] = []
    chain = sessions(made)

    async def read(session: Plain) -> int:
        if session is made[0]:
            raise Fault("gone")
        return 42

    assert await chain.read("read", read) == 42
    assert len(made) == 2
    await chain.close()
    assert made[0].closed and made[1].closed


async def test_a_read_that_hangs_costs_its_deadline_on_each_attempt() -> None:
    made: list[Plain] = []
    chain = sessions(made)
    with pytest.raises(ChainUnreachable, match="ws://node gave no answer in time"):
        await chain.read("read", lambda session: asyncio.Event().wait())
    assert len(made) == ATTEMPTS
    await chain.close()


async def test_a_refusal_is_not_asked_again() -> None:
    made: list[Plain] = []
    chain, asked = sessions(made), []

    async def read(session: Plain) -> int:
        asked.append(1)
        raise Fault("no such thing")

    with pytest.raises(ChainRefused, match="could not read: no such thing"):
        await chain.read("read", read)
    assert len(asked) == 1 == len(made)
    await chain.close()


async def test_an_error_that_is_nobodys_passes_through() -> None:
    chain = sessions([])

    async def read(session: Plain) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await chain.read("read", read)
    await chain.close()


async def test_a_connect_that_hangs_is_ended_and_closed() -> None:
    made: list[Plain] = []
    chain = sessions(made, lambda: asyncio.Event().wait())
    with pytest.raises(ChainUnreachable, match=r"ws://node to answer within 0.1 s, found silence"):
        await chain.read("read", lambda session: session.finalised())
    await chain.close()
    assert len(made) == ATTEMPTS and all(session.closed for session in made)


async def test_each_session_after_a_silent_one_begins_with_the_next_endpoint() -> None:
    made: list[Plain] = []
    chain = sessions(made)

    async def read(session: Plain) -> int:
        return 42 if session.turn == 2 else await asyncio.Event().wait()

    assert await chain.read("read", read) == 42 == await chain.read("read", read)
    assert [session.turn for session in made] == [0, 1, 2]
    await chain.close()


async def test_a_session_that_only_remembers_too_much_is_replaced_at_the_same_endpoint() -> None:
    made: list[Plain] = []
    chain = sessions(made)

    async def send(session: Plain) -> Submitted:
        if session is made[0]:
            raise Fault("busy")
        return DONE

    assert await chain.write("write", send, not_landed) == DONE
    assert [session.turn for session in made] == [0, 0]
    await chain.close()


async def test_an_outage_is_said_when_it_begins_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    outage = [9]

    async def sometimes() -> None:
        if outage[0] > 0:
            outage[0] -= 1
            raise Fault("gone")

    chain = sessions([], sometimes)
    with caplog.at_level("INFO", "template.session"):
        assert await chain.wait_for_block(5) == 5
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2 and said[0].startswith("waiting for=chain endpoint=ws://node gone_s=0 reason='could not ")
    assert said[1].startswith("chain=back endpoint=ws://node gone_s=")
    await chain.close()


async def test_a_write_is_sent_again_for_a_passing_fault() -> None:
    made: list[Plain] = []
    chain, sent = sessions(made), []

    async def send(session: Plain) -> Submitted:
        sent.append(session)
        if len(sent) < ATTEMPTS:
            raise Fault("busy")
        return DONE

    assert await chain.write("write", send, not_landed) == DONE
    assert len(set(map(id, sent))) == ATTEMPTS, "each attempt has a session that remembers no nonce"
    await chain.close()


async def test_a_write_that_landed_is_not_sent_again() -> None:
    chain, sent, asked = sessions([]), [], []

    async def send(session: Plain) -> Submitted:
        sent.append(1)
        raise Fault("gone")

    async def landed(start: int) -> bool:
        asked.append(start)
        return True

    assert (await chain.write("write", send, landed)).message == "found on the chain"
    assert sent == [1] and asked == [5]
    await chain.close()


async def test_a_write_is_looked_for_once_all_that_may_hold_it_is_final() -> None:
    made: list[Plain] = []
    chain, looked_at = sessions(made), []

    async def send(session: Plain) -> Submitted:
        for each in made:
            each.beat, each.ahead = 1, 4  # from now on blocks come, and the newest four are not final
        raise Fault("busy")

    async def landed(start: int) -> bool:
        looked_at.append(made[-1].final)
        return True

    assert (await chain.write("write", send, landed)).message == "found on the chain"
    assert looked_at[0] > 5 + 4
    await chain.close()


async def test_a_refused_write_is_sent_once() -> None:
    chain, sent = sessions([]), []

    async def send(session: Plain) -> Submitted:
        sent.append(1)
        raise Fault("not allowed")

    with pytest.raises(ChainRefused):
        await chain.write("write", send, not_landed)
    assert sent == [1]
    await chain.close()


@pytest.mark.parametrize("was_there", [True, False], ids=["the first one landed", "it had no chance"])
async def test_a_write_that_is_refused_when_it_is_sent_again_is_looked_for_first(was_there: bool) -> None:
    """A rate limit for example is used up by what landed although nothing was heard of it."""
    chain, sent, looked = sessions([]), [], []

    async def send(session: Plain) -> Submitted:
        sent.append(1)
        raise Fault("gone" if len(sent) == 1 else "too soon")

    async def landed(start: int) -> bool:
        looked.append(1)
        return was_there and len(looked) == 2

    if was_there:
        assert (await chain.write("write", send, landed)).message == "found on the chain"
    else:
        with pytest.raises(ChainRefused, match="too soon"):
            await chain.write("write", send, landed)
    assert len(sent) == len(looked) == 2
    await chain.close()


async def test_a_write_is_given_up_after_a_few_attempts() -> None:
    chain, sent = sessions([]), []

    async def send(session: Plain) -> Submitted:
        sent.append(1)
        raise Fault("busy")

    with pytest.raises(ChainBusy):
        await chain.write("write", send, not_landed)
    assert len(sent) == ATTEMPTS
    await chain.close()


async def test_a_wait_for_a_block_outlives_an_outage_but_not_a_long_one() -> None:
    made: list[Plain] = []
    outage = [3]

    async def sometimes() -> None:
        if outage[0] > 0:
            outage[0] -= 1
            raise Fault("gone")

    chain = sessions(made, sometimes)
    assert await chain.wait_for_block(5) == 5
    await chain.close()

    async def never() -> None:
        raise Fault("gone")

    with pytest.raises(ChainUnreachable, match="could not connect to ws://node"):
        await sessions(made, never).wait_for_block(5)
