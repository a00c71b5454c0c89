"""A wallet's files as they lie on disk: what is missing or unreadable, said before any key is touched. No SDK here."""

import os
import sys
from pathlib import Path
from typing import Protocol, runtime_checkable

from template.errors import WalletError

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
    """The hotkey's file. Raises WalletError with what was looked for, what was found and the command that makes it."""
    for kind, value in (("wallet", name), ("hotkey", hotkey)):
        if not value or "/" in value or value in (".", ".."):
            raise WalletError(f"expected a {kind} name that is one path part, found {value!r}; give its plain name")
    root = Path(path).expanduser()
    options = f"--wallet-path {path} -w {name} -H {hotkey}"
    folder = root / name
    if not folder.is_dir():
        raise WalletError(
            f"expected a wallet {name!r} in {root}, found {_found(root)}; name one of those, or make it with "
            f"`btcli wallet create {options}`"
        )
    file = folder / "hotkeys" / hotkey
    if not file.is_file():
        raise WalletError(
            f"expected a hotkey {hotkey!r} in {folder / 'hotkeys'}, found {_found(folder / 'hotkeys')}; name one of "
            f"those, or make it with `btcli wallet new-hotkey {options}`"
        )
    if not os.access(file, os.R_OK):
        raise WalletError(f"expected to be allowed to read {file}, found that this user may not; chown it to this user")
    return file


def _found(folder: Path) -> str:
    try:
        names = sorted(entry.name for entry in folder.iterdir() if not entry.name.endswith(("pub.txt", ".tmp")))
    except FileNotFoundError:
        return "no such folder"
    except OSError as error:
        return f"a folder that cannot be read ({error.strerror})"
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    return shown or "an empty folder"
