"""A port for a server that is started later: nobody else is given it meanwhile, and nobody answers there."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A free port of this machine, bound and not listened at. Who reuses addresses, as every server here, may bind it
    all the same; the system gives it to nobody who asks for any port."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])
