"""`strata up`: a whole network on this machine, from nothing to the board.

Owns its options, the progress it shows, and how it ends. The network itself is `subnet.nodes.local`'s business.
"""

import asyncio
import signal
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from subnet.board.facts import Around, facts
from subnet.board.table import board, progress_line
from subnet.cheats.registry import parse_cheats
from subnet.cli.console import line, note, show_json
from subnet.cli.following import Watch
from subnet.cli.summary import Outcome, summary, write_summary
from subnet.config import RunConfig
from subnet.edges.presets import RunOptions, build_run
from subnet.errors import ConfigError, SubnetError
from subnet.nodes.local import LocalNetwork, Plan
from template.web import bind

BOARD_PORT = 8080
LOOK_S = 0.5
QUIET_S = 5.0  # the longest silence while it works
SETTLE_S = 90.0  # after the last round, for the last audits, weights and the epoch that pays
DEFAULT_OUT = Path("out/up")


def up(
    stages: Annotated[int, typer.Option(help="Pipeline stages the model is cut into.")] = 2,
    miners: Annotated[int | None, typer.Option(help="Honest miners in all. Default: 2 per stage.")] = None,
    cheats: Annotated[
        str, typer.Option(metavar="KIND[:STRENGTH]=N,...", help="Dishonest miners to add; 'none' for none.")
    ] = "scale:0.2=1",
    validators: Annotated[int, typer.Option(help="Validators.")] = 2,
    rounds: Annotated[int, typer.Option(help="Rounds of training.")] = RunOptions().rounds,
    steps: Annotated[int, typer.Option(help="Inner steps per round.")] = RunOptions().steps,
    model: Annotated[
        str, typer.Option(help="tiny, nano, or a folder or config.json of a transformers model.")
    ] = "tiny",
    data: Annotated[str, typer.Option(help="stdlib, a folder of text, or datasets:PATH[#COLUMN].")] = "stdlib",
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where everything is written.")] = DEFAULT_OUT,
    port: Annotated[int, typer.Option(help="Port of the orchestrator and its page; 0 takes a free one.")] = BOARD_PORT,
    seed: Annotated[int, typer.Option(help="Seed of parameters and data order.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json instead of the board.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the network running at the end, until Ctrl-C.")] = False,
) -> None:
    """Run chain, orchestrator, miners, validators and board here; train, audit, pay, and show what came out."""
    begun_s = time.time()
    options = RunOptions(stages=stages, rounds=rounds, steps=steps, model=model, data=data, seed=seed)
    run = build_run(options)
    plan = Plan(
        run=run,
        folder=new_folder(out),
        miners=name_miners(2 * stages if miners is None else miners, "" if cheats == "none" else cheats, stages),
        num_validators=_at_least(validators, 1, "validators"),
        port=free_port(port),
    )
    session = Session(LocalNetwork(plan=plan), run, begun_s=begun_s, as_json=as_json, keep=keep)
    asyncio.run(session.run())


def name_miners(num_honest: int, cheats: str, stages: int) -> dict[str, tuple[str, float | None]]:
    """The miners by name: honest ones, then the cheats. Raises ConfigError when a stage would have nobody honest."""
    if num_honest < stages:
        raise ConfigError(
            f"expected at least {stages} honest miners for {stages} stages, found {num_honest}; raise --miners"
        )
    named: dict[str, tuple[str, float | None]] = {f"miner-{number}": ("", None) for number in range(num_honest)}
    for kind, strength, count in parse_cheats(cheats):
        for _ in range(count):
            named[f"miner-{len(named)}"] = (kind, strength)
    return named


def new_folder(out: Path) -> Path:
    """The folder to write to, absolute: the one named, if it is new or empty, else the first free one beside it."""
    for candidate in (out, *(out.with_name(f"{out.name}-{number}") for number in range(2, 1000))):
        if not candidate.exists() or (candidate.is_dir() and not any(candidate.iterdir())):
            candidate.mkdir(parents=True, exist_ok=True)
            return candidate.resolve()
    raise ConfigError(f"expected a free folder name at {out}, found 999 taken; delete some of them")


def free_port(port: int) -> int:
    """The port, once it is known to be free; 0 becomes a free one. Raises PortError."""
    sock = bind("127.0.0.1", port)
    with sock:
        return int(sock.getsockname()[1])


def _at_least(value: int, least: int, name: str) -> int:
    if value < least:
        raise ConfigError(f"expected at least {least} {name}, found {value}; raise --{name}")
    return value


