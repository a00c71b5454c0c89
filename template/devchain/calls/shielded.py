"""MevShield: the carrier of a sealed extrinsic. Opening it is the block author's work, not the call's."""

from typing import Any

from template.devchain.blocks import blake2_256
from template.devchain.calls.serving import bytes_of
from template.devchain.context import Context, Origin

SUBMIT = "MevShield.submit_encrypted"


def submit_encrypted(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Note that a sealed extrinsic is in this block."""
    digest = blake2_256(bytes_of(args["ciphertext"]))
    ctx.emit("MevShield.EncryptedSubmitted", {"id": "0x" + digest.hex(), "who": origin.signed()})


CALLS = {SUBMIT: submit_encrypted}
