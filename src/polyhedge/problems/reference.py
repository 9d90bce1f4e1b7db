"""Problems written in Python files, loaded where the user asks for them by name."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import ModuleType

from polyhedge.problems.decision_problem import DecisionProblem
from polyhedge.problems.names import Source


def from_reference(reference: str) -> DecisionProblem:
    r"""The problem that a Python file defines: `"my_module.py:problem"`. This runs the file.

    Parameters
    ----------
    reference : str
        A path and a name in that file, separated by a colon. The name holds a `DecisionProblem`, or a function
        without arguments that returns one. Modules beside the file can be imported by it.

    Returns
    -------
    DecisionProblem
        With `source`: the reference and a SHA-256 digest of the file, by which a model file recognises it.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "budget.py"
    >>> text = "import polyhedge as ph\nproblem = ph.problems.simplex_linear([0.0, 0.0])\n"
    >>> _ = path.write_text(text)
    >>> from_reference(f"{path}:problem").name
    'simplex linear'
    """
    file, colon, name = reference.rpartition(":")
    path = Path(file)
    if not colon or not name.isidentifier() or path.suffix != ".py":
        raise ValueError(f'A problem in Python is given as "file.py:name", got "{reference}".')
    if not path.is_file():
        raise FileNotFoundError(f'There is no file "{file}". A problem in Python is given as "file.py:name".')
    source = path.read_bytes()
    digest = hashlib.sha256(source).hexdigest()
    defined = getattr(_run(path, source, digest), name, None)
    problem = defined() if callable(defined) else defined
    if not isinstance(problem, DecisionProblem):
        raise ValueError(
            f'"{name}" in {file} must be a DecisionProblem or a function that returns one, got '
            f"{'nothing' if defined is None else type(problem).__name__}."
        )
    return problem.labelled(source=Source(reference, digest))


def _run(path: Path, source: bytes, digest: str) -> ModuleType:
    """Run the very bytes that were digested, as a module of its own."""
    name = f"polyhedge_problem_{digest[:16]}"
    module = ModuleType(name)
    module.__file__ = str(path)
    # Classes look their module up by name, and a module finds its neighbours along the path.
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    finally:
        sys.path.remove(str(path.parent.resolve()))
    return module
