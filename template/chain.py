"""The chain as a neuron sees it: one protocol, implemented by `template.sdk` and, in memory, by `template.fake`.

Every call has a deadline and raises only errors of `template.errors`. The object acts for one hotkey on one subnet.
It decides nothing: what to commit and which weights to set is its caller's business.
"""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from template.values import ChainView, Hotkey, PendingWeights, Record, Submitted, Uid


@runtime_checkable
class Chain(Protocol):
    """One subnet, seen and written to by one hotkey."""

    @property
    def hotkey(self) -> Hotkey:
        """The hotkey that this object signs with."""
        ...

    @property
    def netuid(self) -> int:
        """The subnet that this object reads and writes."""
        ...

    async def view(self, block: int | None = None) -> ChainView:
        """The subnet at `block`, all of it at that one block; by default at the latest finalised block."""
        ...

    async def block(self) -> int:
        """The number of the latest finalised block."""
        ...

    async def block_hash(self, number: int) -> str:
        """The hash ("0x" and 64 hex digits) of a block. Raises ChainRefused when it does not exist yet."""
        ...

    async def wait_for_block(self, number: int) -> int:
        """Return once block `number` is finalised, with the latest finalised number. Survives lost connections."""
        ...

    async def burn_rao(self) -> int:
        """What a registration costs now."""
        ...

    async def register(self, *, limit_rao: int | None = None) -> Uid:
        """Register this hotkey and return its uid; already registered is success and costs nothing.

        Raises SpendLimit, before signing, when the price is above `limit_rao`.
        """
        ...

    async def publish_endpoint(self, host: str, port: int) -> Submitted:
        """Announce ip and port; nothing is sent when the chain already has them."""
        ...

    async def commit(self, data: bytes) -> Submitted:
        """Commit at most 128 bytes under this hotkey, replacing what it committed before."""
        ...

    async def read_commit(self, hotkey: Hotkey) -> Record | None:
        """What a hotkey's current commitment is, or None."""
        ...

    async def commit_at(self, block: int, extrinsic_index: int) -> Record | None:
        """The commitment made by that extrinsic, read from the block's body; None when it is not a commitment."""
        ...

    async def set_weights(self, weights: Mapping[Uid, float]) -> Submitted:
        """Set relative weights. Clipping, quantising and commit-reveal are the chain's side of this interface."""
        ...

    async def pending_weights(self, *, everybody: bool = False) -> tuple[PendingWeights, ...]:
        """This hotkey's committed weights (or all) that the chain has not revealed yet; none where they are set openly.

        Oldest first.
        """
        ...

    async def weights(self) -> dict[Uid, dict[Uid, float]]:
        """The weights now on the chain, per validator uid, each row summing to 1."""
        ...

    async def balance_rao(self) -> int:
        """The free balance of the coldkey that this hotkey's wallet belongs to."""
        ...

    async def close(self) -> None:
        """Let go of the connection; the object is then not usable any more."""
        ...
