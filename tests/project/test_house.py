"""The house: who may import whom, what an import costs, and that no file tells where it was written."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from enum import EnumType
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import polyhedge
import polyhedge.app.report
import polyhedge.evaluation
import polyhedge.io
import polyhedge_study
from polyhedge._support.warnings import Code

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "polyhedge"
NUMBERS = (ast.Constant, ast.Tuple, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop, ast.expr_context)
NUMBER_LINE = re.compile(r"^[A-Z_, ]+( = |: ).*\d")

ORDER = (
    "data",
    "rows",
    "predictors",
    "calibration",
    "sets",
    "problems",
    "decisions",
    "robust",
    "repairs",
    "learners",
    "regions",
    "planning",
    "evaluation",
    "model",
    "diagnostics",
    "fitting",
    "distributed",
    "io",
    "monitoring",
    "estimator",
    "integrations",
    "plots",
    "app",
    "__main__",
)
FOUNDATION = ("_support", "solvers")
OPTIONAL = {
    "cryptography",
    "dask",
    "distributed",
    "jax",
    "matplotlib",
    "mlflow",
    "optax",
    "pandas",
    "plotly",
    "pyarrow",
    "pyomo",
    "pyscipopt",
    "skops",
}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")
STUDY = ROOT / "study" / "src" / "polyhedge_study"
LONGEST_MODULE = 700
"""Lines: beyond that, modules of this house had two subjects."""


def unit_of(path: Path) -> str:
    """The part of the house that a file belongs to: a package or a module right below polyhedge."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imported_units(path: Path) -> set[str]:
    """Parts of the house that a file imports anywhere, also inside functions."""
    package = ("polyhedge", *path.relative_to(PACKAGE).parts[:-1])
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            source = ".".join([*base, *([node.module] if node.module else [])])
            # `from polyhedge import sets` names a part, `from polyhedge.sets import Box` lies in one.
            names += [f"{source}.{alias.name}" if source == "polyhedge" else source for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names += [part.value for part in node.args if isinstance(part, ast.Constant)]
    parts = [name.split(".") for name in names]
    return {part[1] for part in parts if part[0] == "polyhedge" and len(part) > 1 and part[1] != "__version__"}


# Doors that users look for where they do not lie in the order: they open when they are used.
DOORS = {
    "decisions.py": {"robust"},
    "estimator.py": {"app"},
    "evaluation.py": {"plots"},
    "monitoring/backtest.py": {"app", "estimator"},
    "plots/sets.py": {"app"},
    "sets/region.py": {"integrations"},
}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_module_imports_only_what_stands_above_it(path: Path) -> None:
    unit = unit_of(path)
    assert unit in (*ORDER, *FOUNDATION), f"{unit} has no place in the order: add it to ORDER"
    above = FOUNDATION if unit in FOUNDATION else (*FOUNDATION, *ORDER[: ORDER.index(unit)])
    doors = DOORS.get(path.relative_to(PACKAGE).as_posix(), set())
    assert imported_units(path) - {unit} - doors <= set(above)


def test_no_module_is_longer_than_a_reader_keeps_in_mind() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for folder in (PACKAGE, STUDY)
        for path in folder.rglob("*.py")
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST_MODULE} == {}


BUDGETS = {
    "": 3808,  # 2900 is the aim; which calibration rows count takes 20
    "data": 868,  # 900 is the aim
    "predictors": 1593,  # 1000 is the aim
    "problems": 4750,  # 3900 is the aim
    "sets": 1116,
    "robust": 3461,  # 3500 is the aim
    "learners": 3852,
    "planning": 4473,  # 3000 is the aim; programs that are solved together take 180
    "regions": 1037,  # 900 is the aim
    "calibration": 1855,  # 1900 is the aim
    "monitoring": 1364,
    "io": 1437,  # 1500 is the aim
    "plots": 1050,  # 1000 is the aim
    "app": 3755,  # 3800 is the aim
    "distributed": 541,  # 600 is the aim
    "integrations": 122,
    "solvers": 2139,  # squares of integers, bounded by lines that are kept, take 90
    "_support": 1136,  # 900 is the aim
}
"""Lines of each package, "" being the modules at the top level: new code finds its room, or makes room."""


