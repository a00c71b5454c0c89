"""The chain and the keys through the `bittensor` SDK: the only file that imports it.

SdkChain implements chain.Chain; HotkeySigner and HotkeyVerifier implement auth.py with btauth/1 and sr25519. Deadlines
and dead sessions are session.py's business, the meaning of errors is sdk_errors.py's. Importing this module takes
about a second, and no torch: callers import it when they need it.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bittensor as bt
from bittensor import settings, sp_core

from template.auth import ALLOWED_SKEW_S, MAX_AGE_S, Caller, Dates, NonceStore, check_age
from template.config import check_network
from template.errors import (
    AuthError,
    BadSignature,
    ChainRefused,
    ExpiredRequest,
    MalformedAuth,
    ReplayedRequest,
    WalletError,
    WrongReceiver,
)
from template.nonces import MemoryNonceStore
from template.preflight import check_endpoint, check_price, check_record, check_serving, check_weights, no_subnet
from template.sdk_decode import (
    commitment_bytes,
    commitment_in,
    endpoint_of,
    pending_of,
    record_of,
    shares_of,
    signer_of,
    submitted_of,
    view_of,
)
from template.sdk_errors import our_error
from template.session import Patience, Sessions, cut
from template.values import ChainView, Hotkey, PendingWeights, Record, Submitted, Uid
from template.wallets import check_wallet_files, require_unlockable

Wallet = bt.Wallet

ITEMS = bt.storage.SubtensorModule
LIMITS = (ITEMS.WeightsSetRateLimit, ITEMS.LastEpochBlock, ITEMS.FirstEmissionBlockNumber)

SDK_FAULTS = (bt.BittensorError, bt.UnitMismatchError, sp_core.KeyfileError, ValueError)

AUTH_ERRORS: dict[type[bt.http_auth.AuthError], type[AuthError]] = {
    bt.http_auth.MalformedAuth: MalformedAuth,
    bt.http_auth.WrongReceiver: WrongReceiver,
    bt.http_auth.StaleRequest: ExpiredRequest,
    bt.http_auth.BadSignature: BadSignature,
    bt.http_auth.ReplayedRequest: ReplayedRequest,
}


class _Rpc(bt.RpcSubstrate):
    """Remembers every connection that it begins: the SDK lets go of one whose making is cancelled, socket and all."""

    def __init__(self, endpoint: str, *, fallbacks: list[str], archives: list[str]) -> None:
        super().__init__(endpoint, fallback_endpoints=fallbacks, archive_endpoints=archives)
        self._begun: list[Any] = []

    def _interface(self, endpoint: str, fallbacks: list[str]) -> Any:
        self._begun.append(super()._interface(endpoint, fallbacks))
        return self._begun[-1]

    async def close(self) -> None:
        try:
            await super().close()
            await asyncio.gather(*(each.close() for each in self._begun))
        finally:
            for each in self._begun:
                cut(each)


@dataclass(frozen=True)
class _Session:
    """One client and the connection under it. Leaves out the client's own connect: it only adds token symbols."""

    client: bt.Client
    rpc: _Rpc

    async def connect(self) -> None:
        await self.rpc.connect()

    async def close(self) -> None:
        await self.rpc.close()

    async def block_time_s(self) -> float:
        return await self.rpc.block_time()

    async def finalised(self) -> int:
        return await self.rpc.finalized_block_number()

    async def newest(self) -> int:
        return await self.rpc.block_number()

    async def at_finalised(self) -> bt.Snapshot:
        return await self.client.at(await self.finalised())


def _sessions(network: str, fallback_endpoints: Sequence[str], patience: Patience | None) -> Sessions[_Session]:
    label, endpoint = settings.resolve_endpoint(check_network(network))
    pool = [endpoint, *(list(fallback_endpoints) or settings.default_fallback_endpoints(label))]

    def make(turn: int) -> _Session:
        first, *others = pool[turn % len(pool) :] + pool[: turn % len(pool)]
        rpc = _Rpc(first, fallbacks=others, archives=settings.default_archive_endpoints(label))
        return _Session(bt.Client(first, substrate=rpc), rpc)

    return Sessions(endpoint, make, faults=SDK_FAULTS, translate=our_error, patience=patience)


