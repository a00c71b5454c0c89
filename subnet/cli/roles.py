"""`strata orchestrator`, `miner`, `validator` and `publisher`: one process each, on any network.

Owns the reading of their options. What the processes do is `subnet.nodes`' business; torch is loaded only by those
that compute.
"""

import logging
import os
from collections.abc import Callable, Coroutine
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from subnet.canonical import parse
from subnet.cli import flags
from subnet.cli.console import note
from subnet.config import RunConfig
from subnet.edges.presets import RunOptions, build_run, model_name, with_block_time
from subnet.edges.tolerances import caveat
from subnet.errors import EXIT_CODES, ConfigError, MessageError
from subnet.model.cost import spans
from template.config import LOCAL_ADDRESS_MAP, LOCAL_STAND_IN_ADDRESS, NeuronConfig, parse_address_map
from template.errors import UsageError
from template.neuron import Running, run_neuron
from template.values import Hotkey
from template.wallets import check_wallet_files, expanded

LOG_FORMAT = "time=%(asctime)s level=%(levelname)s logger=%(name)s %(message)s"
DATA_DIR = Path("~/.strata")
LOCAL_ENDPOINT = "ws://127.0.0.1:9944"  # what the SDK takes "local" for where BT_CHAIN_ENDPOINT says nothing else

AddressMap = Annotated[
    list[str] | None,
    typer.Option(
        "--address-map",
        envvar="STRATA_ADDRESS_MAP",
        metavar="ANNOUNCED=REACHED",
        help="Reach an announced address at another one.",
    ),
]
Fallback = Annotated[
    list[str] | None,
    typer.Option(
        "--fallback-endpoint", envvar="BT_FALLBACK_ENDPOINTS", help="A ws:// address to use when others fail."
    ),
]
ByHotkey = Annotated[
    str | None,
    typer.Option(
        "--orchestrator",
        envvar="STRATA_ORCHESTRATOR",
        metavar="SS58",
        help="The orchestrator's hotkey. Default: the owner's.",
    ),
]

RunMain = Callable[[Running], Coroutine[Any, Any, None]]


def miner(
    network: flags.Network = "finney",
    netuid: flags.Netuid = 1,
    wallet: flags.Wallet = "default",
    hotkey: flags.Hotkey = "default",
    wallet_path: flags.WalletPath = flags.WALLET_PATH,
    data_dir: flags.DataDir = None,
    host: flags.Host = "0.0.0.0",
    port: flags.Port = 0,
    external_ip: flags.ExternalIp = None,
    external_port: flags.ExternalPort = None,
    outbound_only: flags.OutboundOnly = False,
    orchestrator: ByHotkey = None,
    address_map: AddressMap = None,
    fallback_endpoint: Fallback = None,
    device: flags.Device = "cpu",
    recompute: flags.Recompute = False,
    keep_states: flags.KeepStates = None,
    cheat: Annotated[str, typer.Option(help="Be dishonest on purpose: KIND[:STRENGTH]. For tests of validators.")] = "",
    debug: flags.Debug = False,
    env_file: flags.EnvFile = None,
) -> None:
    """Train a stage of the run of this subnet, until stopped."""
    from subnet.nodes.processes import run_miner

    if device != "cpu":
        raise ConfigError(f"expected the device cpu, found {device!r}; this version computes on the CPU only")
    config = neuron_config(
        network, netuid, wallet, hotkey, wallet_path=wallet_path, data_dir=data_dir, host=host, port=port,
        external_host=external_ip, external_port=external_port, orchestrator=orchestrator, address_map=address_map,
        fallback=fallback_endpoint, outbound_only=outbound_only,
    )  # fmt: skip
    choice = cheat_choice(cheat)

    def work(running: Running) -> Coroutine[Any, Any, None]:
        return run_miner(config, running, cheat=choice, recompute=recompute, keep_states=keep_states)

    run_role("miner", config, work, debug=debug)


def validator(
    network: flags.Network = "finney",
    netuid: flags.Netuid = 1,
    wallet: flags.Wallet = "default",
    hotkey: flags.Hotkey = "default",
    wallet_path: flags.WalletPath = flags.WALLET_PATH,
    data_dir: flags.DataDir = None,
    host: flags.Host = "0.0.0.0",
    port: flags.Port = 0,
    orchestrator: ByHotkey = None,
    address_map: AddressMap = None,
    fallback_endpoint: Fallback = None,
    device: flags.Device = "cpu",
    debug: flags.Debug = False,
    env_file: flags.EnvFile = None,
) -> None:
    """Draw, replay and judge the miners' work, and set weights, until stopped."""
    from subnet.nodes.processes import run_validator

    if device != "cpu":
        raise ConfigError(f"expected the device cpu, found {device!r}; this version computes on the CPU only")
    config = neuron_config(
        network, netuid, wallet, hotkey, wallet_path=wallet_path, data_dir=data_dir, host=host, port=port,
        orchestrator=orchestrator, address_map=address_map, fallback=fallback_endpoint,
    )  # fmt: skip
    run_role("validator", config, lambda running: run_validator(config, running), debug=debug)