_PROMISES = (
    "regions/what_if.py",
    "calibration/blocks.py",
    "calibration/by_constraint.py",
    "calibration/by_groups.py",
    "calibration/mean_cost.py",
    "calibration/quantile_fit.py",
    "monitoring/frontier.py",
    "regions/largest_cost.py",
)
_RECOURSE = ("problems/second_stage.py", "planning/pool.py", "robust/recourse.py", "repairs.py", "app/cli/repair.py")
ROOMS = {"promises": (1317, _PROMISES), "recourse": (1300, _RECOURSE)}
"""Rooms that were granted beyond the budgets: lines, and the files that fill them."""


def test_every_package_keeps_its_budget_of_lines() -> None:
    lines, granted = dict.fromkeys(BUDGETS, 0), {name for _, names in ROOMS.values() for name in names}
    for limit, names in ROOMS.values():
        assert sum(len((PACKAGE / name).read_text(encoding="utf-8").splitlines()) for name in names) <= limit
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).parts
        if path.relative_to(PACKAGE).as_posix() in granted:
            continue
        lines[parts[0] if len(parts) > 1 else ""] += len(path.read_text(encoding="utf-8").splitlines())
    assert {name: n for name, n in lines.items() if n > BUDGETS[name]} == {}


def test_the_top_level_tells_the_story_in_few_entries() -> None:
    entries = [path for path in PACKAGE.iterdir() if not path.name.startswith("_") and path.suffix in ("", ".py")]
    assert len(entries) <= 30


def test_one_module_alone_knows_the_names_under_which_a_model_file_keeps_the_record_of_a_fit() -> None:
    picks = re.compile(r"details_?(\[[\"']|\.(get|pop)\()")
    guilty = {path.name for path in PACKAGE.rglob("*.py") if picks.search(path.read_text(encoding="utf-8"))}
    assert guilty == {"fit_record.py"}


def test_library_knows_nothing_of_the_study() -> None:
    guilty = [path.name for path in PACKAGE.rglob("*.py") if "polyhedge_study" in path.read_text(encoding="utf-8")]
    assert guilty == []


@pytest.mark.parametrize("path", sorted(STUDY.rglob("*.py")), ids=lambda path: str(path.relative_to(STUDY)))
def test_only_commands_of_the_study_know_the_command_line(path: Path) -> None:
    is_command = path.parent == STUDY / "commands"
    source = path.read_text(encoding="utf-8")
    assert is_command or not re.search(r"polyhedge\.cli|polyhedge_study\.commands|import typer", source)


def test_study_takes_private_names_of_the_library_in_one_place() -> None:
    private = re.compile(r"polyhedge\..*\b_(?!_)")
    guilty = set()
    for path in STUDY.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            source = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names = node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else []
            guilty |= {path.name for alias in names if private.match(f"{source}{alias.name}")}
    assert guilty == {"inside.py"}


def test_one_runner_runs_the_experiments_of_the_study() -> None:
    runs = re.compile(r"\b(?:run_jobs|sole_writer)\(")
    runners = {path.name for path in STUDY.rglob("*.py") if runs.search(path.read_text(encoding="utf-8"))}
    assert runners == {"experiment.py", "jobs.py"}


HEAVY = ("clarabel", "cvxpy", "highspy", "matplotlib", "numpy", "pandas", "scipy", "sklearn", *sorted(OPTIONAL))


def imported_by(*arguments: str) -> set[str]:
    """Heavy packages that a fresh process has imported at its end."""
    code = f"import sys, atexit; atexit.register(lambda: print('\\n', *(set(sys.modules) & set({HEAVY!r})))); "
    done = subprocess.run([sys.executable, "-c", code + arguments[0], *arguments[1:]], capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_importing_polyhedge_imports_nothing_heavy_and_shows_its_names() -> None:
    assert imported_by("import polyhedge; dir(polyhedge)") == set()
    assert set(polyhedge.__all__) <= set(dir(polyhedge))


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("--version",), ("fit", "--help"), ("fit", "--no-such-option"), ("reproduce", "tables", "--help")],
    ids=" ".join,
)
def test_help_version_and_wrong_options_import_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert imported_by("from polyhedge.app.cli import main; main()", *arguments) == set()


