"""Text of strangers: no escape code reaches the terminal, no formula a spreadsheet, no table is larger than allowed."""

from __future__ import annotations

import ast
import io
import json
import logging
import sys
import unicodedata
from pathlib import Path

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings, strategies as st
from typer.testing import CliRunner, Result

import polyhedge as ph
from polyhedge._support.text import printable
from polyhedge.app import cli
from polyhedge.app.cli.app import _show_warning, guard_streams, say_csv
from polyhedge.app.reading import MAX_TEXT, csv_text, neutralised, read_table, restored, write_table
from polyhedge.problems.toml_file import MAX_DEPTH

COMMANDS = Path(cli.__file__).parent
# Clear the screen, set the title of the window, the same in one character, turn the reading order, go up a line.
CODES = "\x1b[2J \x1b]0;owned\x07 \x9b2J \u202e \x1b[1A"


def run(*arguments: object) -> Result:
    # Without colour the runner would take the codes out itself.
    return CliRunner().invoke(cli.app, list(map(str, arguments)), color=True)


def check_clean(text: str) -> None:
    assert [letter for letter in text if letter != "\n" and printable(letter) != letter] == []


# --- the terminal -----------------------------------------------------------------------------------------


@given(st.text())
@example(CODES)
def test_printed_text_has_no_control_characters_and_loses_nothing(text: str) -> None:
    shown = printable(text)
    check_clean(shown.replace("\n", "\x00"))
    assert "".join(letter if letter.isprintable() else printable(letter) for letter in text) == shown


def test_spaces_of_other_widths_and_letters_of_all_languages_stay() -> None:
    text = "1\u202f234\u00a0€ für Zürich, 東京, Ελλάδα"
    assert printable(text) == text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose columns, categories and names are full of escape codes."""
    folder = tmp_path_factory.mktemp("strange")
    rng = np.random.default_rng(0)
    x = rng.normal(size=240)
    kind = rng.choice([f"a{CODES}", "[bold red]b[/bold red]", "=c()"], size=240)
    names = [f"area {CODES}", f"kind {CODES}", f"heat {CODES}", "[blink]cool"]
    frame = pd.DataFrame({names[0]: x, names[1]: kind})
    for name in names[2:]:
        frame[name] = x + rng.normal(size=240)
    frame.to_csv(folder / "history.csv", index=False)
    strange = frame.head(8).copy()
    strange.loc[1, names[1]] = f"never seen {CODES}"
    strange.loc[2, names[0]] = np.nan
    strange.to_csv(folder / "new.csv", index=False)
    quoted = ", ".join(json.dumps(name) for name in names[2:]).replace("\x7f", "")
    (folder / "problem.toml").write_text(
        f'kind = "simplex_linear"\nc = [0.0, 0.0]\nname = "plan \\u001b[2J"\noutcomes = [{quoted}]\n', encoding="utf-8"
    )
    (folder / "names.json").write_text(json.dumps(names))
    done = run("fit", folder / "history.csv", "--problem", folder / "problem.toml", "--predictor", "ridge",
               "--out", folder / "model.polyhedge")  # fmt: skip
    assert done.exit_code == 0, done.output
    check_clean(done.output)
    assert r"heat \x1b[2J" in done.stdout
    return folder


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("inspect", "MODEL"), r"heat \x1b[2J"),
        (("inspect", "MODEL", "--json"), r"heat \u001b[2J \u001b]0;owned\u0007 \u009b2J \u202e"),
        (("decide", "MODEL", "new.csv", "--out", "out.csv"), r"never seen \x1b[2J"),
        (("decide", "MODEL", "new.csv", "--out", "out.csv", "--keep", CODES), r"no column '\x1b[2J \x1b]0;owned\x07"),
        (("evaluate", "MODEL", "history.csv", "--by", "KIND"), "[bold red]b[/bold red]"),
        (("evaluate", "MODEL", "history.csv", "--by", "KIND"), r"a\x1b[2J"),
        (("evaluate", "MODEL", "problem.toml"), "error"),
        (("fit", "history.csv", "--problem", "problem.toml", "--out", "x", "--features", "HEAT"), r"\x9b2J"),
    ],
)
def test_escape_codes_in_data_do_not_reach_the_terminal(folder: Path, command: tuple[str, ...], said: str) -> None:
    _, kind, heat, _ = json.loads((folder / "names.json").read_text())
    words = {"MODEL": folder / "model.polyhedge", "KIND": kind, "HEAT": heat}
    files = ("new.csv", "history.csv", "problem.toml", "out.csv", "x")
    done = run(*(words.get(word, folder / word if word in files else word) for word in command))
    check_clean(done.output)
    assert said in done.output
    if "--json" in command:
        assert CODES in "".join(texts_in(json.loads(done.stdout)))


def test_pages_show_escape_codes_instead_of_holding_them(folder: Path) -> None:
    page = folder / "page.html"
    done = run("report", folder / "model.polyhedge", folder / "history.csv", "--out", page)
    assert done.exit_code == 0, done.output
    text = page.read_text(encoding="utf-8")
    assert r"heat \x1b[2J" in text
    assert [repr(letter) for letter in "\x1b\x07\x9b\u202e" if letter in text] == []


def texts_in(value: object) -> list[str]:
    if isinstance(value, dict):
        return [*value, *texts_in(list(value.values()))]
    return [text for entry in value for text in texts_in(entry)] if isinstance(value, list) else [str(value)]


class Terminal:
    """Standard output that says it is a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text += text
        return len(text)