class Session:
    """One `strata up`: start, show, settle, sum up, end."""

    def __init__(self, network: LocalNetwork, run: RunConfig, *, begun_s: float, as_json: bool, keep: bool) -> None:
        self.network = network
        self.run_config = run
        self.begun_s = begun_s
        self.as_json = as_json
        self.keep = keep
        self.stopped = asyncio.Event()
        self.watch: Watch | None = None
        self._seen_ended: set[str] = set()

    async def run(self) -> None:
        """Everything; the processes end whatever happens."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stopped.set)
        plan = self.network.plan
        note(f"writing to {plan.folder}")
        note(f"starting chain, orchestrator, {len(plan.miners)} miners and {plan.num_validators} validators")
        work = asyncio.create_task(self._work())
        stop = asyncio.create_task(self.stopped.wait())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
                await self._finish()
                if self.keep:
                    note(f"still running: page at http://127.0.0.1:{plan.port}/ ; Ctrl-C ends it")
                    await self.stopped.wait()
            else:
                note("stopping: ending every process")
                work.cancel()
                self._sum_up({})
        finally:
            work.cancel()
            stop.cancel()
            await asyncio.gather(work, stop, return_exceptions=True)
            if self.watch is not None:
                await self.watch.close()
            await asyncio.to_thread(self.network.stop)
        if self.stopped.is_set() and not self.keep:
            raise SubnetError(f"expected to finish the run, told to stop before; what was done is in {plan.folder}")

    async def _work(self) -> None:
        await self.network.start()
        self.watch = Watch(self.network)
        note(f"page at http://127.0.0.1:{self.network.plan.port}/")
        await self.watch.begin()
        await self._train()
        await self._settle()

    async def _train(self) -> None:
        """Show progress until the last round's checkpoint is out."""
        assert self.watch is not None
        said_s, said = 0.0, ""
        while True:
            self._mind_processes()
            state = await self.watch.look()
            text = progress_line(facts(state, self.watch.view, _now_ms()))
            if text != said and time.time() - said_s > (1.0 if state.step == 0 else QUIET_S):
                note(text)
                said, said_s = text, time.time()
            if state.phase == "done" and self.run_config.train.rounds in state.checkpoints:
                note(text)
                return
            await asyncio.sleep(LOOK_S)

    async def _settle(self) -> None:
        """Wait until the validators have judged what they drew and set their weights, and an epoch has paid."""
        assert self.watch is not None
        note("training is done; waiting for the last audits, the weights and the epoch that pays them")
        end_s = time.time() + SETTLE_S
        while time.time() < end_s:
            self._mind_processes()
            await self.watch.look()
            if await self.watch.settled():
                return
            await asyncio.sleep(LOOK_S)
        note(f"not everything settled within {SETTLE_S:.0f} s; the board shows what is there")

    def _mind_processes(self) -> None:
        """Say who ended; without chain or orchestrator there is nothing to wait for."""
        for name, code in self.network.fleet.ended().items():
            if name in self._seen_ended or (name == "publisher" and code == 0):
                continue
            self._seen_ended.add(name)
            why = self.network.fleet.complaint(name)
            if name in ("chain", "orchestrator", "publisher"):
                raise SubnetError(
                    f"expected {name} to go on, it ended with {code}: {why}; see {self.network.fleet.logs}"
                )
            note(f"{name} ended with {code}: {why}")

    async def _finish(self) -> None:
        assert self.watch is not None
        await self.watch.look()
        self._sum_up(await self.watch.weights())

    def _sum_up(self, weights: dict[int, dict[int, float]]) -> None:
        """Write summary.json and show the board, from what is known by now."""
        if self.watch is None or not self.watch.ready:
            return
        plan, state = self.network.plan, self.watch.state
        chosen = {self.network.hotkey(name): kind for name, (kind, _) in plan.miners.items() if kind}
        published = max(state.checkpoints, default=None)
        checkpoint = str(plan.folder / "checkpoints" / f"round-{published}") if published is not None else None
        outcome = Outcome(
            network="local", seconds=time.time() - self.begun_s, checkpoint=checkpoint, weights=weights, cheats=chosen
        )
        document = summary(state, self.watch.view, _now_ms(), outcome)
        write_summary(plan.folder / "summary.json", document)
        around = Around(network="local", weights=weights, cheats=chosen)
        self._show(document, board(facts(state, self.watch.view, _now_ms(), around=around)))

    def _show(self, document: dict[str, Any], text: str) -> None:
        if self.as_json:
            show_json(document)
        else:
            line(text)
            line(f"summary: {self.network.plan.folder / 'summary.json'}")
            line(f"checkpoint: {document['checkpoint']}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