class SdkChain:
    """Implements chain.Chain for a wallet's hotkey. Usable within one event loop; needs `close()` at the end."""

    def __init__(
        self,
        network: str,
        netuid: int,
        wallet: bt.Wallet,
        *,
        fallback_endpoints: Sequence[str] = (),
        patience: Patience | None = None,
        version_key: int = 0,
    ) -> None:
        self._sessions = _sessions(network, fallback_endpoints, patience)
        self._version_key = version_key
        self._netuid = netuid
        self._wallet = wallet

    @property
    def hotkey(self) -> Hotkey:
        return str(self._wallet.hotkey.ss58_address)

    @property
    def netuid(self) -> int:
        return self._netuid

    async def view(self, block: int | None = None) -> ChainView:
        async def read(session: _Session) -> ChainView:
            number = await session.finalised() if block is None else block
            at = await session.client.at(number)
            graph, block_hash, time, block_time_s, *limits = await asyncio.gather(
                at.subnets.metagraph(self._netuid, commitments=False),
                session.rpc.block_hash(number),
                at.timestamp(),
                at.block_time(),
                *(at.query(item, [self._netuid]) for item in LIMITS),
            )
            if graph is None:
                raise no_subnet(self._netuid, self._sessions.endpoint)
            times = (time.timestamp(), block_time_s)
            return view_of(graph, block=number, block_hash=block_hash, times=times, limits=limits)

        return await self._sessions.read("read the subnet", read)

    async def block(self) -> int:
        return await self._sessions.read("read the finalised block", lambda session: session.finalised())

    async def block_hash(self, number: int) -> str:
        doing = f"read the hash of block {number}"
        return await self._sessions.read(doing, lambda session: session.rpc.block_hash(number))

    async def wait_for_block(self, number: int) -> int:
        return await self._sessions.wait_for_block(number)

    async def burn_rao(self) -> int:
        price = await self._sessions.read("read the price", lambda session: session.client.subnets.burn(self._netuid))
        return int(price.rao)

    async def register(self, *, limit_rao: int | None = None) -> Uid:
        if (known := await self._uid()) is not None:
            return known
        price_rao = await self.burn_rao()
        check_price(price_rao, limit_rao)
        require_unlockable(self._wallet.coldkey_file)
        # Not the intent: that one is always shielded, which needs a second key and leaves a stale nonce behind.
        module = bt.calls.SubtensorModule
        if limit_rao is None:
            call = module.burned_register(netuid=self._netuid, hotkey=self.hotkey)
        else:
            call = module.register_limit(netuid=self._netuid, hotkey=self.hotkey, limit_price=limit_rao)

        async def landed(_: int) -> bool:
            return await self._uid() is not None

        doing = f"register on subnet {self._netuid}"
        await self._write(doing, lambda client: client.submit_call(call, self._wallet), landed)
        uid = await self._uid()
        if uid is None:
            raise ChainRefused("expected a uid after the registration, found none; somebody else may have got the seat")
        return uid

    async def publish_endpoint(self, host: str, port: int) -> Submitted:
        wanted = check_endpoint(host, port)
        published, served_at = await self._endpoint()
        if published == wanted:
            return Submitted(block=None, extrinsic_index=None, message="unchanged")
        limit = await self._query("read the serving limit", ITEMS.ServingRateLimit)
        check_serving(served_at, int(limit or 0), await self.block())

        async def landed(_: int) -> bool:
            return (await self._endpoint())[0] == wanted

        intent = bt.ServeAxon(netuid=self._netuid, ip=host, port=port)
        return await self._write(f"announce {wanted}", lambda client: client.execute(intent, self._wallet), landed)

    async def commit(self, data: bytes) -> Submitted:
        check_record(data)
        fields = [{f"Raw{len(data)}": bytes(data)}]
        call = bt.calls.Commitments.set_commitment(netuid=self._netuid, info={"fields": fields})

        async def landed(start: int) -> bool:
            record = await self.read_commit(self.hotkey)
            return record is not None and record.data == data and record.block > start

        return await self._write(
            "commit a record", lambda client: client.submit_call(call, self._wallet, signer="hotkey"), landed
        )

    async def read_commit(self, hotkey: Hotkey) -> Record | None:
        async def read(session: _Session) -> Record | None:
            at = await session.at_finalised()
            entry = await at.query(bt.storage.Commitments.CommitmentOf, [self._netuid, hotkey])
            data = commitment_bytes(entry.get("info")) if isinstance(entry, dict) else None
            if data is None:
                return None
            block = int(entry["block"])
            info = await session.client.block_info(block)
            return record_of(hotkey, data, block, info.extrinsics if info else (), self._netuid)

        return await self._sessions.read(f"read the commitment of {hotkey}", read)

    async def commit_at(self, block: int, extrinsic_index: int) -> Record | None:
        info = await self._sessions.read(f"read block {block}", lambda session: session.client.block_info(block))
        extrinsic = info.extrinsics[extrinsic_index] if info and extrinsic_index < len(info.extrinsics) else None
        data, hotkey = commitment_in(extrinsic, self._netuid), signer_of(extrinsic)
        if data is None or hotkey is None:
            return None
        return Record(hotkey=hotkey, data=data, block=block, extrinsic_index=extrinsic_index)

    async def set_weights(self, weights: Mapping[Uid, float]) -> Submitted:
        # The SDK does not look at these: a commitment would land all the same, and its reveal fail unseen.
        required = await self._query("read the version key", ITEMS.WeightsVersionKey)
        least = int(await self._query("read the least stake", ITEMS.StakeThreshold, whole_chain=True) or 0)
        keys = (self._version_key, int(required or 0))
        check_weights(await self.view(), self.hotkey, weights, keys=keys, least_stake_rao=least)
        intent = bt.SetWeights(netuid=self._netuid, weights=dict(weights), version_key=self._version_key)

        async def landed(start: int) -> bool:
            neuron = (await self.view()).neuron(self.hotkey)
            return neuron is not None and neuron.last_update > start

        return await self._write("set weights", lambda client: client.execute(intent, self._wallet), landed)

    async def pending_weights(self, *, everybody: bool = False) -> tuple[PendingWeights, ...]:
        async def read(session: _Session) -> tuple[PendingWeights, ...]:
            rows = await (await session.at_finalised()).query_map(ITEMS.TimelockedWeightCommits, [self._netuid])
            return pending_of(rows, None if everybody else self.hotkey)

        return await self._sessions.read("read the commitments of weights", read)

    async def weights(self) -> dict[Uid, dict[Uid, float]]:
        async def read(session: _Session) -> dict[Uid, dict[Uid, float]]:
            at = await session.at_finalised()
            rows = await at.weights.weights(self._netuid)
            return shares_of(rows)

        return await self._sessions.read("read the weights", read)

    async def balance_rao(self) -> int:
        coldkey = self._wallet.coldkeypub.ss58_address
        balance = await self._sessions.read("read the balance", lambda session: session.client.balances.get(coldkey))
        return int(balance.rao)

    async def close(self) -> None:
        await self._sessions.close()

    async def _query(self, doing: str, item: bt.storage.Item, *keys: object, whole_chain: bool = False) -> Any:
        """One storage item of this subnet, or of the whole chain, at the latest finalised block."""

        async def read(session: _Session) -> Any:
            return await (await session.at_finalised()).query(item, [*keys] if whole_chain else [self._netuid, *keys])

        return await self._sessions.read(doing, read)

    async def _uid(self) -> Uid | None:
        uid = await self._query("look up the hotkey", ITEMS.Uids, self.hotkey)
        return None if uid is None else int(uid)

    async def _endpoint(self) -> tuple[str | None, int]:
        return endpoint_of(await self._query("read the endpoint", ITEMS.Axons, self.hotkey))

    async def _write(
        self,
        doing: str,
        send: Callable[[bt.Client], Awaitable[bt.ExtrinsicResult]],
        landed: Callable[[int], Awaitable[bool]],
    ) -> Submitted:
        async def submit(session: _Session) -> Submitted:
            return submitted_of((await send(session.client)).raise_for_failure())

        return await self._sessions.write(doing, submit, landed)


