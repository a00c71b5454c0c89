"""Laws of a command's end: the exit code by the kind of error, one sentence on stderr, no traceback for a user."""

import errno
import os

import pytest

from subnet import errors as ours
from subnet.cli.failure import FAILED, OK, TEMPORARY, USAGE, exit_code, guarded, sentence
from template import errors as base


def every(kind: type[Exception]) -> list[type[Exception]]:
    return [kind, *(below for each in kind.__subclasses__() for below in every(each))]


def raiser(error: BaseException):
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize("kind", every(ours.SubnetError), ids=lambda kind: kind.__name__)
def test_every_error_of_the_subnet_has_its_exit_code(kind: type[Exception]):
    code = exit_code(kind("sentence"))
    if issubclass(kind, ours.ConfigError):
        assert code == USAGE
    elif issubclass(kind, ours.TemporaryError):
        assert code == TEMPORARY
    else:
        assert code == FAILED


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (base.WalletError("w"), USAGE),
        (base.NetworkError("n"), USAGE),
        (base.PortError("p"), USAGE),
        (base.PeerUnreachable("u"), TEMPORARY),
        (base.ChainUnreachable("c"), TEMPORARY),
        (base.ChainRefused("r"), FAILED),
        (base.InsufficientBalance("i"), USAGE),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_base_s_errors_bring_their_own(error: base.BaseNeuronError, code: int):
    assert exit_code(error) == code


@pytest.mark.parametrize(
    ("number", "code", "remedy"),
    [
        (errno.ENOSPC, FAILED, "free some space"),
        (errno.EADDRINUSE, USAGE, "choose another --port"),
        (errno.EACCES, USAGE, "correct the permissions"),
        (errno.ENOENT, USAGE, "correct the path"),
        (errno.ECONNREFUSED, TEMPORARY, "start the other side"),
    ],
)
def test_the_system_s_refusals_say_what_to_do(number: int, code: int, remedy: str):
    error = OSError(number, os.strerror(number), "/some/where")
    assert exit_code(error) == code
    assert sentence(error).startswith("/some/where: ")
    assert remedy in sentence(error)


def test_a_fault_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]):
    assert guarded(raiser(ours.ModelError("expected 2,\n found 3;\tchange \x1b[31m it"))) == USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "error: expected 2, found 3; change  [31m it\n"


def test_success_and_explicit_ends_keep_their_code():
    assert guarded(lambda: None) == OK
    assert guarded(raiser(SystemExit(75))) == TEMPORARY
    assert guarded(raiser(SystemExit())) == OK


def test_ctrl_c_is_a_sentence(capsys: pytest.CaptureFixture[str]):
    assert guarded(raiser(KeyboardInterrupt())) == FAILED
    assert capsys.readouterr().err == "error: stopped by Ctrl-C\n"


def test_the_first_of_several_faults_is_told(capsys: pytest.CaptureFixture[str]):
    group = ExceptionGroup("tasks", [ExceptionGroup("inner", [ours.StoreError("full")]), base.PortError("busy")])
    assert guarded(raiser(group)) == TEMPORARY
    assert capsys.readouterr().err == "error: full\n"


@pytest.mark.parametrize("bug", [KeyError("x"), ExceptionGroup("tasks", [KeyError("x")])], ids=["bare", "group"])
def test_a_bug_of_ours_keeps_its_traceback(bug: Exception):
    with pytest.raises(type(bug)):
        guarded(raiser(bug))
