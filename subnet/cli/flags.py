"""The flags of the role commands: how they are spelt, and the older spellings that `neurons/*.py` still take.

The new spellings are btcli's (`-n local -w NAME -H HOTKEY`). The older, dotted ones are those that guides, scripts and
process managers of the network still carry. Knows nothing of what the values are used for.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from subnet.cli import env
from template.config import DEFAULT_WALLET_PATH
from template.errors import UsageError

EnvFile = Annotated[
    Path | None,
    typer.Option(
        "--env-file",
        envvar="STRATA_ENV_FILE",
        is_eager=True,
        callback=env.load_env,
        metavar="FILE",
        help="Settings as NAME=VALUE lines. Default: .env in this folder, if there is one.",
    ),
]
Network = Annotated[
    str,
    typer.Option(
        "--network",
        "-n",
        envvar=[*env.NETWORK],
        help="finney, test, local, or a ws:// address.",
    ),
]
Netuid = Annotated[int, typer.Option("--netuid", envvar="BT_NETUID", help="The subnet's number.")]
Wallet = Annotated[str, typer.Option("--wallet", "-w", envvar=[*env.WALLET], help="The wallet's name.")]
Hotkey = Annotated[str, typer.Option("--hotkey", "-H", envvar="BT_WALLET_HOTKEY", help="The hotkey's name in it.")]
WalletPath = Annotated[str, typer.Option("--wallet-path", envvar="BT_WALLET_PATH", help="The folder of wallets.")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", envvar="STRATA_DATA_DIR", help="Where to keep state.")]
Host = Annotated[str, typer.Option("--host", envvar=[*env.HOST], help="The address to listen on.")]
Port = Annotated[
    int,
    typer.Option(
        "--port",
        envvar=[*env.PORT],
        min=0,
        max=65535,
        help="The port to listen on; 0 takes a free one.",
    ),
]
ExternalIp = Annotated[
    str | None,
    typer.Option(
        "--external-ip",
        envvar=[*env.EXTERNAL_IP],
        help="The address to announce on the chain.",
    ),
]
ExternalPort = Annotated[
    int | None,
    typer.Option(
        "--external-port",
        envvar=[*env.EXTERNAL_PORT],
        min=1,
        max=65535,
        help="The port to announce on the chain.",
    ),
]
OutboundOnly = Annotated[
    bool,
    typer.Option(
        "--outbound-only",
        envvar="STRATA_OUTBOUND_ONLY",
        help="Announce no address: everything comes through the orchestrator's relay.",
    ),
]
Device = Annotated[str, typer.Option("--device", envvar="STRATA_DEVICE", help="Where to compute: cpu, cuda, cuda:1.")]
Recompute = Annotated[
    bool,
    typer.Option(
        "--recompute",
        envvar="STRATA_RECOMPUTE",
        help="Keep less of each microbatch and compute it again: about a third more work for less memory.",
    ),
]
KeepStates = Annotated[
    int | None,
    typer.Option(
        "--keep-states",
        envvar="STRATA_KEEP_STATES",
        min=1,
        help="Keep so many states and each round's last, and compute others again when asked. Default: keep all owed.",
    ),
]
Dtype = Annotated[
    str,
    typer.Option("--dtype", envvar="STRATA_DTYPE", help="Compute dtype: float32, or bfloat16 for the matrix products."),
]
Optimizer = Annotated[
    str, typer.Option("--optimizer", envvar="STRATA_OPTIMIZER", help="The inner optimizer: adamw or muon.")
]
Reduction = Annotated[
    str,
    typer.Option(
        "--reduction",
        envvar="STRATA_REDUCTION",
        help="How a stage's contributions become one: mean, trimmed_mean or centred_clipping.",
    ),
]
Outer = Annotated[
    str, typer.Option("--outer", envvar="STRATA_OUTER", help="The outer step after a merge: diloco or averaging.")
]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        envvar="STRATA_MODEL",
        help="tiny, nano, a config.json, or a model to start from: a folder, or OWNER/NAME[@REVISION] of the Hub.",
    ),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        envvar="STRATA_TOKENIZER",
        help="bytes, or a tokenizer's folder or Hub id. Default: that of the model to start from, else bytes.",
    ),
]
Lr = Annotated[
    float | None,
    typer.Option(
        "--lr",
        envvar="STRATA_LR",
        min=0,
        help="The inner learning rate. Default: 0.002, or 0.0001 for a model to start from.",
    ),
]
SequenceTokens = Annotated[
    int | None,
    typer.Option(
        "--sequence-tokens",
        envvar="STRATA_SEQUENCE_TOKENS",
        min=2,
        help="Tokens of a sequence. Default: the model's context, at most 1024.",
    ),
]
Tolerances = Annotated[
    Path | None,
    typer.Option(
        "--tolerances",
        envvar="STRATA_TOLERANCES",
        metavar="FILE",
        help="What `strata calibrate` wrote. Default: the package's own calibration.",
    ),
]
Debug = Annotated[bool, typer.Option("--debug", envvar="STRATA_DEBUG", help="Log more.")]
Json = Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")]

WALLET_PATH = DEFAULT_WALLET_PATH

DOTTED = {
    "--netuid": "--netuid",
    "--subtensor.network": "--network",
    "--subtensor.chain_endpoint": "--network",
    "--wallet.name": "--wallet",
    "--wallet.hotkey": "--hotkey",
    "--wallet.path": "--wallet-path",
    "--axon.ip": "--host",
    "--axon.port": "--port",
    "--axon.external_ip": "--external-ip",
    "--axon.external_port": "--external-port",
    "--neuron.device": "--device",
    "--logging.debug": "--debug",
    "--logging.trace": "--debug",
    "--logging.info": "",
}
SWITCHES = {"--logging.debug", "--logging.trace", "--logging.info"}
BOARD_PORT = "8090"
MEANINGLESS = {  # taken and left out: the role announces no endpoint, or never computes on an accelerator
    "orchestrator": {"--neuron.device"},
    "validator": {"--axon.external_ip", "--axon.external_port"},
}


def translated(role: str, arguments: Sequence[str]) -> list[str]:
    """The arguments of `strata ROLE` that an entry point's arguments mean.

    Raises UsageError on a dotted flag that has no meaning here. An endpoint wins over a network's name, as it did.
    """
    if role == "leaderboard":
        return _leaderboard(arguments)
    left = list(arguments)
    dropped = {"--subtensor.network"} if any(_name(each) == "--subtensor.chain_endpoint" for each in left) else set()
    dropped |= MEANINGLESS.get(role, set())
    words: list[str] = []
    while left:
        argument = left.pop(0)
        name, equals, value = argument.partition("=")
        if name in SWITCHES:
            words += [DOTTED[name]] if DOTTED[name] else []
        elif name in DOTTED:
            if not equals and not left:
                raise UsageError(f"expected a value after {name}, found nothing; write {name} VALUE")
            value = value if equals else left.pop(0)
            words += [] if name in dropped else [DOTTED[name], value]
        elif name.startswith("--") and "." in name:
            raise UsageError(_unknown(name))
        else:
            words.append(argument)
    return words


def _leaderboard(arguments: Sequence[str]) -> list[str]:
    """The board needs no wallet and no chain: of the older flags only the address and port of its page matter."""
    words, port, kept = translated("miner", arguments), BOARD_PORT, []
    while words:
        word = words.pop(0)
        if word in ("--port", "--web"):
            port = words.pop(0) if words else ""
        elif word in ("--network", "--netuid", "--wallet", "--hotkey", "--wallet-path", "--device"):
            words = words[1:]
        elif word not in ("--debug", "--external-ip", "--external-port"):
            kept.append(word)
    asked = {"--once", "--json", "--help"} & set(kept)
    return kept if asked else [*kept, "--web", port]


def _name(argument: str) -> str:
    return argument.partition("=")[0]


def _unknown(name: str) -> str:
    known = ", ".join(sorted(DOTTED))
    return f"expected one of {known}, or a flag of `strata`, found {name}; leave it out, see --help"
