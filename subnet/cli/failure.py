"""How a command ends: 0, 1 failed, 2 wrong usage or configuration, 75 temporary; and one sentence on stderr.

Owns the map from our two error trees, and from the operating system's refusals, to these codes. An error that is not
in the map is our own bug: it keeps its traceback. Knows no command.
"""

import errno
from collections.abc import Callable

from subnet.cli.console import complain
from subnet.errors import ConfigError, SubnetError, TemporaryError
from template.errors import BaseNeuronError

OK = 0
FAILED = 1
USAGE = 2
TEMPORARY = 75

SYSTEM = {
    errno.EADDRINUSE: (USAGE, "another process listens there; stop it or choose another --port"),
    errno.EADDRNOTAVAIL: (USAGE, "this machine has no such address; bind one of its own, or 0.0.0.0"),
    errno.ENOSPC: (FAILED, "the disk is full; free some space and start again, what was written before is whole"),
    errno.EDQUOT: (FAILED, "the disk quota is used up; free some space and start again"),
    errno.EACCES: (USAGE, "this user may not do that; choose another place or correct the permissions"),
    errno.EPERM: (USAGE, "this user may not do that; choose another place or correct the permissions"),
    errno.EROFS: (USAGE, "that disk is read-only; choose another place"),
    errno.ENOENT: (USAGE, "there is no such file or folder; correct the path"),
    errno.ENOTDIR: (USAGE, "a part of that path is a file; correct the path"),
    errno.EISDIR: (USAGE, "that is a folder; name a file"),
    errno.EEXIST: (USAGE, "that exists already; choose another name"),
    errno.EMFILE: (FAILED, "too many files are open; raise the limit with ulimit -n"),
    errno.ENOMEM: (FAILED, "there is not enough memory; stop other programs or use a smaller run"),
    errno.ECONNREFUSED: (TEMPORARY, "nobody listens there; start the other side or correct the address"),
    errno.ETIMEDOUT: (TEMPORARY, "no answer came in time; try again later"),
}


def exit_code(error: BaseException) -> int:
    """The exit code that an error of ours, or of the operating system, ends a command with."""
    if isinstance(error, BaseNeuronError):
        return error.exit_code
    if isinstance(error, ConfigError):
        return USAGE
    if isinstance(error, TemporaryError):
        return TEMPORARY
    if isinstance(error, OSError):
        return SYSTEM.get(error.errno or 0, (FAILED, ""))[0]
    return FAILED


def sentence(error: BaseException) -> str:
    """One line that says what was expected or found, and what to do."""
    if isinstance(error, OSError) and error.errno is not None:
        where = f"{error.filename}: " if error.filename else ""
        remedy = SYSTEM.get(error.errno, (FAILED, "see the system's message"))[1]
        return f"{where}{error.strerror or 'the system refused'}; {remedy}"
    return " ".join(str(error).split()) or type(error).__name__


def first_cause(error: BaseException) -> BaseException:
    """The first single error of a group of them, as tasks that ran side by side raise it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def guarded(command: Callable[[], object]) -> int:
    """Run a command to its exit code; an error of ours becomes a sentence on stderr."""
    try:
        command()
    except (SubnetError, BaseNeuronError, OSError) as error:
        return _end(error)
    except ExceptionGroup as group:
        cause = first_cause(group)
        if not isinstance(cause, SubnetError | BaseNeuronError | OSError):
            raise
        return _end(cause)
    except KeyboardInterrupt:
        complain("stopped by Ctrl-C")
        return FAILED
    except SystemExit as end:
        return _code(end.code)
    return OK


def _end(error: BaseException) -> int:
    complain(sentence(error))
    return exit_code(error)


def _code(code: object) -> int:
    if code is None:
        return OK
    return code if isinstance(code, int) else FAILED
