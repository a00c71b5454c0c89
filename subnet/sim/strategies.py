"""The strategies whose profit is simulated: every way of cheating that money could recommend.

saved: the part of a segment's cost that the cheat does not spend. A poison (`scale`, `noise`, `relabel`, `forge`) saves
nothing; it is here to show what it loses. detection: 1 where every replay of a cheated segment fails, as measured for
the named cheats; some are repeated with a weaker one. Knows nothing of how they are played.
"""

from subnet.sim.economics import Strategy

PART = {1.0: "all", 0.2: "a fifth", 0.05: "a twentieth", 0.01: "a hundredth"}

HONEST = Strategy(name="honest", about="works", cheated=0.0)


def _idle() -> list[Strategy]:
    return [
        Strategy(name=f"idle_{part * 100:.0f}", about=f"computes nothing on {words} of its segments", cheated=part)
        for part, words in PART.items()
    ]


def _cheaper() -> list[Strategy]:
    kinds = (("skip", 0.25, "leaves out a quarter of the work"), ("lowrank", 0.5, "computes at half the cost"))
    made = [
        Strategy(
            name=f"{name}_{part * 100:.0f}", about=f"{about} on {PART[part]} of its segments", cheated=part, saved=saved
        )
        for name, saved, about in kinds
        for part in (1.0, 0.05)
    ]
    return [
        *made,
        Strategy(name="stale_100", about="never applies its optimizer step, which saves a twentieth", saved=0.05),
        Strategy(name="poison_5", about="scales, relabels or forges a twentieth, for nothing", cheated=0.05, saved=0.0),
        Strategy(name="weak_20", about="half the cost on a fifth, seen by one replay in four", cheated=0.2, saved=0.5,
                 detection=0.25),
    ]  # fmt: skip


def _hit_and_run() -> list[Strategy]:
    return [
        Strategy(
            name=f"hit_and_run_{segments}",
            about=f"computes nothing, leaves after {segments} segments, comes back with a fresh key",
            leaves_after=segments,
        )
        for segments in (1, 2, 4, 16)
    ]


def _farming() -> list[Strategy]:
    farms = [
        Strategy(name=f"farm_{segments}", about=f"honest for {segments} segments, then idle, again and again",
                 honest_first=segments)
        for segments in (41, 256, 512)
    ]  # fmt: skip
    bursts = [
        Strategy(name=f"burst_{segments}", about=f"honest for {segments} segments, idle for 8 while its rate is low, "
                 "honest again", honest_first=segments, burst=8)
        for segments in (41, 512)
    ]  # fmt: skip
    return [
        *farms,
        *bursts,
        Strategy(
            name="exit_512", about="honest for a whole window, idle until caught, gone", honest_first=512, fresh=False
        ),
    ]


def _sybils() -> list[Strategy]:
    return [
        Strategy(
            name=f"sybil_{hotkeys}_idle_{part * 100:.0f}",
            about=f"one machine as {hotkeys} hotkeys, computes nothing on {PART[part]} of the segments",
            hotkeys=hotkeys,
            cheated=part,
        )
        for hotkeys in (2, 5, 10)
        for part in (0.2, 0.01)
    ]


def catalogue() -> list[Strategy]:
    """Everything that is tried; each must lose against honest work."""
    lane = Strategy(
        name="lane_collusion",
        about="signs a colluding neighbour's inventions, and it ours, whenever wired with one: a fifth of the time",
        cheated=0.2,
    )
    return [*_idle(), *_cheaper(), lane, *_hit_and_run(), *_farming(), *_sybils()]
