"""The package: its version stands in one place, and what is built from it is complete."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import polyhedge as ph
from polyhedge._support.versions import versions

ROOT = Path(__file__).resolve().parents[2]
PROJECT, STUDY = (
    tomllib.loads((ROOT / name).read_text(encoding="utf-8")) for name in ("pyproject.toml", "study/pyproject.toml")
)
DOORS = ("mlflow", "pyomo")
"""Extras outside the lock, with an environment of their own."""
REQUIREMENTS = [
    text
    for project in (PROJECT["project"], STUDY["project"])
    for texts in (
        project["dependencies"],
        *(texts for extra, texts in project["optional-dependencies"].items() if extra not in DOORS),
    )
    for text in texts
    if not text.startswith("polyhedge")
]

RECIPE = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")


# --- the version ------------------------------------------------------------------------------------------


def test_version_is_written_in_the_source_and_read_from_there() -> None:
    assert "version" not in PROJECT["project"]
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/polyhedge/__init__.py"
    assert STUDY["tool"]["hatch"]["version"]["path"] == "../src/polyhedge/__init__.py"


def test_pages_that_name_a_version_name_this_one() -> None:
    (cited,) = re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), flags=re.MULTILINE)
    newest = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[0]
    shown = re.findall(r"polyhedge (\d+\.\d+\.\d+)", (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"))
    (recipe,) = re.findall(r'^  version: "(.+)"$', RECIPE, flags=re.MULTILINE)
    assert {cited, newest, recipe, *shown} == {ph.__version__}


def test_conda_recipe_asks_for_what_the_package_asks_for() -> None:
    run = re.findall(r"^    - ([\w-]+) >=([\d.]+)$", RECIPE.partition("  run:")[2], flags=re.MULTILINE)
    asked = [tuple(text.split(">=")) for text in PROJECT["project"]["dependencies"]]
    assert run == [("python", PROJECT["project"]["requires-python"].removeprefix(">=")), *asked]


def test_links_of_the_readme_lead_to_the_repository_where_a_registry_shows_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("hatchling", reason="nothing to build with")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    metadata: dict[str, Any] = {}
    monkeypatch.setenv("REPOSITORY", "https://example.org/polyhedge/")
    module.CustomMetadataHook(str(ROOT), {}).update(metadata)
    targets = re.findall(r"\]\(([^)]+)\)", metadata["readme"]["text"])
    assert targets
    assert [target for target in targets if not target.startswith("https://")] == []
    assert f"https://example.org/polyhedge/raw/v{ph.__version__}/docs/images/promise.svg" in targets
    monkeypatch.delenv("REPOSITORY")
    module.CustomMetadataHook(str(ROOT), {}).update(metadata)
    assert metadata["readme"]["text"] == (ROOT / "README.md").read_text(encoding="utf-8")
    assert metadata["urls"] == {}


def test_results_are_stamped_with_the_version_of_the_source_that_made_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ph, "__version__", "7.8.9")
    assert versions(["polyhedge", "no-such-package"]) == {"polyhedge": "7.8.9"}


def test_module_answers_like_the_command() -> None:
    command = [sys.executable, "-m", "polyhedge", "inspect", "nowhere.polyhedge"]  # it imports little
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("polyhedge: error: There is no file nowhere.polyhedge")


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
    assert {name.partition("/")[0] for name in inside} == {"polyhedge", f"polyhedge-{ph.__version__}.dist-info"}


# --- what it needs ----------------------------------------------------------------------------------------


def locked() -> dict[str, str]:
    """The lock: what stands behind each name, hashes and all; a package may stand there once for each Python."""
    entries = re.split(r"^(?=\S)", (ROOT / "requirements.lock").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    found: dict[str, str] = {}
    for entry in entries:
        name = entry.partition("==")[0]
        found[name] = found.get(name, "") + entry
    return found


def test_every_version_in_the_lock_has_hashes_and_make_checks_them() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    entries = re.split(r"^(?=\S)", lock, flags=re.MULTILINE)[1:]
    assert len(entries) > 60
    assert [entry for entry in entries if not re.search(r"==[\w.]+.*\\\n +--hash=sha256:[0-9a-f]{64}", entry)] == []
    installs = [line for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines() if "pip install" in line]
    assert [line for line in installs if "requirements.lock" in line and "--require-hashes" not in line] == []


def test_lock_holds_a_version_that_each_requirement_allows() -> None:
    requirements = pytest.importorskip("packaging.requirements")
    lock = locked()
    for requirement in map(requirements.Requirement, REQUIREMENTS):
        versions_there = re.findall(r"==([\w.]+)", lock[requirement.name])
        assert all(requirement.specifier.contains(version) for version in versions_there), requirement.name


def test_every_requirement_says_from_which_version_on() -> None:
    assert [text for text in REQUIREMENTS if not re.search(r">=[\d.]+$", text)] == []


# --- licences ---------------------------------------------------------------------------------------------


def load_licences() -> Any:
    spec = importlib.util.spec_from_file_location("licences", ROOT / "tests" / "licences.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


licences = load_licences()


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("BSD-3-Clause", False),
        ("BSD-3-Clause AND 0BSD AND Zlib", False),
        ("Apache-2.0 OR GPL-2.0-only", False),
        ("BSD-3-Clause AND GPL-3.0-or-later WITH GCC-exception-3.1", False),
        ("GPL-3.0-or-later", True),
        ("MIT AND AGPL-3.0-only", True),
        ("GNU Lesser General Public License v3 (LGPLv3)", True),
        ("GNU General Public License v2 (GPLv2)", True),
        ("LGPL-2.1-only OR GPL-2.0-only", True),
        ("unknown", True),
        ("", True),
    ],
)
def test_gpl_its_family_and_unknown_licences_are_refused_without_another_choice(text: str, refused: bool) -> None:
    assert licences.is_refused(text) is refused


def test_nothing_that_polyhedge_brings_has_a_licence_that_we_refuse() -> None:
    rows = licences.listed()
    assert {"numpy", "cvxpy", "scipy"} <= set(rows)
    assert {name: text for name, (_, text, _) in rows.items() if licences.is_refused(text)} == {}


def test_packages_of_packages_are_listed_and_tools_are_not() -> None:
    core = licences.brought()
    assert {"numpy", "joblib", "scs"} <= core  # scikit-learn and CVXPY bring the last two
    assert not {"pytest", "ruff", "uv", "pip"} & set(licences.listed())
