"""Models in MPS files, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import highspy
import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array, Mask, check_count

MAX_MPS_BYTES = 2**26
"""Bytes of a file: about a million coefficients, more than CVXPY compiles in a minute."""


@dataclass(frozen=True, eq=False)
class MpsModel:
    r"""$\min c^\top x + c_0$ subject to $l \le A x \le h$ and bounds on x, some entries integer.

    `is_maximised` says that the file asks for the largest value instead.
    """

    c: Array
    offset: float
    is_maximised: bool
    A: sp.csr_array
    row_low: Array
    row_high: Array
    low: Array
    high: Array
    is_whole: Mask
    columns: tuple[str, ...]
    rows: tuple[str, ...]


def read_mps(path: str | Path, max_bytes: int = MAX_MPS_BYTES) -> MpsModel:
    """Read a linear model, with or without integers, from an MPS file."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}. Check the path.")
    if path.suffix == ".gz":
        raise ValueError(f"{path} is packed. Unpack it (gunzip): not every build of HiGHS does.")
    size = path.stat().st_size
    if size > check_count(max_bytes, "max_bytes", minimum=1):
        raise ValueError(
            f"{path} may have at most {max_bytes} bytes, and has {size}: a stranger's file should not take all memory. "
            "If you trust it, raise the limit with from_mps(..., max_bytes=...)."
        )
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    status = highs.readModel(str(path))
    lp, n_quadratic = highs.getLp(), highs.getModel().hessian_.dim_
    if status == highspy.HighsStatus.kError or not lp.num_col_:
        raise ValueError(f"{path} is not a model that HiGHS can read. Write it again as a free-format MPS file.")
    if n_quadratic:
        raise ValueError(f"{path} has a quadratic objective. Write such a cost in CVXPY: DecisionProblem(cost=...).")
    columns, rows = (tuple(str(name) for name in names) for names in (lp.col_names_, lp.row_names_))
    if len(set(columns)) != lp.num_col_ or len(set(rows)) != lp.num_row_:
        raise ValueError(f"{path} does not name its columns and rows, or names two alike. Give each its own name.")
    kinds = list(lp.integrality_) or [highspy.HighsVarType.kContinuous] * lp.num_col_
    if any(kind not in (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger) for kind in kinds):
        raise ValueError(f"{path} has semi-continuous variables. Write them with a variable that is 0 or 1.")
    stored = lp.a_matrix_
    kind = sp.csc_array if stored.format_ == highspy.MatrixFormat.kColwise else sp.csr_array
    parts = (np.array(stored.value_, dtype=float), np.array(stored.index_), np.array(stored.start_))
    return MpsModel(
        c=np.array(lp.col_cost_, dtype=float),
        offset=float(lp.offset_),
        is_maximised=lp.sense_ == highspy.ObjSense.kMaximize,
        A=sp.csr_array(kind(parts, shape=(lp.num_row_, lp.num_col_))),
        row_low=np.array(lp.row_lower_, dtype=float),
        row_high=np.array(lp.row_upper_, dtype=float),
        low=np.array(lp.col_lower_, dtype=float),
        high=np.array(lp.col_upper_, dtype=float),
        is_whole=np.array([kind == highspy.HighsVarType.kInteger for kind in kinds]),
        columns=columns,
        rows=rows,
    )
