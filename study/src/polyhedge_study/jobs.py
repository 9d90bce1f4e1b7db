"""Run many independent jobs: in this process, in worker processes, or on a Dask cluster.

All three sit behind the standard `concurrent.futures.Executor`. A job's result depends on nothing but the job, so
the numbers are the same for any number of workers and in any order.
"""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from polyhedge_study.inside import check_count

__all__ = ["Job", "Progress", "Workers", "run_jobs"]

logger = logging.getLogger(__name__)

R = TypeVar("R")

# One thread in XLA too, as in BLAS: sums are then the same on every machine, and workers do not compete.
_XLA = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
# Seconds within which a scheduler must answer.
_PATIENCE = 10


class Job(Protocol):
    """Something to be done: hashable, and it can be sent to another process."""

    @property
    def label(self) -> str:
        """What it is, for the progress line."""

    @property
    def kind(self) -> str:
        """Jobs of one kind take about the same time."""


J = TypeVar("J", bound=Job)


@dataclass(frozen=True)
class Progress:
    """How far a run is: finished and all runs, what comes next, and about how many seconds are left."""

    done: int
    total: int
    next: str
    seconds_left: float


@dataclass(frozen=True)
class Workers:
    """Where jobs run.

    Attributes
    ----------
    n : processes on this machine; 1 for none but this one.
    cluster : address of a Dask scheduler, for example "tcp://host:8786"; used instead of processes if it is given.
    """

    n: int = 1
    cluster: str = ""

    def __post_init__(self) -> None:
        check_count(self.n, "workers", minimum=1)
        # Without a port Dask's client would look for long, and end in an error of its own.
        if self.cluster and not re.fullmatch(r"(\w+://)?\S+:\d+|inproc://\S+", self.cluster):
            raise ValueError(f"cluster must be HOST:PORT, as a Dask scheduler prints it, got {self.cluster!r}.")

    @contextmanager
    def open(self) -> Iterator[_Pool]:
        """Start the workers, and end them after use."""
        if self.cluster:
            with _dask_client(self.cluster) as client, client.get_executor() as executor:
                # The scheduler keeps what waits, and deals it to workers that join later.
                yield _Pool(executor, 10_000, max(sum(client.ncores().values()), 1))
        elif self.n == 1:
            yield _Pool(_InProcess(), 1, 1)
        else:
            with _processes(self.n) as executor:
                # One more job than there are workers, so that none waits for the next.
                yield _Pool(executor, self.n + 1, self.n)


@dataclass(frozen=True)
class _Pool:
    """An executor, how many jobs it should be given at a time, and how many it works on."""

    executor: Executor
    window: int
    n: int


def run_jobs(
    jobs: Sequence[J],
    work: Callable[[J], R],
    failed: Callable[[J, str], R],
    keep: Callable[[R], None],
    *,
    workers: Workers,
    report: Callable[[Progress], None] | None = None,
    budget: float = math.inf,
) -> None:
    """Run `work` on every job and hand each result to `keep` as it comes.

    Parameters
    ----------
    jobs : in the order in which they are started.
    work : job -> result, not None; can be pickled. What it raises is logged and handed to `failed`.
    failed : job and reason -> result.
    keep : called in this process, once for each job.
    workers : where the jobs run.
    report : called at the start and after each job.
    budget : seconds after which no further job is begun.
    """
    clock, end = _Clock(jobs, report), time.perf_counter() + budget
    queue, suspects = deque(jobs if budget > 0 else ()), list[J]()

    def finish(job: J, result: R, seconds: float) -> None:
        keep(result)
        clock.tick(job, seconds)
        if time.perf_counter() >= end:
            queue.clear()

    clock.say()
    while queue:
        with workers.open() as pool:
            clock.n = pool.n
            suspects = _drain(pool.executor, pool.window, queue, work, failed, finish)
        # A worker process died and took its pool along. Alone in a new one, the guilty job is found.
        for job in suspects:
            with _processes(1) as executor:
                if _drain(executor, 1, deque([job]), work, failed, finish):
                    finish(job, failed(job, "The worker process died: out of memory, or a solver crashed."), np.nan)
    if clock.left and report is not None:
        report(Progress(clock.total - len(clock.left), clock.total, "", 0.0))  # no more comes, for want of time


def _drain(
    executor: Executor,
    window: int,
    queue: deque[J],
    work: Callable[[J], R],
    failed: Callable[[J, str], R],
    finish: Callable[[J, R, float], None],
) -> list[J]:
    """Run the queue until it is empty, or until the executor breaks: then the jobs it had taken are returned."""
    running: dict[Future[tuple[R | None, str, float]], J] = {}
    try:
        while queue or running:
            while queue and len(running) < window:
                running[executor.submit(_timed, work, queue[0])] = queue[0]
                queue.popleft()
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                try:
                    result, reason, seconds = future.result()
                except BrokenExecutor:
                    raise
                except Exception as error:
                    result, reason, seconds = None, _reason(error), np.nan
                job = running.pop(future)
                finish(job, failed(job, reason) if result is None else result, seconds)
    except BrokenExecutor:
        return list(running.values())
    except BaseException:
        # Dask's executor has no cancel_futures.
        for future in running:
            future.cancel()
        executor.shutdown(wait=False)
        raise
    return []


def _timed(work: Callable[[J], R], job: J) -> tuple[R | None, str, float]:
    """The result, or None and the reason, and seconds. An exception itself may not survive the way to this process."""
    began, result, reason = time.perf_counter(), None, ""
    with threadpool_limits(limits=1), _environment(XLA_FLAGS=_XLA):
        try:
            result = work(job)
        except Exception as error:
            reason = _reason(error)
            logger.warning("%s failed: %s", job.label, error)
    return result, reason, time.perf_counter() - began


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Set variables that are not set yet, and take them away again."""
    new = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)


class _InProcess(Executor):
    """Runs a job when it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def _processes(n: int) -> ProcessPoolExecutor:
    # Fresh interpreters: forked ones would inherit locks and threads of solvers.
    return ProcessPoolExecutor(n, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """Leave when the parent is gone: a worker of a killed run would otherwise wait for jobs for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _dask_client(address: str) -> Iterator[Any]:
    try:
        from distributed import Client
    except ImportError as error:
        raise ImportError("--cluster needs Dask. Get it with: pip install 'polyhedge[dask]'") from error
    try:
        client = Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise OSError(f"No Dask scheduler answers at {address!r}. Start one with: dask scheduler") from error
    with client:
        yield client


class _Clock:
    """Reports progress; time left is what jobs of the same kind took, shared among the workers."""

    def __init__(self, jobs: Iterable[Any], report: Callable[[Progress], None] | None) -> None:
        self.left = list(jobs)
        self.total, self.n, self.report = len(self.left), 1, report
        self.seconds: dict[str, list[float]] = {}

    def tick(self, job: Any, seconds: float) -> None:
        self.left.remove(job)
        if np.isfinite(seconds):
            self.seconds.setdefault(job.kind, []).append(seconds)
        self.say()

    def say(self) -> None:
        if self.report is None:
            return
        means = {kind: float(np.mean(seconds)) for kind, seconds in self.seconds.items()}
        typical = float(np.mean(list(means.values()))) if means else 0.0
        ahead = sum(means.get(job.kind, typical) for job in self.left)
        label = self.left[0].label if self.left else ""
        self.report(Progress(self.total - len(self.left), self.total, label, ahead / self.n))
