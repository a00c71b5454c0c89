"""A run without torch: honest receipts with invented digests, over a simulated log.

A miner here is what its member record says; it writes the receipts that an honest one would, with real signatures
and acknowledgements. Tests make it die, come late, lie, leave and come back by calling the methods in another order.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from subnet.canonical import canonical, digest
from subnet.ledger.receiving import tokens_trained
from subnet.ledger.state import Segment
from subnet.model.cost import parameters, spans, state_bytes
from subnet.wire.messages import (
    Delivery,
    Draw,
    Join,
    Leave,
    Merged,
    Plan,
    Receipt,
    Seen,
    Verdict,
    Work,
    signing_bytes,
)
from tests.ledger.log import SimulatedLog, hotkey, signer

STEP_MS = 1_000


@dataclass(kw_only=True)
class Simulation(SimulatedLog):
    """The log with miners, validators and a publisher that say what honest ones would."""

    def join(self, name: str, *, root: str = "") -> None:
        """A registered miner joins, or comes back."""
        address = f"{name}:1"
        self.say(
            name,
            self.of(Join, hotkey=hotkey(name), address=address, memory_bytes=0, root=root, time_ms=self.now_ms),
        )
        self.alive.add(name)

    def leave(self, name: str) -> None:
        """A miner leaves on purpose."""
        self.say(name, self.of(Leave, hotkey=hotkey(name), time_ms=self.now_ms))
        self.alive.discard(name)

    def members(self) -> list[str]:
        """Names of the members that are alive, in the order in which they came."""
        return [name for name in self.seats if hotkey(name) in self.state.members and name in self.alive]

    # What an honest miner's receipts say

    def lane_of(self, name: str) -> tuple[Plan, str] | None:
        """The plan of the step in progress in which this miner is, and its digest."""
        current = self.state.current
        for lane, plan in current.plans.items() if current else ():
            if hotkey(name) in plan.path:
                return plan, current.plan_digests[lane]
        return None

    def receipt(self, name: str, **changes: Any) -> Receipt:
        """A receipt that is next in this miner's chain and states nothing yet."""
        member = self.state.members[hotkey(name)]
        pending = len(self.state.pending.get(member.hotkey, []))
        values: dict[str, Any] = {
            "kind": "step",
            "hotkey": member.hotkey,
            "round": self.state.round,
            "step": 0,
            "stage": member.stage or 0,
            "lane": 0,
            "plan": "",
            "previous": member.head,
            "work": (),
            "deliveries": "",
            "gradient_norm": None,
            "replica_steps": member.root_steps + pending,
            "state_root": "",
            "state_bytes": 0,
            "contribution": "",
            "contribution_norm": None,
            "tokens": 0,
            "time_ms": self.now_ms,
        }
        return self.of(Receipt, **(values | changes))

    def committed(self, name: str, steps: int) -> dict[str, Any]:
        """The fields of a committed state."""
        span = spans(self.run)[self.state.members[hotkey(name)].stage or 0]
        root = digest(f"state {name} {steps} {self.state.round}".encode())
        return {"state_root": root, "state_bytes": state_bytes(self.run, span)}

    def step_receipt(self, name: str, done: Iterable[int] | None = None, **changes: Any) -> Receipt:
        """This miner's receipt for the step in progress, over these of its microbatches (all, unless said)."""
        found = self.lane_of(name)
        assert found is not None, f"{name} is in no lane"
        plan, plan_digest = found
        indices = plan.microbatches if done is None else [i for i in plan.microbatches if i in set(done)]
        member = self.state.members[hotkey(name)]
        steps = member.root_steps + len(self.state.pending.get(member.hotkey, [])) + 1
        ends = len(self.state.pending.get(member.hotkey, [])) + 1 >= self.run.train.segment_steps
        stage = plan.path.index(member.hotkey)
        values: dict[str, Any] = {
            "step": plan.step,
            "stage": stage,
            "lane": plan.lane,
            "plan": plan_digest,
            "work": tuple(self.work(plan, stage, index) for index in indices),
            "deliveries": digest(f"deliveries {name} {plan.round} {plan.step}".encode()) if self.run.stages > 1 else "",
            "gradient_norm": 1.0,
            "replica_steps": steps,
            **(self.committed(name, steps) if ends else {}),
        }
        return self.receipt(name, **(values | changes))

    def work(self, plan: Plan, stage: int, index: int) -> Work:
        """What a stage states of one microbatch, acknowledged by its neighbours."""
        last = stage == self.run.stages - 1
        return Work(
            index=index,
            input=frame(plan, stage, index, "activation"),
            output="" if last else frame(plan, stage + 1, index, "activation"),
            output_ack="" if last else self.acknowledge(plan, stage, index, "activation"),
            gradient_in="" if last else frame(plan, stage, index, "gradient"),
            gradient_out=frame(plan, stage - 1, index, "gradient") if stage else "",
            gradient_ack=self.acknowledge(plan, stage, index, "gradient") if stage else "",
            loss=100.0 if last else None,
        )

    def acknowledge(self, plan: Plan, stage: int, index: int, kind: str) -> str:
        """The neighbour's signature over what this stage sent it."""
        to = stage + 1 if kind == "activation" else stage - 1
        delivery = self.of(
            Delivery,
            sender=plan.path[stage],
            receiver=plan.path[to],
            round=plan.round,
            step=plan.step,
            microbatch=index,
            kind=kind,
            digest=frame(plan, to, index, kind),
        )
        return signer(self.names[plan.path[to]]).sign(signing_bytes("delivery", canonical(delivery))).hex()

    def rollback_receipt(self, name: str, **changes: Any) -> Receipt:
        """Void what this miner did since its last committed state."""
        member = self.state.members[hotkey(name)]
        values = {"kind": "rollback", "state_root": member.state_root, "replica_steps": member.root_steps}
        return self.receipt(name, **(values | changes))

    def fresh_receipt(self, name: str, **changes: Any) -> Receipt:
        """Start again from the public parameters, with zero moments."""
        return self.receipt(name, **({"kind": "fresh", "replica_steps": 0} | changes))

    def close_receipt(self, name: str, **changes: Any) -> Receipt:
        """This miner's close of the round."""
        tokens = tokens_trained(self.state, hotkey(name))
        contribution = digest(f"contribution {name} {self.state.round}".encode()) if tokens else ""
        values = {
            "kind": "close",
            "contribution": contribution,
            "contribution_norm": 1.0 if tokens else None,
            "tokens": tokens,
            **self.committed(name, 10_000 + self.state.round),
        }
        return self.receipt(name, **(values | changes))

    def merged(self, name: str, stage: int, *, round_number: int | None = None, root: str = "") -> Merged:
        """A merge report; every honest one has the same root."""
        number = self.state.round + 1 if round_number is None else round_number
        size = 2 * 4 * parameters(self.run, spans(self.run)[stage])
        return self.of(
            Merged,
            hotkey=hotkey(name),
            round=number,
            stage=stage,
            root=root or public_root(number, stage),
            state_bytes=size,
            time_ms=self.now_ms,
        )

    def verdict(self, validator: str, segment: Segment, verdict: str = "fail", **changes: Any) -> Verdict:
        """A validator's verdict on a segment, as a recheck unless `draw` is among the changes."""
        values: dict[str, Any] = {
            "validator": hotkey(validator),
            "segment": segment.id,
            "hotkey": segment.hotkey,
            "stage": segment.stage,
            "round": segment.round,
            "verdict": verdict,
            "reason": "activation" if verdict == "fail" else "within",
            "distance": 0.2 if verdict == "fail" else 1e-7,
            "tolerance": 1e-4,
            "checks": (),
            "evidence": (),
            "draw": None,
            "time_ms": self.now_ms,
        }
        return self.of(Verdict, **(values | changes))

    def seen(self, validator: str, **changes: Any) -> Seen:
        """A validator's countersignature of the head."""
        values = {"validator": hotkey(validator), "root": self.state.root, "count": self.state.count}
        return self.of(Seen, **(values | {"block": self.block} | changes))

    # Whole phases of honest work

    def start(self, *names: str) -> None:
        """Seat and join miners, state the initial parameters, and begin round 0."""
        for name in names:
            if name not in self.seats:
                self.seat(name)
            self.join(name)
        for stage in range(self.run.stages):
            self.say("owner", self.merged("owner", stage, round_number=0))
        self.decide()

    def do_step(self, *, silent: Iterable[str] = ()) -> None:
        """Everybody in a lane but the silent ones gives its receipt; the orchestrator goes on."""
        self.pass_time(STEP_MS)
        for name in self.members():
            if name not in set(silent) and self.lane_of(name):
                self.say(name, self.step_receipt(name))
        self.decide()

    def time_out_step(self) -> None:
        """Let the step's deadline pass."""
        assert self.state.current is not None
        deadline_ms = max(plan.deadline_ms for plan in self.state.current.plans.values())
        self.pass_time(deadline_ms + 1 - self.now_ms)
        self.decide()

    def do_close(self, *, silent: Iterable[str] = ()) -> None:
        """Every replica that trained closes the round and stores its contribution."""
        self.pass_time(STEP_MS)
        for name in self.members():
            if name not in set(silent) and self.state.phase == "close" and self.trained(name):
                receipt = self.close_receipt(name)
                self.say(name, receipt)
                self.stored.add(receipt.contribution)
        self.decide()

    def trained(self, name: str) -> bool:
        """Whether this replica has done something in the round that it has not closed."""
        member = self.state.members[hotkey(name)]
        did = member.opened_round == self.state.round or bool(self.state.pending.get(member.hotkey))
        return did and member.hotkey not in self.state.closes.get(self.state.round, {})

    def do_merge(self, *, silent: Iterable[str] = ()) -> None:
        """Every contributor and the publisher merge alike."""
        self.pass_time(STEP_MS)
        following = self.state.round + 1
        for stage in range(self.run.stages):
            for entry in self.state.closed[self.state.round, stage].contributions:
                name = self.names[entry.hotkey]
                if name in self.alive and name not in set(silent):
                    self.say(name, self.merged(name, stage, round_number=following))
            self.say("owner", self.merged("owner", stage, round_number=following))
        self.decide()

    def do_round(self) -> None:
        """The rest of the round, honestly."""
        while self.state.phase == "train":
            assert self.state.current is not None, "no step in progress: a stage has nobody"
            self.do_step()
        self.do_close()
        self.do_merge()

    def segments(self, name: str) -> list[Segment]:
        """A miner's segments, oldest first."""
        return [segment for segment in self.state.segments.values() if segment.hotkey == hotkey(name)]

    def judge(self, name: str, verdict: str = "fail", *, validators: Iterable[str] | None = None) -> Segment:
        """Have these validators (all, unless said) judge the miner's last segment."""
        segment = self.segments(name)[-1]
        for validator in self.validators if validators is None else validators:
            self.say(validator, self.verdict(validator, segment, verdict, draw=self.some_draw()))
        return segment

    def some_draw(self) -> Draw:
        """Where a draw could come from."""
        return Draw(block=self.block, block_hash=self.block_hash, root=self.state.root, count=self.state.count)


def frame(plan: Plan, stage: int, index: int, kind: str) -> str:
    """The digest of the frame that the replica at `stage` gets for a microbatch (its tokens, on the first stage)."""
    return digest(f"{kind} {plan.round} {plan.step} {index} to {stage}".encode())


def public_root(round_number: int, stage: int) -> str:
    """The root of a round's public state, as every honest node gets it."""
    return digest(f"public {round_number} {stage}".encode())


def without(work: Work, **changes: Any) -> Work:
    """A copy of a work entry with changes."""
    return replace(work, **changes)
