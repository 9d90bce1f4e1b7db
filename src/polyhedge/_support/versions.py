"""Versions of the packages that made a result."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The version of each package that is installed, in the order asked for."""
    from polyhedge import __version__  # here, because polyhedge imports this module first

    installed = {}
    for name in packages:
        try:
            # The source tells its own version: an editable install remembers that of the day it was made.
            installed[name] = __version__ if name == "polyhedge" else metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed
