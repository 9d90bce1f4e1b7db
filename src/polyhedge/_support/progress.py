"""How long work says how far it is: as log records, which a command line may turn into a bar."""

from __future__ import annotations

import logging
from collections.abc import Iterator

__all__ = ["batches_of", "tell"]

_FIRST_BATCH = 64
"""Small, so that progress is told soon; batches then double."""
_LARGEST_BATCH = 8192
"""Large enough that telling costs nothing, small enough that it is told every few seconds."""


def tell(logger: logging.Logger, doing: str, done: int, total: int) -> None:
    """Log that `done` of `total` steps are done; the record carries the three values."""
    logger.info("%s: %d of %d", doing, done, total, extra={"doing": doing, "done": done, "total": total})


def batches_of(n: int) -> Iterator[slice]:
    """Slices of n rows that double in size, so that small tables report soon and large ones lose no speed.

    Sizes do not depend on the clock: the same rows always come in the same batches.

    Examples
    --------
    >>> [(part.start, part.stop) for part in batches_of(300)]
    [(0, 64), (64, 192), (192, 300)]
    """
    start, size = 0, _FIRST_BATCH
    while start < n:
        yield slice(start, min(start + size, n))
        start, size = start + size, min(2 * size, _LARGEST_BATCH)