def test_completion_imports_nothing_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {"_POLYHEDGE_COMPLETE": "complete_bash", "COMP_WORDS": "polyhedge fit --", "COMP_CWORD": "2"}
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    assert imported_by("from polyhedge.app.cli import main; main()") == set()


@pytest.mark.parametrize("package", [polyhedge, polyhedge.io, polyhedge_study], ids=str)
def test_every_name_of_a_package_is_what_it_says(package: Any) -> None:
    names = {path.stem for path in Path(package.__file__).parent.glob("*.py")} - {"__init__"}
    for name in package.__all__:
        found = getattr(package, name)
        # A module of the same name would take its place once it is imported.
        assert isinstance(found, ModuleType) or name not in names, name


def test_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'polyhedge' has no attribute 'RobustDecidr'"):
        _ = polyhedge.RobustDecidr  # type: ignore[attr-defined]


def test_polyhedge_and_its_command_line_import_without_optional_packages() -> None:
    code = f"import sys; sys.modules.update(dict.fromkeys({OPTIONAL!r})); import polyhedge.app.cli; print('fine')"
    assert python(code) == "fine"


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def project_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout, so there are no tracked files")
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_what_the_targets_make_is_ignored_by_git() -> None:
    project_files()  # skips where there is no git
    removed = re.search(r"^clean:.*\n\trm -rf (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert removed
    made = removed[1].replace("$(VENV)", ".venv").replace("$(OUT)", "results").split()
    names = [name if "." in Path(name).name[1:] else f"{name}/" for name in made]
    ignored = subprocess.run(["git", "check-ignore", *names], cwd=ROOT, capture_output=True, text=True)
    assert sorted(set(names) - set(ignored.stdout.splitlines())) == []


def test_every_file_can_be_checked_out_on_every_system() -> None:
    names = {str(path.relative_to(ROOT)) for path in project_files()}
    assert [name for name in names if re.search(r'[:*?"<>|\\]|[. ]$', name)] == []
    assert len({name.lower() for name in names}) == len(names)


def test_no_file_contains_an_absolute_path_of_this_machine() -> None:
    homes = re.compile(r"(?<![\w.~-])/(?:home|Users|root|work)/[\w.]")
    here = str(ROOT)
    guilty = []
    for path in project_files():
        text = path.read_text(encoding="utf-8", errors="ignore")
        if homes.search(text) or here in text:
            guilty.append(str(path.relative_to(ROOT)))
    assert guilty == []


def test_nobody_asks_which_exported_shape_a_set_is() -> None:
    """A subclass of `Shape` works everywhere: shapes are asked what they offer. PyROS knows some kinds alone."""
    shapes = "(?:Ball|Box|Ellipsoid|Polyhedron)"
    asked = re.compile(rf"isinstance\([^)]*\b{shapes}\b|^\w+ = \({shapes},", re.MULTILINE)
    guilty = [str(path.relative_to(PACKAGE)) for path in MODULES if asked.search(path.read_text(encoding="utf-8"))]
    assert guilty == ["integrations/pyros.py"]


def test_no_learner_asks_a_problem_for_what_its_structure_says() -> None:
    asked = re.compile(r"problem\.pieces\b|len\([\w.]*problem\.support_rows\[0\]\)")
    guilty = [str(path.relative_to(PACKAGE)) for path in MODULES if "learners" in path.parts]
    guilty = [name for name in guilty if asked.search((PACKAGE / name).read_text(encoding="utf-8"))]
    assert guilty == []


def numeric_constants(path: Path) -> Iterator[tuple[ast.stmt, ast.stmt | None]]:
    """Constants of a module that are numbers, each with the statement after it."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        parts = () if value is None else tuple(ast.walk(value))
        numbers = [part for part in parts if isinstance(part, ast.Constant) and type(part.value) in (int, float)]
        if numbers and all(isinstance(part, NUMBERS) for part in parts):
            yield node, after


def test_every_warning_has_a_code_and_every_code_is_explained() -> None:
    own = [path for path in MODULES if "warnings.warn(" in path.read_text(encoding="utf-8")]
    # Beside the one place that warns: diagnostics, which have their codes with them.
    assert {path.name for path in own} == {"warnings.py", "diagnostics.py"}
    page = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    assert [code for code in Code if f'`"{code}"`' not in page] == []


def test_a_constant_has_a_comment_or_docstring() -> None:
    bare = []
    for path in sorted({*PACKAGE.rglob("*.py"), *STUDY.rglob("*.py")}):
        lines = path.read_text(encoding="utf-8").splitlines()
        for node, after in numeric_constants(path):
            own = lines[node.lineno - 1 : node.end_lineno]
            # One reason may do for several constants below it.
            above = next((line for line in reversed(lines[: node.lineno - 1]) if not NUMBER_LINE.match(line)), "")
            is_documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if not (is_documented or above.startswith("#") or "#" in "".join(own)):
                bare.append(f"{path.name}:{node.lineno}: {own[0]}")
    assert not bare


CODE = re.compile(r"`+([^`]+)`+|\$([^$]+)\$|^ *((?:\*{0,2}\w+, )*\*{0,2}\w+) : ", re.MULTILINE)
"""Where a docstring names parameters: in code, in formulas, and before the colon of a list of them."""


def public_callables() -> dict[str, Any]:
    """Functions and classes of polyhedge and its documented parts by their names, without statuses and protocols."""
    named = {}
    parts = [part for part in (getattr(polyhedge, name) for name in polyhedge.__all__) if isinstance(part, ModuleType)]
    for module in (polyhedge, *parts, polyhedge.io, polyhedge.evaluation, polyhedge.app.report):
        for name in module.__all__:
            one = getattr(module, name)
            is_ours = callable(one) and getattr(one, "__module__", "").startswith("polyhedge")
            is_plain = not isinstance(one, EnumType) and not getattr(one, "_is_protocol", False)
            if is_ours and is_plain and (inspect.isfunction(one) or inspect.isclass(one)):
                named[f"{module.__name__}.{name}"] = one
    return named


METHODS = ("RobustDecider", "OutcomeLog", "data.TimeSplit", "data.GroupSplit", "evaluation.RowMeasures")
"""Classes whose methods follow no protocol that would name their parameters once for all."""


def methods_of(one: type) -> dict[str, Any]:
    """Public methods, inherited ones of this library too."""
    members = {name: inspect.getattr_static(one, name) for name in dir(one) if not name.startswith("_")}
    plain = {name: getattr(member, "__func__", member) for name, member in members.items()}
    return {
        f"{one.__name__}.{name}": member
        for name, member in plain.items()
        if inspect.isfunction(member) and member.__module__.startswith("polyhedge")
    }


def unnamed_parameters(one: Any) -> list[str]:
    """Parameters that a docstring does not name; that of a function with a single one may stand in its sentence."""
    text = (inspect.getdoc(one) or "").partition("\nExamples\n")[0]
    try:
        parameters = [name for name in inspect.signature(one).parameters if name not in ("self", "cls")]
    except ValueError:  # exceptions take what all exceptions take
        return []
    told = text if len(parameters) == 1 else " ".join(map("".join, CODE.findall(text)))
    return sorted(set(parameters) - set(re.findall(r"\w+", told)))


def test_every_public_docstring_names_its_parameters() -> None:
    public = public_callables()
    methods = [methods_of(public[f"polyhedge.{name}"]) for name in METHODS]
    checked = {name: one for part in (public, *methods) for name, one in part.items()}
    unnamed = {name: unnamed_parameters(one) for name, one in checked.items()}
    assert {name: parameters for name, parameters in unnamed.items() if parameters} == {}
