"""Pages: complete in one file, safe whatever the text, right in a real browser; and the commands that write them."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhedge as ph
from polyhedge.app.report.model import ModelDetails, model_report
from polyhedge.app.report.page import (
    Card,
    Cards,
    Cell,
    Code,
    Column,
    Drawing,
    Facts,
    Missing,
    Note,
    Page,
    Points,
    Section,
    Table,
    Text,
    clean_svg,
)
from polyhedge.app.report.pictures import draw
from polyhedge.learners import OneSidedBox, PcaBox
from polyhedge_study import synthetic_task
from polyhedge_study.page_blocks import Chart, Heading, Picture
from polyhedge_study.study import StudySettings, run_study, study_jobs
from polyhedge_study.study_report import study_page, write_study_report
from shared import run

EVIL = '<script>alert("x")</script>'
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)


class Seen(HTMLParser):
    """What a browser would meet: tags, attributes, text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def values(self, attribute: str) -> list[str]:
        return [value for _, name, value in self.attributes if name == attribute]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).replace("\u00a0", " ").split())


def page_of(*blocks: Any) -> str:
    return Page("Title", "Lead", [Section("First", blocks)]).html()


def assert_stands_alone(text: str) -> None:
    seen = Seen(text)
    for name in ("src", "href", "xlink:href", "action", "poster", "srcset", "data"):
        assert all(value.startswith(("data:", "#")) for value in seen.values(name)), name
    styles = " ".join([*re.findall(r"<style>(.*?)</style>", text, re.DOTALL), *seen.values("style")])
    assert "@import" not in styles
    assert all(link.startswith("#") for link in re.findall(r"url\(([^)]*)\)", styles))
    assert not seen.tags["iframe"] + seen.tags["object"] + seen.tags["embed"] + seen.tags["base"]
    assert any("default-src 'none'" in value for value in seen.values("content"))
    ids = Counter(seen.values("id"))
    assert [name for name, count in ids.items() if count > 1] == []


# --- blocks -----------------------------------------------------------------------------------------------

BLOCKS = {
    "text": Text(EVIL),
    "heading": Heading(EVIL),
    "points": Points([EVIL]),
    "note": Note(EVIL, warning=True),
    "missing": Missing(EVIL, EVIL),
    "code": Code(EVIL),
    "facts": Facts({EVIL: EVIL}),
    "cards": Cards([Card(EVIL, EVIL, EVIL)]),
    "table": Table(EVIL, [Column(EVIL, EVIL), Column("b")], [[Cell(EVIL, detail=EVIL), Cell(EVIL, best=True)]], EVIL),
    "picture": Picture(b"\x89PNG", EVIL, wide=True),
    "drawing": Drawing("<svg width='1'></svg>".replace("'", '"'), EVIL),
    "chart": Chart("chart", [{"text": [EVIL]}], {"title": EVIL}, EVIL),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_text_is_never_read_as_html(name: str) -> None:
    expected = Seen(page_of(Text("harmless"))).tags["script"] + (name == "chart")
    seen = Seen(page_of(BLOCKS[name]))
    assert seen.tags["script"] == expected
    assert_stands_alone(page_of(BLOCKS[name]))


def test_title_and_sections_are_escaped_and_linked() -> None:
    text = Page(EVIL, EVIL, [Section(EVIL, []), Section(EVIL, [])], closing=EVIL).html()
    seen = Seen(text)
    assert seen.tags["script"] == 1
    links = [value for value in seen.values("href") if value.startswith("#")]
    assert len(set(links)) == 2
    assert {link[1:] for link in links} <= set(seen.values("id"))


def test_numbers_of_a_chart_are_proper_json() -> None:
    text = Chart("chart", [{"y": [1.0, float("nan"), float("inf")], "text": ["</script>"]}], {}, "A chart").html()
    found = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL)
    assert found is not None
    assert json.loads(found.group(1))["data"][0] == {"y": [1.0, None, None], "text": ["</script>"]}


