"""The command around a calibration: which runs it measures, and how it says what came out."""

import platform
from pathlib import Path

import msgspec
import pytest

from subnet.audit.tolerance import KINDS, classes, spreads_of
from subnet.cli.calibrate import MODEL_SEEDS, drawn, kept, machine, named_class, table, versions
from subnet.edges.presets import DRAWN_LR, PRESETS
from subnet.edges.tolerances import calibration_bytes, read_calibration
from subnet.errors import ConfigError


def test_every_class_is_measured_on_its_own_runs_and_on_the_model_that_is_named():
    for run_class in classes():
        populations = drawn(run_class, 3, "nano", 4, seed=1)
        assert {name: len(settings) for name, settings in populations.items()} == {"": 3} | dict.fromkeys(
            ("tiny", "nano"), MODEL_SEEDS
        )
        settings = [setting for own in populations.values() for setting in own]
        found = {(s.run.train.dtype, s.run.train.optimizer, s.run.lanes.codec) for s in settings}
        assert found == {run_class}
    small, usual, named = (settings[0].run for settings in populations.values())
    assert (named.model.values["hidden_size"], named.stages, named.data.sequence_tokens) == (32, 4, 32)
    assert (usual.model.values["hidden_size"], usual.stages, usual.data.sequence_tokens) == (128, 2, 128)
    assert named.train.lr == DRAWN_LR
    assert named.audit.chunk_frac == small.audit.chunk_frac == 1.0


def test_a_model_goes_by_the_name_of_its_folder(tmp_path: Path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_bytes(msgspec.json.encode(PRESETS["nano"]))
    assert list(drawn(("float32", "adamw", "none"), 1, str(folder), 2, seed=1)) == ["", "tiny", "mine"]


def test_without_a_model_small_runs_and_the_usual_model_are_measured():
    assert list(drawn(("float32", "adamw", "none"), 3, None, 2, seed=1)) == ["", "tiny"]


def test_what_came_out_is_a_line_for_each_class_and_kind():
    spreads = spreads_of(("float32", "adamw", "none"), [{"delta": 2e-6, "loss": 1e-7}] * 5, settings=1)
    lines = list(table(spreads))
    assert len(lines) == 3
    assert lines[0].split() == [
        "class,",
        "model",
        "kind",
        "segments",
        "median",
        "99.9",
        "%",
        "largest",
        "tolerance",
    ]
    assert lines[2].split() == ["float32", "adamw", "none", "delta", "5", "2.0e-06", "2.0e-06", "2.0e-06", "3.5e-06"]


def test_the_machine_is_named():
    assert machine()["system"] == platform.system()
    assert all(machine().values())


def test_a_class_is_measured_alone_and_the_others_are_kept(tmp_path: Path):
    """From the same machine and libraries only."""
    packaged = read_calibration()
    here = msgspec.structs.replace(packaged, machine=machine(), versions=versions())
    path = tmp_path / "tolerances.json"
    assert kept(path, "float32/adamw/none") == ()
    path.write_bytes(calibration_bytes(here))
    others = kept(path, "float32/adamw/none")
    assert kept(path, None) == ()
    assert 0 < len(others) <= len(packaged.spreads) - 2 * len(KINDS)
    assert ("float32", "adamw", "none") not in {(s.dtype, s.optimizer, s.codec) for s in others}
    path.write_bytes(calibration_bytes(msgspec.structs.replace(here, versions={"torch": "1.0"})))
    with pytest.raises(ConfigError, match="expected a calibration of this machine .*, found another's"):
        kept(path, "float32/adamw/none")


def test_a_class_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match="expected --only of float32/adamw/none, .*, found 'float16'; choose one"):
        named_class("float16")
