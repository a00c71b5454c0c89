"""The packaged calibration: `tolerances.json` beside this file, which `strata calibrate` wrote on the machine it names.

Presets fill a run's tolerances from it, or from a file of the user's own, made on the machines and the model that the
run is for. Knows nothing of how one is measured; that its numbers follow from each other is checked as it is read.
"""

from pathlib import Path

import msgspec

from subnet.audit.tolerance import Calibration
from subnet.config import RunConfig
from subnet.edges.small_runs import are_like
from subnet.errors import ConfigError

PACKAGED = Path(__file__).with_name("tolerances.json")


def read_calibration(path: Path = PACKAGED) -> Calibration:
    """The calibration in a file. Raises ConfigError when it is none, or its tolerances are not its rule's."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Calibration)
    except OSError as error:
        raise ConfigError(f"expected a calibration at {path}, found {error.strerror}; check --tolerances") from error
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"expected a calibration in {path}, found something else ({error}); make one with `strata calibrate`"
        ) from error


def caveat(run: RunConfig, model: str, path: Path | None) -> str:
    """What to say of a run whose model, called so, nobody measured: "" when it was, or small runs stand for it.

    path: the calibration, the package's where it is None. Raises ConfigError as `read_calibration` does.
    """
    if are_like(run) or any(spread.model == model for spread in read_calibration(path or PACKAGED).spreads):
        return ""
    return (
        f"the tolerances of this run were measured on smaller models than {model}, whose honest work may differ by "
        "more between unlike machines; before others mine, run strata calibrate --model MODEL --out FILE, and give "
        "--tolerances FILE"
    )


def calibration_bytes(calibration: Calibration) -> bytes:
    """The file of a calibration."""
    return msgspec.json.format(msgspec.json.encode(calibration), indent=2) + b"\n"
