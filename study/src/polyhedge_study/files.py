"""Files of results: each appears whole or not at all."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from polyhedge_study.inside import replace_file

__all__ = ["save_figure"]


def save_figure(figure: Any, paths: Iterable[Path]) -> None:
    """Save a matplotlib figure under each path; the suffixes name the formats.

    The same figure gives the same bytes: SVG files carry neither a date nor random names.
    """
    from matplotlib import rc_context

    for path in paths:
        buffer = io.BytesIO()
        suffix = path.suffix[1:]
        metadata = {"Date": None} if suffix == "svg" else None
        with rc_context({"svg.hashsalt": path.name}):
            figure.savefig(buffer, format=suffix, dpi=130, metadata=metadata)
        replace_file(path, buffer.getvalue())