class HotkeySigner:
    """Implements auth.Signer with a wallet's hotkey."""

    def __init__(self, wallet: bt.Wallet) -> None:
        self._keypair = wallet.hotkey
        self._dates = Dates()

    @property
    def hotkey(self) -> Hotkey:
        return str(self._keypair.ss58_address)

    def sign(self, data: bytes) -> bytes:
        return bytes(self._keypair.sign(data))

    def sign_request(self, method: str, target: str, receiver: Hotkey, *, offset_s: float = 0.0) -> dict[str, str]:
        nonce_ns = self._dates.next_ns(time.time_ns(), receiver, offset_s)
        return bt.http_auth.sign(self._keypair, method=method, path=target, receiver_ss58=receiver, nonce_ns=nonce_ns)


class HotkeyVerifier:
    """Implements auth.Verifier for sr25519 hotkeys. Give a FileNonceStore, or replays work across a restart."""

    def __init__(
        self, self_hotkey: Hotkey, nonce_store: NonceStore | None = None, *,
        now_ns: Callable[[], int] = time.time_ns, max_age_s: float = MAX_AGE_S,
    ) -> None:  # fmt: skip
        self._self_hotkey = self_hotkey
        self._nonces = nonce_store or MemoryNonceStore()
        self._now_ns, self._max_age_s = now_ns, max_age_s

    def verify(self, data: bytes, signature: bytes, hotkey: Hotkey) -> bool:
        try:
            return bool(sp_core.verify(data, signature, hotkey, sp_core.CRYPTO_SR25519))
        except ValueError:
            return False

    def verify_request(self, method: str, target: str, headers: Mapping[str, str]) -> Caller:
        now_ns = self._now_ns()
        try:
            caller = bt.http_auth.verify(
                headers,
                b"",
                method=method,
                path=target,
                self_hotkey_ss58=self._self_hotkey,
                max_age=self._max_age_s,
                allowed_skew=ALLOWED_SKEW_S,
                nonce_store=self._nonces,
                now_ns=now_ns,
            )
        except bt.http_auth.StaleRequest as error:
            nonce = next(value for name, value in headers.items() if name.lower() == "x-bittensor-nonce")
            delta_s = (int(nonce) - now_ns) / 1e9
            check_age(delta_s, self._max_age_s)
            raise ExpiredRequest(str(error), delta_s=delta_s) from error
        except bt.http_auth.AuthError as error:
            raise AUTH_ERRORS[type(error)](f"{error}; sign each request anew, for this receiver") from error
        return Caller(hotkey=caller.hotkey_ss58, nonce_ns=caller.nonce_ns)


