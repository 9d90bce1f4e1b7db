"""Problem files: what TOML files and Python files say is what is decided, and every mistake is named."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
from polyhedge.problems import problem_from_data, problem_to_data
from polyhedge.robust import decide

DOCS = Path(__file__).parents[2] / "docs" / "problem-file.md"
EXAMPLES = re.findall(r"```toml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
RNG = np.random.default_rng(0)


@pytest.fixture
def read(tmp_path):
    def from_text(text):
        path = tmp_path / "plan.toml"
        path.write_text(text, encoding="utf-8")
        return ph.problems.from_toml(path)

    return from_text


@pytest.mark.parametrize("text", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_of_the_documentation_is_read_decided_and_pickled(text, read):
    problem = read(text)
    twin = pickle.loads(pickle.dumps(problem))
    box, centers = ph.Box(np.full(problem.n_outcomes, 0.5)), np.full((2, problem.n_outcomes), 3.0)
    values = {parameter.name: 2.0 for parameter in problem.parameters}
    found = decide(problem, box, 1.0, centers, parameters=values)
    assert found.is_optimal.all()
    assert decide(twin, box, 1.0, centers, parameters=values).cost_bound == pytest.approx(found.cost_bound)
    assert problem.source.reference == "plan.toml"
    assert len(problem.decision_names) == problem.n_decisions


BAKERY = """
outcomes = ["bread", "cake"]
decisions = ["bake_bread", "bake_cake"]
lower = 0
"""


def test_a_formula_costs_what_it_says(read):
    text = "max(3 * (bread - bake_bread), bake_bread - bread) + abs(cake - bake_cake) / 2 - -bake_cake * cake + 7"
    problem = read(f'{BAKERY}cost = "{text} + 0.5 * (bake_bread - bake_cake)**2 + pos(bread - 1) - min(bread, cake)"')
    z, u = RNG.random((50, 2)), RNG.normal(size=(50, 2))
    (a, b), (bread, cake) = z.T, u.T
    expected = np.maximum(3 * (bread - a), a - bread) + np.abs(cake - b) / 2 + b * cake + 7
    expected += 0.5 * (a - b) ** 2 + np.maximum(bread - 1, 0) - np.minimum(bread, cake)
    assert problem.evaluate(z, u) == pytest.approx(expected)
    assert problem.pieces is not None


def test_names_with_spaces_stand_in_backquotes(read):
    problem = read(
        """outcomes = ["Heating Load", "in"]
decisions = ["share (gas)", "b"]
lower = 0
constraints = ["`share (gas)` + b == 1", "b <= 3 + `Heating Load`"]
cost = "`Heating Load` * `share (gas)` + `in`*b"
"""
    )
    z, u = RNG.random((5, 2)), RNG.normal(size=(5, 2))
    assert problem.evaluate(z, u) == pytest.approx((z * u).sum(axis=1))
    assert len(problem.uncertain_rows) == 1
    with pytest.raises(ValueError, match=r'names "Heating Loa", .* Did you mean "Heating Load"'):
        read('outcomes = ["Heating Load"]\ndecisions = 1\ncost = "`Heating Loa`"')


def test_a_formula_and_the_ready_made_problem_decide_alike(read):
    ready = ph.problems.newsvendor([1, 2], [3, 5], 2, capacity=5.0, sizes=[1, 2], integer=True)
    rows = 'constraints = ["bake_bread + 2 * bake_cake <= 5"]\nsupport = ["bread >= 0", "cake >= 0"]\ninteger = true\n'
    cost = "max(3 * (bread - bake_bread), bake_bread - bread) + max(5 * (cake - bake_cake), 2 * (bake_cake - cake))"
    formula = read(f'{BAKERY}{rows}cost = "{cost}"')
    box, centers = ph.Box([1.0, 0.7]), RNG.uniform(0.2, 3.0, size=(10, 2))
    wanted = decide(ready, box, 1.0, centers).cost_bound
    assert decide(formula, box, 1.0, centers).cost_bound == pytest.approx(wanted, abs=1e-7)


def test_constraints_that_mention_an_outcome_hold_for_every_outcome(read):
    problem = read(
        f"""{BAKERY}cost = "bake_bread + bake_cake"
