"""The real cases: listed where they are documented, with parts that do not overlap and decisions that can be taken."""

import re
from pathlib import Path

import numpy as np
import pytest

from polyhedge_study import cases
from polyhedge_study.cases import CASES, make_case
from polyhedge_study.real import NoDataError
from polyhedge_study.tasks import Task

BENCHMARKS = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"


def some_case(name: str) -> Task:
    try:
        return make_case(name)
    except NoDataError as error:
        pytest.skip(str(error))


def test_the_table_of_cases_lists_all_of_them_in_order():
    assert re.findall(r"^\| (\w+) \|", cases.__doc__ or "", re.MULTILINE) == ["case", *CASES]


def test_the_page_of_benchmarks_mentions_every_case():
    section = BENCHMARKS.read_text(encoding="utf-8").split("\n## ")[2].lower()
    assert section.startswith("is the bound lower on real data?")
    assert [name for name in CASES if not re.search(rf"\b{name}\b", section)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_parts_of_a_case_do_not_overlap_and_follow_one_another(name):
    task = some_case(name)
    parts = [task.split.train, task.split.learn, task.split.calibrate, task.test]
    rows = np.concatenate(parts)
    assert len(np.unique(rows)) == len(rows)
    assert not task.in_time or np.array_equal(rows, np.sort(rows))
    assert np.isfinite(task.X[rows]).all()


@pytest.mark.slow
def test_a_schedule_earns_its_price_half_of_what_is_left_and_loses_twice_what_is_lacking():
    problem = some_case("wind").problem
    z = np.array([10.0, 10, 10, 10, 10, 10])
    u = np.array([10.0, 14, 7, 10, 10, 10])
    assert problem.evaluate(z[None], u[None])[0] == pytest.approx(-(60 + 4 / 2 - 2 * 3))


@pytest.mark.slow
def test_a_patrol_covers_two_parts_a_shift():
    problem = some_case("patrol").problem
    z = np.array([1.0, 0, 0, 0, 1])
    assert problem.evaluate(z[None], np.array([[500.0, 500, 0, 0, 500, 500]]))[0] == pytest.approx(4)
    assert problem.evaluate(z[None], np.array([[500.0, 600, 100, 0, 0, 0]]))[0] == pytest.approx(4 + 5 * 0.4)


@pytest.mark.slow
def test_a_car_without_a_place_costs_ten_and_each_park_further_one():
    problem = some_case("parking").problem
    z = np.array([100.0, 200, 0, 0, 0, 0])
    assert problem.evaluate(z[None], np.array([[90.0, 200, 0, 0, 0, 0]]))[0] == pytest.approx(200 + 100)
