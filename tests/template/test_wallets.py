"""Wallet files on disk: each thing that can be missing is named with what was found and what makes it."""

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from template.errors import UsageError, WalletError
from template.wallets import check_wallet_files, require_unlockable


def make(root: Path, wallet: str, *hotkeys: str) -> None:
    folder = root / wallet / "hotkeys"
    folder.mkdir(parents=True)
    for hotkey in hotkeys:
        (folder / hotkey).write_text("{}")
        (folder / f"{hotkey}pub.txt").write_text("{}")


def test_the_hotkeys_file_is_returned(tmp_path: Path) -> None:
    make(tmp_path, "alice", "miner")
    assert check_wallet_files("alice", "miner", str(tmp_path)) == tmp_path / "alice" / "hotkeys" / "miner"


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(
        WalletError, match=r"found no such folder.*btcli wallet create --wallet-path .* -w alice -H miner"
    ):
        check_wallet_files("alice", "miner", str(tmp_path / "nowhere"))


def test_a_missing_wallet_is_said_with_those_that_exist(tmp_path: Path) -> None:
    make(tmp_path, "bob", "miner")
    make(tmp_path, "carol", "miner")
    with pytest.raises(WalletError, match=r"expected a wallet 'alice' in .*, found bob, carol; .*btcli wallet create"):
        check_wallet_files("alice", "miner", str(tmp_path))


def test_a_missing_hotkey_is_said_with_those_that_exist(tmp_path: Path) -> None:
    make(tmp_path, "alice", *(f"h{number:02}" for number in range(12)))
    with pytest.raises(WalletError, match=r"hotkey 'miner' .* found h00, .*h09 and 2 more; .*btcli wallet new-hotkey"):
        check_wallet_files("alice", "miner", str(tmp_path))


@pytest.mark.parametrize(("name", "hotkey"), [("../alice", "miner"), ("alice", "a/b"), ("", "miner"), ("alice", "..")])
def test_a_name_is_not_a_path(tmp_path: Path, name: str, hotkey: str) -> None:
    with pytest.raises(WalletError, match="one path part"):
        check_wallet_files(name, hotkey, str(tmp_path))


def test_an_unreadable_hotkey_is_said(tmp_path: Path) -> None:
    make(tmp_path, "alice", "miner")
    file = tmp_path / "alice" / "hotkeys" / "miner"
    file.chmod(0)
    if os.access(file, os.R_OK):  # root reads everything
        assert check_wallet_files("alice", "miner", str(tmp_path)) == file
    else:
        with pytest.raises(WalletError, match="may not"):
            check_wallet_files("alice", "miner", str(tmp_path))


def address(text: str) -> str:
    """What looks like an address, of its own for each text."""
    return "5" + (text.replace("l", "L") * 48)[:47]


def keys(root: Path, wallet: str, *hotkeys: str, public_only: str = "") -> None:
    """A wallet whose key files say their addresses, as the real ones do; one may be encrypted."""
    make(root, wallet, *hotkeys)
    files = {f"hotkeys/{name}": name for name in hotkeys} | {"coldkey": f"{wallet}C"}
    for place, name in files.items():
        facts = json.dumps({"ss58Address": address(name), "publicKey": "0x00"})
        (root / wallet / place).write_bytes(b"$NACL\x00\xff" if name == public_only else facts.encode())
        (root / wallet / f"{place}pub.txt").write_text(facts)


def test_a_hotkey_may_be_named_by_its_address(tmp_path: Path) -> None:
    keys(tmp_path, "alice", "miner", "other", public_only="other")
    for name in ("miner", "other"):
        assert check_wallet_files("alice", address(name), str(tmp_path)).name == name


@pytest.mark.parametrize(
    ("hotkey", "said"),
    [
        (
            address("nobody"),
            r"found miner \(5minerminer.*\); give the name of one of those, or use the machine that has",
        ),
        (address("other"), r"found it as 'other' in wallet 'bob'; give --wallet bob --hotkey other"),
        (address("aliceC"), r"found it to be the wallet's coldkey; give the name of a hotkey with --hotkey"),
        (
            "bob",
            r"expected a hotkey 'bob' in .*, found miner \(bob is a wallet: give that with --wallet\); name one of",
        ),
    ],
)
def test_an_address_or_name_that_is_none_of_the_wallet_s_hotkeys_is_placed(
    hotkey: str, said: str, tmp_path: Path
) -> None:
    keys(tmp_path, "alice", "miner")
    keys(tmp_path, "bob", "other")
    with pytest.raises(WalletError, match=said):
        check_wallet_files("alice", hotkey, str(tmp_path))


def test_a_damaged_key_file_does_not_hide_the_others(tmp_path: Path) -> None:
    keys(tmp_path, "alice", "a", "b", "miner")
    for name, content in (("a", b"\xff\x00"), ("b", b"[1]")):
        (tmp_path / "alice" / "hotkeys" / name).write_bytes(content)
        (tmp_path / "alice" / "hotkeys" / f"{name}pub.txt").write_bytes(content)
    assert check_wallet_files("alice", address("miner"), str(tmp_path)).name == "miner"
    with pytest.raises(WalletError, match=r"found a \(not readable\), b \(not readable\), miner \(5miner"):
        check_wallet_files("alice", address("nobody"), str(tmp_path))


def test_a_home_that_nobody_can_tell_is_said() -> None:
    with pytest.raises(
        UsageError, match=r"expected a home folder for ~nosuchuser/w, found none .*; give the full path"
    ):
        check_wallet_files("alice", "miner", "~nosuchuser/w")


@pytest.mark.flow
def test_a_tilde_in_quotes_means_the_home_folder_also_where_home_is_not_set(
    repository: Path, isolated_home: Path
) -> None:
    """As under systemd: the user's own entry says where home is."""
    environment = {name: value for name, value in os.environ.items() if name != "HOME"}
    home = pwd.getpwuid(os.getuid()).pw_dir
    for variables, expected in ((dict(os.environ), str(isolated_home)), (environment, home)):
        done = subprocess.run(
            [sys.executable, "-m", "neurons.miner", "--wallet-path", "~/no-such-folder", "--data-dir", "~/no-such"],
            cwd=repository, env=variables, capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (2, "")
        assert f"expected a wallet 'default' in {expected}/no-such-folder, found no such folder" in done.stderr
        assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
    assert not (Path(home) / "no-such").exists()


class LockedKeyfile:
    """A coldkey's file that is there and encrypted."""

    path = "/wallets/alice/coldkey"

    def exists_on_device(self) -> bool:
        return True

    def is_encrypted(self) -> bool:
        return True

    def env_var_name(self) -> str:
        return "BT_PW__WALLETS_ALICE_COLDKEY"


@pytest.mark.parametrize("name", ["BT_WALLET_PASSWORD", "BT_WALLET_PASSWORD_FILE", "BT_PW__WALLETS_ALICE_COLDKEY"])
def test_a_locked_coldkey_needs_a_terminal_or_a_password_where_the_sdk_looks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not sys.stdin.isatty()
    with pytest.raises(WalletError, match="no terminal to ask on; set BT_WALLET_PASSWORD or BT_WALLET_PASSWORD_FILE"):
        require_unlockable(LockedKeyfile())
    monkeypatch.setenv(name, "x")
    require_unlockable(LockedKeyfile())
