"""The base's error tree. A message is one sentence: what was expected, what was found, what to do.

BaseNeuronError
├── UsageError             the user's configuration cannot work (exit 2: do not restart)
│   ├── WalletError        a wallet is missing, unreadable, corrupt or locked
│   ├── NetworkError       the network's name is unknown
│   ├── PortError          the port is held by another process, or may not be bound
│   └── LockError          another process already runs this hotkey on this data folder
├── ChainError             the chain, or the way to it, refuses (exit 1)
│   ├── ChainUnreachable   no endpoint answers, or not in time (exit 75: restart)
│   ├── ChainBusy          refused for now by nonce, pool or window; the same call may work later (exit 75)
│   ├── RateLimited        too soon; `blocks_to_wait` says how long, where the chain says it (exit 75)
│   ├── NotRegistered      the hotkey has no uid on the subnet (exit 2)
│   ├── NotPermitted       this key may not make that call, or has no validator permit (exit 2)
│   ├── InsufficientBalance  the signing account cannot pay (exit 2)
│   ├── SubnetNotFound     no such subnet, or it has not been started (exit 2)
│   ├── SpendLimit         the price is above the limit that the user set (exit 2)
│   └── ChainRefused       anything else the chain says no to, by the chain's own name
│       └── UpdateNeeded   this software is older than the subnet asks for (exit 2)
├── AuthError              a request or signature that is refused (`word` and `status` go to the sender)
│   ├── MalformedAuth      a header is missing or unreadable
│   ├── WrongReceiver      signed for somebody else, or for nobody
│   ├── ClockFault         the two refusals that a wrong clock causes, with `delta_s`
│   │   ├── ExpiredRequest     too old
│   │   └── FutureRequest      ahead of our clock
│   ├── BadSignature       not by that hotkey, or not over this request
│   ├── ReplayedRequest    seen before
│   └── UnknownCaller      well signed, by somebody who is not registered here
├── RefusedRequest         a handler's own refusal, with its status and word
└── TransportError         an exchange with a peer that did not end in an answer (exit 75)
    ├── PeerUnreachable    no connection
    ├── DeadlineExceeded   connected, but no complete answer in time
    ├── BadResponse        an answer that is not HTTP, or not what was asked for
    ├── BodyTooLarge       more bytes than announced or allowed
    ├── BodyMismatch       fewer bytes than announced, or another digest
    ├── ClockSkew          the peer refused our clock; `delta_s` says by how much
    └── PeerRefused        the peer answered with an error; `status`, `word` and its sentence
"""


class BaseNeuronError(Exception):
    """Base of all errors of the neuron base. `exit_code` is what a process that ends on it returns."""

    exit_code = 1


class UsageError(BaseNeuronError, ValueError):
    """The user's configuration cannot work."""

    exit_code = 2


class WalletError(UsageError):
    """A wallet is missing, unreadable, corrupt or locked."""


class NetworkError(UsageError):
    """The network's name is unknown."""


class PortError(UsageError):
    """The port is held by another process, or may not be bound."""


class LockError(UsageError):
    """Another process already runs this hotkey on this data folder."""


class ChainError(BaseNeuronError):
    """The chain, or the way to it, refuses."""


class ChainUnreachable(ChainError):
    """No endpoint answers, or not in time."""

    exit_code = 75


class ChainBusy(ChainError):
    """Refused for now (nonce, pool, window); the same call may work later."""

    exit_code = 75


class RateLimited(ChainError):
    """Too soon. `blocks_to_wait` is None where the chain does not say."""

    exit_code = 75

    def __init__(self, message: str, *, blocks_to_wait: int | None = None) -> None:
        super().__init__(message)
        self.blocks_to_wait = blocks_to_wait


class NotRegistered(ChainError):
    """The hotkey has no uid on the subnet."""

    exit_code = 2


class NotPermitted(ChainError):
    """This key may not make that call, or has no validator permit."""

    exit_code = 2


class InsufficientBalance(ChainError):
    """The signing account cannot pay."""

    exit_code = 2


class SubnetNotFound(ChainError):
    """No such subnet, or it has not been started."""

    exit_code = 2


class SpendLimit(ChainError):
    """The price is above the limit that the user set."""

    exit_code = 2


class ChainRefused(ChainError):
    """Anything else the chain says no to. `name` is the chain's own name of it, where there is one."""

    def __init__(self, message: str, *, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


class UpdateNeeded(ChainRefused):
    """This software is older than the subnet asks for."""

    exit_code = 2


class AuthError(BaseNeuronError, ValueError):
    """A request or a signature that is refused. The message is safe to show to its sender."""

    word = "unauthenticated"
    status = 401


class MalformedAuth(AuthError):
    """A header is missing or unreadable."""

    word = "malformed_auth"


class WrongReceiver(AuthError):
    """Signed for somebody else, or for nobody."""

    word = "wrong_receiver"


class ClockFault(AuthError):
    """Base of the two refusals that a wrong clock causes; `delta_s` is the sender's clock less ours."""

    def __init__(self, message: str, *, delta_s: float) -> None:
        super().__init__(message)
        self.delta_s = delta_s


class ExpiredRequest(ClockFault):
    """Too old."""

    word = "expired"


class FutureRequest(ClockFault):
    """Ahead of our clock."""

    word = "future_dated"


class BadSignature(AuthError):
    """Not by that hotkey, or not over this request."""

    word = "bad_signature"


class ReplayedRequest(AuthError):
    """Seen before."""

    word = "replayed"


class UnknownCaller(AuthError):
    """Well signed, by somebody who is not registered here."""

    word = "unregistered"
    status = 403


class RefusedRequest(BaseNeuronError):
    """A handler's own refusal of a request: `status` and `word` are sent with the message.

    retry_after_s: when the same request may pass, sent as the header Retry-After.
    """

    def __init__(self, message: str, *, word: str, status: int = 400, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.word = word
        self.status = status
        self.retry_after_s = retry_after_s


class TransportError(BaseNeuronError):
    """An exchange with a peer that did not end in an answer."""

    exit_code = 75


class PeerUnreachable(TransportError):
    """No connection."""


class DeadlineExceeded(TransportError):
    """Connected, but no complete answer in time."""


class BadResponse(TransportError):
    """An answer that is not HTTP, or not what was asked for."""


class BodyTooLarge(TransportError):
    """More bytes than announced or allowed."""

    word = "too_large"
    status = 413


class BodyMismatch(TransportError):
    """Fewer bytes than announced, or bytes of another digest."""

    word = "body_mismatch"
    status = 400


class PeerRefused(TransportError):
    """The peer answered with an error. `retry_after_s` is how long it asks to be left alone, where it says so.

    delta_s: by how much somebody behind the peer found our date off, where it is about that.
    """

    def __init__(
        self, message: str, *, status: int, word: str, retry_after_s: float | None = None, delta_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.word = word
        self.retry_after_s = retry_after_s
        self.delta_s = delta_s


class ClockSkew(PeerRefused):
    """The peer refused our clock; `delta_s` is our clock less the peer's."""

    def __init__(self, message: str, *, word: str, delta_s: float) -> None:
        super().__init__(message, status=401, word=word)
        self.delta_s: float = delta_s
