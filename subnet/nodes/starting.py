"""What miners, validators and the publisher do before they work: wallet, chain, registration, the run they join.

The orchestrator is found on the chain: the subnet owner's hotkey (or one that the user names) and the endpoint that it
announced. A run that its committed record contradicts is refused. Each role's own start is in the functions below.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from subnet.config import RunConfig
from subnet.errors import ConfigError, UnreachableError
from subnet.incentive.submission import WEIGHTS_VERSION_KEY
from subnet.ledger.record import read_record
from subnet.nodes.client import FOR_EVER_S, RunClient
from template.auth import FORWARDED_AGE_S
from template.chain import Chain
from template.config import NeuronConfig
from template.errors import ChainUnreachable, NotRegistered
from template.nonces import FileNonceStore
from template.sdk import HotkeySigner, HotkeyVerifier, SdkChain, Wallet, load_wallet
from template.web_client import HttpTransport

T = TypeVar("T")

log = logging.getLogger("strata.start")

REACH_S = 5.0  # between two tries to reach one that does not answer
LOOK_S = 1.0  # between two looks for an orchestrator that has not announced itself yet
PATIENCE_S = 300.0
BLOB_LIMIT_BYTES = 64 << 30


@dataclass(frozen=True, kw_only=True)
class Joined:
    """A node that is registered and knows its run."""

    config: NeuronConfig
    chain: Chain
    client: RunClient
    run: RunConfig
    verifier: HotkeyVerifier
    forwarded: HotkeyVerifier  # the same with its nonces, for requests that the relay forwards


@contextlib.asynccontextmanager
async def joined(config: NeuronConfig, *, stopping: asyncio.Event, registered: bool = True) -> AsyncIterator[Joined]:
    """Open wallet, chain and transport, and find the run; everything is closed at the end.

    Raises WalletError, ChainError kinds, NotRegistered (when `registered` is asked for), UnreachableError.
    """
    wallet = load_wallet(config.wallet_name, config.wallet_hotkey, config.wallet_path)
    chain = open_chain(config, wallet)
    signer = HotkeySigner(wallet)
    nonces = FileNonceStore(config.data_dir / f"nonces-{signer.hotkey[:12]}")
    verifier = HotkeyVerifier(signer.hotkey, nonces)
    transport = HttpTransport(signer, address_map=config.address_map)
    try:
        await reach_chain(chain, stopping=stopping)
        if registered:
            await require_registered(chain, config, stopping=stopping)
        hotkey, peer = await find_orchestrator(chain, config, stopping=stopping)
        client = RunClient(transport, peer, hotkey, signer=signer, verifier=verifier)
        run = await ask_for_run(client, stopping=stopping)
        await check_record(chain, hotkey, run, stopping=stopping)
        client.patience_s = FOR_EVER_S
        forwarded = HotkeyVerifier(signer.hotkey, nonces, max_age_s=FORWARDED_AGE_S)
        yield Joined(config=config, chain=chain, client=client, run=run, verifier=verifier, forwarded=forwarded)
    finally:
        await transport.close()
        await chain.close()
        nonces.close()


def open_chain(config: NeuronConfig, wallet: Wallet) -> SdkChain:
    """This node's way to the chain; nothing is dialled yet."""
    return SdkChain(
        config.network,
        config.netuid,
        wallet,
        fallback_endpoints=config.fallback_endpoints,
        version_key=WEIGHTS_VERSION_KEY,
    )


