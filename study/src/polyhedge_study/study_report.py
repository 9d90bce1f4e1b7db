"""The study's page: everything in a results folder, beside the paper's figures, in one file.

Reads what the commands of `polyhedge reproduce` write (see the head of `study.py`). A part whose files are not there is
replaced by a line with the command that makes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from polyhedge.app.report.page import Block, Code, Facts, Figures, Missing, Note, Page, Section, Text
from polyhedge_study.inside import replace_file
from polyhedge_study.markdown import markdown_blocks
from polyhedge_study.page_blocks import Heading, Picture, plotly_library
from polyhedge_study.sensitivity import SWEEPS, SensitivityRow
from polyhedge_study.study import StudyRow
from polyhedge_study.study_charts import bubble_chart, sensitivity_picture, set_picture
from polyhedge_study.study_page_tables import cost_cards, task_table, times_table
from polyhedge_study.study_tables import TITLES, by_method, tasks_of
from polyhedge_study.study_words import in_words
from polyhedge_study.summary import TableRow, table_rows, time_rows
from polyhedge_study.tidy import read_rows

__all__ = ["study_page", "write_study_report"]

_TABLES, _SENSITIVITY = "polyhedge reproduce tables", "polyhedge reproduce sensitivity"
_THEORY, _SCALING, _MOTIVATION = (f"polyhedge reproduce {name}" for name in ("theory", "scaling", "motivation"))
_GENERALISATION = "polyhedge reproduce generalisation"
# Linear and quadratic share their draws, so that one picture of residuals serves both.
_DRAWN = ("linear", "newsvendor", "energy")


def write_study_report(folder: Path, out: Path | None = None, progress: Callable[[str], None] | None = None) -> Path:
    """Write the page of a results folder; the file appears whole or not at all.

    Parameters
    ----------
    folder : with results of `polyhedge reproduce`.
    out : where to write; `report.html` in the folder if None.
    progress : called with what is done next.
    """
    if folder.is_dir() and not any(folder.glob("*.json")):
        raise FileNotFoundError(f"{folder} holds no results. Make some with: {_TABLES} --out {folder}")
    path = folder / "report.html" if out is None else out
    replace_file(path, study_page(folder, progress).html().encode())
    return path


def study_page(folder: Path, progress: Callable[[str], None] | None = None) -> Page:
    """The page of a results folder."""
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder}. Make results with {_TABLES}.")
    say = progress or (lambda _: None)
    records = _records(folder)
    alpha = float(records.get("study", {}).get("settings", {}).get("alpha", 0.1))
    study = folder / "study.csv"
    figures = table_rows(read_rows(study, StudyRow)) if study.exists() else []
    say("tables")
    sections = [
        Section("In short", [*_short(figures), *(Text(sentence) for sentence in in_words(figures))]),
        Section("Tables 2 and 3, beside the paper's", _tables(figures)),
        Section("Coverage, cost and volume", _bubbles(figures, alpha, folder)),
    ]
    say("sets over residuals")
    sections.append(Section("The sets over the residuals", _sets(figures, alpha)))
    say("curves")
    sections += [
        Section("The first figure", _motivation(folder)),
        Section("Sensitivity", _sensitivity(folder, alpha)),
        Section("Where learning helps", _generalisation(folder)),
        Section("How the learners scale (Table 1)", _scaling(folder)),
        Section("Theory, measured", _theory(folder)),
        Section("Times", _times(study)),
        Section("What was run, and how to run it again", _run(records, figures)),
    ]
    lead = (
        "Learning Polyhedral Conformal Sets for Contextual Robust Optimization: every method on every task, "
        "measured here and beside the printed figures."
    )
    closing = "Made by Polyhedge. This page needs no network."
    library = plotly_library() if figures else None
    return Page("Polyhedge: the paper's study", lead, _that_are_there(sections), closing, library or "")


def _that_are_there(sections: Sequence[Section]) -> list[Section]:
    """Sections with something in them; one at the end says how to make the others, so that no link leads to nothing."""
    empty = [section for section in sections if all(isinstance(block, Missing) for block in section.blocks)]
    if len(empty) == len(sections) or not empty:
        return list(sections)
    commands = list(dict.fromkeys(block for section in empty for block in section.blocks))
    return [*(section for section in sections if section not in empty), Section("What was not run", commands)]


def _records(folder: Path) -> dict[str, dict[str, Any]]:
    """What made the results, by experiment."""
    records = {}
    for path in sorted(folder.glob("*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is not JSON: {error}. Delete it and run the experiment again.") from error
        if isinstance(record, dict) and "machine" in record:
            records[path.stem] = record
    return records


def _short(figures: Sequence[TableRow]) -> list[Block]:
    if not figures:
        return [Missing("The study has not been run into this folder.", _TABLES)]
    return [
        Text(
            "The premium is the worst-case cost minus the cost of trusting the prediction: what robustness costs. It "
            "has a meaningful zero, so it is the scale for comparisons. In the tables of this study "
            "costs are times ten, as the paper prints them."
        ),
        *cost_cards(figures),
    ]


def _tables(figures: Sequence[TableRow]) -> list[Block]:
    if not figures:
        return [Missing("No tables yet.", _TABLES)]
    blocks: list[Block] = [
        Text("Click a column's head to sort by it, again to turn the order round. On a phone, tables scroll sideways.")
    ]
    for task in tasks_of(figures):
        blocks += [Heading(TITLES[task]), task_table(figures, task)]
    return blocks


def _bubbles(figures: Sequence[TableRow], alpha: float, folder: Path) -> list[Block]:
    if not figures:
        return [Missing("No chart yet.", _TABLES)]
    if plotly_library() is not None:
        return [Figures([bubble_chart(task, by_method(figures, task), alpha) for task in tasks_of(figures)])]
    note = Missing("The chart is a still picture here: plotly is not installed.", "pip install 'polyhedge[plot]'")
    return [note, *_picture(folder, "bubble", "Coverage, worst-case cost and volume, one panel a task.", _TABLES)]


def _sets(figures: Sequence[TableRow], alpha: float) -> list[Block]:
    tasks = [task for task in tasks_of(figures) if task in _DRAWN]
    if not tasks:
        return [Missing("No task with residuals to draw.", _TABLES)]
    text = "The learned set is tight where outcomes are expensive and opens where they cannot hurt: hence its volume."
    return [Text(text), Figures([block for task in tasks for block in set_picture(task, alpha)])]


def _motivation(folder: Path) -> list[Block]:
    caption = "Three sets of equal coverage over the loss: where a set is wide decides what it costs."
    return _picture(folder, "motivation", caption, _MOTIVATION)


def _sensitivity(folder: Path, alpha: float) -> list[Block]:
    path = folder / "sensitivity.csv"
    if not path.exists():
        return [Missing("How results depend on d, K and the split was not measured.", _SENSITIVITY)]
    rows = read_rows(path, SensitivityRow)
    sweeps = [sweep for sweep in SWEEPS if any(row.sweep == sweep and row.status == "done" for row in rows)]
    pictures = [block for sweep in sweeps for block in sensitivity_picture(sweep, rows, alpha)]
    return [Figures(pictures), *_markdown(folder / "sensitivity.md")]


def _generalisation(folder: Path) -> list[Block]:
    """What learning saves beside a box that learns nothing but scales."""
    blocks = _markdown(folder / "generalisation.md")
    return blocks or [Missing("What learning saves on fresh data was not measured.", _GENERALISATION)]


def _scaling(folder: Path) -> list[Block]:
    blocks: list[Block] = []
    for path in sorted(folder.glob("scaling_*.csv")):
        name = path.stem.removeprefix("scaling_").replace("_quick", " (quick run)")
        caption = f"Task {name}: seconds to learn a set from n samples, mean over the seeds."
        blocks += [*_picture(folder, path.stem, caption, _SCALING), *_markdown(path.with_suffix(".md"))]
    return blocks or [Missing("The comparison of exact and approximate learners was not run.", _SCALING)]


def _theory(folder: Path) -> list[Block]:
    if not any(folder.glob("theory*")):
        return [Missing("The theory was not measured.", _THEORY)]
    caption = "Coverage against its exact law, what reuse of data costs, and the suboptimality gap against Theorem 2."
    return [*_picture(folder, "theory", caption, _THEORY), *_markdown(folder / "theory.md")]


def _times(study: Path) -> list[Block]:
    if not study.exists():
        return [Missing("No times yet.", _TABLES)]
    return [times_table(time_rows(read_rows(study, StudyRow)))]


def _run(records: Mapping[str, Mapping[str, Any]], figures: Sequence[TableRow]) -> list[Block]:
    if not records:
        return [Missing("No record of a run in this folder.", _TABLES)]
    facts = {name: _facts(record) for name, record in records.items()}
    first = next(iter(facts.values()))
    # Said once where it is the same for all.
    shared = {
        key: first[key] for key in ("Machine", "Versions") if all(f.get(key) == first[key] for f in facts.values())
    }
    blocks: list[Block] = [Facts(shared)] if shared else []
    for name, record in records.items():
        own = {key: value for key, value in facts[name].items() if key not in shared}
        blocks += [Heading(name.replace("_", " ").capitalize()), Facts(own)]
        if record.get("command"):
            blocks.append(Code(str(record["command"])))
    failures = {f"{f.name} on {f.task}: {f.reason}" for f in figures if f.reason}
    blocks += [Note(f"Failed: {failure}", warning=True) for failure in sorted(failures)]
    return blocks


def _facts(record: Mapping[str, Any]) -> dict[str, str]:
    machine, settings = record["machine"], record.get("settings", {})
    packages = ", ".join(f"{name} {version}" for name, version in machine.get("packages", {}).items())
    facts = {
        "Seeds": _numbered(record.get("seeds", ())),
        "Tasks": _listed(record.get("tasks", ())),
        "Methods": _listed(method["name"] for method in record.get("methods", ())),
        "Settings": ", ".join(f"{name} {_value(value)}" for name, value in settings.items()),
        "Machine": f"{machine.get('processor', '')}, {machine.get('cores', '?')} cores, {machine.get('platform', '')}",
        "Versions": f"Python {machine.get('python', '')}, {packages}",
        "Source": str(record.get("source", "")),
    }
    return {name: value for name, value in facts.items() if value}


def _listed(items: Iterable[Any]) -> str:
    return ", ".join(str(item) for item in items)


def _numbered(seeds: Sequence[int]) -> str:
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return _listed(seeds)


def _value(value: Any) -> str:
    return " / ".join(map(str, value)) if isinstance(value, list) else str(value)


def _picture(folder: Path, stem: str, caption: str, command: str) -> list[Block]:
    """A picture that a command has written; vector graphics where there are, else pixels."""
    for suffix, kind in ((".svg", "svg+xml"), (".png", "png")):
        path = folder / f"{stem}{suffix}"
        if path.exists():
            return [Picture(path.read_bytes(), caption, kind=kind, wide=True)]
    return [Missing(f"There is no picture {stem}.svg or {stem}.png.", command)]


def _markdown(path: Path) -> list[Block]:
    return markdown_blocks(path.read_text(encoding="utf-8")) if path.exists() else []
