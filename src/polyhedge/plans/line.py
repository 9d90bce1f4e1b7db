"""The least of many lines: decisions on a segment against cuts, for all rows at once and to the last bit alike."""

from __future__ import annotations

import numpy as np

from polyhedge._validation import Array
from polyhedge.plans.risk import Cuts

# Halvings of the segment: 2^-24 of its length is below what a solver would tell apart.
_STEPS = 24
# Heights and slopes nearer to each other than this share of their differences, or of themselves, are the same: rounding
# must not choose among them.
_TIE, _ROUNDING = 1e-9, 2.0**-44
_BLOCK = 2**20


def least_on_segment(cuts: Cuts, base: Array, z0: Array, z1: Array, centers: Array, scales: Array) -> Array:
    """Positions t (N,) in [0, 1] with the least base'(1, t, t^2) + max_k of the cuts at z0 + t (z1 - z0)."""
    ends = np.stack([np.append(1.0, z0), np.append(0.0, z1 - z0)])
    # Every cut is a line in t; its height and slope are affine in (1, s, c).
    lines = np.stack([np.vstack([cuts.A @ e, cuts.B @ e, np.einsum("kid,i->dk", cuts.C, e)]) for e in ends])
    found, step = np.empty(len(centers)), max(_BLOCK // len(cuts), 1)
    for k in range(0, len(centers), step):
        at = centers[k : k + step], scales[k : k + step]
        found[k : k + step] = _bisect(
            [(_at(lines[0][:, own], *at), _at(lines[1][:, own], *at)) for own in cuts.terms], base
        )
    return found


def _at(coefficients: Array, centers: Array, scales: Array) -> Array:
    total = coefficients[0] + scales[:, None] * coefficients[1]
    for j in range(centers.shape[1]):
        total += centers[:, [j]] * coefficients[2 + j]
    return total


def _bisect(terms: list[tuple[Array, Array]], base: Array) -> Array:
    """Halve by the slope of the lines on top; end where those on both sides cross."""
    n = len(terms[0][0])
    low, high = np.zeros(n), np.ones(n)
    left, right = _end(terms, 0.0, 1.0), _end(terms, 1.0, -1.0)
    flat = _TIE * sum((np.abs(slopes).max(axis=1) for _, slopes in terms), np.full(n, np.abs(base[1:]).max()))
    stays, leaves = left[1] + base[1] >= -flat, right[1] + base[1] + 2 * base[2] <= flat
    for _ in range(_STEPS):
        middle = (low + high) / 2
        top = _top(terms, middle)
        rises = top[1] + base[1] + 2 * base[2] * middle >= -flat
        high, right = np.where(rises, middle, high), np.where(rises, top, right)
        low, left = np.where(rises, low, middle), np.where(rises, left, top)
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = (left[0] - right[0]) / (right[1] - left[1])
    t = np.where(np.isfinite(crossing), np.clip(crossing, low, high), (low + high) / 2)
    return np.where(stays, 0.0, np.where(leaves, 1.0, t))


def _end(terms: list[tuple[Array, Array]], t: float, side: float) -> Array:
    """Height and slope (2, N) at an end: of lines that are on top together, those on top beyond it on this side."""
    total = np.zeros((2, len(terms[0][0])))
    for heights, slopes in terms:
        at = heights + t * slopes
        same = _TIE * np.ptp(at, axis=1) + _ROUNDING * np.abs(at).max(axis=1)
        tied = at >= (at.max(axis=1) - same)[:, None]
        own = side * np.where(tied, side * slopes, -np.inf).max(axis=1)
        total += np.stack([at.max(axis=1) - t * own, own])
    return total


def _top(terms: list[tuple[Array, Array]], t: Array) -> Array:
    """Height and slope (2, N) of the sum of the lines that are on top at t."""
    total, rows = np.zeros((2, len(t))), np.arange(len(t))
    for heights, slopes in terms:
        top = (heights + t[:, None] * slopes).argmax(axis=1)
        total += np.stack([heights[rows, top], slopes[rows, top]])
    return total
