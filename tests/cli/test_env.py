"""Settings from files and the environment: what counts more, what is refused, and that no value is ever shown."""

from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from subnet.cli import env, env_example, flags
from subnet.cli.main import load, run
from subnet.errors import ConfigError

SECRET = "hunter2hunter2"


def test_a_file_is_read_as_people_write_it():
    text = (
        '\ufeff# remark\n\nBT_NETUID=3\n export  BT_WALLET = alice # mine\r\nA=\'a # b\'\nB="two\\nlines \\"q\\"" # c\n'
        "C=\nD=a#b\nE= # nothing\nBT_NETUID=4\n"
    )
    assert env.parse_env(text, ".env") == {
        "BT_NETUID": "4", "BT_WALLET": "alice", "A": "a # b", "B": 'two\nlines "q"', "C": "", "D": "a#b", "E": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    "line", [SECRET, f"={SECRET}", f"1A={SECRET}", f"A='{SECRET}", f'A="{SECRET}" x', f"A B={SECRET}"]
)
def test_a_wrong_line_is_named_by_its_number_and_not_shown(line: str):
    with pytest.raises(ConfigError, match=r"NAME=VALUE in line 2 of /x/\.env") as caught:
        env.parse_env(f"A=1\n{line}\n", "/x/.env")
    assert SECRET not in str(caught.value)


NAMES = st.builds("{}{}".format, st.sampled_from("A_"), st.text("AZ09_", max_size=3))


@given(st.dictionaries(NAMES, st.text(st.characters(codec="utf-8"), max_size=20), max_size=4))
def test_what_is_written_in_quotes_comes_back(settings: dict[str, str]):
    plain = {name: "".join(each for each in value if each.isprintable()) for name, value in settings.items()}
    quoted = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in plain.items()}
    assert env.parse_env("\n".join(f'{name}="{value}"' for name, value in quoted.items()), "x") == plain


def test_the_environment_counts_more_than_the_file_under_any_name_of_a_setting():
    environment = {"BT_AXON_PORT": "1", "BT_WALLET": ""}
    env.settle(environment, {"STRATA_PORT": "2", "BT_WALLET": "file", "BT_NETUID": "5", "OTHER": "x"})
    assert environment == {"BT_AXON_PORT": "1", "BT_WALLET": "file", "BT_NETUID": "5", "OTHER": "x"}


def test_unknown_names_are_said_once_without_their_values(capsys: pytest.CaptureFixture[str]):
    environment = {"STRATA_PROT": SECRET, "BT_PW__HOME_X": SECRET, "PATH": "/bin", "BT_CHAIN_ENDPOINT": "ws://x:1"}
    env.settle(environment, {"BT_ZZZ": SECRET})
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "warning: BT_ZZZ is no setting of Strata and does nothing; see --help for those there are",
        "warning: STRATA_PROT is no setting of Strata and does nothing; did you mean STRATA_PORT?",
    ]


def test_a_file_that_was_named_must_be_there_and_text(tmp_path: Path):
    assert env.read_env(None, tmp_path) == {}
    with pytest.raises(ConfigError, match=r"expected a file of settings at .*missing, found: No such file"):
        env.read_env(tmp_path / "missing", tmp_path)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="expected a text file"):
        env.read_env(tmp_path / "bytes", tmp_path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of its own, and an environment without settings that is put back."""
    for name in env.SETTINGS:
        monkeypatch.setenv(name, "")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(*arguments: str) -> dict[str, Any]:
    """What a command with the roles' own options takes from flags, environment and files."""
    taken: dict[str, Any] = {}

    def command(
        netuid: flags.Netuid = 1,
        wallet: flags.Wallet = "default",
        hotkey: flags.Hotkey = "default",
        port: flags.Port = 0,
        debug: flags.Debug = False,
        env_file: flags.EnvFile = None,
    ) -> None:
        taken.update(locals())

    application = typer.Typer(add_completion=False)
    application.command()(command)
    with pytest.raises(SystemExit) as end:
        application(arguments)
    assert end.value.code == 0
    return taken


def test_flag_over_environment_over_file_over_default(folder: Path, monkeypatch: pytest.MonkeyPatch):
    (folder / ".env").write_text("BT_NETUID=3\nBT_WALLET=file\nBT_WALLET_HOTKEY=file\nSTRATA_DEBUG=yes\n")
    monkeypatch.setenv("BT_WALLET_HOTKEY", "environment")
    monkeypatch.setenv("BT_WALLET", "environment")
    taken = read("--wallet", "flag")
    found = [taken[name] for name in ("wallet", "hotkey", "netuid", "port", "debug")]
    assert found == ["flag", "environment", 3, 0, True]


def test_another_file_is_read_instead(folder: Path):
    (folder / ".env").write_text("BT_NETUID=3\n")
    (folder / "other").write_text("BT_WALLET='my wallet'\nBT_AXON_PORT=8091\n")
    taken = read("--env-file", "other")
    assert (taken["netuid"], taken["port"], taken["wallet"]) == (1, 8091, "my wallet")


@pytest.mark.parametrize("written", ["true", "1", "YES", "on"])
def test_a_switch_is_turned_on(folder: Path, written: str):
    (folder / ".env").write_text(f"STRATA_DEBUG={written}\n")
    assert read()["debug"] is True


@pytest.mark.parametrize("written", ["false", "0", "No", "off", ""])
def test_a_switch_is_turned_off(folder: Path, written: str):
    (folder / ".env").write_text(f"STRATA_DEBUG={written}\n")
    assert read()["debug"] is False


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("STRATA_DEBUG=perhaps", "STRATA_DEBUG"),
        ("STRATA_PORT=x", "STRATA_PORT"),
        ("BT_NETUID=-1", "expected a netuid"),
        ("BT_NETWORK=main", "expected a network"),
        (SECRET, "expected NAME=VALUE in line 1"),
    ],
)
def test_a_wrong_value_ends_with_2_and_no_trace(
    folder: Path, capsys: pytest.CaptureFixture[str], setting: str, said: str
):
    (folder / ".env").write_text(setting + "\n")
    assert run(["miner"]) == 2
    shown = capsys.readouterr().err
    assert said in " ".join(shown.split()) and "Traceback" not in shown and SECRET not in shown


def options_of(role: str) -> list[Any]:
    command: Any = typer.main.get_command(load(role))
    return list(command.params)


def test_the_settings_are_those_of_the_roles():
    named = {name for role in (*env_example.ROLES, "register") for option in options_of(role) if option.envvar
             for name in env_example.names(option)}  # fmt: skip
    assert named == env.SETTINGS
    assert not env.SETTINGS & env.OF_OTHERS


@pytest.mark.parametrize("role", [*env_example.ROLES, "register"])
def test_every_role_reads_a_file_and_every_setting_has_one_meaning(role: str):
    eager = [option for option in options_of(role) if option.is_eager and option.name == "env_file"]
    assert len(eager) == 1 and eager[0].callback is not None
    own = [name for option in env_example.settings(role) for name in env_example.names(option)]
    assert len(own) == len(set(own))
    if role != "register":
        dishonest = {"cheat"} if role == "miner" else set()
        unset = {option.name for option in options_of(role) if not option.envvar} - {"help"}
        assert unset == dishonest, "every option but dishonesty can be set in the environment"


@pytest.mark.parametrize("role", env_example.ROLES)
def test_the_example_files_are_those_of_the_options(role: str, repository: Path):
    text = (repository / f"{role}.env.example").read_text(encoding="utf-8")
    assert text == env_example.example(role), f"run python -m subnet.cli.env_example {role} > {role}.env.example"
    assert set(env.parse_env(text, role).values()) == {""}
