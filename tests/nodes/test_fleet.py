"""A network of processes on one machine is what its plan says, whatever the user has set for other networks."""

import os
from collections.abc import Sequence
from pathlib import Path

from subnet.cli import env_example
from subnet.nodes.fleet import UNSET, Fleet, without_settings
from subnet.nodes.local import LocalNetwork, Plan
from tests.ledger.small import run_config


def test_processes_of_a_network_do_not_see_the_user_s_settings():
    environment = {"PATH": "/bin", "STRATA_LEDGER": "postgresql://u:p@h/d", "BT_FALLBACK_ENDPOINTS": "wss://x"}
    seen = {name: value for name, value in without_settings(environment).items() if value}
    assert seen == {"PATH": "/bin", "STRATA_ENV_FILE": os.devnull}


class Noting(Fleet):
    """Starts nothing, and keeps what it would have started."""

    def command(self, name: str, arguments: Sequence[str]) -> None:
        self.arguments = list(arguments)


def test_every_setting_of_the_orchestrator_is_given_by_the_plan_or_left_at_its_default(tmp_path: Path):
    plan = Plan(run=run_config(), folder=tmp_path, miners={"miner-0": ("", None)}, num_validators=1, port=1)
    network = LocalNetwork(plan=plan)
    network.fleet = noting = Noting(logs=tmp_path)
    network._start_orchestrator()
    given = {word for word in noting.arguments if word.startswith("--")}
    open_settings = [
        option.name
        for option in env_example.settings("orchestrator")
        if not given.intersection(option.opts) and not set(env_example.names(option)) <= set(UNSET)
    ]
    assert open_settings == []
