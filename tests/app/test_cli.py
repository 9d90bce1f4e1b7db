"""The command line and everything a newcomer runs first: the demo, the README, the examples."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from importlib.metadata import EntryPoints
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

import polyhedge
from polyhedge_study import bonferroni_box, demo as demo_module
from polyhedge_study.real import NoDataError
from shared import run

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
QUICK_EXAMPLES = ("01", "02")  # the others take up to a minute
EXAMPLES = [
    pytest.param(path, marks=() if path.name[:2] in QUICK_EXAMPLES else pytest.mark.slow, id=path.name)
    for path in sorted((ROOT / "examples").glob("*.py"))
]


def assert_is_png(path: Path) -> None:
    from matplotlib.image import imread

    pixels = imread(path)
    assert pixels.shape[0] > 300
    assert pixels.shape[1] > 300
    # A picture, not a blank sheet.
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 50


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    out = tmp_path_factory.mktemp("demo") / "new" / "folder"
    return run("demo", "--out", str(out), "--alpha", "0.2"), out


# --- tasks ------------------------------------------------------------------------------------------------


# --- the comparison ---------------------------------------------------------------------------------------


def test_bonferroni_box_covers_its_rank_of_each_coordinate() -> None:
    residuals = np.random.default_rng(0).standard_normal((199, 2)) * [1.0, 5.0]
    box = bonferroni_box(residuals, alpha=0.1)
    rank = polyhedge.conformal_rank(199, 0.05)
    np.testing.assert_array_equal((np.abs(residuals) <= box.scale).sum(axis=0), [rank, rank])


# --- the command line -------------------------------------------------------------------------------------


def test_demo_prints_both_tasks_with_all_metrics(demo: tuple[Result, Path]) -> None:
    result, _ = demo
    assert result.exit_code == 0, result.output
    for words in ("Task energy: 144 test rows", "Task linear: 1000 test rows", "learned polyhedron"):
        assert words in result.stdout
    for words in ("coverage (promised 0.8)", "worst-case cost", "premium", "regret", "volume", "Bonferroni box"):
        assert result.stdout.count(words) >= 2
    # Every coverage comes with an interval that holds it.
    intervals = re.findall(r"(\d\.\d+) \[(\d\.\d+), (\d\.\d+)\]", result.stdout)
    assert len(intervals) == 4
    assert all(float(low) <= float(value) <= float(high) for value, low, high in intervals)


@pytest.mark.needs("matplotlib")
def test_demo_saves_one_whole_picture_a_task_and_nothing_else(demo: tuple[Result, Path]) -> None:
    _, out = demo
    assert sorted(path.name for path in out.iterdir()) == ["energy.png", "linear.png"]
    for path in out.iterdir():
        assert_is_png(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--alpha", "2"], "alpha must lie strictly between 0 and 1, got 2.0"),
        (["--alpha", "0.001"], "alpha=0.001 needs at least 999 learning samples, got 160"),
        (["--seed", "-1"], "seed must be an integer of at least 0, got -1"),
    ],
)
def test_bad_value_is_one_line_on_stderr_and_exit_code_2(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = run("demo", "--out", str(tmp_path / "out"), *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("polyhedge: error: ")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_fault_of_the_library_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(task: object, **options: object) -> None:
        raise RuntimeError("The solver\nstopped.")

    monkeypatch.setattr(demo_module, "compare", fail)
    result = run("demo")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "polyhedge: error: RuntimeError: The solver stopped. (run again with polyhedge --debug for the traceback)"
    ]


def test_installed_command_answers_in_a_real_process() -> None:
    command = [sys.executable, "-c", "from polyhedge.app.cli import main; main()"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, f"polyhedge {polyhedge.__version__}")
    done = subprocess.run([*command, "--debug", "inspect", "nowhere.polyhedge"], capture_output=True, text=True)
    assert "Traceback" in done.stderr


# --- what the README and the examples show ----------------------------------------------------------------


def test_the_page_says_what_the_adversary_says_is_exact() -> None:
    from polyhedge.robust import adversary

    def rows(text: str) -> set[tuple[str, ...]]:
        lines = [line.strip() for line in text.splitlines() if line.strip().startswith("|")]
        return {tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines if "---" not in line}

    promised = rows(adversary.__doc__ or "")
    assert promised
    assert promised <= rows((ROOT / "docs" / "exact.md").read_text(encoding="utf-8"))


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize("path", EXAMPLES)
def test_example_runs(path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: None)
    try:
        runpy.run_path(str(path), run_name="__main__")
    except NoDataError as error:
        pytest.skip(str(error))
    assert capsys.readouterr().out


# --- without the study ------------------------------------------------------------------------------------


@pytest.fixture
def _without_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["polyhedge.app.cli.app"], "entry_points", lambda group: EntryPoints())


@pytest.mark.usefixtures("_without_the_study")
def test_help_without_the_study_names_only_commands_for_own_data() -> None:
    text = run("--help").stdout
    assert "fit" in text
    assert not re.search(r"reproduce|bench|demo", text)


@pytest.mark.usefixtures("_without_the_study")
@pytest.mark.parametrize("command", ["reproduce", "bench", "demo"])
def test_command_of_the_study_says_how_to_get_it_where_it_is_missing(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 2
    assert f"polyhedge {command} belongs to the study" in result.stderr
    assert "pip install -e . -e study" in result.stderr