def test_csv_on_a_terminal_is_shown_and_in_a_pipe_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"name\n{CODES}\n"
    say_csv(text)
    assert capsys.readouterr().out == text
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    say_csv(text)
    check_clean(terminal.text)
    assert terminal.text.startswith("name\n\\x1b[2J")


def test_tracebacks_warnings_and_the_log_pass_the_same_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    assert logging.lastResort is not None
    monkeypatch.setattr(logging.lastResort, "formatter", None)
    guard_streams()
    try:
        raise ValueError(f"row 3 holds {CODES}")
    except ValueError as error:
        sys.excepthook(ValueError, error, error.__traceback__)
    logging.lastResort.handle(logging.makeLogRecord({"msg": f"failed: {CODES}", "levelno": logging.ERROR}))
    _show_warning(UserWarning(CODES))
    said = capsys.readouterr().err
    check_clean(said)
    assert said.count(r"\x1b[2J") == 3
    assert said.startswith("Traceback (most recent call last):\n")


def prints(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name.split(".")[-1] in ("echo", "secho", "print", "print_json", "log") or "sys.std" in name:
                found.append(f"{path.name}: {name}")
    return found


def test_commands_print_at_one_place() -> None:
    assert [call for path in COMMANDS.glob("*.py") if path.name != "app.py" for call in prints(path)] == []


# --- the spreadsheet --------------------------------------------------------------------------------------

FORMULAS = ("=1+1", "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1", "'=1", "+49 30 1234")  # noqa: RUF001
NUMBERS = ("-1", "+2.5", "-1,5", "-1e-5", "-.5", "1", "- ", "-1.000,5")


@given(st.text() | st.text(alphabet="'=+-@\t\r\n 1.a＝"))  # noqa: RUF001
def test_text_made_safe_is_no_formula_and_comes_back(text: str) -> None:
    safe = neutralised(text)
    assert restored(safe) == text
    first = safe.lstrip()[:1]
    assert first not in "=@" or not first
    if first in "+-" and first:
        float(safe.strip().replace(".", "").replace(",", "") or "x")  # a number, and nothing else


@pytest.mark.parametrize("text", FORMULAS)
def test_formula_gets_an_apostrophe(text: str) -> None:
    assert neutralised(text) == f"'{text}"


def test_no_character_that_is_a_control_a_format_or_a_space_hides_a_formula() -> None:
    unseen = [chr(n) for n in range(0x110000) if unicodedata.category(chr(n)) in ("Cc", "Zs", "Zl", "Zp")]
    unseen += [chr(n) for n in range(0x2100) if unicodedata.category(chr(n)) == "Cf" and not 0x600 <= n < 0x1000]
    unseen += ["\u2800", "\u200e\u202e"]
    signs = "=+-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b"
    formulas = [f"{text}{sign}cmd" for text in unseen for sign in signs]
    assert [text for text in formulas if neutralised(text) != f"'{text}"] == []
    assert all(restored(neutralised(f"'{text}")) == f"'{text}" for text in formulas)


@pytest.mark.parametrize("text", NUMBERS[:-2])
def test_number_stays_a_number(text: str) -> None:
    assert neutralised(text) == text


WORDS = st.text(alphabet=st.characters(exclude_characters=";|\t\r\n'=+-@＝＋－＠", exclude_categories=["C", "Z"]))  # noqa: RUF001


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(WORDS | st.none(), st.floats() | st.none(), st.integers(-(2**60), 2**60), st.booleans()), min_size=1
    )
)
def test_table_without_formulas_is_written_as_pandas_does(rows: list[tuple[object, ...]]) -> None:
    frame = pd.DataFrame(rows, columns=["word, or none", "value", "count", "is"])
    frame["when"] = pd.Timestamp("2024-05-06") + pd.to_timedelta(np.arange(len(rows)), unit="D")
    frame["short"] = np.float32(0.1)
    frame["kind"] = pd.Categorical(["x"] * len(rows))
    assert csv_text(frame) == csv_text(frame, raw=True) == frame.to_csv(index=False, lineterminator="\n")


