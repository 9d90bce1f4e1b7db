"""The conformal rank, in exact arithmetic: which order statistic of the scores is the paper's radius R(D; theta)."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import ceil

from polyhedge._support.validation import check_alpha, check_count


def conformal_rank(n: int, alpha: float) -> int:
    """Rank of the conformal order statistic, ``k = ceil((n + 1) * (1 - alpha))``.

    Parameters
    ----------
    n : number of scores, at least 0. The rank ``n + 1`` says that no radius from ``n`` scores reaches ``1 - alpha``.
    alpha : miscoverage level, strictly between 0 and 1. It is read as the decimal that it prints as, so ``0.1``
        means one tenth and not the binary fraction next to it.

    Notes
    -----
    Computed in exact arithmetic. In floating point ``(n + 1) * (1 - alpha)`` can end up a hair above an
    integer, which makes the rank one too high and the set larger than the guarantee asks for.

    Examples
    --------
    >>> conformal_rank(300, 0.1)
    271
    >>> conformal_rank(99, 0.45), ceil((99 + 1) * (1 - 0.45))
    (55, 56)
    """
    return _rank(check_count(n, "n", minimum=0), float(check_alpha(alpha)))


@lru_cache(maxsize=256)
def _rank(n: int, alpha: float) -> int:
    """The rank; kept, since fits ask for the same one thousands of times."""
    return ceil((n + 1) * (1 - exact(alpha)))


def attained_rank(n: int, alpha: float) -> int:
    """The conformal rank of `n` samples at the level `alpha`; an error, with how many are missing, if none has it."""
    k = conformal_rank(n, alpha)
    if k > n:
        raise ValueError(
            f"alpha={float(alpha)} needs at least {minimum_samples(alpha)} calibration samples, got {n}: "
            "the conformal radius would be infinite. Raise alpha or the calibration share."
        )
    return k


def minimum_samples(alpha: float) -> int:
    """Fewest calibration samples with a finite radius, ``n = ceil(1 / alpha) - 1``.

    Examples
    --------
    >>> minimum_samples(0.1), minimum_samples(0.01)
    (9, 99)
    """
    return ceil(1 / exact(alpha)) - 1


def exact(alpha: float) -> Fraction:
    """The level as the decimal that it prints as."""
    # repr of a Python float is the shortest decimal that reads back as the same number, hence what was typed.
    return Fraction(repr(float(check_alpha(alpha))))