def publisher(
    out: Annotated[
        Path, typer.Option(envvar="STRATA_OUT", metavar="DIR", help="Where the checkpoints go, one folder a round.")
    ],
    network: flags.Network = "finney",
    netuid: flags.Netuid = 1,
    wallet: flags.Wallet = "default",
    hotkey: flags.Hotkey = "default",
    wallet_path: flags.WalletPath = flags.WALLET_PATH,
    data_dir: flags.DataDir = None,
    address_map: AddressMap = None,
    fallback_endpoint: Fallback = None,
    debug: flags.Debug = False,
    env_file: flags.EnvFile = None,
) -> None:
    """Write and evaluate each round's checkpoint, with the orchestrator's hotkey."""
    from subnet.nodes.processes import run_publisher

    config = neuron_config(
        network, netuid, wallet, hotkey, wallet_path=wallet_path, data_dir=data_dir, address_map=address_map,
        fallback=fallback_endpoint,
    )  # fmt: skip
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"expected a folder at {out}, found: {error.strerror}; choose another --out") from error
    run_role("publisher", config, lambda running: run_publisher(config, running, out=out), debug=debug, lock=False)


def orchestrator(
    network: flags.Network = "finney",
    netuid: flags.Netuid = 1,
    wallet: flags.Wallet = "default",
    hotkey: flags.Hotkey = "default",
    wallet_path: flags.WalletPath = flags.WALLET_PATH,
    data_dir: flags.DataDir = None,
    host: flags.Host = "0.0.0.0",
    port: flags.Port = 8080,
    external_ip: flags.ExternalIp = None,
    external_port: flags.ExternalPort = None,
    address_map: AddressMap = None,
    fallback_endpoint: Fallback = None,
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config", envvar="STRATA_CONFIG", metavar="FILE", help="The run's configuration in canonical JSON."
        ),
    ] = None,
    stages: Annotated[
        int, typer.Option(envvar="STRATA_STAGES", help="Pipeline stages, when no --config is given.")
    ] = 2,
    rounds: Annotated[int, typer.Option(envvar="STRATA_ROUNDS", help="Rounds of training.")] = RunOptions().rounds,
    steps: Annotated[int, typer.Option(envvar="STRATA_STEPS", help="Inner steps per round.")] = RunOptions().steps,
    model: flags.Model = "tiny",
    data: Annotated[
        str, typer.Option(envvar="STRATA_DATA", help="stdlib, a folder of text, or datasets:PATH[#COLUMN].")
    ] = "stdlib",
    tokenizer: flags.Tokenizer = None,
    sequence_tokens: flags.SequenceTokens = None,
    lr: flags.Lr = None,
    dtype: flags.Dtype = "float32",
    optimizer: flags.Optimizer = "adamw",
    reduction: flags.Reduction = "mean",
    outer: flags.Outer = "diloco",
    tolerances: flags.Tolerances = None,
    wait_for: Annotated[
        int | None,
        typer.Option(envvar="STRATA_WAIT_FOR", min=1, help="Start with so many miners. Default: one per stage."),
    ] = None,
    patience: Annotated[
        float, typer.Option(envvar="STRATA_PATIENCE", min=0, help="Seconds to wait for them after the first.")
    ] = 60.0,
    ledger: Annotated[
        str | None, typer.Option(envvar="STRATA_LEDGER", help="Database URL. Default: SQLite in the data folder.")
    ] = None,
    canaries: Annotated[
        Path | None,
        typer.Option(
            envvar="STRATA_CANARIES", metavar="FILE", help="Miners of the owner's that cheat, to measure validators."
        ),
    ] = None,
    debug: flags.Debug = False,
    env_file: flags.EnvFile = None,
) -> None:
    """Plan a run on this subnet, keep its ledger and serve its page, until stopped."""
    from subnet.nodes.orchestrating import OrchestratorOptions, run_orchestrator

    config = neuron_config(
        network, netuid, wallet, hotkey, wallet_path=wallet_path, data_dir=data_dir, host=host, port=port,
        external_host=external_ip or (LOCAL_STAND_IN_ADDRESS if on_this_machine(network) else None),
        external_port=external_port, address_map=address_map, fallback=fallback_endpoint,
    )  # fmt: skip
    if config_file is not None:
        run = read_config(config_file)
    else:
        run = build_run(
            RunOptions(
                stages=stages, rounds=rounds, steps=steps, model=model, data=data,
                tokenizer=tokenizer, sequence_tokens=sequence_tokens, lr=lr, tolerances=tolerances,
                dtype=dtype, optimizer=optimizer, reduction=reduction, outer=outer,
            )
        )  # fmt: skip
        if unmeasured := caveat(run, model_name(model), tolerances):
            note(unmeasured)
    spans(run)  # a model that cannot be cut is refused before anything is written

    def run_for(block_time_s: float) -> RunConfig:
        return run if config_file is not None else with_block_time(run, block_time_s)

    options = OrchestratorOptions(
        num_miners=wait_for or run.stages, patience_s=patience, ledger_url=ledger, canaries=canaries
    )
    run_role(
        "orchestrator",
        config,
        lambda running: run_orchestrator(config, running, run_for=run_for, options=options),
        debug=debug,
    )