async def reach_chain(chain: Chain, *, stopping: asyncio.Event) -> None:
    """Return once the chain answers; the wait says so by itself. Raises ChainUnreachable when it lasts too long."""
    answered, stop = asyncio.create_task(chain.wait_for_block(0)), asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({answered, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not answered.done():
            raise asyncio.CancelledError  # told to stop: that is no fault
        answered.result()
    finally:
        answered.cancel()
        stop.cancel()


async def read_chain(chain: Chain, read: Callable[[], Awaitable[T]], *, stopping: asyncio.Event) -> T:
    """What a read gives; an outage in the middle is waited for as at the start. Raises what `reach_chain` raises."""
    while True:
        try:
            return await read()
        except ChainUnreachable as error:
            log.info("waiting for=chain reason=%r", str(error))
            await reach_chain(chain, stopping=stopping)
            await asyncio.sleep(0)  # so that whoever waits for this can end it


async def require_registered(chain: Chain, config: NeuronConfig, *, stopping: asyncio.Event) -> None:
    """Raise NotRegistered, with the command that registers, when the hotkey has no uid; say that nobody is paid yet."""
    view = await read_chain(chain, chain.view, stopping=stopping)
    if not view.started:
        log.warning(
            "subnet=%d not started: nobody is paid before its owner does that (btcli sudo start --netuid %d)",
            view.netuid, view.netuid,
        )  # fmt: skip
    if view.neuron(chain.hotkey) is None:
        raise NotRegistered(
            f"expected hotkey {chain.hotkey} on subnet {config.netuid} of {config.network}, found it unregistered; run "
            f"strata register --network {config.network} --netuid {config.netuid} --wallet-path {config.wallet_path} "
            f"--wallet {config.wallet_name} --hotkey {config.wallet_hotkey}"
        )


async def find_orchestrator(chain: Chain, config: NeuronConfig, *, stopping: asyncio.Event) -> tuple[str, str]:
    """The orchestrator's hotkey and announced address; waits, saying so, until it has announced one."""
    end_s, said = time.monotonic() + PATIENCE_S, False
    while not stopping.is_set():
        view = await read_chain(chain, chain.view, stopping=stopping)
        hotkey = config.orchestrator or view.owner_hotkey
        neuron = view.neuron(hotkey)
        if neuron is not None and neuron.endpoint:
            return hotkey, neuron.endpoint
        if not said:
            log.info("waiting for=orchestrator hotkey=%s netuid=%d", hotkey, config.netuid)
            said = True
        if time.monotonic() > end_s:
            raise UnreachableError(
                f"expected the orchestrator {hotkey} of subnet {config.netuid} to announce an address, found "
                f"none within {PATIENCE_S:.0f} s; ask the subnet's owner, or name another with --orchestrator"
            )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await stopping.wait()
    raise asyncio.CancelledError  # told to stop: that is no fault


async def ask_for_run(client: RunClient, *, stopping: asyncio.Event) -> RunConfig:
    """The run that the orchestrator serves; waits, saying so, until it answers. Raises UnreachableError."""
    end_s = time.monotonic() + PATIENCE_S
    while not stopping.is_set():
        try:
            return await client.facts(patience_s=LOOK_S)
        except UnreachableError as error:
            if time.monotonic() > end_s:
                raise UnreachableError(
                    f"expected the orchestrator {client.orchestrator} at {client.peer} to answer within "
                    f"{PATIENCE_S:.0f} s, found that it does not; ask the subnet's owner, or try again later"
                ) from error
            log.warning("waiting for=orchestrator peer=%s reason=%r", client.peer, str(error))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REACH_S):
                await stopping.wait()
    raise asyncio.CancelledError  # told to stop: that is no fault


async def check_record(chain: Chain, hotkey: str, run: RunConfig, *, stopping: asyncio.Event) -> None:
    """Refuse a run that the orchestrator's record on the chain contradicts. No record yet is no contradiction."""
    record = await read_chain(chain, lambda: chain.read_commit(hotkey), stopping=stopping)
    if record is None:
        return
    claimed = read_record(record.data)
    if claimed.run_id != run.run_id:
        raise ConfigError(
            f"expected the run {claimed.run_id[:12]} that {hotkey} committed on the chain, found it serving run "
            f"{run.run_id[:12]}; do not join, ask the subnet's owner"
        )


def folder_of(config: NeuronConfig, name: str) -> Path:
    """A folder of this node's data, made when missing."""
    folder = config.data_dir / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder
