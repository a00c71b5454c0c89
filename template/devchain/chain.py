"""The chain itself: takes extrinsics in, makes blocks, and remembers them.

Owns the order of things in a block and the life of an extrinsic from pool to
finality. Synchronous and without a clock of its own: the node hands it the
time. Knows nothing of sockets.
"""

import logging
from dataclasses import dataclass, field
from typing import Any

from template.devchain import balances, coinbase, dispatch, reveals, validity
from template.devchain.blocks import Block, BlockStore, seal
from template.devchain.calls.shielded import SUBMIT
from template.devchain.context import Context, DispatchError, Origin, PoolError, invalid
from template.devchain.extrinsics import Extrinsic, check_signature, decode_extrinsic, time_inherent
from template.devchain.genesis import Genesis, genesis_salt, write_genesis
from template.devchain.metadata import RuntimeInfo, load_runtime
from template.devchain.metadata_edit import decode_compact
from template.devchain.pool import Pool
from template.devchain.shield import ROTATION_BLOCKS, Shield
from template.devchain.state import Storage, View

logger = logging.getLogger(__name__)

_MAX_NONCE_GAP = 1024
_MAX_EXTRINSICS_PER_BLOCK = 1024


@dataclass(frozen=True)
class Produced:
    """A new block, the extrinsics that got into it, and those that can never get into one."""

    block: Block
    included: list[Extrinsic] = field(default_factory=list)
    dropped: list[Extrinsic] = field(default_factory=list)


