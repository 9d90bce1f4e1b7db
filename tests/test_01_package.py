"""The package: its version stands in one place, and what is built from it is complete."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import polyhedge as ph
from polyhedge._versions import versions

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


# --- the version ------------------------------------------------------------------------------------------


def test_version_is_written_in_the_source_and_read_from_there() -> None:
    assert "version" not in PROJECT["project"]
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/polyhedge/__init__.py"


def test_pages_that_name_a_version_name_this_one() -> None:
    (cited,) = re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), flags=re.MULTILINE)
    newest = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[0]
    shown = re.findall(r"polyhedge (\d+\.\d+\.\d+)", (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"))
    assert {cited, newest, *shown} == {ph.__version__}


def test_results_are_stamped_with_the_version_of_the_source_that_made_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ph, "__version__", "7.8.9")
    assert versions(["polyhedge", "no-such-package"]) == {"polyhedge": "7.8.9"}


def test_module_answers_like_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "polyhedge", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, f"polyhedge {ph.__version__}")
    done = subprocess.run([sys.executable, "-m", "polyhedge", "demo", "--alpha", "0"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("polyhedge: error: alpha must lie")


# --- what is built ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="nothing to build with")
    folder = tmp_path_factory.mktemp("built")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_source_archive_holds_every_file_of_the_project(built: Path) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout, so there are no tracked files")
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        inside = {name.partition("/")[2] for name in opened.getnames()}
    wanted = {name for name in listed.stdout.splitlines() if (ROOT / name).is_file() and not name.startswith(".ci/")}
    assert wanted - inside == set()


def test_wheel_holds_the_marker_of_types_the_data_and_the_version(built: Path) -> None:
    (archive,) = built.glob("*.whl")
    with zipfile.ZipFile(archive) as opened:
        inside = set(opened.namelist())
    assert archive.name.startswith(f"polyhedge-{ph.__version__}-")
    package = ROOT / "src" / "polyhedge"
    wanted = {f"polyhedge/{path.relative_to(package).as_posix()}" for path in package.rglob("*") if path.is_file()}
    assert "polyhedge/py.typed" in wanted
    assert {name for name in wanted if "__pycache__" not in name} - inside == set()
