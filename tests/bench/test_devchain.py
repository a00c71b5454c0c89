"""Laws of the dev chain's benchmark: what it saw becomes figures that can hold and can fail."""

from dataclasses import replace
from typing import Any

from scripts.bench.devchain import BLOCK_S, BLOCKS, MIB, RATE_LIMIT, TEMPO, VALIDATORS, Load, Seen, figures

FIRST = 7


def seen(*, blocks: int = BLOCKS, epoch_s: float = 0.2, grown_mib: float = 0.0, peak_mib: float = 80.0) -> Seen:
    """A run in which an epoch's block comes late by `epoch_s`, and memory grows after half of it."""
    arrivals, busy, at_s, used_s = {FIRST: 0.0}, {FIRST: 0.0}, 0.0, 0.0
    for number in range(FIRST + 1, FIRST + blocks + 1):
        late_s = epoch_s if number % TEMPO == 0 else 0.0
        at_s, used_s = at_s + BLOCK_S + late_s, used_s + 0.01 + late_s
        arrivals[number], busy[number] = at_s, used_s
    memory = {
        number: int((peak_mib + (grown_mib if number > blocks // 2 else 0)) * MIB)
        for number in range(FIRST, FIRST + blocks + 1)
    }
    answers = {"recent": True, "old": True, "first": True, "blocks stay": True}
    return Seen(arrivals_s=arrivals, processor_s=busy, memory_bytes=memory, turns=1000, accepted=1000, pruned=answers)


def judged(run: Seen, *, quick: bool = False) -> dict[str, bool | None]:
    return {figure.name: figure.holds for figure in figures(run, quick=quick)}


def test_a_good_run_holds_in_everything_that_has_a_bound():
    verdicts = judged(seen())
    assert {name for name, holds in verdicts.items() if holds is not True} == {"block_interval_mean_s"}


def test_each_figure_can_fail():
    found = [
        judged(seen(blocks=BLOCKS - 1000))["blocks"],
        judged(seen(epoch_s=1.5))["epoch_processor_median_s"],
        judged(seen(epoch_s=1.5))["epoch_block_median_s"],
        judged(seen(grown_mib=20.0))["memory_growth_after_2000_blocks"],
        judged(seen(peak_mib=1025.0))["memory_peak_mib"],
        judged(replace(seen(), accepted=980))["weights_set"],
        judged(replace(seen(), pruned={**seen().pruned, "old": False}))["old_states_answer_as_pruned"],
    ]
    assert found == [False] * len(found)


def test_a_quick_run_does_not_judge_what_needs_ten_thousand_blocks():
    verdicts = judged(replace(seen(blocks=1200), pruned={"blocks stay": True}), quick=True)
    unjudged = {name for name, holds in verdicts.items() if holds is None}
    assert unjudged >= {"blocks", "memory_growth_after_2000_blocks", "old_states_answer_as_pruned"}
    assert verdicts["epoch_processor_worst_s"] is True


def test_the_load_is_what_it_is_said_to_be():
    load = Load()
    genesis: dict[str, Any] = load.genesis()
    assert (genesis["tempo"], genesis["block_time_s"], genesis["weights_rate_limit"]) == (TEMPO, BLOCK_S, RATE_LIMIT)
    assert len(genesis["validators"]) == VALIDATORS == 64
    assert 1 + len(load.validators) + len(load.miners) == 256
    load.genesis_hash = bytes(32)
    first, second = load.weights(0), load.weights(0)
    assert first != second
    assert load.nonces[load.validators[0].ss58_address] == 2
