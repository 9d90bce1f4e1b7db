"""Parquet -> Parquet: rows are read, decided and written in blocks, so that memory does not grow with the data."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from polyhedge._support.files import new_file, new_folder
from polyhedge._support.validation import check_count
from polyhedge.distributed.row_table import (
    check_parameters,
    decide_rows,
    empty_result,
    model_of,
    parameter_columns,
    require,
)
from polyhedge.model import Model

# Large enough that a block costs no more than its rows, small enough for a few hundred megabytes with many columns.
_BLOCK = 131_072


@dataclass(frozen=True)
class ParquetRun:
    """What was written: `files` under the target, `rows` in all, of which `decided` have a decision."""

    target: Path
    files: int
    rows: int
    decided: int


def decide_parquet(
    decider: Any,
    source: str | Path,
    target: str | Path,
    *,
    columns: Sequence[str] | None = None,
    keep: Sequence[str] = (),
    parameters: Mapping[Any, Any] | None = None,
    labels: str | None = None,
    workers: int = 1,
    block_rows: int = _BLOCK,
    progress: Callable[[int, int], None] | None = None,
) -> ParquetRun:
    """Decide all rows of a Parquet file, or of a folder of them, and write the decisions as the same kind.

    A block of rows is read, decided and written at a time, in the order of the file. A folder gives a folder with a
    file of the same name for each of its files. The target appears under its name when it is whole: a run that is
    killed leaves at most a hidden file or folder next to it, `.polyhedge-*.part`, which the next run removes.

    Parameters
    ----------
    decider : RobustDecider, fitted.
    source : Parquet file, or folder whose `*.parquet` files, also in folders below, are read in the order of names.
    target : file or folder to write. A file is replaced, a folder must not exist.
    columns : features to read; by default those the decider was fitted on, else all but `keep`.
    keep : columns to copy into the results, such as keys.
    parameters : values of the problem's parameters, by name: a column of the file (a list of columns where the
        parameter has several entries), or one value for all rows; by default the column of its name.
    labels : column of the file with the labels or weights that calibration reads.
    workers : processes that decide, by default this one with a thread for each core. The model is sent to each once.
    block_rows : rows decided at a time by each worker; memory grows with it.
    progress : called with the rows done and the rows in all after each block.

    Returns
    -------
    ParquetRun

    Notes
    -----
    Rows that cannot be decided keep their place, see `decide_rows`.

    Examples
    --------
    >>> import pandas as pd, polyhedge as ph, tempfile, numpy as np
    >>> X, Y = ph.data.make_synthetic(400, rng=np.random.default_rng(0))
    >>> decider = ph.RobustDecider(ph.problems.simplex_linear([0.0, 0.0]), random_state=0).fit(X, Y)
    >>> folder = Path(tempfile.mkdtemp())
    >>> pd.DataFrame(X).add_prefix("x").to_parquet(folder / "new.parquet")
    >>> ph.distributed.decide_parquet(decider, folder / "new.parquet", folder / "decisions.parquet").decided
    400
    """
    check_count(workers, "workers", minimum=1)
    require("dask", ["pyarrow"] if workers == 1 else ["pyarrow", "distributed"])
    check_count(block_rows, "block_rows", minimum=1)
    model, source, target = model_of(decider), Path(source), Path(target)
    own_names = [parameter.name for parameter in model.problem.parameters]  # each file is asked for its columns below
    sent = _Sent(model, check_parameters(model.problem, parameters, own_names), labels)
    files = _files(source, target)
    plan = [_plan(sent, path, columns, keep) for path in files]
    total, done, decided = sum(file.rows for file in plan), 0, 0
    with _results(source, target) as open_result, _Deciders(sent, workers) as deciders:
        for file in plan:
            with open_result(file.path) as into:
                for rows, n_decided in _decide_file(file, into, deciders, block_rows):
                    done, decided = done + rows, decided + n_decided
                    if progress is not None:
                        progress(done, total)
    return ParquetRun(target, len(files), done, decided)


def _files(source: Path, target: Path) -> list[Path]:
    if not source.exists():
        raise FileNotFoundError(f"There is no Parquet file or folder {source}.")
    if source.resolve() == target.resolve():
        raise ValueError(f"source and target must differ, got {source} twice.")
    if not source.is_dir():
        if target.is_dir():
            raise IsADirectoryError(f"{target} is a folder, but {source} is a file. Name a file to write.")
        return [source]
    if target.exists():
        raise FileExistsError(f"{target} exists already. Remove it, or name another folder to write.")
    files = sorted(path for path in source.rglob("*.parquet") if not path.name.startswith((".", "_")))
    if not files:
        raise FileNotFoundError(f"The folder {source} holds no file that ends in .parquet.")
    return files


@contextmanager
def _results(source: Path, target: Path) -> Iterator[Callable[[Path], AbstractContextManager[BinaryIO]]]:
    """Where the results of each file of the source go; all appear under the target's name at once."""
    if not source.is_dir():
        with new_file(target) as stream:
            yield lambda path: nullcontext(stream)
        return
    with new_folder(target) as part:

        def open_result(path: Path) -> BinaryIO:
            into = part / path.relative_to(source)
            into.parent.mkdir(parents=True, exist_ok=True)
            return into.open("wb")

        yield open_result


