"""Start a leaderboard of one's own: a web page of a run, on `--axon.port` (8090 when it is left out).

python neurons/leaderboard.py --run http://ORCHESTRATOR:8080 --axon.port 8090
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # so that a clone works without being installed

from subnet.cli.main import run_role

if __name__ == "__main__":
    sys.exit(run_role("leaderboard", sys.argv[1:]))
