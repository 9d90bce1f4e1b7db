"""Threads: work in parts on all cores with results in order, and small matrix products by one BLAS thread.

Threads serve because HiGHS, Clarabel and NumPy release the interpreter while they compute. Nothing is pickled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from threading import Lock
from typing import Any, TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")


def in_order(work: Callable[[Part], Result], parts: Sequence[Part], *, n_jobs: int | None = None) -> Iterator[Result]:
    """Yield work(part) for each part, in order, computed by `n_jobs` threads (None for one a core)."""
    n_threads = min(check_jobs(n_jobs), len(parts))
    if n_threads <= 1:
        yield from map(work, parts)
        return
    here = copy_context()  # what is in force here is in force in the threads, each with a copy of its own
    with ThreadPoolExecutor(n_threads) as pool:
        yield from pool.map(lambda part: here.copy().run(work, part), parts)


def check_jobs(n_jobs: int | None) -> int:
    """The number of threads to use: as asked, or the cores that this process may use."""
    if n_jobs is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs < 1:
        raise ValueError(f"n_jobs must be a positive integer or None for all cores, got {n_jobs!r}.")
    return n_jobs


_lock = Lock()
_inside: list[Any] = []
"""For each call that is under way one entry; the first holds what to restore, when the last has ended."""


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep matrix products to one thread of this process, and restore what was set when no call is left inside.

    Fits run in threads of their own (`in_order`), and their products are small: with as many threads each they took
    twice the time of the processor.

    The number of threads is one for the whole process: calls that overlap must not restore each other's.
    """
    with _lock:
        _inside.append(None if _inside else _controller().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            limit = _inside[0]
            _inside.pop()
            if not _inside:
                limit.restore_original_limits()


@cache
def _controller() -> Any:
    """The libraries of this process that multiply matrices: looked for once, which takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
