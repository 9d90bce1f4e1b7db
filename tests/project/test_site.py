"""What the pages of the site show is run, page by page and in the order of the page."""

import ast
import inspect
import re
import runpy
import sys
import tomllib
from functools import reduce
from pathlib import Path

import pytest

import polyhedge as ph
from polyhedge_study import real as real_data
from polyhedge_study.real import NoDataError

DOCS = Path(__file__).parents[2] / "docs"
SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"\n+```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""What a snippet prints, where the page shows it right below."""
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
PAGES = [page.name for page in sorted(DOCS.glob("*.md")) if SNIPPET.search(page.read_text(encoding="utf-8"))]
PAGES.remove("index.md")  # shows the README's lines, which are run with the README


def test_the_front_page_shows_the_frame_the_lines_and_the_output_of_the_readme():
    pages = (DOCS / "index.md", DOCS.parent / "README.md")
    blocks = re.compile(r"^```(?:python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    front, readme = (blocks.findall(page.read_text(encoding="utf-8")) for page in pages)
    assert front == readme
    frame, _, output = readme
    assert output.startswith(frame)


@pytest.mark.selection  # a page shows what its reader will see
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", PAGES)
def test_the_snippets_of_a_page_run(name, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    page = (DOCS / name).read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for found in SNIPPET.finditer(page):
        lines_before = page[: found.start(1)].count("\n")
        exec(compile("\n" * lines_before + found[1], str(DOCS / name), "exec"), names)
        shown, printed = OUTPUT.match(page, found.end()), capsys.readouterr().out
        if shown is not None:
            # Other versions of solvers and of scikit-learn may move a row across a bound; the tour selects freely.
            check_output(printed, shown[1], 0.1 if name == "tour.md" else 0.02)


def check_output(printed, shown, tolerance):
    """Words are the same, numbers nearly; spaces at the ends of lines do not count."""
    printed = "\n".join(line.rstrip() for line in printed.splitlines()) + "\n"
    assert re.sub(" +", " ", NUMBER.sub("#", printed)) == re.sub(" +", " ", NUMBER.sub("#", shown))
    values, expected = ([float(number) for number in NUMBER.findall(text)] for text in (printed, shown))
    assert values == pytest.approx(expected, rel=tolerance, abs=tolerance)


@pytest.mark.selection
def test_the_readme_shows_what_its_lines_print(capsys):
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    (found,) = SNIPPET.finditer(text)
    names: dict[str, object] = {}
    exec(compile(found[1], "README.md", "exec"), names)
    check_output(capsys.readouterr().out, OUTPUT.match(text, found.end())[1], 0.1)
    assert names["decider"].decide(names["shop"].new).is_optimal.all()


def test_each_guarantee_has_a_page_with_an_example_and_its_output():
    names = re.findall(r"^   calibration\.(\w+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    overview = (DOCS / "groups-shift-time.md").read_text(encoding="utf-8")
    for name in names:
        name_of_page = {"AllOf": "Total", "CVaR": "Mean"}.get(name, name)  # one page for both
        page = f"calibration-{re.sub('(?<!^)(?=[A-Z])', '-', name_of_page).lower()}.md"
        text = (DOCS / page).read_text(encoding="utf-8")
        assert f"]({page})" in overview
        assert f"polyhedge.calibration.{name}`" in text
        assert all(
            f"**{part}" in text for part in ("What it promises", "The formula", "When to use", "What goes wrong")
        )
        assert OUTPUT.match(text, next(SNIPPET.finditer(text)).end())
    assert len(names) == 12


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith("gallery/"):  # made when the site is built
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


PUBLIC = re.findall(
    r"^   ([a-z]\w*\.\w+|[A-Z]\w*|[a-z]\w*)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_object_has_an_example_of_its_own_or_of_a_neighbour(name):
    found = reduce(getattr, name.split("."), ph)
    own, module = inspect.getdoc(found), inspect.getsource(inspect.getmodule(found))
    assert ">>>" in own or re.search(rf">>>.*\b{name.split('.')[-1]}\(", module)


@pytest.mark.parametrize("verb", ["decide", "evaluate", "region", "recalibrate", "update", "at", "summary"])
def test_a_verb_of_the_decider_is_in_its_example(verb):
    assert f"decider.{verb}(" in inspect.getdoc(ph.RobustDecider)


@pytest.mark.needs("sphinx", "numpydoc")
@pytest.mark.parametrize("name", PUBLIC)
def test_sentences_in_docstrings_are_not_shown_as_types(name):
    described = runpy.run_path(str(DOCS / "_ext" / "entries.py"))["described"]
    lines = described(inspect.getdoc(reduce(getattr, name.split("."), ph)).splitlines())
    start = next((k for k, line in enumerate(lines) if line in ("Attributes", "Parameters")), len(lines))
    types = [line.split(" : ", 1)[1] for line in lines[start:] if re.match(r"[\w, *]+ : ", line)]
    assert [text for text in types if text.endswith(".") or "; " in text] == []


@pytest.mark.needs("latex2mathml", "sphinx")
def test_formulas_of_the_pages_are_rendered_whole():
    """What the converter does not know it shows as it was written, with a backslash."""
    to_mathml = runpy.run_path(str(DOCS / "_ext" / "mathml.py"))["to_mathml"]
    texts = [page.read_text(encoding="utf-8") for page in DOCS.glob("*.md")]
    texts += [inspect.getdoc(reduce(getattr, name.split("."), ph)) for name in PUBLIC]
    written = [re.sub(r"```.*?```|``.*?``|`[^`]*`", "", text, flags=re.DOTALL) for text in texts]
    found = [one or two for text in written for one, two in re.findall(r"\$\$(.+?)\$\$|\$([^$]+)\$", text, re.DOTALL)]
    assert len(found) > 50
    assert [formula for formula in found if "\\" in re.sub(r"<[^>]*>", "", to_mathml(formula))] == []


def test_what_the_package_offers_is_in_the_reference():
    modules = {"calibration", "data", "distributed", "learners", "plots", "predictors", "problems", "robust", "sets"}
    told = {name.rsplit(".", 1)[-1] for name in PUBLIC}
    assert set(ph.__all__) - modules <= told
    assert {name for name in dir(ph) if not name.startswith("__")} == set(ph.__all__)


def test_the_map_from_the_paper_names_files_that_are_there():
    text, root = (DOCS / "paper-map.md").read_text(encoding="utf-8"), DOCS.parent
    named = [name for name in re.findall(r"`([a-z_]+/[\w/]*(?:\.py)?)`", text) if "/" in name]
    assert len(named) > 15
    for name in named:
        assert any((folder / name).exists() for folder in (root, root / "src" / "polyhedge")), name


def test_links_to_headings_lead_to_one():
    """Anchors as the site makes them: small letters, words joined by dashes."""
    for page in DOCS.glob("*.md"):
        for target, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
            text = ((DOCS / target) if target else page).read_text(encoding="utf-8")
            headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{page.name} links to {target}#{anchor}"


@pytest.mark.parametrize("path", sorted((DOCS.parent / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_an_example_ends_in_a_picture_and_a_lesson(path):
    text = path.read_text(encoding="utf-8")
    picture, lesson = text.rfind("plt.show()"), text.rfind("# **Lesson.**")
    assert 0 < picture < lesson
    assert all(line.startswith("# ") for line in text[lesson:].splitlines())


@pytest.mark.parametrize("path", sorted((DOCS.parent / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_an_example_needs_the_wheel_and_what_its_first_lines_say(path):
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    asked = re.search(r"pip install 'polyhedge\[([\w,]+)\]'", ast.get_docstring(tree))
    extras = [name for extra in asked[1].split(",") for name in project["optional-dependencies"][extra]]
    there = {re.match(r"[\w-]+", name)[0] for name in [*project["dependencies"], *extras, "polyhedge"]}
    there |= {"sklearn"} if "scikit-learn" in there else set()
    there |= {"polyhedge_study"} if "``pip install ./study``" in ast.get_docstring(tree) else set()
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} - sys.stdlib_module_names <= there


@pytest.mark.needs("sphinx")
def test_an_example_without_its_data_is_left_out_with_the_reason(tmp_path, monkeypatch):
    def no_registry():
        raise NoDataError("prices 1.0 cannot be downloaded: no registry")

    monkeypatch.setattr(real_data, "day_ahead_prices", no_registry)
    (tmp_path / "01_prices.py").write_text("from polyhedge_study.real import day_ahead_prices\n", encoding="utf-8")
    (tmp_path / "02_numbers.py").write_text("import numpy\n", encoding="utf-8")
    without_data = runpy.run_path(str(DOCS / "_ext" / "without_data.py"))["without_data"]
    assert without_data(tmp_path) == {"01_prices": "prices 1.0 cannot be downloaded: no registry"}
