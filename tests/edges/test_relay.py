"""The relay's memory: every letter is answered, refused or forgotten, and nobody can fill it."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from subnet.edges.relay import Answer, Relay, RelayLimits, answer_room
from subnet.wire.letter import Letter, make_letter
from template.errors import RefusedRequest

ANSWER = Answer(status=200, body=b"thanks")


def letter(body: bytes = b"abc") -> Letter:
    return make_letter("POST", "/v1/deliver?", {}, body, answer_bytes=100)


async def here(relay: Relay, *receivers: str) -> None:
    for receiver in receivers:
        assert await relay.take(receiver, wait_s=0.0) == []


async def sent(relay: Relay, receiver: str = "bob", body: bytes = b"abc", sender: str = "al") -> Answer:
    with relay.room(sender, receiver, len(body)):
        return await relay.send(receiver, letter(body))


async def test_a_letter_is_taken_answered_and_forgotten() -> None:
    relay = Relay()
    await here(relay, "bob")
    sending = asyncio.create_task(sent(relay))
    (taken,) = await relay.take("bob", wait_s=5.0)
    assert taken.body == b"abc" and taken.head.number > 0
    assert relay.expected_bytes("bob", taken.head.number) == answer_room(100)
    relay.answer("bob", taken.head.number, ANSWER)
    assert await sending == ANSWER
    assert relay.held_bytes == 0 and relay.carried == 1
    with pytest.raises(RefusedRequest, match="its sender has gone"):
        relay.answer("bob", taken.head.number, ANSWER)


async def test_a_receiver_that_does_not_come_gets_no_letters() -> None:
    clock = [0.0]
    relay = Relay(RelayLimits(away_s=30.0), clock=lambda: clock[0])
    with pytest.raises(RefusedRequest, match="come for its letters") as caught:
        await sent(relay)
    assert (caught.value.status, caught.value.word) == (503, "receiver_away")
    await here(relay, "bob")
    clock[0] = 31.0
    with pytest.raises(RefusedRequest, match="within 30 s"):
        await sent(relay)


async def test_a_letter_that_nobody_answers_expires_and_is_not_handed_out_later() -> None:
    relay = Relay(RelayLimits(life_s=0.01))
    await here(relay, "bob")
    with pytest.raises(RefusedRequest, match=r"found none; try again") as caught:
        await sent(relay)
    assert (caught.value.status, caught.value.word) == (504, "relay_expired")
    assert await relay.take("bob", wait_s=0.0) == [] and relay.held_bytes == 0


async def test_only_the_receiver_answers_and_only_once() -> None:
    relay = Relay()
    await here(relay, "bob", "eve")
    sending = asyncio.create_task(sent(relay))
    (taken,) = await relay.take("bob", wait_s=5.0)
    for receiver, number in (("eve", taken.head.number), ("bob", taken.head.number + 1)):
        with pytest.raises(RefusedRequest, match="expected the answer to a letter under way"):
            relay.answer(receiver, number, ANSWER)
    relay.answer("bob", taken.head.number, ANSWER)
    with pytest.raises(RefusedRequest, match="under way"):
        relay.answer("bob", taken.head.number, Answer(status=500, body=b""))
    assert await sending == ANSWER


@pytest.mark.parametrize(
    ("limits", "rooms"),
    [
        (RelayLimits(letters_per_sender=2), [("al", "bob", 1), ("al", "cy", 1)]),
        (RelayLimits(letters_per_receiver=2), [("dee", "bob", 1), ("eve", "bob", 1)]),
        (RelayLimits(bytes_per_receiver=100), [("dee", "bob", 60), ("eve", "bob", 40)]),
        (RelayLimits(bytes_in_all=100), [("dee", "cy", 60), ("eve", "cy", 40)]),
    ],
)
async def test_a_full_relay_refuses_before_a_byte_is_read(
    limits: RelayLimits, rooms: list[tuple[str, str, int]]
) -> None:
    relay = Relay(limits)
    await here(relay, "bob", "cy")
    with ExitStack() as taken:
        for room in rooms:
            taken.enter_context(relay.room(*room))
        with pytest.raises(RefusedRequest, match="found the relay full") as caught, relay.room("al", "bob", 1):
            pass
        assert (caught.value.status, caught.value.word) == (429, "relay_full")
    with relay.room("al", "bob", 1):
        assert relay.held_bytes == 1
    assert relay.held_bytes == 0


async def test_letters_come_in_order_and_in_bundles_of_bounded_size() -> None:
    relay = Relay(RelayLimits(bundle_bytes=10))
    await here(relay, "bob")
    sending = [asyncio.create_task(sent(relay, body=bytes([number]) * 6)) for number in range(4)]
    await asyncio.sleep(0)
    bundles = [await relay.take("bob", wait_s=0.0) for _ in range(3)]
    assert [[each.body[0] for each in bundle] for bundle in bundles] == [[0, 1], [2, 3], []]
    for bundle in bundles:
        for each in bundle:
            relay.answer("bob", each.head.number, ANSWER)
    assert await asyncio.gather(*sending) == [ANSWER] * 4


async def test_a_newer_question_takes_the_place_of_one_whose_connection_may_be_dead() -> None:
    relay = Relay()
    older = asyncio.create_task(relay.take("bob", wait_s=60.0))
    await asyncio.sleep(0)
    newer = asyncio.create_task(relay.take("bob", wait_s=60.0))
    assert await older == []
    sending = asyncio.create_task(sent(relay))
    (taken,) = await newer
    relay.answer("bob", taken.head.number, ANSWER)
    assert await sending == ANSWER


async def test_a_sender_that_goes_takes_its_letter_along() -> None:
    relay = Relay()
    await here(relay, "bob")
    sending = asyncio.create_task(sent(relay))
    await until(lambda: relay.held_bytes > 0)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    assert relay.held_bytes == 0 and await relay.take("bob", wait_s=0.0) == []


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0)
