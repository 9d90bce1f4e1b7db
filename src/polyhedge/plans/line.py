"""The least of many lines: decisions on a segment against cuts, for all rows at once and to the last bit alike."""

from __future__ import annotations

import numpy as np

from polyhedge._validation import Array
from polyhedge.plans.risk import Cuts

# Halvings of the segment: 2^-24 of its length is below what a solver would tell apart.
_STEPS = 24
_BLOCK = 2**20


def least_on_segment(cuts: Cuts, base: Array, z0: Array, z1: Array, centers: Array, scales: Array) -> Array:
    """Positions t (N,) in [0, 1] with the least base'(1, t, t^2) + max_k of the cuts at z0 + t (z1 - z0)."""
    ends = np.stack([np.append(1.0, z0), np.append(0.0, z1 - z0)])
    # Every cut is a line in t; its height and slope are affine in (1, s, c).
    lines = np.stack([np.vstack([cuts.A @ e, cuts.B @ e, np.einsum("kid,i->dk", cuts.C, e)]) for e in ends])
    found, step = np.empty(len(centers)), max(_BLOCK // len(cuts), 1)
    for k in range(0, len(centers), step):
        part = slice(k, k + step)
        found[part] = _bisect(
            _at(lines[0], centers[part], scales[part]), _at(lines[1], centers[part], scales[part]), base
        )
    return found


def _at(coefficients: Array, centers: Array, scales: Array) -> Array:
    total = coefficients[0] + scales[:, None] * coefficients[1]
    for j in range(centers.shape[1]):
        total += centers[:, [j]] * coefficients[2 + j]
    return total


def _bisect(height: Array, slope: Array, base: Array) -> Array:
    """Halve by the sign of the slope of the line on top; end where the last two lines cross."""
    rows = np.arange(len(height))
    low, high = np.zeros(len(rows)), np.ones(len(rows))
    left, right = _top(height, slope, low), _top(height, slope, high)
    stays, leaves = _slope(slope, left, rows, low, base) >= 0, _slope(slope, right, rows, high, base) <= 0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        top = _top(height, slope, middle)
        rises = _slope(slope, top, rows, middle, base) >= 0
        high, right = np.where(rises, middle, high), np.where(rises, top, right)
        low, left = np.where(rises, low, middle), np.where(rises, left, top)
    difference = slope[rows, right] - slope[rows, left]
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = (height[rows, left] - height[rows, right]) / difference
    t = np.where(np.isfinite(crossing), np.clip(crossing, low, high), (low + high) / 2)
    return np.where(stays, 0.0, np.where(leaves, 1.0, t))


def _top(height: Array, slope: Array, t: Array) -> Array:
    return np.asarray((height + t[:, None] * slope).argmax(axis=1))


def _slope(slope: Array, top: Array, rows: Array, t: Array, base: Array) -> Array:
    return np.asarray(slope[rows, top] + base[1] + 2 * base[2] * t)