def test_cell_that_another_separator_would_split_into_a_formula_is_quoted() -> None:
    assert csv_text(pd.DataFrame({"a": ["x;=1+1", "x\t=1", "x|=1"]})) == 'a\n"x;=1+1"\n"x\t=1"\n"x|=1"\n'


def test_written_formulas_read_back_as_they_were(tmp_path: Path) -> None:
    texts = ["=1+1", "@a", "+b", "''=c", "'d'", "-5", "-e", "f;=g"]
    frame = pd.DataFrame({"=name": texts, "value": np.arange(8.0) - 4})
    write_table(frame, tmp_path / "t.csv")
    lines = (tmp_path / "t.csv").read_text().splitlines()
    assert lines[:2] == ["'=name,value", "'=1+1,-4.0"]
    back = read_table(tmp_path / "t.csv", separator=",", decimal=".").frame
    assert back["=name"].tolist() == texts
    write_table(frame, tmp_path / "raw.csv", raw=True)
    assert (tmp_path / "raw.csv").read_text() == frame.to_csv(index=False, lineterminator="\n")


def test_decide_copies_formulas_as_text_unless_they_are_wanted_raw(folder: Path) -> None:
    kind = json.loads((folder / "names.json").read_text())[1]
    history = pd.read_csv(folder / "history.csv")
    history[history[kind] == "=c()"].head(3).to_csv(folder / "c.csv", index=False)
    for extra, first in ((), "'=c()"), (("--raw",), "=c()"):
        done = run("decide", folder / "model.polyhedge", folder / "c.csv", "--keep", kind, "--out", "-", *extra)
        assert done.exit_code == 0, done.output
        row = pd.read_csv(io.StringIO(done.stdout), dtype=str).iloc[0]
        assert row.iloc[0] == first
        float(row["cost_bound"])


# --- size -------------------------------------------------------------------------------------------------


def test_value_as_long_as_a_book_is_refused_wherever_it_stands(tmp_path: Path) -> None:
    long = "x" * 200_000
    for text in (f"a,b\n1,{long}\n", f"a,{long}\n1,2\n", "a,b\n" + "1,2\n" * 500 + f"1,{long}\n", f'a,b\n1,"{long}\n'):
        path = tmp_path / "t.csv"
        path.write_text(text)
        with pytest.raises(ValueError, match=f"quote missing.*|more than {MAX_TEXT}") as caught:
            read_table(path)
        assert len(str(caught.value)) < 1000


@pytest.mark.needs("pyarrow")
def test_value_as_long_as_a_book_in_a_parquet_file_is_refused(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1, 2], "b": ["short", "x" * 200_000]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="a value of 200000 characters in row 2 of column 'b', more than 100000"):
        read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize("rows_before", [0, 3])
def test_rows_far_longer_than_the_first_line_are_refused_before_they_become_columns(
    tmp_path: Path, rows_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * rows_before + "," * 100_000 + "\n")
    monkeypatch.setattr(pd, "read_csv", lambda *_, **__: pytest.fail("pandas was asked"))
    with pytest.raises(ValueError, match=r"a row has 100001 values, the first line has 2 names\. Every row needs"):
        read_table(tmp_path / "t.csv")


