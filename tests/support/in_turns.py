"""How many times as long one thing takes as another, on a machine whose pace drifts."""

from collections.abc import Callable
from statistics import median


def ratio_in_turns(ours: Callable[[], float], bare: Callable[[], float], limit: float, at_most: int) -> float:
    """The median of neighbors' ratios; more turns, up to `at_most`, are taken while it lies above the limit."""
    ratios: list[float] = []
    while len(ratios) < 5 or (median(ratios) > limit and len(ratios) < at_most):
        ratios.append(ours() / bare())
    return median(ratios)
