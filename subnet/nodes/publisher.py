"""The publisher: makes each round's public states and checkpoint, one stage at a time, with the orchestrator's key.

It states the initial parameters, merges every stage as its replicas do (so a replica that merges otherwise is seen),
writes the checkpoint that `from_pretrained` loads, and evaluates it on held-out microbatches. Trains nothing.
"""

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from subnet.canonical import digest
from subnet.config import RunConfig
from subnet.data.pack import Corpus, heldout_microbatch
from subnet.edges.blobs import BlobStore
from subnet.edges.checkpoint import read_stage, write_checkpoint
from subnet.nodes.client import RunClient
from subnet.nodes.clock import now_ms
from subnet.nodes.custody import initial_public
from subnet.nodes.follower import Follower
from subnet.nodes.merging import merge_stage
from subnet.nodes.retention import prune
from subnet.stage.evaluate import heldout_loss
from subnet.stage.layout import StateLayout, public_from_bytes
from subnet.wire.merkle import merkle_root
from subnet.wire.messages import WIRE_VERSION, Checkpoint, Merged

log = logging.getLogger("strata.publisher")

POLL_S = 5.0
LOOK_S = 0.2


class Publisher:
    """The publisher of one run; checkpoints go to `folder`/round-N."""

    def __init__(
        self,
        client: RunClient,
        run: RunConfig,
        *,
        corpus: Corpus,
        blobs: BlobStore,
        folder: Path,
        tokenizer: Mapping[str, bytes] | None = None,
    ) -> None:
        """tokenizer: its files, for the checkpoints; None where the run is on bytes."""
        self.client = client
        self.run = run
        self.corpus = corpus
        self.blobs = blobs
        self.folder = folder
        self.tokenizer = tokenizer
        self.follower = Follower(client, run)
        self._thread = ThreadPoolExecutor(1, "compute")

    async def work(self) -> None:
        """Follow the ledger; state, merge and publish what is due, until the last round is published."""
        await self.follower.catch_up()
        async with asyncio.TaskGroup() as tasks:
            publishing = tasks.create_task(self._publish_all())
            while not publishing.done():
                await self._state_initial()
                await self._merge_due()
                await self.follower.catch_up(wait_s=POLL_S)

    async def _publish_all(self) -> None:
        """Publish every round, in order, beside the merging: nobody waits for an evaluation to train on."""
        for number in range(self.run.train.rounds + 1):
            while number not in self.follower.state.manifests:
                await asyncio.sleep(LOOK_S)
            if number not in self.follower.state.checkpoints:
                await self._publish(number)
            prune(self.blobs, self.follower.state, now_s=time.time())

    async def _state_initial(self) -> None:
        """The public states of round 0, made tensor by tensor from the run's seed."""
        for stage in range(self.run.stages):
            if self.client.orchestrator not in self.follower.state.merged.get((0, stage), {}):
                data = await self._compute(initial_public, self.run, stage)
                await self._report(0, stage, data)

    async def _merge_due(self) -> None:
        state = self.follower.state
        if state.phase != "merge":
            return
        for stage in range(self.run.stages):
            if self.client.orchestrator not in state.merged.get((state.round + 1, stage), {}):
                await self._merge(state.round, stage)

    async def _merge(self, round_number: int, stage: int) -> None:
        state = self.follower.state
        public = await self._public(round_number, stage)

        async def fetch(name: str, size: int) -> bytes:
            return await self.client.get(name, limit_bytes=size)

        data = await merge_stage(
            self.run,
            state.closed[round_number, stage],
            public_from_bytes(StateLayout(self.run, stage), public),
            fetch=fetch,
        )
        await self._report(round_number + 1, stage, data)

    async def _report(self, round_number: int, stage: int, data: bytes) -> None:
        """Put a public state into the run's store, then state its root."""
        root = merkle_root(data)
        self.blobs.put_named(root, data)
        await self.client.put(root, data)
        await self.client.say(
            Merged(
                version=WIRE_VERSION,
                run_id=self.run.run_id,
                hotkey=self.client.orchestrator,
                round=round_number,
                stage=stage,
                root=root,
                state_bytes=len(data),
                time_ms=now_ms(),
            )
        )
        log.info("public round=%d stage=%d root=%s", round_number, stage, root[:12])

    async def _public(self, round_number: int, stage: int) -> bytes:
        public = self.follower.state.manifests[round_number].stages[stage]
        if not self.blobs.has(public.root):
            self.blobs.put_named(public.root, await self.client.state(public.root, public.state_bytes))
        return self.blobs.get(public.root)

    async def _publish(self, round_number: int) -> None:
        for stage in range(self.run.stages):
            await self._public(round_number, stage)  # one at a time: from here on it lies on our disk
        roots = [public.root for public in self.follower.state.manifests[round_number].stages]
        folder = self.folder / f"round-{round_number}"
        loss = await self._compute(self._write, folder, roots)
        files = tuple(sorted((path.name, digest(path.read_bytes())) for path in folder.iterdir() if path.is_file()))
        await self.client.say(
            Checkpoint(
                version=WIRE_VERSION,
                run_id=self.run.run_id,
                round=round_number,
                heldout_loss=loss,
                files=files,
                time_ms=now_ms(),
            )
        )
        log.info("checkpoint round=%d heldout_loss=%.4f folder=%s", round_number, loss, folder)

    def _write(self, folder: Path, roots: list[str]) -> float:
        """Write the checkpoint and evaluate what was written, one stage at a time."""
        write_checkpoint(folder, self.run, self._tensors(roots), self.tokenizer)
        batches = [
            tuple(torch.from_numpy(part) for part in heldout_microbatch(self.run, self.corpus, index))
            for index in range(self.run.data.heldout_microbatches)
        ]
        stages = (read_stage(folder, self.run, stage) for stage in range(self.run.stages))
        return heldout_loss(self.run, stages, batches)  # type: ignore[arg-type]

    def _tensors(self, roots: list[str]) -> Iterator[dict[str, Any]]:
        for stage, root in enumerate(roots):
            layout = StateLayout(self.run, stage)
            yield layout.split(public_from_bytes(layout, self.blobs.get(root)).parameters)

    async def _compute(self, function: Any, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)