def neuron_config(
    network: str,
    netuid: int,
    wallet: str,
    hotkey: str,
    *,
    wallet_path: str,
    data_dir: Path | None,
    host: str = "0.0.0.0",
    port: int = 0,
    external_host: str | None = None,
    external_port: int | None = None,
    orchestrator: Hotkey | None = None,
    address_map: list[str] | None = None,
    fallback: list[str] | None = None,
    outbound_only: bool = False,
) -> NeuronConfig:
    """The identity and place of one process from its command line."""
    folder = expanded(data_dir or DATA_DIR / f"netuid{netuid}")
    return NeuronConfig(
        data_dir=folder,
        network=network,
        netuid=netuid,
        wallet_name=wallet,
        wallet_hotkey=hotkey,
        wallet_path=wallet_path,
        fallback_endpoints=tuple(fallback or ()),
        host=host,
        port=port,
        external_host=external_host,
        external_port=external_port,
        address_map={**(LOCAL_ADDRESS_MAP if on_this_machine(network) else {}), **parse_address_map(address_map or ())},
        orchestrator=orchestrator,
        outbound_only=outbound_only,
    )


def on_this_machine(network: str) -> bool:
    """Whether the chain is at a loopback address. It refuses to have those announced, so a network on one machine
    needs the address that stands for it; nobody else ever has that one."""
    endpoint = os.environ.get("BT_CHAIN_ENDPOINT", LOCAL_ENDPOINT) if network == "local" else network
    host = urlsplit(endpoint).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def cheat_choice(text: str) -> Any:
    """The cheat that `--cheat KIND[:STRENGTH]` names; empty for an honest miner."""
    from subnet.cheats.registry import parse_cheats
    from subnet.nodes.processes import HONEST, CheatChoice

    chosen = parse_cheats(text)
    if not chosen:
        return HONEST
    kind, strength, _ = chosen[0]
    return CheatChoice(kind=kind, strength=strength)


def read_config(path: Path) -> RunConfig:
    """A run's configuration from a file of canonical JSON."""
    try:
        return parse(path.read_bytes().strip(), RunConfig)
    except OSError as error:
        raise ConfigError(
            f"expected a run's configuration at {path}, found: {error.strerror}; check the path"
        ) from error
    except MessageError as error:
        raise ConfigError(
            f"expected a run's configuration in canonical JSON in {path}, found something else ({error}); use the "
            "run.json that another command wrote"
        ) from error


def run_role(name: str, config: NeuronConfig, main: RunMain, *, debug: bool, lock: bool = True) -> None:
    """Run a neuron to its exit code, with its log on stderr."""
    logging.basicConfig(level=logging.DEBUG if debug else logging.INFO, format=LOG_FORMAT)
    for noisy in ("httpx", "websockets", "uvicorn", "asyncio", "bittensor"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    file = check_wallet_files(config.wallet_name, config.wallet_hotkey, config.wallet_path)
    if name == "orchestrator":
        check_address(config)
    hotkey = f"{config.wallet_name}-{file.name}" if lock else None
    code = run_neuron(main, name=f"strata {name}", data_dir=config.data_dir, hotkey=hotkey, exit_codes=EXIT_CODES)
    if code:
        raise typer.Exit(code)


def check_address(config: NeuronConfig) -> None:
    """Raise UsageError where nobody could be told at which address this process answers."""
    if config.external_host is None and ip_address(config.host).is_unspecified:
        raise UsageError(
            "expected the address at which miners and validators reach this orchestrator, found none: it listens at "
            f"all of the machine's ({config.host}); give it with --external-ip"
        )
