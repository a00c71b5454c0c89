"""Scores to weights: each hotkey's share of all scores, less the run's burn share, by uid.

Weights are relative floats; clipping, normalisation in the chain's integers and commit-reveal belong to the SDK. A
hotkey that is not registered at the view's block has no weight, so who takes its uid inherits nothing. When nobody
has a score the answer is empty and nothing is submitted: burning or splitting evenly would pay for no work.
"""

from collections.abc import Mapping
from fractions import Fraction

from subnet.config import RunConfig
from subnet.incentive.score import Book
from template.values import ChainView


def to_weights(books: Mapping[str, Book], view: ChainView, run: RunConfig) -> dict[int, float]:
    """Weight by uid: finite, above zero, together 1; empty when no registered hotkey has a score.

    The burn share goes to the subnet owner's uid; where the owner is not registered nothing is burned.
    """
    scores = {
        neuron.uid: books[neuron.hotkey].score
        for neuron in view.neurons
        if neuron.hotkey in books and books[neuron.hotkey].score > 0
    }
    total = sum(scores.values())
    if not total:
        return {}
    owner = view.owner
    burn = Fraction(run.pay.burn_frac) if owner else Fraction(0)
    shares = {uid: (1 - burn) * Fraction(score, total) for uid, score in scores.items()}
    if owner and burn:
        shares[owner.uid] = shares.get(owner.uid, Fraction(0)) + burn
    return {uid: float(shares[uid]) for uid in sorted(shares)}
