"""The least of many lines: decisions on a segment against cuts, for all rows at once and to the last bit alike."""

from __future__ import annotations

import numpy as np

from polyhedge._support.tolerances import ROUNDING, TIE
from polyhedge._support.validation import Array, Mask
from polyhedge.planning.risk import Cuts

# Halvings of the segment: 2^-24 of its length is below what a solver would tell apart.
_STEPS = 24
# Halvings after which rows whose least cost is known by then are left alone: nine of ten after the first of these.
_LOOKS = (6, 9, 12, 16)
_BLOCK = 2**18
"""Lines of all rows that are looked at together: some megabytes, which stay near the processor."""


def least_on_segment(cuts: Cuts, base: Array, z0: Array, z1: Array, centers: Array, scales: Array) -> Array:
    """Positions t (N,) in [0, 1] with the least base'(1, t, t^2) + max_k of the cuts at z0 + t (z1 - z0)."""
    ends = np.stack([np.append(1.0, z0), np.append(0.0, z1 - z0)])
    # Every cut is a line in t; its height and slope are affine in (1, s, c).
    lines = np.stack([np.vstack([cuts.A @ e, cuts.B @ e, np.einsum("kid,i->dk", cuts.C, e)]) for e in ends])
    positions, step = np.empty(len(centers)), max(_BLOCK // len(cuts), 1)
    for k in range(0, len(centers), step):
        at = centers[k : k + step], scales[k : k + step]
        positions[k : k + step] = _bisect(
            [(_at(lines[0][:, own], *at), _at(lines[1][:, own], *at)) for own in cuts.terms], base
        )
    return positions


def _at(coefficients: Array, centers: Array, scales: Array) -> Array:
    total = coefficients[0] + scales[:, None] * coefficients[1]
    for j in range(centers.shape[1]):
        total += centers[:, [j]] * coefficients[2 + j]
    return total


def _bisect(terms: list[tuple[Array, Array]], base: Array) -> Array:
    """The ends where the cost falls towards them; between them, where no end is best, by halving."""
    n = len(terms[0][0])
    left, right = _end(terms, 0.0, 1.0), _end(terms, 1.0, -1.0)
    flat = TIE * sum((_largest(slopes) for _, slopes in terms), np.full(n, np.abs(base[1:]).max()))
    stays, leaves = left[1] + base[1] >= -flat, right[1] + base[1] + 2 * base[2] <= flat
    positions, inner = np.where(stays, 0.0, 1.0), np.flatnonzero(~(stays | leaves))
    if len(inner):
        own = [(heights[inner], slopes[inner]) for heights, slopes in terms]
        positions[inner] = _between(own, base, flat[inner], left[:, inner], right[:, inner])
    return positions


def _between(terms: list[tuple[Array, Array]], base: Array, flat: Array, left: Array, right: Array) -> Array:
    """Halve by the slope of the lines on top; end where those on both sides cross."""
    positions, rows = np.empty(len(flat)), np.arange(len(flat))
    low, high = np.zeros(len(flat)), np.ones(len(flat))
    for step in range(_STEPS):
        middle = (low + high) / 2
        top = _top(terms, middle)
        rises = top[1] + base[1] + 2 * base[2] * middle >= -flat
        high, right = np.where(rises, middle, high), np.where(rises, top, right)
        low, left = np.where(rises, low, middle), np.where(rises, left, top)
        if step in _LOOKS:
            is_known, least = _known_least(terms, base, flat, left, right)
            positions[rows[is_known]] = np.clip(least, low, high)[is_known]
            rest = np.flatnonzero(~is_known)
            if not len(rest):
                return positions
            rows, flat, left, right = rows[rest], flat[rest], left[:, rest], right[:, rest]
            low, high = low[rest], high[rest]
            terms = [(heights[rest], slopes[rest]) for heights, slopes in terms]
    crossing = _crossing(left, right)
    positions[rows] = np.where(np.isfinite(crossing), np.clip(crossing, low, high), (low + high) / 2)
    return positions


def _known_least(
    terms: list[tuple[Array, Array]], base: Array, flat: Array, left: Array, right: Array
) -> tuple[Mask, Array]:
    """Where (N,) the least is known by the lines on both sides, and its positions (N,).

    It lies where they cross, or where one of them and g_0 together are level, if no other line is on top there: further
    halvings would end there too.
    """
    at = _crossing(left, right)
    with np.errstate(divide="ignore", invalid="ignore"):
        level = -(base[1] + np.stack([left[1], right[1]])) / (2 * base[2])
    before = ~(left[1] + base[1] + 2 * base[2] * at < -flat)
    behind = right[1] + base[1] + 2 * base[2] * at < -flat
    at = np.where(before, level[0], np.where(behind, level[1], at))
    is_known = np.isfinite(at)
    at = np.where(is_known, at, 0.0)
    top = _top(terms, at)
    return is_known & ((top == left).all(axis=0) | (top == right).all(axis=0)), at


def _crossing(left: Array, right: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((left[0] - right[0]) / (right[1] - left[1]))


def _end(terms: list[tuple[Array, Array]], t: float, side: float) -> Array:
    """Height and slope (2, N) at an end: of lines that are on top together, those on top beyond it on this side."""
    total = np.zeros((2, len(terms[0][0])))
    for heights, slopes in terms:
        at = heights + t * slopes
        highest, lowest = at.max(axis=1), at.min(axis=1)
        same = TIE * (highest - lowest) + ROUNDING * np.maximum(highest, -lowest)
        tied = at >= (highest - same)[:, None]
        own = side * np.where(tied, side * slopes, -np.inf).max(axis=1)
        total += np.stack([highest - t * own, own])
    return total


def _largest(numbers: Array) -> Array:
    """The largest size in each row (N,)."""
    return np.asarray(np.maximum(numbers.max(axis=1), -numbers.min(axis=1)))


def _top(terms: list[tuple[Array, Array]], t: Array) -> Array:
    """Height and slope (2, N) of the sum of the lines that are on top at t."""
    total = np.zeros((2, len(t)))
    for heights, slopes in terms:
        if heights.shape[1] == 1:
            total += heights[:, 0], slopes[:, 0]
            continue
        lines = t[:, None] * slopes
        lines += heights
        top = lines.argmax(axis=1) + np.arange(0, heights.size, heights.shape[1])
        total[0] += heights.take(top)
        total[1] += slopes.take(top)
    return total
