"""A network of processes on one machine is what its plan says, whatever the user has set for other networks."""

import os

from subnet.nodes.fleet import without_settings


def test_processes_of_a_network_do_not_see_the_user_s_settings():
    environment = {
        "PATH": "/bin",
        "STRATA_LEDGER": "postgresql://u:p@h/d",
        "BT_FALLBACK_ENDPOINTS": "wss://x",
        "TZ": "",
    }
    assert without_settings(environment) == {"PATH": "/bin", "TZ": "", "STRATA_ENV_FILE": os.devnull}