def test_table_says_how_it_is_sorted_and_what_is_best() -> None:
    rows = [[Cell("a"), Cell("2.00", 2.0, best=True)], [Cell("b"), Cell("", np.nan)], [Cell("c"), Cell("∞", np.inf)]]
    text = Table("Costs", [Column("method"), Column("cost", "ours")], rows).html()
    assert Seen(text).values("data-value") == ["2.0", "", "Infinity"]
    assert "<strong>2.00</strong>" in text
    assert Seen(text).values("data-column") == ["0", "1"]
    assert '<th colspan="1" scope="colgroup">ours</th>' in text


def test_drawings_take_the_ink_of_the_page_and_carry_no_address() -> None:
    pytest.importorskip("matplotlib")
    drawing = draw(lambda ax: ax.plot([0, 1], [0, 1], label="a line"), "A line")[0]
    text = drawing.html()
    assert "currentColor" in text
    assert "http" not in text
    assert drawing == draw(lambda ax: ax.plot([0, 1], [0, 1], label="a line"), "A line")[0]


def test_svg_of_unknown_origin_loses_scripts_and_metadata() -> None:
    svg = f'<?xml version="1.0"?><svg xmlns="http://a"><metadata>b</metadata>{EVIL}<!-- c --><g/></svg>'
    assert clean_svg(svg) == "<svg><g/></svg>"


# --- the page of a model ----------------------------------------------------------------------------------


def fitted(d: int = 2, learner: Any = None) -> tuple[ph.RobustDecider, np.ndarray, np.ndarray]:
    task = synthetic_task(0, n_outcomes=d, sizes=(200, 60, 120, 150))
    split, learner = task.split, learner or OneSidedBox()
    decider = ph.RobustDecider(task.problem, task.predictor, learner=learner, guarantee="outcome", random_state=0)
    decider.fit(task.X, task.Y, train=split.train, learn=split.learn, calibrate=split.calibrate)
    return decider, *task.rows("test")


@pytest.fixture(scope="module")
def two() -> tuple[ph.RobustDecider, np.ndarray, np.ndarray]:
    return fitted()


def test_model_page_tells_promise_observation_facets_and_origin(two) -> None:
    decider, X, Y = two
    details = ModelDetails("Loads", warnings=["few rows"], facts={"Data": "history.csv"}, commands=["make it"])
    text = model_report(decider, X, Y, details)
    seen, found = Seen(text).text, decider.evaluate(X, Y)
    assert_stands_alone(text)
    for words in (
        "at least 90 % of cases",
        str(found.coverage),
        "Trusting the prediction",
        "limits u_1 to at most",
        "Warning: few rows",
        "history.csv",
        "make it",
        f"polyhedge {ph.__version__}",
    ):
        assert words in seen


def test_model_page_without_rows_promises_and_says_what_is_missing(two) -> None:
    text = model_report(two[0])
    assert_stands_alone(text)
    assert Seen(text).text.count("polyhedge report MODEL HELD_OUT.csv") == 4


def test_model_page_is_the_same_for_the_same_model(two) -> None:
    assert model_report(*two) == model_report(*two)


def test_model_page_warns_of_drift(two) -> None:
    decider, X, Y = two
    text = Seen(model_report(decider, X, Y + 1.0)).text
    assert "The held-out rows do not look like the calibration rows. Recalibrate on recent rows." in text
    assert "below the promised 90 % by more than chance explains" in text


@pytest.mark.needs("matplotlib")
def test_model_page_of_many_outcomes_shows_shadows() -> None:
    decider, X, Y = fitted(4, PcaBox())
    text = model_report(decider, X, Y)
    assert_stands_alone(text)
    assert text.count("The shadow of the set on") == 6  # three captions, each read aloud too


