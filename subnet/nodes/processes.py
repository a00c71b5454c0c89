"""The processes of a network: what each role opens, serves and runs until it is told to stop.

Each function is a neuron's main function for `template.neuron.run_neuron`. Torch is loaded only by those that need it.
"""

import asyncio
import contextlib
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subnet.cheats.registry import make_cheat
from subnet.edges.blobs import LocalBlobs
from subnet.edges.data import load_corpus, tokenizer_files
from subnet.errors import ConfigError
from subnet.nodes.readiness import ready_route
from subnet.nodes.starting import BLOB_LIMIT_BYTES, folder_of, joined
from template.config import NeuronConfig
from template.neuron import Running
from template.transport import Incoming, Reply, Route, json_reply
from template.web import application, serve


@dataclass(frozen=True, kw_only=True)
class CheatChoice:
    """Which cheat a miner runs; an honest one has none."""

    kind: str = ""
    strength: float | None = None


HONEST = CheatChoice()


async def run_miner(
    config: NeuronConfig,
    running: Running,
    *,
    cheat: CheatChoice = HONEST,
    recompute: bool = False,
    keep_states: int | None = None,
) -> None:
    """Serve deliveries and evidence, directly and by letter, announce the real port, and train until told to stop."""
    async with joined(config, stopping=running.stopping) as node:
        await load_torch()
        from subnet.cheats.base import Cheat
        from subnet.nodes import beside, miner_routes
        from subnet.nodes.announcing import announced
        from subnet.nodes.letters import Letters, bundle_limit_bytes
        from subnet.nodes.miner import Miner
        from subnet.nodes.orchestrator_routes import REFUSALS

        folder = folder_of(config, f"miner-{node.chain.hotkey[:12]}")
        miner = Miner(
            run=node.run,
            corpus=await asyncio.to_thread(load_corpus, node.run.data),
            client=node.client,
            blobs=LocalBlobs(folder / "blobs", limit_bytes=BLOB_LIMIT_BYTES),
            folder=folder,
            address="",
            cheat=make_cheat(cheat.kind, cheat.strength) if cheat.kind else Cheat(0.0),
            recompute=recompute,
            keep_states=keep_states,
            stopping=running.stopping,
        )
        doors = miner_routes.routes(miner)
        app = application(doors, node.verifier, refusals=REFUSALS)
        forwarded = application(doors, node.forwarded, refusals=REFUSALS)
        letters = Letters(node.client, forwarded, limit_bytes=bundle_limit_bytes(node.run))
        async with serve(app, host=config.host, port=config.port) as server:
            running.serving_at(server.url)
            fetching = asyncio.create_task(letters.work())
            try:
                miner.address = await announced(node, server)
                await beside.work(miner)
            finally:
                fetching.cancel()
                miner.close()


async def run_validator(config: NeuronConfig, running: Running) -> None:
    """Audit, score and set weights until told to stop."""
    async with joined(config, stopping=running.stopping) as node:
        await load_torch()
        from subnet.nodes.validator import Validator

        corpus = await asyncio.to_thread(load_corpus, node.run.data)
        validator = Validator(node.chain, node.client, node.run, corpus=corpus)

        async def health(request: Incoming) -> Reply:
            return json_reply(validator.health())

        doors = [Route(method="GET", path="/healthz", handler=health, signed=False), ready_route(validator.readiness)]
        app = application(doors, None)
        async with serve(app, host=config.host, port=config.port) as server:
            running.serving_at(server.url)
            await until_stopped(validator.work(), running)


async def run_publisher(config: NeuronConfig, running: Running, *, out: Path) -> None:
    """Merge, write and evaluate each round's checkpoint, until the last one is out."""
    async with joined(config, stopping=running.stopping, registered=False) as node:
        if node.chain.hotkey != node.client.orchestrator:
            raise ConfigError(
                f"expected the orchestrator's own hotkey {node.client.orchestrator} for the publisher, found "
                f"{node.chain.hotkey}; give the orchestrator's --wallet and --hotkey"
            )
        await load_torch()
        from subnet.nodes.publisher import Publisher

        publisher = Publisher(
            node.client,
            node.run,
            corpus=await asyncio.to_thread(load_corpus, node.run.data),
            blobs=LocalBlobs(folder_of(config, "publisher"), limit_bytes=BLOB_LIMIT_BYTES),
            folder=out,
            tokenizer=await asyncio.to_thread(tokenizer_files, node.run.data.tokenizer),
        )
        await until_stopped(publisher.work(), running)


async def load_torch() -> None:
    """Load what computes, on one thread: only once wallet, chain and orchestrator are found, so that faults are quick.

    In a thread, so that connections live on meanwhile; a forked process has it loaded already.
    """
    torch = await asyncio.to_thread(importlib.import_module, "torch")
    torch.set_num_threads(1)


async def until_stopped(work: Any, running: Running) -> None:
    """Run a coroutine until it ends or the process is told to stop; its failure is raised."""
    task = asyncio.ensure_future(work)
    stop = asyncio.create_task(running.stopping.wait())
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
        if not task.done():
            task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