constraints = ["bake_bread >= bread + 1", "bake_cake >= 2 * cake"]
"""
    )
    found = decide(problem, ph.Box([1.0, 0.5]), 1.0, np.array([[2.0, 3.0]]))
    assert found.z[0] == pytest.approx([4.0, 7.0], abs=1e-6)


def test_chained_comparisons_and_bounds_limit_the_decisions(read):
    problem = read(
        """outcomes = ["price"]
decisions = ["a", "b", "c"]
lower = { a = -1, b = 0, c = 0.5 }
upper = [1, 4, 4]
constraints = ["0.25 <= b <= 3", "a + b + c == 2"]
cost = "a * price + 2 * b + 3 * c"
"""
    )
    found = decide(problem, ph.Box([0.1]), 1.0, np.array([[1.0], [5.0]]))
    assert found.z == pytest.approx(np.array([[1.0, 0.5, 0.5], [-1.0, 2.5, 0.5]]), abs=1e-6)


GOOD = f'{BAKERY}cost = "bread * bake_bread"\n'
MISTAKES = {
    "no TOML": ("x = ", r"plan.toml is not proper TOML: .*"),
    "no outcomes": ('decisions = ["a"]', r"outcomes is missing: it must be a list of distinct names or how many"),
    "a misspelt key": (GOOD + "uper = 1", r'uper is not a key of a problem file. Did you mean "upper"\?'),
    "a cost that is no formula": (BAKERY + "cost = { constant = 1 }", r"cost must be a text, got \{'constant': 1\}"),
    "a bound of a stranger": (GOOD + "upper = { bake_bred = 1 }", r'upper names bake_bred, .*mean "bake_bread"\?'),
    "a misspelt name": (BAKERY + 'cost = "bake_bred"', r'cost: "bake_bred" names "bake_bred".*mean "bake_bread"\?'),
    "an unknown function": (BAKERY + 'cost = "exp(bread)"', r'calls "exp", which is no known function. Known are max'),
    "code": (BAKERY + 'cost = "().__class__"', r"A formula is made of numbers, names"),
    "an endless formula": (BAKERY + f'cost = "{"bread + " * 5000}1"', r"may have 20000 characters"),
    "maxima in maxima": (
        BAKERY + f'cost = "{"max(bread, " * 200}1{")" * 200}"',
        r"nested more than 100 deep. Write max\(",
    ),
    "brackets in brackets": (
        BAKERY + f'cost = "{"(bread + " * 300}1{")" * 300}"',
        r"is not a formula: too many nested parentheses",
    ),
    "outcomes without end": (
        f'outcomes = {[f"u{k}" for k in range(10_001)]}\ndecisions = ["z"]\ncost = "u1 * z"',
        r"outcomes must be at most 10000, got 10001",
    ),
    "a concave cost": (BAKERY + 'cost = "-bake_bread**2"', r"The cost must be convex in the decision"),
    "a decision in the support": (
        GOOD + 'support = ["bake_bread >= 0"]',
        r"support\[1\]: .*no decision and no outcome",
    ),
    "nobody can meet it": (
        GOOD + 'constraints = ["bake_bread <= -1"]',
        r"The feasible set of the decision problem is empty",
    ),
    "an unknown kind": (
        'kind = "newsvendr"',
        r'kind must be "program" or a ready-made one, got "newsvendr". Did you mean "newsvendor"\?',
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_is_named_with_its_place_and_what_must_hold(name, read):
    text, message = MISTAKES[name]
    with pytest.raises(ValueError, match=message) as caught:
        read(text)
    assert str(caught.value).startswith("plan.toml")


def test_a_file_that_is_not_text_is_named(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(ValueError, match=r"plan.toml must be UTF-8 text"):
        ph.problems.from_toml(path)


def test_names_default_to_the_variable_and_are_checked():
    z = cp.Variable((2, 2), nonneg=True)
    problem = ph.DecisionProblem(decision=z, cost=lambda z, u: cp.sum(z) * u[0], constraints=[z <= 1], n_outcomes=1)
    assert problem.decision_names == ("z_1_1", "z_1_2", "z_2_1", "z_2_2")
    assert problem.outcome_names == ("u_1",)
    assert replace(problem, outcome_names=["price"]).outcome_names == ("price",)
    assert ph.problems.newsvendor(1, 1, 2).decision_names == ("order_1", "order_2")
    with pytest.raises(ValueError, match=r"outcome_names must have 1 name\(s\), one for each entry, got 2"):
        replace(problem, outcome_names=["a", "b"])
    with pytest.raises(ValueError, match=r"decision_names must be distinct"):
        replace(problem, decision_names=["a"] * 4)
    with pytest.raises(ValueError, match=r"outcome_names must be a list of non-empty texts"):
        replace(problem, outcome_names="u")


PYTHON = """
from dataclasses import dataclass
from neighbour import COSTS
import polyhedge as ph

