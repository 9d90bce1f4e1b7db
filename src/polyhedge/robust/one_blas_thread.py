"""Small matrix products by one thread: where other work runs on the cores, many threads wait for each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

_lock = Lock()
_inside: list[Any] = []
"""For each call that is under way one entry; the first holds what to restore, when the last has ended."""


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep matrix products to one thread of this process, and restore what was set when no call is left inside.

    Learning and planning run in threads of their own (`workers.py`), whose products are small: with as many threads
    each they took twice the time of the processor on a busy machine.

    The number of threads is one for the whole process: calls that overlap must not restore each other's.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    with _lock:
        _inside.append(None if _inside else _controller().limit(limits=1, user_api="blas"))


def _leave() -> None:
    with _lock:
        limit = _inside[0]
        _inside.pop()
        if not _inside:
            limit.restore_original_limits()


_known: list[Any] = []


def _controller() -> Any:
    """The libraries of this process that multiply matrices: looked for once, which takes milliseconds."""
    if not _known:
        from threadpoolctl import ThreadpoolController

        _known.append(ThreadpoolController())
    return _known[0]
