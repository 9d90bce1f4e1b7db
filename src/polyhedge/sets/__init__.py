"""Uncertainty sets: the shapes of residuals, and the regions of outcomes they give around a prediction."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.sets.ball import Ball as Ball
    from polyhedge.sets.box import Box as Box
    from polyhedge.sets.ellipsoid import Ellipsoid as Ellipsoid
    from polyhedge.sets.polyhedron import Polyhedron as Polyhedron
    from polyhedge.sets.region import Region as Region
    from polyhedge.sets.shape import Shape as Shape, Volume as Volume, mean_volume as mean_volume
else:  # imported when they are first used
    __getattr__, __dir__, __all__ = lazy(__name__)
