"""What `strata up` watches: the orchestrator's ledger, the chain, and the validators' health. Read-only."""

import asyncio
import contextlib
import json
from typing import Any

from subnet.errors import SubnetError, TemporaryError
from subnet.ledger.state import RunState
from subnet.nodes.client import RunClient
from subnet.nodes.follower import Follower
from subnet.nodes.local import NETUID, LocalNetwork
from template.errors import ChainError, TransportError
from template.sdk import HotkeySigner, HotkeyVerifier, SdkChain
from template.values import ChainView
from template.web_client import HttpTransport

START_S = 60.0
HEALTH_S = 2.0
CLOSE_S = 1.0
WEIGHTS_EVERY_BLOCKS = 5


class Watch:
    """A copy of the ledger and the chain's view, refreshed by `look`."""

    def __init__(self, network: LocalNetwork) -> None:
        wallet = network.wallets["owner"]
        signer = HotkeySigner(wallet)
        self._network = network
        self._transport = HttpTransport(None)
        self._chain = SdkChain(network.endpoint, NETUID, wallet)
        peer = f"http://127.0.0.1:{network.plan.port}"
        client = RunClient(self._transport, peer, signer.hotkey, signer=signer, verifier=HotkeyVerifier(signer.hotkey))
        self._client = client
        self._follower = Follower(client, network.plan.run)
        self.ready = False
        self.view: ChainView | None = None
        self.weights: dict[int, dict[int, float]] = {}  # on the chain, per validator, as of some blocks ago
        self._weighed_block = 0

    @property
    def state(self) -> RunState:
        """The ledger's fold, as of the last look."""
        return self._follower.state

    @property
    def faults(self) -> list[str]:
        """The orchestrator's faults, found while its ledger was read."""
        return self._follower.orchestrator_faults

    async def begin(self) -> None:
        """Wait for the orchestrator to answer. Raises SubnetError with its own words when it ended instead."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + START_S
        while True:
            try:
                await self._client.facts(patience_s=1.0)
                return
            except TemporaryError as error:
                fleet = self._network.fleet
                if "orchestrator" in fleet.ended() or loop.time() > end_s:
                    why = fleet.complaint("orchestrator")
                    raise SubnetError(f"expected the orchestrator to start, found: {why}; see {fleet.logs}") from error

    async def look(self) -> RunState:
        """Fetch what is new in the ledger, and the chain's view."""
        await self._follower.catch_up()
        self.ready = True
        with contextlib.suppress(ChainError):  # else the last view stays, with its age shown
            self.view = await self._chain.view()
            if self.view.block >= self._weighed_block + WEIGHTS_EVERY_BLOCKS:
                await self.look_at_weights()
        return self.state

    async def look_at_weights(self) -> None:
        """Read the weights on the chain."""
        self.weights = await self._chain.weights()
        self._weighed_block = self.view.block if self.view else 0

    async def settled(self) -> bool:
        """Whether every living validator says so, and an epoch has run since their weights."""
        fleet, set_at = self._network.fleet, 0
        for name in self._network.plan.validators:
            if name in fleet.ended():
                continue
            facts = await self._health(name)
            if not facts.get("settled"):
                return False
            set_at = max(set_at, int(facts.get("weights_block") or 0))
        return self.view is not None and self.view.last_epoch_block > set_at

    async def _health(self, name: str) -> dict[str, Any]:
        """A validator's own account, by the address that it noted in its data folder."""
        folder = self._network.plan.folder / "data" / name
        try:
            noted = json.loads(next(folder.glob("lock-*")).read_text())
            response = await self._transport.request("GET", noted["address"], "/healthz", timeout_s=HEALTH_S)
            facts = json.loads(response.body)
        except (StopIteration, OSError, ValueError, KeyError, TransportError):
            return {}
        return facts if isinstance(facts, dict) else {}

    async def close(self) -> None:
        """Let go of the connections; of those that the other side keeps us waiting for as well."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._transport.close()
                await self._chain.close()
