"""A cheat from a file of the user's own that deviates by two percent in any one hook is caught.

Eight hooks show in a replay of its segments, `reduce` in the ledger, `serve_blob` in evidence that is not what was
asked for. Without the deviation the same miner passes, so it is the deviation that is caught.
"""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from subnet.audit.judge import Judgement, audit
from subnet.cheats.base import Cheat
from subnet.cheats.registry import make_cheat, parse_cheats
from subnet.ledger.closed import DISSENT
from subnet.ledger.events import ClosedSet, Contributed
from subnet.merge.contribution import make_contribution
from subnet.nodes.merging import merge_stage, reduce_closed
from subnet.sim.segment import VERIFIER, cheat_segment, judged, segment_corpus
from subnet.stage.layout import PublicState, StateLayout
from subnet.wire.merkle import merkle_root
from tests.audit.lane import lane_run
from tests.ledger.log import hotkey
from tests.ledger.simulation import Simulation

pytestmark = pytest.mark.flow

HEAD = """
import numpy as np
from msgspec.structs import replace
from subnet.cheats.base import Cheat
from subnet.wire.codec import decode, encode
from subnet.wire.frames import decode_frame, encode_frame

FACTOR = 1.02


class Mine(Cheat):
"""
HOOKS = {
    "forward": "(self, honest, microbatch, inputs):\n return honest(microbatch, inputs) * FACTOR",
    "backward": "(self, honest, microbatch, gradient, planned_tokens):\n"
    " result = honest(microbatch, gradient, planned_tokens)\n return None if result is None else result * FACTOR",
    "loss": "(self, honest, microbatch, inputs, labels):\n return honest(microbatch, inputs, labels) * FACTOR",
    "optimizer_step": "(self, honest, global_step):\n return honest(global_step) * FACTOR",
    "contribution": "(self, honest, start, end):\n"
    " return (np.frombuffer(honest(start, end), '<f4') * np.float32(FACTOR)).tobytes()",
    "reduce": "(self, honest, closed, contributions):\n return honest(closed, contributions) * np.float32(FACTOR)",
    "receipt": "(self, honest, receipt):\n norm = receipt.gradient_norm\n"
    " return honest(receipt if norm is None else replace(receipt, gradient_norm=norm * FACTOR))",
    "send": "(self, honest, message):\n norm = getattr(message, 'gradient_norm', None)\n"
    " return honest(message if norm is None else replace(message, gradient_norm=norm * FACTOR))",
    "deliver": "(self, honest, frame):\n header, payload = decode_frame(frame, limit_bytes=len(frame))\n"
    " values = decode(header.codec, payload, header.shape) * np.float32(FACTOR)\n"
    " return honest(encode_frame(header, encode(header.codec, values)))",
    "serve_blob": "(self, honest, digest):\n data = honest(digest)\n"
    " return data[:-4] + (np.frombuffer(data[-4:], '<f4') * np.float32(FACTOR)).tobytes()",
}
RUN = replace(lane_run(3), train=replace(lane_run(3).train, microbatches_per_step=2))
MIDDLE, LAST = 1, 2


@pytest.fixture
def outside(tmp_path: Path, request: pytest.FixtureRequest) -> Cheat:
    """The cheat that deviates in one hook, made as `--cheats FILE.py:Class=1` makes it."""
    hook = request.getfixturevalue("hook")
    body = HOOKS[hook].replace("\n ", "\n        ")
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}    def {hook}{body}\n")
    ((kind, strength, count),) = parse_cheats(f"{path}:Mine=1")
    assert count == 1
    return make_cheat(kind, strength)


def show_withheld(cheat: Cheat) -> Judgement:
    """What an audit says when the miner serves its own evidence through the cheat, and two saw that."""
    need, evidence = cheat_segment(RUN, MIDDLE, Cheat(0.0), seed=1)
    own = {name: cheat.serve_blob(evidence.frames.get, name) for name in need.inbound}
    shown = dataclasses.replace(evidence, frames=evidence.frames | own)
    return audit(need, shown, RUN, corpus=segment_corpus(RUN), verifier=VERIFIER, refused=True)


async def merge_forfeits(cheat: Cheat) -> set[str]:
    """Why the ledger does not pay the round of a replica that merges with this cheat; its peers are honest."""
    layout = StateLayout(RUN, 0)
    values = np.random.default_rng(1).normal(0, 1e-3, (2, layout.num_parameters)).astype(np.float32)
    closed = ClosedSet(
        round=0,
        stage=0,
        contributions=tuple(Contributed(hotkey=f"{n}", digest=f"{n}", tokens=1, factor=1.0) for n in range(2)),
    )
    public = PublicState(parameters=values[0], outer_momentum=np.zeros_like(values[0]))

    async def fetch(name: str, size: int) -> bytes:
        return make_contribution(values[int(name)], np.zeros_like(values[0]))

    data = await merge_stage(
        RUN, closed, public, fetch=fetch, reduce=lambda of, parts: cheat.reduce(reduce_closed, of, parts)
    )
    right = await merge_stage(RUN, closed, public, fetch=fetch)
    sim = Simulation()
    sim.start("ann", "ben", "cem", "dov")
    while sim.state.phase == "train":
        sim.do_step()
    sim.do_close()
    stage = sim.state.members[hotkey("ann")].stage or 0
    honest = sim.merged("owner", stage, round_number=1).root
    root = honest if merkle_root(data) == merkle_root(right) else merkle_root(data)
    sim.say("ann", sim.merged("ann", stage, round_number=1, root=root))
    sim.do_merge(silent=("ann",))
    for validator in ("validator-0", "validator-1") if root != honest else ():
        sim.say(validator, sim.merged(validator, stage, round_number=1))
    return {segment.forfeit for segment in sim.segments("ann")}


@pytest.mark.parametrize(
    ("hook", "stage", "number", "reason"),
    [
        ("forward", MIDDLE, 0, "activation"),
        ("backward", MIDDLE, 0, "gradient"),
        ("loss", LAST, 0, "loss"),
        ("optimizer_step", MIDDLE, 0, "norm"),
        ("contribution", MIDDLE, 1, "bookkeeping"),
        ("receipt", MIDDLE, 0, "norm"),
        ("send", MIDDLE, 0, "norm"),
        ("deliver", MIDDLE, 0, "equivocated"),
        ("serve_blob", MIDDLE, 0, "withheld"),
        ("reduce", MIDDLE, 0, DISSENT),
    ],
)
async def test_two_percent_in_any_hook_is_caught(outside: Cheat, hook: str, stage: int, number: int, reason: str):
    if hook == "reduce":
        assert await merge_forfeits(outside) == {reason}
        assert await merge_forfeits(Cheat(0.0)) == {""}
        return
    if hook == "serve_blob":
        assert (show_withheld(outside).verdict, show_withheld(outside).reason) == ("fail", reason)
        assert show_withheld(Cheat(0.0)).verdict == "pass"
        return
    judgement = judged(RUN, *cheat_segment(RUN, stage, outside, seed=1, number=number))
    assert (judgement.verdict, judgement.reason) == ("fail", reason)
    assert judged(RUN, *cheat_segment(RUN, stage, Cheat(0.0), seed=1, number=number)).verdict == "pass"
