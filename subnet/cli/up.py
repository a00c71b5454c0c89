"""`strata up`: a whole network on this machine, from nothing to the board.

Owns its options, the progress it shows, and how it ends. The network itself is `subnet.nodes.local`'s business.
"""

import asyncio
import contextlib
import itertools
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from subnet.board.facts import Around, facts
from subnet.board.table import board, progress_line
from subnet.canonical import canonical
from subnet.cheats.registry import make_cheat, parse_cheats
from subnet.cli import flags
from subnet.cli.console import line, note, show_json
from subnet.cli.following import Watch
from subnet.cli.summary import Outcome, summary, write_summary
from subnet.config import RunConfig
from subnet.edges.presets import PRESETS, RunOptions, build_run
from subnet.errors import ConfigError, SubnetError, TemporaryError
from subnet.ledger.events import GENESIS, Begin, make_event
from subnet.ledger.fold import begin
from subnet.ledger.state import RunState
from subnet.model.cost import FLOAT_BYTES, activation_bytes, parameters, spans, state_bytes
from subnet.nodes.clock import now_ms
from subnet.nodes.local import NETUID, LocalNetwork, Plan
from template.web import bind

BOARD_PORT = 8080
LOOK_S = 0.5
QUIET_S = 5.0  # the longest silence while it works
SETTLE_S = 90.0  # after the last round, for the last audits, weights and the epoch that pays
CANCEL_S = 0.5
DEFAULT_OUT = Path("out/up")
SPARE_MB = 100
FULL_BYTES = 1 << 22
INDISPENSABLE = ("chain", "orchestrator", "publisher")


def up(
    stages: Annotated[int, typer.Option(help="Pipeline stages the model is cut into.")] = 2,
    miners: Annotated[int | None, typer.Option(help="Honest miners in all. Default: 2 per stage.")] = None,
    cheats: Annotated[
        str, typer.Option(metavar="KIND[:STRENGTH]=N,...", help="Dishonest miners to add; 'none' for none.")
    ] = "scale:0.2=1",
    validators: Annotated[int, typer.Option(help="Validators.")] = 2,
    rounds: Annotated[int, typer.Option(help="Rounds of training.")] = RunOptions().rounds,
    steps: Annotated[int, typer.Option(help="Inner steps per round.")] = RunOptions().steps,
    model: flags.Model = "tiny",
    data: Annotated[str, typer.Option(help="stdlib, a folder of text, or datasets:PATH[#COLUMN].")] = "stdlib",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help=f"A new or empty folder for everything. Default: {DEFAULT_OUT}, or {DEFAULT_OUT}-2, ..."
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the orchestrator and its page; 0 takes a free one.")
    ] = BOARD_PORT,
    seed: Annotated[int, typer.Option(help="Seed of parameters and data order.")] = 0,
    tokenizer: flags.Tokenizer = None,
    sequence_tokens: flags.SequenceTokens = None,
    lr: flags.Lr = None,
    dtype: flags.Dtype = "float32",
    optimizer: flags.Optimizer = "adamw",
    reduction: flags.Reduction = "mean",
    outer: flags.Outer = "diloco",
    tolerances: flags.Tolerances = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json instead of the board.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the network running at the end, until Ctrl-C.")] = False,
) -> None:
    """Run chain, orchestrator, miners, validators and board here; train, audit, pay, and show what came out."""
    begun_s = time.time()
    run = build_run(
        RunOptions(
            stages=stages, rounds=rounds, steps=steps, model=model, data=data, seed=seed,
            tokenizer=tokenizer, sequence_tokens=sequence_tokens, lr=lr, tolerances=tolerances,
            dtype=dtype, optimizer=optimizer, reduction=reduction, outer=outer,
        )
    )  # fmt: skip
    check_cut(run, model)
    named = name_miners(2 * stages if miners is None else miners, "" if cheats == "none" else cheats, stages)
    if validators < 1:
        raise ConfigError(f"expected at least 1 validator, found {validators}; raise --validators")
    port = free_port(port)
    folder = new_folder(out)
    require_room(folder, run, len(named))
    plan = Plan(run=run, folder=folder, miners=named, num_validators=validators, port=port)
    session = Session(LocalNetwork(plan=plan), run, begun_s=begun_s, as_json=as_json, keep=keep)
    asyncio.run(session.run())


def check_cut(run: RunConfig, model: str) -> None:
    """Raise ModelError when the model cannot be built or cut. Only a model of the user's own needs torch for that."""
    spans(run)
    if model not in PRESETS:
        from subnet.model.partition import check_model

        check_model(run)


