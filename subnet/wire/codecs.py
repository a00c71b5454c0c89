"""The former name of `subnet.wire.codec`, until its last user imports that."""

from subnet.wire.codec import decode, encode, encoded_bytes

__all__ = ["decode", "encode", "encoded_bytes"]
