"""The shield opens what the SDK's own core sealed."""

import hashlib

import bittensor_core
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from template.devchain.context import PoolError
from template.devchain.mlkem import decapsulate, encapsulate, key_pair
from template.devchain.shield import ROTATION_BLOCKS, Shield, key_hash

KEYS = key_pair(hashlib.sha512(b"test").digest())


@given(st.binary(min_size=32, max_size=32))
@settings(max_examples=10, deadline=None)
def test_decapsulation_gives_what_was_encapsulated(message: bytes) -> None:
    shared, ciphertext = encapsulate(KEYS.public, message)
    assert decapsulate(KEYS, ciphertext) == shared


def test_a_changed_ciphertext_gives_an_unrelated_secret() -> None:
    shared, ciphertext = encapsulate(KEYS.public, b"m" * 32)
    forged = bytes([ciphertext[0] ^ 1]) + ciphertext[1:]
    assert decapsulate(KEYS, forged) != shared
    assert decapsulate(KEYS, forged) == decapsulate(KEYS, forged)


def test_a_ciphertext_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(ValueError, match="has 1088 bytes, found 7"):
        decapsulate(KEYS, b"1234567")


def test_what_the_sdks_core_seals_is_opened() -> None:
    """An independent implementation of ML-KEM and of the envelope seals; ours opens."""
    shield = Shield(b"secret")
    sealed = bittensor_core.encrypt_mlkem768(shield.public_key(25), b"an extrinsic", True)
    assert sealed[:16] == key_hash(shield.public_key(25))
    assert shield.open(sealed, 25) == b"an extrinsic"


def test_the_keys_before_still_open_and_older_ones_do_not() -> None:
    shield = Shield(b"secret")
    sealed = bittensor_core.encrypt_mlkem768(shield.public_key(0), b"x", True)
    assert shield.open(sealed, 2 * ROTATION_BLOCKS) == b"x"
    with pytest.raises(PoolError, match="Custom error: 24"):
        shield.open(sealed, 3 * ROTATION_BLOCKS)


def test_a_tampered_body_does_not_open_and_a_short_one_is_refused() -> None:
    shield = Shield(b"secret")
    sealed = bytearray(bittensor_core.encrypt_mlkem768(shield.public_key(0), b"x", True))
    sealed[-1] ^= 1
    assert shield.open(bytes(sealed), 0) is None
    with pytest.raises(PoolError, match="Custom error: 23"):
        shield.check(bytes(sealed[:100]), 0)


def test_a_shield_made_again_from_its_secret_has_the_same_keys() -> None:
    assert Shield(b"secret").public_key(40) == Shield(b"secret").public_key(49)
    assert Shield(b"secret").public_key(40) != Shield(b"other").public_key(40)
