"""No tolerance is picked by hand: presets' come from the packaged calibration, and its from what it measured."""

from pathlib import Path

import msgspec
import pytest

from subnet.audit.tolerance import KINDS, classes, tolerance, tolerances
from subnet.edges.presets import PRESETS, RunOptions, build_run
from subnet.edges.small_runs import are_like, drawn_settings
from subnet.edges.tolerances import PACKAGED, calibration_bytes, caveat, read_calibration
from subnet.errors import ConfigError

NOTICED = {"float32": 0.01, "bfloat16": 0.05}  # the deviation that no tolerance may hide, for AdamW


@pytest.mark.parametrize(("dtype", "optimizer", "codec"), classes())
def test_a_runs_tolerances_are_the_packaged_calibrations(dtype: str, optimizer: str, codec: str):
    run = build_run(RunOptions(model="nano", dtype=dtype, optimizer=optimizer, codec=codec))
    expected = tolerances(read_calibration(), dtype=dtype, optimizer=optimizer, codec=codec)
    usual = build_run(RunOptions(dtype=dtype, optimizer=optimizer, codec=codec)).audit
    own = tolerances(read_calibration(), dtype=dtype, optimizer=optimizer, codec=codec, model="tiny")
    assert {kind: getattr(usual, f"tolerance_{kind}") for kind in KINDS} == own
    assert all(own[kind] >= expected[kind] for kind in KINDS)
    assert {kind: getattr(run.audit, f"tolerance_{kind}") for kind in KINDS} == expected


def test_the_packaged_tolerances_follow_their_rule_from_many_segments():
    packaged = read_calibration()
    assert not packaged.quick
    assert packaged.machine
    assert packaged.versions
    assert len(packaged.conditions) >= 10
    for spread in packaged.spreads:
        assert spread.tolerance == pytest.approx(tolerance(spread.q999, spread.max))
        assert spread.count >= (20 if spread.model else 100)


def test_the_packaged_tolerances_notice_a_small_deviation_with_adamw():
    for spread in read_calibration().spreads:
        if spread.optimizer == "adamw":
            assert spread.tolerance < NOTICED[spread.dtype], spread


def test_the_file_lies_in_the_package():
    assert PACKAGED.is_file()
    assert calibration_bytes(read_calibration()) == PACKAGED.read_bytes()


def test_a_run_may_use_a_calibration_of_its_own(tmp_path: Path):
    data = msgspec.to_builtins(read_calibration())
    for spread in data["spreads"]:
        spread["q999"] = spread["max"] = 1e-3
        spread["tolerance"] = tolerance(1e-3, 1e-3)
    path = tmp_path / "own.json"
    path.write_bytes(msgspec.json.encode(data))
    audit = build_run(RunOptions(model="nano", tolerances=path)).audit
    assert {getattr(audit, f"tolerance_{kind}") for kind in KINDS} == {tolerance(1e-3, 1e-3)}


def test_a_model_with_biased_keys_needs_a_calibration_of_its_own(tmp_path: Path):
    path = tmp_path / "config.json"
    path.write_bytes(msgspec.json.encode(PRESETS["nano"] | {"attention_bias": True}))
    with pytest.raises(ConfigError, match="expected no attention_bias in a run with the packaged tolerances"):
        build_run(RunOptions(model=str(path)))
    assert build_run(RunOptions(model=str(path), tolerances=PACKAGED)).model.values["attention_bias"]


def test_a_run_of_a_larger_model_that_nobody_measured_is_told_so(tmp_path: Path):
    assert (
        caveat(build_run(RunOptions(model="nano")), "nano", None) == caveat(build_run(RunOptions()), "tiny", None) == ""
    )
    path = tmp_path / "config.json"
    path.write_bytes(msgspec.json.encode(PRESETS["tiny"] | {"num_hidden_layers": 8}))
    deep = build_run(RunOptions(model=str(path)))
    assert caveat(deep, "mine", None).startswith(
        "the tolerances of this run were measured on smaller models than mine,"
    )
    data = msgspec.to_builtins(read_calibration())
    data["spreads"] += tuple(spread | {"model": "mine"} for spread in data["spreads"] if not spread["model"])
    own = tmp_path / "own.json"
    own.write_bytes(msgspec.json.encode(data))
    assert caveat(deep, "mine", own) == ""


def test_small_runs_are_as_small_as_they_are_said_to_be():
    for seed in range(20):
        assert all(are_like(setting.run) for setting in drawn_settings(5, seed=seed))
    assert not are_like(build_run(RunOptions()))


def test_what_is_no_calibration_is_refused_in_a_sentence(tmp_path: Path):
    with pytest.raises(ConfigError, match="found No such file or directory; check --tolerances"):
        read_calibration(tmp_path / "none.json")
    (tmp_path / "odd.json").write_text("{}")
    with pytest.raises(ConfigError, match="found something else .*; make one with `strata calibrate`"):
        read_calibration(tmp_path / "odd.json")