def test_table_of_many_columns_is_refused_with_the_option_that_reads_it(tmp_path: Path) -> None:
    n = 20_000
    (tmp_path / "t.csv").write_text("\n".join([",".join(f"c{i}" for i in range(n)), *[",".join(["1.5"] * n)] * 20]))
    with pytest.raises(ValueError, match=r"has 20000 columns, more than 4472\. If that is meant, pass max_values=4000"):
        read_table(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("\n".join([",".join(f"c{i}" for i in range(300)), ",".join(["1.5"] * 300)]))
    with pytest.raises(ValueError, match=r"has 300 columns, more than 100\. .* max_values=90000 "):
        read_table(tmp_path / "t.csv", max_values=10_000)
    table = read_table(tmp_path / "t.csv", max_values=90_000)
    assert table.frame.shape == (1, 300)
    with pytest.raises(ValueError, match=r"Its columns are: c0, c1, .* c49 and 250 more\."):
        table.column("x")


def test_table_of_many_rows_is_refused_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * 600)
    with pytest.raises(ValueError, match=r"has 601 rows and 2 columns, more than 1000 values\. .* max_values=1202 "):
        read_table(tmp_path / "t.csv", max_values=1000)
    with pytest.raises(ValueError, match=r"has 2404 bytes, more than 400\. .* max_values=121 "):
        read_table(tmp_path / "t.csv", max_values=20)


@pytest.mark.needs("pyarrow")
def test_few_bytes_of_parquet_for_very_many_rows_are_refused_before_they_are_read(tmp_path: Path) -> None:
    pd.DataFrame({"a": np.zeros(2_000_000, dtype=np.int8)}).to_parquet(tmp_path / "t.parquet")
    assert (tmp_path / "t.parquet").stat().st_size < 10_000
    with pytest.raises(ValueError, match=r"has 2000000 rows and 1 columns, more than 1000000 values"):
        read_table(tmp_path / "t.parquet", max_values=1_000_000)


# --- problem files ----------------------------------------------------------------------------------------

HEAD = 'outcomes = ["u"]\ndecisions = ["z"]\nlower = 0\nupper = 1\n'
DEEP = 5_000


@pytest.mark.parametrize(
    "text",
    [
        f"cost = {'[' * DEEP}{']' * DEEP}",
        f"cost = {'{a = ' * DEEP}1{'}' * DEEP}",
        ".".join(["a"] * DEEP) + " = 1",
        " . ".join(['"a b"'] * DEEP) + " = 1",
        f"[{'.'.join(['a'] * DEEP)}]",
        f"[[{'.'.join(['1'] * DEEP)}]]",
        'cost = ["""a"""", ' + "[" * DEEP + "]" * DEEP + "]",
        "cost = ['''a''''', {" + ".".join(["a"] * DEEP) + " = 1}]",
    ],
    ids=["lists", "tables", "key", "quoted key", "section", "numbers", "behind a text", "behind another text"],
)
def test_deeply_nested_problem_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.toml"
    path.write_text(HEAD + text)
    with pytest.raises(ValueError, match=rf"^p\.toml: it is nested more than {MAX_DEPTH} levels deep"):
        ph.problems.from_toml(path)


def test_brackets_and_dots_in_texts_and_comments_are_no_nesting(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(f'{HEAD}cost = "u * z"  # {"[" * 99}\nname = "{"[" * 99}{"a." * 99}"\n#{"a." * 99}\n')
    assert ph.problems.from_toml(path).n_outcomes == 1


def test_a_problem_file_larger_than_memory_is_refused_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    with path.open("wb") as stream:
        stream.truncate(2**36)  # holes take no room on the disk
    with pytest.raises(ValueError, match=r"p\.toml: it has more than 4194304 bytes"):
        ph.problems.from_toml(path)


@pytest.mark.parametrize(
    "text",
    [
        "outcomes = 10000\ndecisions = 10000\ncost = 'u_1 * z_1'",
        "kind = 'newsvendor'\nn_outcomes = 10000\nunderage = 3\noverage = 1",
    ],
    ids=["program", "ready-made"],
)
def test_a_problem_file_with_ten_thousand_outcomes_and_decisions_is_refused_before_anything_is_built(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cp, "Variable", None)  # whoever builds something needs one
    path = tmp_path / "p.toml"
    path.write_text(text)
    message = r"^p\.toml: outcomes times decisions must be at most 1000000, got 100000000\. Write a larger problem in"
    with pytest.raises(ValueError, match=message):
        ph.problems.from_toml(path)
