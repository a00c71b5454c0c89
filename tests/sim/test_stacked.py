"""Laws of the stack of small models: rows do not see each other, the step is AdamW's, held-out text stays held out."""

import numpy as np
import pytest
import torch

from subnet.data.pack import Corpus
from subnet.sim.stacked import DECAY, MAX_GRAD_NORM, Replicas, Shape, batches, heldout_loss, initial, losses

SHAPE = Shape(vocabulary=20, width=8, blocks=1, heads=2, inner=12, tokens=8)


def corpus(sequences: int = 400) -> Corpus:
    """A row that counts up to 19 again and again: what comes next is always known."""
    return Corpus(tokens=(np.arange(sequences * SHAPE.tokens + 1) % 20).astype(np.uint8), digest="", vocabulary=20)


def test_rows_do_not_see_each_other():
    """Three replicas on their own batches, and each alone on its batch."""
    several = Replicas(SHAPE, 3, seed=1, lr=1e-2, steps=30)
    alone = [Replicas(SHAPE, 1, seed=1, lr=1e-2, steps=30) for _ in range(3)]
    data = batches(corpus(), SHAPE, 3, 4, seed=2)
    for _ in range(5):
        tokens, labels = next(data)
        several.step(tokens, labels)
        for place, replica in enumerate(alone):
            replica.step(tokens[place : place + 1], labels[place : place + 1])
    for together, single in zip(several.ends(), alone, strict=True):
        assert np.abs(together - single.ends()[0]).max() < 1e-5
    assert np.abs(several.ends()[0] - several.ends()[1]).max() > 1e-4


def test_the_inner_step_is_adamw_on_the_clipped_gradient():
    """20 steps against torch's own, with the learning rate that the replica names."""
    replica = Replicas(SHAPE, 1, seed=1, lr=1e-2, steps=40)
    reference = torch.from_numpy(initial(SHAPE, 1)).requires_grad_()
    optimizer = torch.optim.AdamW([reference], betas=(0.9, 0.95), eps=1e-8, weight_decay=DECAY)
    for _, (tokens, labels) in zip(range(20), batches(corpus(), SHAPE, 1, 4, seed=2), strict=False):
        replica.step(tokens, labels)
        optimizer.zero_grad()
        losses(SHAPE, reference[None], tokens, labels).sum().backward()
        torch.nn.utils.clip_grad_norm_([reference], MAX_GRAD_NORM)
        optimizer.param_groups[0]["lr"] = replica.lr()
        optimizer.step()
    assert np.abs(replica.ends()[0] - reference.detach().numpy()).max() < 1e-5


def test_the_learning_rate_warms_up_and_falls_to_a_tenth():
    replica = Replicas(SHAPE, 1, seed=1, lr=1.0, steps=100)
    rates = []
    for replica.step_number in range(1, 101):
        rates.append(replica.lr())
    assert rates[:20] == pytest.approx([step / 20 for step in range(1, 21)])
    assert rates[20:] == sorted(rates[20:], reverse=True) and rates[-1] == pytest.approx(0.1)


def test_what_is_held_out_is_never_trained_on():
    """Every token its own number: the one sequence in twenty that is held out is in none of 200 batches."""
    numbered = Corpus(tokens=np.arange(8 * 100 + 1, dtype=np.int64), digest="", vocabulary=801)
    seen: set[int] = set()
    for _, (tokens, labels) in zip(range(200), batches(numbered, SHAPE, 2, 4, seed=0), strict=False):
        assert (labels == tokens + 1).all() and (tokens[..., 0] % 8 == 0).all()
        seen |= set((tokens[..., 0] // 8).flatten().tolist())
    assert seen == set(range(100)) - {19, 39, 59, 79, 99}


def test_a_replica_learns_what_comes_next():
    replica = Replicas(SHAPE, 1, seed=0, lr=2e-2, steps=150)
    before = heldout_loss(SHAPE, replica.ends()[0], corpus(), num=10)
    for _, (tokens, labels) in zip(range(150), batches(corpus(), SHAPE, 1, 8, seed=0), strict=False):
        replica.step(tokens, labels)
    assert before > 2.5
    assert heldout_loss(SHAPE, replica.ends()[0], corpus(), num=10) < 0.3