def name_miners(num_honest: int, cheats: str, stages: int) -> dict[str, tuple[str, float | None]]:
    """The miners by name: honest ones, then the cheats. Raises ConfigError when a stage would have nobody honest."""
    if num_honest < stages:
        raise ConfigError(
            f"expected at least {stages} honest miners for {stages} stages, found {num_honest}; raise --miners"
        )
    named: dict[str, tuple[str, float | None]] = {f"miner-{number}": ("", None) for number in range(num_honest)}
    for kind, strength, count in parse_cheats(cheats):
        if ".py:" in kind:
            make_cheat(kind, strength)  # the user's own file: say now what is wrong with it
        for _ in range(count):
            named[f"miner-{len(named)}"] = (kind, strength)
    return named


def new_folder(out: Path | None) -> Path:
    """The folder to write to, absolute: the one named, which must be new or empty, or the first free default."""
    folder = out or next(each for each in _default_folders() if not each.exists())
    try:
        if folder.is_dir() and any(folder.iterdir()):
            raise ConfigError(
                f"expected a new or empty folder at {folder}, found files in it; delete them or choose another --out"
            )
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder.resolve()
    except FileExistsError as error:
        raise ConfigError(f"expected a folder at {folder}, found a file; choose another --out") from error
    except OSError as error:
        reason = error.strerror or "it cannot be written"
        raise ConfigError(f"expected to write to {folder}, found: {reason}; choose another --out") from error


def _default_folders() -> Iterator[Path]:
    yield DEFAULT_OUT
    yield from (DEFAULT_OUT.with_name(f"{DEFAULT_OUT.name}-{number}") for number in itertools.count(2))


def require_room(folder: Path, run: RunConfig, num_miners: int) -> None:
    """Raise SubnetError when the disk would be full before the run ends: two rounds of evidence, every checkpoint."""
    train = run.train
    states = train.steps_per_round // train.segment_steps + 2
    evidence = max(state_bytes(run, span) for span in spans(run)) * states
    evidence += 2 * activation_bytes(run) * train.microbatches_per_step * train.steps_per_round
    checkpoints = 2 * train.rounds * FLOAT_BYTES * sum(parameters(run, span) for span in spans(run))
    needed_mb = (2 * num_miners * evidence + checkpoints) // 10**6 + SPARE_MB
    free_mb = shutil.disk_usage(folder).free // 10**6
    if free_mb < needed_mb:
        raise SubnetError(
            f"expected {needed_mb} MB free for this run at {folder}, found {free_mb} MB; free the disk, or choose "
            "--out on another one"
        )


