"""Storage keeps the past, forgets what is too old, and undoes what failed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from template.devchain.metadata import RuntimeInfo, load_runtime
from template.devchain.state import Storage, View


@pytest.fixture(scope="module")
def runtime() -> RuntimeInfo:
    return load_runtime(1.0)


@pytest.fixture
def storage(runtime: RuntimeInfo) -> Storage:
    """Tempo of subnet 1 is 10 at block 0, 20 from block 5, gone from block 9."""
    storage = Storage(runtime.codec)
    storage.put("Tempo", 1, 10)
    storage.begin_block(5)
    storage.put("Tempo", 1, 20)
    storage.begin_block(9)
    storage.delete("Tempo", 1)
    return storage


def test_a_view_shows_the_value_at_its_block(storage: Storage) -> None:
    default = storage.item("Tempo").default
    assert [View(storage, block).get("Tempo", 1) for block in (0, 4, 5, 8, 9)] == [10, 10, 20, 20, default]
    assert [View(storage, block).has("Tempo", 1) for block in (4, 9)] == [True, False]


def test_keys_are_those_that_existed_at_the_block(storage: Storage) -> None:
    prefix = storage.item("Tempo").prefix
    assert len(storage.keys(prefix, 8)) == 1
    assert storage.keys(prefix, 9) == []
    key = storage.keys(prefix, 8)[0]
    assert storage.raw(key, 8) == (20).to_bytes(2, "little")
    assert storage.raw(key, 9) is None


def test_old_states_are_forgotten_and_current_values_stay(storage: Storage) -> None:
    storage.put("Tempo", 2, 7)
    storage.begin_block(30)
    storage.discard_before(20)
    assert storage.get("Tempo", 2) == 7
    assert storage.keys(storage.item("Tempo").prefix, 8) == []
    assert len(storage.item("Tempo").cells) == 1


def test_a_rollback_restores_every_value(storage: Storage) -> None:
    storage.put("Tempo", 3, 1)
    mark = storage.mark()
    storage.put("Tempo", 3, 2)
    storage.put("Tempo", 4, 2)
    storage.put("Burn", 1, 5)
    storage.rollback(mark)
    assert storage.get("Tempo", 3) == 1
    assert not storage.has("Tempo", 4)
    assert not storage.has("Burn", 1)


def test_a_reorganisation_drops_later_versions(storage: Storage) -> None:
    storage.revert_to(6)
    assert storage.get("Tempo", 1) == 20
    storage.revert_to(4)
    assert storage.get("Tempo", 1) == 10


def test_long_values_survive_on_disk_through_rollback_reorganisation_and_pruning(storage: Storage) -> None:
    """Long past values leave memory; what becomes current again is back in it before its file goes."""
    first, second = [(uid, 1) for uid in range(200)], [(uid, 2) for uid in range(200)]
    storage.put("Weights", 1, 7, first)
    storage.begin_block(10)
    mark = storage.mark()
    storage.put("Weights", 1, 7, second)
    assert View(storage, 9).get("Weights", 1, 7) == first
    storage.rollback(mark)
    assert storage.get("Weights", 1, 7) == first
    storage.begin_block(11)
    storage.put("Weights", 1, 7, second)
    assert View(storage, 10).get("Weights", 1, 7) == first
    storage.revert_to(10)
    assert storage.get("Weights", 1, 7) == first
    storage.begin_block(5000)
    storage.discard_before(4000)
    assert storage.raw(storage.item("Weights").cells[1, 7].key, 5000) is not None
    assert View(storage, 4500).get("Weights", 1, 7) == first


def test_an_unknown_item_is_an_error(storage: Storage) -> None:
    with pytest.raises(KeyError):
        storage.get("NoSuchItem", 1)


KEYS = range(3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(KEYS), st.integers(0, 60)),
        st.tuples(st.just("delete"), st.sampled_from(KEYS), st.just(0)),
        st.tuples(st.just("next"), st.integers(1, 900), st.just(0)),
        st.tuples(st.just("undo"), st.just(0), st.just(0)),
        st.tuples(st.just("revert"), st.integers(1, 900), st.just(0)),
        st.tuples(st.just("discard"), st.integers(0, 5000), st.just(0)),
    ),
    max_size=40,
)


@given(steps=STEPS)
def test_every_kept_block_shows_what_was_written_by_then(
    runtime: RuntimeInfo, steps: list[tuple[str, int, int]]
) -> None:
    """Against a plain copy of the whole state after each block; blocks far apart lie in different files."""
    storage, now, past, block, oldest = Storage(runtime.codec), dict[int, int](), dict[int, dict[int, int]](), 0, 0
    start, mark = dict(now), storage.mark()
    for step, number, value in steps:
        if step == "put":
            storage.put("Tempo", number, value)
            now[number] = value
        elif step == "delete":
            storage.delete("Tempo", number)
            now.pop(number, None)
        elif step == "undo":
            storage.rollback(mark)
            now = dict(start)
        elif step == "discard":
            oldest = max(oldest, min(number, block))
            storage.discard_before(oldest)
        else:
            past[block] = dict(now)
            if step == "next":
                block += number
            else:
                block = max(oldest + 1, block - number)
                now = next((past[each] for each in sorted(past, reverse=True) if each <= block), now)
                past = {each: state for each, state in past.items() if each < block}
                storage.revert_to(block)
            storage.begin_block(block)
            now, start, mark = dict(now), dict(now), storage.mark()
        past[block] = dict(now)
        for each, state in past.items():
            if each >= oldest:
                view = View(storage, each)
                assert {key: view.get("Tempo", key) for key in KEYS if view.has("Tempo", key)} == state
    storage.close()


def test_a_value_that_held_for_long_outlives_the_files_of_the_block_that_wrote_it(runtime: RuntimeInfo) -> None:
    storage = Storage(runtime.codec)
    storage.put("Tempo", 1, 7)
    storage.begin_block(5000)
    storage.put("Tempo", 1, 8)
    storage.begin_block(6000)
    storage.discard_before(4500)
    assert [View(storage, block).get("Tempo", 1) for block in (4501, 4999, 5000, 6000)] == [7, 7, 8, 8]
