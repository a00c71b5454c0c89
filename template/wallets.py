"""A wallet's files as they lie on disk: what is missing or unreadable, said before any key is touched. No SDK here."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Protocol, runtime_checkable

from template.errors import UsageError, WalletError

ADDRESS = re.compile(r"[1-9A-HJ-NP-Za-km-z]{46,49}")  # how an ss58 address looks; no name needs to
PASSWORD_VARIABLES = ("BT_WALLET_PASSWORD", "BT_WALLET_PASSWORD_FILE")  # that the SDK looks at, and a person can set


@runtime_checkable
class Keyfile(Protocol):
    """One key on disk, as the SDK shows it."""

    path: str

    def exists_on_device(self) -> bool: ...

    def is_encrypted(self) -> bool: ...

    def env_var_name(self) -> str: ...


def require_unlockable(coldkey_file: Keyfile) -> None:
    """Raise WalletError where the SDK would ask for a password that nobody can type, or would find no coldkey."""
    if not coldkey_file.exists_on_device():
        raise WalletError(
            f"expected the coldkey at {coldkey_file.path}, found none; run this on the machine that has it (only "
            "registering and paying need it), or restore it with `btcli wallet regen-coldkey`"
        )
    variables = (*PASSWORD_VARIABLES, coldkey_file.env_var_name())
    given = any(os.environ.get(name) for name in variables)
    if coldkey_file.is_encrypted() and not sys.stdin.isatty() and not given:
        raise WalletError(
            f"expected a password for the coldkey at {coldkey_file.path}, found no terminal to ask on; set "
            f"{' or '.join(PASSWORD_VARIABLES)}"
        )


def check_wallet_files(name: str, hotkey: str, path: str) -> Path:
    """The hotkey's file; `hotkey` is its name, or its address. Raises WalletError with what was looked for, what was
    found and the command that makes it."""
    for kind, value in (("wallet", name), ("hotkey", hotkey)):
        if not value or "/" in value or value in (".", ".."):
            raise WalletError(f"expected a {kind} name that is one path part, found {value!r}; give its plain name")
    root = expanded(path)
    options = f"--wallet-path {path} -w {name} -H {hotkey}"
    folder = root / name
    if not folder.is_dir():
        raise WalletError(
            f"expected a wallet {name!r} in {root}, found {_found(root)}; name one of those, or make it with "
            f"`btcli wallet create {options}`"
        )
    file = folder / "hotkeys" / hotkey
    if not file.is_file() and ADDRESS.fullmatch(hotkey):
        file = _of_address(root, name, hotkey)
    if not file.is_file():
        meant = f" ({hotkey} is a wallet: give that with --wallet)" if (root / hotkey).is_dir() else ""
        raise WalletError(
            f"expected a hotkey {hotkey!r} in {folder / 'hotkeys'}, found {_found(folder / 'hotkeys')}{meant}; name "
            f"one of those, or make it with `btcli wallet new-hotkey {options}`"
        )
    if not os.access(file, os.R_OK):
        raise WalletError(f"expected to be allowed to read {file}, found that this user may not; chown it to this user")
    return file


def expanded(path: str | Path) -> Path:
    """The path with its `~` replaced. Raises UsageError where nobody can say what that is, as without a home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UsageError(
            f"expected a home folder for {path}, found none for this user (HOME is not set); give the full path"
        ) from error


def _of_address(root: Path, name: str, address: str) -> Path:
    """The file of the wallet's hotkey that has this address. Raises WalletError with where else it is, if anywhere."""
    for file in _hotkeys(root / name):
        if _address_in(file) == address:
            return file
    others = [f"{other.parent.parent.name}/{other.name}" for other in sorted(root.glob("*/hotkeys/*"))
              if not other.name.endswith("pub.txt") and _address_in(other) == address]  # fmt: skip
    if others:
        wallet, hotkey = others[0].split("/")
        where, remedy = f"it as {hotkey!r} in wallet {wallet!r}", f"give --wallet {wallet} --hotkey {hotkey}"
    elif _address_in(root / name / "coldkey") == address:
        where, remedy = "it to be the wallet's coldkey", "give the name of a hotkey with --hotkey"
    else:
        known = [f"{file.name} ({_address_in(file) or 'not readable'})" for file in _hotkeys(root / name)][:10]
        where, remedy = (
            ", ".join(known) or "none",
            "give the name of one of those, or use the machine that has this key",
        )
    raise WalletError(f"expected a hotkey with the address {address} in wallet {name!r}, found {where}; {remedy}")


def _hotkeys(folder: Path) -> list[Path]:
    return sorted(file for file in (folder / "hotkeys").glob("*") if not file.name.endswith(("pub.txt", ".tmp")))


def _address_in(file: Path) -> str:
    """The address that a key file, or the public one beside it, states; empty when neither can be read."""
    for path in (file.with_name(f"{file.name}pub.txt"), file):
        try:
            facts = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(facts, dict) and isinstance(facts.get("ss58Address"), str):
            return str(facts["ss58Address"])
    return ""


def _found(folder: Path) -> str:
    try:
        names = sorted(entry.name for entry in folder.iterdir() if not entry.name.endswith(("pub.txt", ".tmp")))
    except FileNotFoundError:
        return "no such folder"
    except OSError as error:
        return f"a folder that cannot be read ({error.strerror})"
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    return shown or "an empty folder"
