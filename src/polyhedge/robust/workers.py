"""Work in parts on all cores, results in order.

Threads serve here: HiGHS, Clarabel and NumPy let go of the interpreter while they compute, and nothing that a user
wrote has to be pickled or imported again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

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