def free_port(port: int) -> int:
    """The port, once it is known to be free; 0 becomes a free one. Raises PortError."""
    sock = bind("127.0.0.1", port)
    with sock:
        return int(sock.getsockname()[1])


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
        self.finished = False
        self._seen_ended: set[str] = set()

    async def run(self) -> None:
        """Everything; the processes end whatever happens, and summary.json says what was known by then."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self.stopped.set)
        plan = self.network.plan
        note(f"writing to {plan.folder}")
        note(f"starting chain, orchestrator, {len(plan.miners)} miners and {plan.num_validators} validators")
        told = asyncio.create_task(self.stopped.wait())
        tasks = [asyncio.create_task(self._mind_processes()), asyncio.create_task(self._course()), told]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done if not told.done() else ():  # once told to stop, others fail because of that
                task.result()
        finally:
            await self._end(tasks, told=told.done())
        if not self.finished:
            raise SubnetError(f"expected to finish the run, told to stop before; what was done is in {plan.folder}")

    async def _end(self, tasks: list[asyncio.Task[Any]], *, told: bool) -> None:
        """End every process and, where the run did not finish, leave a summary all the same."""
        if told:
            note("stopping: ending every process")
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=CANCEL_S)
        ending = asyncio.create_task(asyncio.to_thread(self.network.stop))
        await asyncio.sleep(0)
        if not self.finished:
            with contextlib.suppress(OSError):  # a full disk, perhaps; why we end matters more
                self._sum_up(show=told)
        if self.watch is not None:
            await self.watch.close()
        await ending

    async def _course(self) -> None:
        """The run as it should go, to the board; with --keep it goes on until it is told to stop."""
        await self.network.start()
        self.watch = Watch(self.network)
        note(f"page at http://127.0.0.1:{self.network.plan.port}/")
        await self.watch.begin()
        await self._train()
        await self._settle()
        await self.watch.look()
        await self.watch.look_at_weights()
        self._sum_up(show=True)
        self.finished = True
        if self.keep:
            note(f"still running: page at http://127.0.0.1:{self.network.plan.port}/ ; Ctrl-C ends it")
            await self.stopped.wait()

    async def _train(self) -> None:
        """Show progress until the last round's checkpoint is out."""
        assert self.watch is not None
        said_s, said = 0.0, ""
        while True:
            state = await self.watch.look()
            text = progress_line(facts(state, self.watch.view, now_ms()))
            if text != said and time.time() - said_s > (1.0 if state.step == 0 else QUIET_S):
                note(text)
                said, said_s = text, time.time()
            if state.phase == "done" and self.run_config.train.rounds in state.checkpoints:
                if text != said:
                    note(text)
                return
            await asyncio.sleep(LOOK_S)

    async def _settle(self) -> None:
        """Wait until the validators have judged what they drew and set their weights, and an epoch has paid."""
        assert self.watch is not None
        note("training is done; waiting for the last audits, the weights and the epoch that pays them")
        end_s = time.time() + SETTLE_S
        while time.time() < end_s:
            await self.watch.look()
            if await self.watch.settled():
                return
            await asyncio.sleep(LOOK_S)
        note(f"not everything settled within {SETTLE_S:.0f} s; the board shows what is there")

    async def _mind_processes(self) -> None:
        """Say who ended and why. Raises when those are gone without whom nothing can go on."""
        fleet, plan = self.network.fleet, self.network.plan
        while True:
            await asyncio.sleep(LOOK_S)
            if shutil.disk_usage(plan.folder).free < FULL_BYTES:  # the processes' own words would be lost
                raise SubnetError(
                    f"expected room on the disk at {plan.folder}, found it full; free some, or start again with "
                    "--out on another one"
                )
            ended = fleet.ended()
            for name, code in ended.items():
                if name in self._seen_ended or (name == "publisher" and code == 0):
                    continue
                self._seen_ended.add(name)
                fate = fleet.fate(name, code)
                if name in INDISPENSABLE:
                    kind = {2: ConfigError, 75: TemporaryError}.get(code, SubnetError)
                    raise kind(f"expected {name} to go on, found that {fate}; its log is in {fleet.logs}")
                note(f"{name} is gone: {fate}")
            living = [name for name in plan.miners if name not in ended]
            if len(living) < plan.run.stages:
                raise SubnetError(
                    f"expected a miner for each of {plan.run.stages} stages, found {len(living)} left; the logs in "
                    f"{fleet.logs} say why the others ended"
                )

    def _state(self) -> RunState:
        """The run as it is known here; before the orchestrator answered, the run at its begin."""
        if self.watch is not None and self.watch.ready:
            return self.watch.state
        owner = self.network.hotkey("owner") if "owner" in self.network.wallets else ""
        body = Begin(config=canonical(self.run_config).decode(), orchestrator=owner, netuid=NETUID)
        return begin(make_event(body, n=0, previous=GENESIS, time_ms=now_ms()))

    def _sum_up(self, *, show: bool) -> None:
        """Write summary.json and show the board, from what is known by now."""
        plan, state = self.network.plan, self._state()
        view, weights = (self.watch.view, self.watch.weights) if self.watch else (None, {})
        wallets = self.network.wallets
        chosen = {
            self.network.hotkey(name): kind for name, (kind, _) in plan.miners.items() if kind and name in wallets
        }
        published = max(state.checkpoints, default=None)
        checkpoint = str(plan.folder / "checkpoints" / f"round-{published}") if published is not None else None
        outcome = Outcome(
            network="local", seconds=time.time() - self.begun_s, checkpoint=checkpoint, weights=weights, cheats=chosen
        )
        document = summary(state, view, now_ms(), outcome)
        write_summary(plan.folder / "summary.json", document)
        if show:
            faults = self.watch.faults if self.watch else ()
            around = Around(network="local", weights=weights, cheats=chosen, faults=faults)
            self._show(document, board(facts(state, view, now_ms(), around=around)))

    def _show(self, document: dict[str, Any], text: str) -> None:
        if self.as_json:
            show_json(document)
        else:
            line(text)
            line(f"summary: {self.network.plan.folder / 'summary.json'}")
            line(f"checkpoint: {document['checkpoint']}")
