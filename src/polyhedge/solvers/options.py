"""What a user asks of solvers: options, a time limit, another one for integers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

_OWN_WORDS = {
    ("highs", "time_limit"): "Say Solver(time_limit=...), which counts for each program.",
    ("clarabel", "time_limit"): "Say Solver(time_limit=...), which serves HiGHS as well.",
    ("highs", "threads"): "HiGHS has one number of threads for the whole process; programs are solved side by side, "
    "as many as n_jobs says.",
}
"""Options that the solvers have, but which are not theirs to take here: what to do instead."""


@dataclass(frozen=True)
class Solver:
    """Options of the solvers, and another solver for mixed-integer programs.

    HiGHS solves linear and mixed-integer programs, with tangents where they are convex, Clarabel convex ones.
    `RobustDecider(..., solver=Solver(...))` sets options for one decider, `with Solver(...).in_force():` for all that
    runs inside. Model files do not keep them: they are a matter of the machine.

    Parameters
    ----------
    backend : str
        What solves mixed-integer programs of decisions: "auto" for HiGHS; "scip" (``pip install 'polyhedge[exact]'``),
        "gurobi" (``pip install gurobipy``), or another one that CVXPY reaches: "copt", "mosek", "glpk_mi", "cbc",
        "cplex" or "xpress". Learners keep HiGHS for searches with limits of their own.
    time_limit : float or None
        Seconds for each program that HiGHS or Clarabel solve. A back-end takes its own, in `options`. With a limit,
        decisions depend on the clock.
    highs, clarabel : dict
        Options of these two by their own names, such as ``{"mip_rel_gap": 1e-4}`` or ``{"max_iter": 500}``.
    options : dict
        Options of the back-end, as ``cvxpy.Problem.solve`` takes them: ``{"TimeLimit": 60}`` for Gurobi,
        ``{"scip_params": {"limits/time": 60}}`` for SCIP. They are not printed: a licence may be among them.

    Notes
    -----
    Every answer is verified, whatever the options are. A decision is called optimal where its gap is at most a
    millionth of the costs at stake; a cost bound holds even where the search stopped early. The gap of a mixed-integer
    program is the distance to the lower bound of the back-end (HiGHS, SCIP, Gurobi, COPT), or, of others, to the best
    without integrality.

    Examples
    --------
    >>> solver = Solver(time_limit=10, highs={"mip_rel_gap": 1e-4})
    >>> with solver.in_force():
    ...     solver_in_force().time_limit
    10
    >>> solver_in_force()
    Solver(backend='auto', time_limit=None, highs={}, clarabel={})
    """

    backend: str = "auto"
    time_limit: float | None = None
    highs: Mapping[str, Any] = field(default_factory=dict)
    clarabel: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        limit = self.time_limit
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, (int, float)) or not limit > 0):
            raise ValueError(f"time_limit must be a positive number of seconds or None, got {limit!r}.")
        for name in ("highs", "clarabel", "options"):
            given = getattr(self, name)
            if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
                raise TypeError(f"{name} must be a dictionary of options by name, got {given!r}.")
            for option in given:
                if (name, option) in _OWN_WORDS:
                    raise ValueError(f"{name} cannot take the option {option!r}. {_OWN_WORDS[name, option]}")
        for name, value in self.highs.items():
            import highspy

            highs = highspy.Highs()
            highs.setOptionValue("output_flag", False)
            if highs.setOptionValue(name, value) != highspy.HighsStatus.kOk:
                raise ValueError(f"highs has no option {name!r} of the value {value!r}. Its manual lists all.")
        for name, value in self.clarabel.items():
            import clarabel

            setattr(clarabel.DefaultSettings(), name, value)  # an error where there is no such option
        if self.backend != "auto":
            from polyhedge.solvers.solve import check_named

            check_named(self.backend)
        elif self.options:
            raise ValueError(
                f"options are those of a back-end that is named, got {dict(self.options)} with backend='auto'. Options "
                "of HiGHS and Clarabel go to highs and clarabel."
            )

    def __hash__(self) -> int:
        return hash(repr(self))

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Let all programs inside be solved so, in this thread and in those that Polyhedge starts from it."""
        token = _IN_FORCE.set(self)
        try:
            yield
        finally:
            _IN_FORCE.reset(token)

    def keep_in_force(self) -> None:
        """The same until the present context (`contextvars`) ends, for whoever made one."""
        _IN_FORCE.set(self)


_IN_FORCE: ContextVar[Solver | None] = ContextVar("polyhedge solver", default=None)
_USUAL = Solver()


def solver_in_force() -> Solver:
    """What was asked for here."""
    return _IN_FORCE.get() or _USUAL


def seconds_allowed(time_limit: float | None) -> float | None:
    """The shorter of a caller's own limit and the one in force."""
    limits = [limit for limit in (time_limit, solver_in_force().time_limit) if limit is not None]
    return float(min(limits)) if limits else None


@contextmanager
def solver_of(decider: Any) -> Iterator[None]:
    """Let the `solver` of a decider be in force; where it has none, what is in force stays so."""
    solver = getattr(decider, "solver", None)
    if solver is None:
        yield
        return
    if not isinstance(solver, Solver):
        raise TypeError(f"solver must be a polyhedge.Solver(...) or None, got {solver!r}.")
    with solver.in_force():
        yield
