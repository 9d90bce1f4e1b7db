"""How a time grows with a size: points on two logarithmic axes, and the slope through them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["GrowthLine", "GrowthPoint", "exponent", "lines"]


@dataclass(frozen=True)
class GrowthPoint:
    """One time: `seconds` of `method` where `parameter` has the value `size`; a failure has a reason instead."""

    method: str
    parameter: str
    size: int
    seconds: float
    setting: str = ""
    reason: str = ""


@dataclass(frozen=True)
class GrowthLine:
    """The points of one method along one parameter, and the fitted exponent of size."""

    method: str
    parameter: str
    setting: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    exponent: float


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The slope of log(seconds) on log(size) by least squares; NaN for fewer than two sizes.

    Examples
    --------
    >>> round(exponent([10, 100, 1000], [0.2, 20.0, 2000.0]), 6)
    2.0
    """
    if len(set(sizes)) < 2:
        return float("nan")
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def lines(points: Iterable[GrowthPoint]) -> tuple[GrowthLine, ...]:
    """Points grouped by parameter, setting and method, in their order, failures left out."""
    groups: dict[tuple[str, str, str], list[GrowthPoint]] = {}
    for point in points:
        if not point.reason:
            groups.setdefault((point.parameter, point.setting, point.method), []).append(point)
    curves = []
    for (parameter, setting, method), own in groups.items():
        sizes, seconds = tuple(p.size for p in own), tuple(p.seconds for p in own)
        curves.append(GrowthLine(method, parameter, setting, sizes, seconds, exponent(sizes, seconds)))
    return tuple(curves)
