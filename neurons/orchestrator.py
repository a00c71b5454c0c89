"""Start an orchestrator: it plans the run, keeps its ledger, serves its page.

Takes the flags that subnet guides use (`--wallet.name`, `--subtensor.network`, `--axon.port`, ...) as well as those
of `strata orchestrator`, and runs that command.

    python neurons/orchestrator.py --netuid 1 --subtensor.network local --wallet.name alice --wallet.hotkey default
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # so that a clone works without being installed

from subnet.cli.main import run_role

if __name__ == "__main__":
    sys.exit(run_role("orchestrator", sys.argv[1:]))