def load_wallet(name: str, hotkey: str, path: str) -> bt.Wallet:
    """A wallet whose hotkey can sign. Raises WalletError; never asks for anything."""
    file = check_wallet_files(name, hotkey, path)
    wallet = bt.Wallet(name=name, hotkey=file.name, path=str(file.parent.parent.parent))
    variable = wallet.hotkey_file.env_var_name()
    if wallet.hotkey_file.is_encrypted() and not os.environ.get(variable):
        raise WalletError(f"expected a hotkey without a password, found {file} encrypted; set {variable}")
    try:
        wallet.hotkey.sign(b"can it sign?")
    except (sp_core.KeyfileError, OSError, ValueError) as error:
        raise WalletError(
            f"expected a hotkey in {file}, found a file that is not one ({error}); restore it with "
            f"`btcli wallet regen-hotkey --wallet-path {path} -w {name} -H {hotkey}`"
        ) from error
    return wallet


def create_wallet(name: str, hotkey: str, path: Path) -> bt.Wallet:
    """A new wallet without a password, for networks on this machine; one that exists is loaded."""
    wallet = bt.Wallet(name=name, hotkey=hotkey, path=str(path))
    if not wallet.coldkey_file.exists_on_device():
        wallet.create_new_coldkey(use_password=False, suppress=True)
    if not wallet.hotkey_file.exists_on_device():
        wallet.create_new_hotkey(use_password=False, suppress=True)
    return wallet