@dataclass(frozen=True, eq=False)
class _Sent:
    """What a worker gets once: the model, and where values of the problem's parameters come from."""

    model: Model
    parameters: Mapping[str, Any]
    labels: str | None


@dataclass(frozen=True)
class _Job:
    """A file to decide: which columns are features, which are copied, and what the result looks like."""

    path: Path
    rows: int
    features: list[str]
    keep: list[str]
    schema: Any


def _plan(sent: _Sent, path: Path, columns: Sequence[str] | None, keep: Sequence[str]) -> _Job:
    """Read the footer only, and complain before any work is done."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            rows, schema = file.metadata.num_rows, file.schema_arrow
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} is not a Parquet file: {error}") from error
    model = sent.model
    known = columns or (model.names if model.schema is None else model.schema.source_names)
    features = list(known) if known is not None else [name for name in schema.names if name not in keep]
    own = [] if sent.labels is None else [sent.labels]
    features = list(dict.fromkeys([*features, *parameter_columns(sent.parameters), *own]))
    absent = [name for name in [*features, *keep] if name not in schema.names]
    if absent:
        raise ValueError(f"{path} has no column {', '.join(absent)}. It has {', '.join(schema.names)}.")
    results = pa.Schema.from_pandas(empty_result(sent.model), preserve_index=False).remove_metadata()
    twice = sorted(set(keep) & set(results.names))
    if twice:
        raise ValueError(f"keep must not name a column of the results, got {', '.join(twice)}. Rename it in the file.")
    return _Job(path, rows, features, list(keep), pa.schema([*(schema.field(name) for name in keep), *results]))


def _decide_file(job: _Job, into: BinaryIO, deciders: _Deciders, block_rows: int) -> Iterator[tuple[int, int]]:
    """Write one file; yields the rows and the decided rows of each block."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(job.path) as file, pq.ParquetWriter(into, job.schema) as writer:
        names = list(dict.fromkeys([*job.features, *job.keep]))
        blocks = file.iter_batches(batch_size=block_rows, columns=names, use_threads=False)
        for block, decided in deciders.map(blocks, job.features):
            kept = [block.column(name) for name in job.keep]
            writer.write_batch(pa.RecordBatch.from_arrays([*kept, *decided.columns], schema=job.schema))
            yield len(decided), len(decided) - decided.column("cost_bound").null_count


class _Deciders:
    """One process, or several that each hold the model; results come in the order of the blocks."""

    def __init__(self, sent: _Sent, workers: int) -> None:
        self.sent, self.workers = sent, workers

    def __enter__(self) -> _Deciders:
        self.pool = None
        if self.workers > 1:
            from distributed.protocol.pickle import dumps  # knows functions that are written in place

            # Started afresh, because a fork would copy the threads' locks of the solvers.
            self.pool = ProcessPoolExecutor(
                self.workers,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_receive,
                initargs=(dumps(self.sent),),
            )
        return self

    def __exit__(self, *reason: object) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)

    def map(self, blocks: Iterable[Any], features: list[str]) -> Iterator[tuple[Any, Any]]:
        """Pairs of a block and its results; never more than two blocks a worker are in memory."""
        if self.pool is None:
            for block in blocks:
                yield block, _decide_block(self.sent, block.select(features))
            return
        waiting: deque[tuple[Any, Future[Any]]] = deque()
        for block in blocks:
            waiting.append((block, self.pool.submit(_decide_received, block.select(features))))
            if len(waiting) == 2 * self.workers:
                first, future = waiting.popleft()
                yield first, future.result()
        for block, future in waiting:
            yield block, future.result()


_received: list[_Sent] = []


def _receive(sent: bytes) -> None:
    from distributed.protocol.pickle import loads

    _received.append(loads(sent))


def _decide_received(block: Any) -> Any:
    return _decide_block(_received[0], block, n_jobs=1)


def _decide_block(sent: _Sent, block: Any, n_jobs: int | None = None) -> Any:
    import pyarrow as pa

    # NaN stands for "no decision" in a data frame; a file has a word of its own for a value that is missing.
    decided = decide_rows(sent.model, block.to_pandas(), sent.parameters, labels=sent.labels, n_jobs=n_jobs)
    return pa.RecordBatch.from_pandas(decided, preserve_index=False)
