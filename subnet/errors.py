"""The subnet's error tree. Every message says what was expected, what was found and what to do.

SubnetError
├── ConfigError            the user's configuration cannot work (exit code 2)
│   ├── ModelError         the model cannot be built or cut as asked
│   └── CorpusError        the data set is missing, empty, not text, or not the run's
├── PeerError              another machine sent something that is refused
│   ├── MessageError       not canonical, not of its type, or not signed by its author
│   ├── FrameError         a tensor frame that is malformed, oversized or of the wrong shape
│   ├── InputError         a tensor that is not finite, out of band or repeated
│   ├── EvidenceError      bytes that do not have the digest or root they were asked by
│   └── RefusedError       a request that the rules do not allow (wrong signer, not planned, replayed)
├── CheckpointError        a checkpoint with missing, unexpected or mismatched tensors
├── LedgerError            the log is not a hash chain, or its fold is contradictory
└── TemporaryError         the other side does not answer now; trying again may help (exit code 75)
    ├── UnreachableError   no connection, or no answer in time
    └── StoreError         the blob store refuses or has lost bytes
        ├── StoreFull      there is no room for more
        └── BlobMissing    there are no bytes of that name
"""


class SubnetError(Exception):
    """Base of all errors of the training system."""


class ConfigError(SubnetError, ValueError):
    """The user's configuration cannot work."""


class ModelError(ConfigError):
    """The model cannot be built or cut as asked."""


class CorpusError(ConfigError):
    """The data set is missing, empty, not text, or not the run's."""


class PeerError(SubnetError):
    """Another machine sent something that is refused."""


class MessageError(PeerError):
    """A message that is not canonical, not of its type, or not signed by its author."""


class FrameError(PeerError):
    """A tensor frame that is malformed, oversized or of the wrong shape."""


class InputError(PeerError):
    """A tensor that is not finite, out of band or repeated."""


class EvidenceError(PeerError):
    """Bytes that do not have the digest or root they were asked by."""


class RefusedError(PeerError):
    """A request that the rules do not allow."""


class CheckpointError(SubnetError):
    """A checkpoint with missing, unexpected or mismatched tensors."""


class LedgerError(SubnetError):
    """The log is not a hash chain, or its fold is contradictory."""


class TemporaryError(SubnetError):
    """The other side does not answer now; trying again may help."""


class UnreachableError(TemporaryError):
    """No connection, or no answer in time."""


class StoreError(TemporaryError):
    """The blob store refuses or has lost bytes."""


class StoreFull(StoreError):
    """There is no room for more."""


class BlobMissing(StoreError):
    """There are no bytes of that name."""


EXIT_CODES: dict[type[Exception], int] = {ConfigError: 2, TemporaryError: 75, SubnetError: 1}
"""What a process that ends on one of these returns; the most specific class counts."""
