"""The transaction pool: what waits for a block, in order of arrival and nonce.

Owns waiting extrinsics only. Whether one is valid is asked of the function it
is given; it does not know storage.
"""

from collections.abc import Iterator

from template.devchain.context import PoolError
from template.devchain.extrinsics import Extrinsic

_MAX_WAITING = 8192
_ALREADY_IMPORTED, _TOO_LOW_PRIORITY, _TOO_MANY = 1013, 1014, 1016


class Pool:
    """Waiting extrinsics by account and nonce."""

    def __init__(self) -> None:
        self._accounts: dict[str, dict[int, Extrinsic]] = {}
        self._order: dict[bytes, Extrinsic] = {}
        self._births: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._order)

    def add(self, extrinsic: Extrinsic, block: int) -> Extrinsic | None:
        """Take one in for that block or a later one; returns the one it replaced (same nonce, lower tip)."""
        if extrinsic.hash in self._order:
            raise PoolError(_ALREADY_IMPORTED, "Transaction Already Imported", f"0x{extrinsic.hash.hex()}")
        waiting = self._accounts.setdefault(extrinsic.signer, {})
        old = waiting.get(extrinsic.nonce)
        if old is not None and extrinsic.tip <= old.tip:
            detail = "The transaction has too low priority to replace another transaction already in the pool."
            raise PoolError(_TOO_LOW_PRIORITY, f"Priority is too low: ({old.tip} vs {extrinsic.tip})", detail)
        if old is None and len(self._order) >= _MAX_WAITING:
            raise PoolError(_TOO_MANY, "Immediately Dropped", "The transaction couldn't enter the pool: it is full")
        if old is not None:
            self.remove(old)
        self._accounts.setdefault(extrinsic.signer, {})[extrinsic.nonce] = extrinsic
        self._order[extrinsic.hash] = extrinsic
        self._births[extrinsic.hash] = extrinsic.birth(block)
        return old

    def remove(self, extrinsic: Extrinsic) -> None:
        """Take one out."""
        if self._order.pop(extrinsic.hash, None) is None:
            return
        del self._births[extrinsic.hash]
        waiting = self._accounts[extrinsic.signer]
        waiting.pop(extrinsic.nonce, None)
        if not waiting:
            del self._accounts[extrinsic.signer]

    def next_nonce(self, account: str, on_chain: int) -> int:
        """The nonce an account should use next, after what already waits without a gap."""
        waiting = self._accounts.get(account, {})
        nonce = on_chain
        while nonce in waiting:
            nonce += 1
        return nonce

    def waiting(self) -> list[Extrinsic]:
        """Everything that waits: by arrival, an account's own by nonce."""
        return sorted(self._order.values(), key=lambda each: each.nonce)

    def expired(self, block: int) -> list[Extrinsic]:
        """Those whose era is over at that block: nothing can bring them into one any more."""
        return [each for each in self._order.values() if each.birth(block) != self._births[each.hash]]

    def ready(self, nonces: dict[str, int]) -> Iterator[Extrinsic]:
        """What can go into a block now: higher tips first, then by arrival, each account's nonces without a gap.

        `nonces` holds the accounts' on-chain nonces; the caller updates it as it includes extrinsics.
        """
        taken: set[bytes] = set()
        progress = True
        arrival = {each_hash: index for index, each_hash in enumerate(self._order)}
        while progress:
            progress = False
            batch = [
                each
                for each in self._order.values()
                if each.hash not in taken and each.nonce == nonces.get(each.signer, -1)
            ]
            for extrinsic in sorted(batch, key=lambda each: (-each.tip, arrival[each.hash])):
                taken.add(extrinsic.hash)
                progress = True
                yield extrinsic

    def accounts(self) -> list[str]:
        """Accounts with something waiting."""
        return list(self._accounts)
