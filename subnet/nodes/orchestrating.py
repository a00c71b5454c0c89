"""The orchestrator's process: chain, ledger, store, routes and the board, without torch.

Apart from the other processes so that importing it never loads what computes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subnet.board.facts import Around, facts
from subnet.board.page import board_routes
from subnet.config import RunConfig
from subnet.edges.blobs import LocalBlobs
from subnet.edges.ledger import SqlLedger
from subnet.edges.relay import Relay
from subnet.nodes import dialback, orchestrator_routes, relay_routes
from subnet.nodes.canaries import consenting, read_canaries
from subnet.nodes.clock import now_ms
from subnet.nodes.orchestrator import Orchestrator, Start
from subnet.nodes.readiness import ready_route
from subnet.nodes.starting import BLOB_LIMIT_BYTES, folder_of, open_chain, reach_chain, read_chain, require_registered
from template.config import NeuronConfig
from template.neuron import Running
from template.nonces import FileNonceStore
from template.sdk import HotkeySigner, HotkeyVerifier, load_wallet
from template.web import application, serve
from template.web_client import HttpTransport

RunFor = Callable[[float], RunConfig]  # the run to train on a chain with such a block time, in seconds


@dataclass(frozen=True, kw_only=True)
class OrchestratorOptions:
    """What belongs to this process alone: when to start, where the ledger is."""

    num_miners: int
    patience_s: float
    ledger_url: str | None = None
    canaries: Path | None = None


def ledger_path(data_dir: Path) -> Path:
    """Where the ledger lies when no database URL is given."""
    return data_dir / "ledger.sqlite"


async def run_orchestrator(
    config: NeuronConfig, running: Running, *, run_for: RunFor, options: OrchestratorOptions
) -> None:
    """Plan the run, keep its ledger and serve its page until told to stop. The run is made for the chain's own blocks:
    a segment must not become payable before the block that may draw it."""
    from subnet.nodes.processes import until_stopped

    wallet = load_wallet(config.wallet_name, config.wallet_hotkey, config.wallet_path)
    chain = open_chain(config, wallet)
    signer = HotkeySigner(wallet)
    listed = read_canaries(options.canaries) if options.canaries else ()

    def signer_of(name: str, hotkey: str) -> HotkeySigner:
        return HotkeySigner(load_wallet(name, hotkey, config.wallet_path))

    folder = folder_of(config, "store")
    nonces = FileNonceStore(config.data_dir / "nonces-orchestrator")
    dialling = HttpTransport(None, address_map=config.address_map)
    ledger = SqlLedger(options.ledger_url or f"sqlite:///{ledger_path(config.data_dir)}")
    try:
        await reach_chain(chain, stopping=running.stopping)
        await require_registered(chain, config, stopping=running.stopping)
        node = Orchestrator(
            chain,
            ledger,
            store=LocalBlobs(folder, limit_bytes=BLOB_LIMIT_BYTES),
            signer=signer,
            verifier=HotkeyVerifier(signer.hotkey, nonces),
            start=Start(num_miners=options.num_miners, patience_s=options.patience_s),
        )
        view = await read_chain(chain, chain.view, stopping=running.stopping)
        run = run_for(view.block_time_s)
        node.canaries = consenting(listed, run.run_id, signer_of=signer_of)
        await node.open(run)

        def shown() -> dict[str, Any]:
            weights, pending = node.weights, node.pending_weights
            around = Around(network=config.network, weights=weights, pending=pending, faults=node.faults)
            return facts(node.state, node.view, now_ms(), around=around)

        board = board_routes(shown)
        doors = [
            *orchestrator_routes.routes(node),
            *relay_routes.routes(node, Relay()),
            *dialback.routes(node, dialling, address_map=config.address_map),
            *board,
            ready_route(node.readiness),
        ]
        app = application(doors, node.verifier, refusals=orchestrator_routes.REFUSALS)
        async with serve(app, host=config.host, port=config.port) as server:
            running.serving_at(server.url)
            await chain.publish_endpoint(config.external_host or server.host, config.external_port or server.port)
            await until_stopped(node.run(), running)
    finally:
        ledger.close()
        nonces.close()
        await dialling.close()
        await chain.close()
