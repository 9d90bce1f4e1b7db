"""Uncertainty sets: the shapes of residuals, and the regions of outcomes they give around a prediction."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.sets.ball import Ball
    from polyhedge.sets.box import Box
    from polyhedge.sets.ellipsoid import Ellipsoid
    from polyhedge.sets.polyhedron import Polyhedron
    from polyhedge.sets.region import Region
    from polyhedge.sets.shape import Shape, Volume, mean_volume
    from polyhedge.sets.union_of_balls import UnionOfBalls
else:  # imported when they are first used
    __getattr__, __dir__ = lazy(__name__)

__all__ = ["Ball", "Box", "Ellipsoid", "Polyhedron", "Region", "Shape", "UnionOfBalls", "Volume", "mean_volume"]