class Chain:
    """One dev chain from its genesis on."""

    def __init__(self, genesis: Genesis, *, start_ms: int, runtime: RuntimeInfo | None = None) -> None:
        self.genesis, self.start_ms = genesis, start_ms
        self.runtime = runtime or load_runtime(genesis.block_time_s, genesis.without_items)
        self.storage = Storage(self.runtime.codec)
        self.context = Context(self.storage, self.runtime)
        self.pool = Pool()
        self.pulses: dict[int, bytes] = {}  # drand signatures by round, for the next block
        write_genesis(self.context, genesis)
        self.storage.put("Timestamp.Now", start_ms)
        self.context.take_events()
        salt = genesis_salt(genesis, self.runtime.digest, start_ms)
        self.shield = Shield(salt)
        self.storage.put("MevShield.NextKey", self.shield.public_key(0))
        self.blocks = BlockStore(seal(None, salt, self.storage.changes(), []))

    @property
    def head(self) -> Block:
        """The newest block."""
        return self.blocks.head

    @property
    def oldest_state(self) -> int:
        """The oldest block whose state is kept."""
        return max(0, self.head.number - self.genesis.state_window_blocks)

    def view(self, number: int) -> View:
        """Storage at the end of that block."""
        return View(self.storage, number)

    def nonce(self, account: str) -> int:
        """The account's nonce on the chain."""
        nonce: int = self.storage.get("System.Account", account)["nonce"]
        return nonce

    def next_index(self, account: str) -> int:
        """The nonce the account should use next, the pool counted in."""
        return self.pool.next_nonce(account, self.nonce(account))

    def submit(self, raw: bytes) -> tuple[Extrinsic, Extrinsic | None]:
        """Take an extrinsic into the pool, or raise PoolError; also gives the one it replaced."""
        extrinsic = decode_extrinsic(self.runtime, raw)
        self.check(extrinsic)
        return extrinsic, self.pool.add(extrinsic, self.head.number + 1)

    def check(self, extrinsic: Extrinsic) -> None:
        """Refuse what cannot go into the next block, or into a later one when its nonce is ahead."""
        birth = extrinsic.birth(self.head.number + 1)
        born = self.blocks.by_number(birth)
        if born is None:
            raise invalid("Transaction has an ancient birth block")
        check_signature(self.runtime, extrinsic, self.blocks.genesis.hash, born.hash)
        on_chain = self.nonce(extrinsic.signer)
        if extrinsic.nonce < on_chain:
            raise invalid("Transaction is outdated")
        if extrinsic.nonce > on_chain + _MAX_NONCE_GAP:
            raise invalid("Transaction will be valid in the future")
        fee = dispatch.fee_of(extrinsic.call, len(extrinsic.raw)) + extrinsic.tip
        if fee and balances.free(self.context, extrinsic.signer) < fee:
            raise invalid("Inability to pay some fees (e.g. account balance too low)")
        validity.check_call(self.storage, extrinsic.signer, extrinsic.call, self.head.number + 1)
        if dispatch.name_of(extrinsic.call) == SUBMIT:
            self.shield.check(_sealed(extrinsic), self.head.number)

    def is_ready(self, extrinsic: Extrinsic) -> bool:
        """Whether nothing of the account's has to come before it."""
        return extrinsic.nonce < self.next_index(extrinsic.signer)

    def fork(self, count: int, *, keep: bool = True) -> None:
        """Drop the newest blocks; what was in them waits for a block again, or is gone."""
        dropped = self.blocks.truncate(self.head.number - count)
        self.storage.revert_to(self.head.number)
        for raw in (raw for block in dropped for raw in block.extrinsics[1:] if keep):
            try:
                self.pool.add(decode_extrinsic(self.runtime, raw), self.head.number + 1)
            except PoolError as error:
                logger.info("event=extrinsic_dropped reason=%s", error)

    def close(self) -> None:
        """Give back what the chain holds on disk."""
        self.storage.close()
        self.blocks.close()

    def restore(self, blocks: list[Block], versions: list[tuple[str, bytes, int, bytes | None]], final: int) -> None:
        """Take over saved blocks and storage, in place of genesis."""
        if blocks[0].hash != self.blocks.genesis.hash:
            raise ValueError("expected blocks that begin with this chain's genesis, found another one")
        for block in blocks[1:]:
            self.blocks.append(block)
        self.blocks.finalized = final
        self.storage.restore(versions, self.head.number, self.oldest_state)

    def produce(self, now_ms: int) -> Produced:
        """Make the next block."""
        number = self.head.number + 1
        self.storage.begin_block(number)
        ctx = self.context
        ctx.phase = "Initialization"
        ctx.put("System.Number", number)
        ctx.put("System.ParentHash", "0x" + self.head.hash.hex())
        ctx.put("Timestamp.Now", now_ms)
        if number % ROTATION_BLOCKS == 0:
            ctx.put("MevShield.NextKey", self.shield.public_key(number))
        for round_number, signature in sorted(self.pulses.items()):
            reveals.add_pulse(ctx, round_number, signature)
        self.pulses.clear()
        reveals.begin_block(ctx)
        coinbase.begin_block(ctx)
        body = [time_inherent(self.runtime, now_ms)]
        ctx.phase = {"ApplyExtrinsic": 0}
        self._succeed({"weight": {"ref_time": 0, "proof_size": 0}, "class": "Mandatory", "pays_fee": "Yes"})
        included, dropped = self._apply_pool(body)
        self.storage.put_raw("System.Events", ctx.take_events())
        block = seal(self.head, b"", self.storage.changes(), body)
        self.blocks.append(block)
        self.storage.discard_before(number - self.genesis.state_window_blocks)
        self.blocks.finalized = max(self.blocks.finalized, number - self.genesis.finality_lag_blocks)
        return Produced(block, included, dropped)

    def _apply_pool(self, body: list[bytes]) -> tuple[list[Extrinsic], list[Extrinsic]]:
        """Put everything that is ready into the block; what can never be is dropped."""
        included: list[Extrinsic] = []
        dropped = self.pool.expired(self.storage.block)
        for extrinsic in dropped:
            self.pool.remove(extrinsic)
        nonces = {account: self.nonce(account) for account in self.pool.accounts()}
        for extrinsic in self.pool.ready(nonces):
            if len(included) >= _MAX_EXTRINSICS_PER_BLOCK:
                break
            try:
                self.check(extrinsic)
            except PoolError as error:
                logger.info("event=extrinsic_dropped hash=0x%s reason=%s", extrinsic.hash.hex(), error)
                dropped.append(extrinsic)
                continue
            self._apply(extrinsic, body)
            nonces[extrinsic.signer] = self.nonce(extrinsic.signer)
            included.append(extrinsic)
        for extrinsic in included + dropped:
            self.pool.remove(extrinsic)
        stale = [each for each in self.pool.waiting() if each.nonce < self.nonce(each.signer)]
        for extrinsic in stale:
            self.pool.remove(extrinsic)
        return included, dropped + stale

    def _apply(self, extrinsic: Extrinsic, body: list[bytes]) -> None:
        """Run one extrinsic: fee, nonce, call, events. A sealed one is opened and follows its carrier."""
        ctx = self.context
        ctx.phase = {"ApplyExtrinsic": len(body)}
        body.append(extrinsic.raw)
        fee = dispatch.fee_of(extrinsic.call, len(extrinsic.raw))
        if fee + extrinsic.tip:
            balances.withdraw(ctx, extrinsic.signer, fee + extrinsic.tip, keep_alive=False)
            ctx.emit("Balances.Withdraw", {"who": extrinsic.signer, "amount": fee + extrinsic.tip})
        info = ctx.get("System.Account", extrinsic.signer)
        ctx.put("System.Account", extrinsic.signer, info | {"nonce": info["nonce"] + 1})
        outcome = dispatch.dispatch_info(extrinsic.call)
        try:
            dispatch.dispatch(ctx, Origin(extrinsic.signer), extrinsic.call)
        except DispatchError as error:
            self._pay_event(extrinsic, fee)
            failure = {"dispatch_error": ctx.dispatch_error(error), "dispatch_info": outcome}
            ctx.emit("System.ExtrinsicFailed", failure)
            return
        self._pay_event(extrinsic, fee)
        self._succeed(outcome)
        if dispatch.name_of(extrinsic.call) == SUBMIT:
            self._apply_sealed(extrinsic, body)

    def _apply_sealed(self, carrier: Extrinsic, body: list[bytes]) -> None:
        """Open what the carrier holds and run it right behind; what does not open or is not valid is left out."""
        raw = self.shield.open(_sealed(carrier), self.head.number)
        try:
            if raw is None:
                raise invalid("the sealed extrinsic does not open")
            inner = decode_extrinsic(self.runtime, raw)
            self.check(inner)
            if inner.nonce != self.nonce(inner.signer) or dispatch.name_of(inner.call) == SUBMIT:
                raise invalid("Transaction will be valid in the future")
        except PoolError as error:
            logger.warning("event=sealed_dropped carrier=0x%s reason=%s", carrier.hash.hex(), error)
            return
        self._apply(inner, body)

    def _pay_event(self, extrinsic: Extrinsic, fee: int) -> None:
        paid = {"who": extrinsic.signer, "actual_fee": fee + extrinsic.tip, "tip": extrinsic.tip}
        self.context.emit("TransactionPayment.TransactionFeePaid", paid)

    def _succeed(self, info: dict[str, Any]) -> None:
        self.context.emit("System.ExtrinsicSuccess", {"dispatch_info": info})


def _sealed(carrier: Extrinsic) -> bytes:
    """The ciphertext of a carrier, taken from its raw call: two bytes of index, a length, the bytes."""
    size, used = decode_compact(carrier.call_data[2:])
    return carrier.call_data[2 + used : 2 + used + size]