@dataclass
class Settings:
    costs: list

problem = ph.problems.simplex_linear(Settings(COSTS).costs)
number = 3

def make():
    return ph.problems.simplex_linear([1.0, 2.0, 3.0])
"""


@pytest.fixture
def module(tmp_path):
    (tmp_path / "neighbour.py").write_text("COSTS = [0.0, 1.0]\n")
    path = tmp_path / "mine.py"
    path.write_text(PYTHON)
    return path


def test_a_python_file_gives_its_problem_with_reference_and_digest(module):
    problem = ph.problems.from_reference(f"{module}:problem")
    assert problem.n_outcomes == 2
    assert problem.source.reference == f"{module}:problem"
    before = problem.source.digest
    assert ph.problems.from_reference(f"{module}:make").n_outcomes == 3
    module.write_text(PYTHON + "\n")
    assert ph.problems.from_reference(f"{module}:problem").source.digest != before


class TestUnits:
    """What things are measured in is told, and changes nothing."""

    BREAD = """
outcomes = ["demand"]
decisions = ["order"]
cost = "max(3 * (demand - order), order - demand)"
units = { cost = "EUR", demand = "loaves" }
"""

    def test_they_are_in_formulas_on_pages_and_in_model_files(self, read, tmp_path):
        problem = read(self.BREAD)
        assert problem.units == {"cost": "EUR", "demand": "loaves"}
        assert repr(problem).endswith("; cost in EUR, demand in loaves>")
        Y = np.random.default_rng(0).uniform(1.0, 4.0, (60, 1))
        learner = ph.learners.OneSidedBox()
        ph.RobustDecider(problem, "precomputed", learner=learner, random_state=0).fit(Y, Y).save(
            tmp_path / "m.polyhedge"
        )
        again = ph.load(tmp_path / "m.polyhedge")
        assert again.problem_.units == problem.units
        again.report(tmp_path / "page.html")
        said = "Units: cost in EUR, demand in loaves; others are those of the data."
        assert said in (tmp_path / "page.html").read_text()

    def test_they_go_with_names_that_change(self, read):
        problem = read('kind = "newsvendor"\noverage = 1\nunderage = 4\nn_outcomes = 1\nunits = { u_1 = "loaves" }')
        assert problem.labelled(outcome_names=["bread"]).units == {"bread": "loaves"}

    def test_a_file_that_was_edited_is_checked(self, read):
        state = problem_to_data(read(self.BREAD)) | {"units": {"cost": ["EUR"]}}
        with pytest.raises(ValueError, match="units must be texts by name"):
            problem_from_data(state)
