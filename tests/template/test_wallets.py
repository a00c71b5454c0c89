"""Wallet files on disk: each thing that can be missing is named with what was found and what makes it."""

import os
import sys
from pathlib import Path

import pytest

from template.errors import WalletError
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
