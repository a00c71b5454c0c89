"""Frames of a run: one header per hop, read back as they were, and refused for any other hop."""

import numpy as np
import pytest

from subnet.audit.tensors import frame_bytes, frame_header, make_frame, read_frame, tokens_digest
from subnet.errors import FrameError, InputError
from tests.audit.lane import lane_run

VALUES = np.linspace(-1, 1, 3 * 12 * 32, dtype=np.float32).reshape(3, 12, 32)


@pytest.mark.parametrize(("codec", "error"), [("none", 0.0), ("bf16", 2.0**-8)])
def test_a_frame_comes_back_within_its_codecs_bound(codec, error):
    run = lane_run(2, codec=codec)
    header = frame_header(run, round=1, step=2, microbatch=3, kind="gradient")
    data = make_frame(header, VALUES)
    assert len(data) == frame_bytes(run)
    assert np.abs(read_frame(header, data) - VALUES).max() <= error


@pytest.mark.parametrize("other", [{"round": 0}, {"step": 3}, {"microbatch": 4}, {"kind": "activation"}])
def test_a_frame_of_another_hop_is_refused(other):
    run = lane_run(2)
    hop = {"round": 1, "step": 2, "microbatch": 3, "kind": "gradient"}
    data = make_frame(frame_header(run, **(hop | other)), VALUES)
    with pytest.raises(FrameError, match="send each frame to its own place"):
        read_frame(frame_header(run, **hop), data)


def test_a_frame_of_another_shape_is_refused_by_its_size():
    run = lane_run(2)
    header = frame_header(run, round=0, step=0, microbatch=0, kind="gradient")
    with pytest.raises(FrameError, match="at most"):
        read_frame(header, make_frame(header, VALUES) + b"0")


def test_values_that_are_not_finite_are_not_sent():
    header = frame_header(lane_run(2), round=0, step=0, microbatch=0, kind="activation")
    with pytest.raises(InputError, match="expected finite values"):
        make_frame(header, np.full_like(VALUES, np.nan))


def test_the_tokens_digest_is_of_little_endian_int64():
    tokens = np.arange(6).reshape(2, 3)
    assert tokens_digest(tokens) == tokens_digest(tokens.astype(">i8").astype(np.int64))
    assert tokens_digest(tokens) != tokens_digest(tokens[:, ::-1].copy())