def test_model_page_without_matplotlib_leaves_pictures_out(two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = Seen(model_report(*two)).text
    assert text.count("matplotlib is not installed") == 3
    assert "Trusting the prediction" in text


# --- the page of the study --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    jobs = study_jobs(["energy"], ["one-sided-box", "polyhedron", "grid-no-recal", "polyhedge"], seeds=2)
    run_study(jobs, folder, settings=StudySettings())
    return folder


@pytest.fixture(scope="module")
def study(results: Path) -> str:
    return write_study_report(results).read_text(encoding="utf-8")


def test_study_page_needs_no_network_and_compares_with_the_paper(study: str) -> None:
    assert_stands_alone(study)
    seen = Seen(study)
    for words in ("Polyhedron", "Rotated-box grid", "no guarantee", "Holm-corrected", "3.70", "paired t-test"):
        assert words in seen.text
    assert "<strong>" in study
    assert 'class="best' in study


def test_study_page_has_the_command_for_each_part_that_is_missing(study: str, tmp_path: Path) -> None:
    text = Seen(study).text
    for name in ("sensitivity", "theory", "scaling", "motivation", "generalisation"):
        assert f"polyhedge reproduce {name} ." in text
    nothing = Seen(study_page(tmp_path).html()).text
    assert nothing.count("polyhedge reproduce tables") == 6


def test_study_page_shows_curves_and_figures_that_are_there(results: Path, tmp_path: Path) -> None:
    for path in results.glob("study.*"):
        shutil.copy(path, tmp_path)
    rows = [
        f"K,{value},{method},{seed},done,0.9,1.0,0.1,{0.3 + value / 100},0.02,0.1,,0.5"
        for value in (3.0, 4.0)
        for method in ("pinball", "polyhedge")
        for seed in (0, 1)
    ]
    head = "sweep,value,method,seed,status,coverage,volume,worst_case_cost,premium,regret,seconds,detail,hull_volume"
    (tmp_path / "sensitivity.csv").write_text("\n".join([head, *rows, ""]), encoding="utf-8")
    (tmp_path / "theory.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>', encoding="utf-8")
    (tmp_path / "theory.md").write_text(
        "# Theory\n\n## Gap\n\n| n | gap |\n| --- | ---: |\n| 20 | 0.5 |\n", encoding="utf-8"
    )
    text = study_page(tmp_path).html()
    assert_stands_alone(text)
    caption = "Against K: worst-case cost (as the paper draws), premium and coverage on fresh data, mean ± standard"
    assert f"{caption} error over 2 seed(s)." in Seen(text).text
    assert "data:image/svg+xml;base64," in text
    assert ">0.5</td>" in text


# --- the commands -----------------------------------------------------------------------------------------

PROBLEM = 'kind = "simplex_linear"\noutcomes = ["a", "b"]\nc = [0.0, 0.1]\n'


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    rng = np.random.default_rng(0)
    for name, n in (("history.csv", 400), ("fresh.csv", 120)):
        x = rng.normal(size=(n, 2))
        y = x @ [[1.0, 0.3], [0.2, 1.0]] + 0.3 * rng.normal(size=(n, 2))
        table = np.column_stack([x, y])
        np.savetxt(folder / name, table, delimiter=",", header="width,height,a,b", comments="", fmt="%.5f")
    (folder / "problem.toml").write_text(PROBLEM, encoding="utf-8")
    data, problem, out = folder / "history.csv", folder / "problem.toml", folder / "m.polyhedge"
    fixed = ["--predictor", "linear", "--guarantee", "outcome"]
    done = run("fit", data, "--outcomes", "a,b", "--problem", problem, *fixed, "--out", out)
    assert done.exit_code == 0, done.output
    return out


def test_report_of_a_model_writes_a_page_next_to_it(model: Path) -> None:
    done = run("report", model, model.parent / "fresh.csv", "--title", "Width & height")
    assert done.exit_code == 0, done.output
    page = model.with_suffix(".html")
    assert f"Page: {page}" in done.output
    text = page.read_text(encoding="utf-8")
    assert_stands_alone(text)
    assert "Width &amp; height" in text
    assert "history.csv, 400 rows" in Seen(text).text


def test_near_copies_count_once_on_a_models_page(two: Any) -> None:
    decider, *rows = two
    X, Y = (np.repeat(part[:20], 5, axis=0) for part in rows)
    plain = Seen(model_report(decider, X, Y)).text
    grouped = Seen(model_report(decider, X, Y, ModelDetails(groups=np.repeat(np.arange(20), 5)))).text
    assert "as far as 100 rows can tell" in plain or "100 held-out rows" in plain
    assert "by one row of each of 20 groups" in grouped
    assert "Rows of one group are near-copies: of one row of each of 20 groups," in grouped


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize(
    ("what", "more", "name"),
    [
        ("set", [], "set.png"),
        ("set", ["--pair", "b,a"], "set.pdf"),
        ("curve", [], "curve.svg"),
        ("map", ["--features", "width,height", "--show", "cost_bound"], "map.png"),
        ("map", ["--show", "z_b"], "map.svg"),
    ],
)
def test_plot_writes_the_picture_in_the_format_of_its_name(model: Path, tmp_path: Path, what, more, name) -> None:
    out = tmp_path / name
    done = run("plot", model, what, model.parent / "fresh.csv", "--out", out, *more)
    assert done.exit_code == 0, done.output
    start = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[out.suffix]
    assert out.read_bytes().startswith(start)


# --- in a real browser ------------------------------------------------------------------------------------


class Browser:
    """A headless Chromium, spoken to through its DevTools protocol."""

    def __init__(self, host: str) -> None:
        self.host, self.count, self.complaints = host, 0, []

    @asynccontextmanager
    async def open(self, path: Path, *, width: int, scheme: str) -> AsyncIterator[None]:
        from tornado.websocket import websocket_connect

        with urllib.request.urlopen(f"http://{self.host}/json") as answer:
            target = next(target for target in json.load(answer) if target["type"] == "page")
        self.socket = await websocket_connect(target["webSocketDebuggerUrl"], max_message_size=2**28)
        try:
            await self._load(path, width, scheme)
            yield
        finally:
            self.socket.close()
            while await self.socket.read_message() is not None:
                pass

    async def _load(self, path: Path, width: int, scheme: str) -> None:
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=features)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        await self.call("Page.navigate", url=path.as_uri())
        for _ in range(200):
            if await self.run("document.readyState === 'complete' && location.protocol === 'file:'"):
                return
            await asyncio.sleep(0.1)
        raise TimeoutError("the page did not load within 20 s")

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.count += 1
        await self.socket.write_message(json.dumps({"id": self.count, "method": method, "params": parameters}))
        while True:
            message = json.loads(await self.socket.read_message())
            if message.get("id") == self.count:
                assert "error" not in message, message
                return message["result"]
            if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
                self.complaints.append(message["params"])

    async def run(self, script: str) -> Any:
        found = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def screenshot(self) -> bytes:
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    if not CHROMIUM:
        pytest.skip("Chromium is not installed, so pages cannot be opened")
    pytest.importorskip("tornado", reason="the DevTools protocol needs a websocket")
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
    process = subprocess.Popen(
        [CHROMIUM, *flags, f"--user-data-dir={tmp_path / 'profile'}", "about:blank"], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        hosts = (re.search(r"DevTools listening on ws://([^/]+)/", line) for line in process.stderr)
        yield Browser(next(host.group(1) for host in hosts if host))
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


CHARTS_FILL_THEIR_BOXES = """Array.from(document.querySelectorAll(".chart")).every((chart) => {
  const box = chart.getBoundingClientRect(), drawn = chart.querySelector(".main-svg").getBoundingClientRect();
  return Math.abs(box.width - drawn.width) < 2 && Math.abs(box.height - drawn.height) < 2;
})"""

COLUMN = """(() => {
  const table = document.querySelector("table.sortable");
  const buttons = Array.from(table.querySelectorAll("thead button"));
  const button = buttons.find((head) => /worst-case.*here$/.test(head.textContent));
  if (CLICK) button.click();
  const cells = Array.from(table.tBodies[0].rows).map((row) => row.cells[Number(button.dataset.column)].dataset.value);
  return { cells, sort: button.closest("th").getAttribute("aria-sort") };
})()"""


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (1200, "dark"), (768, "light"), (375, "light")])
def test_study_page_works_in_a_browser(
    study: str, results: Path, browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    async def visit() -> None:
        async with browser.open(results / "report.html", width=width, scheme=scheme):
            before = await browser.run(COLUMN.replace("CLICK", "false"))
            up = await browser.run(COLUMN.replace("CLICK", "true"))
            down = await browser.run(COLUMN.replace("CLICK", "true"))
            assert before["sort"] is None
            assert (up["sort"], down["sort"]) == ("ascending", "descending")
            assert [float(cell) for cell in up["cells"]] == sorted(float(cell) for cell in before["cells"])
            assert down["cells"] == up["cells"][::-1]
            # The body never scrolls sideways; tables do so in their own box.
            assert await browser.run("document.documentElement.scrollWidth <= window.innerWidth")
            assert await browser.run("document.querySelectorAll('.chart .main-svg').length > 0")
            assert await browser.run(CHARTS_FILL_THEIR_BOXES)
            await browser.run("window.dispatchEvent(new Event('beforeprint'))")
            assert await browser.run("document.querySelector('.chart .main-svg').getBoundingClientRect().height") == 420
            await browser.run("window.dispatchEvent(new Event('afterprint'))")
            assert await browser.run(CHARTS_FILL_THEIR_BOXES)
            background = await browser.run("getComputedStyle(document.body).backgroundColor")
            assert (background == "rgb(255, 255, 255)") == (scheme == "light")
            picture = await browser.screenshot()
            (tmp_path / "page.png").write_bytes(picture)
            assert picture.startswith(b"\x89PNG")
            assert len(picture) > 10_000

    pytest.importorskip("plotly")
    asyncio.run(visit())
    assert browser.complaints == []


@pytest.mark.slow
def test_empty_cells_stay_last_whichever_way_a_table_is_sorted(browser: Browser, tmp_path: Path) -> None:
    rows = [[Cell(name), Cell(name, value)] for name, value in (("b", 2.0), ("", np.nan), ("a", 1.0), ("c", np.inf))]
    page = tmp_path / "t.html"
    page.write_text(page_of(Table("Costs", [Column("m"), Column("v")], rows)), encoding="utf-8")
    script = """(() => { document.querySelectorAll("thead button")[1].click();
      return Array.from(document.querySelectorAll("tbody td")).map((cell) => cell.textContent).join(); })()"""

    async def visit() -> None:
        async with browser.open(page, width=800, scheme="light"):
            assert await browser.run(script) == "a,b,c,"
            assert await browser.run(script) == "c,b,a,"

    asyncio.run(visit())
    assert browser.complaints == []


@pytest.mark.slow
def test_model_page_works_in_a_browser(two, browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "model.html"
    page.write_text(model_report(*two), encoding="utf-8")

    async def visit() -> None:
        async with browser.open(page, width=375, scheme="dark"):
            assert await browser.run("document.documentElement.scrollWidth <= window.innerWidth")
            # Pictures take the ink of the page, which is light in the dark.
            ink = await browser.run("getComputedStyle(document.querySelector('figure svg text')).fill")
            assert min(int(part) for part in re.findall(r"\d+", ink)[:3]) > 150

    asyncio.run(visit())
    assert browser.complaints == []
