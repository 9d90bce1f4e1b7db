"""Draw `promise.svg`, the picture of the front page: what each decision was said to cost at most, and what it cost.

Run it as ``python docs/images/promise.py``; `promise-phone.svg` is the same for narrow pages. The rows are those of the
README's ten lines. The picture follows a light or a dark page.
"""

from dataclasses import dataclass
from pathlib import Path

import cvxpy as cp
import numpy as np

import polyhedge as ph
from polyhedge_study.demo import bonferroni_box

HERE = Path(__file__).parent
N_SHOWN = 42
STYLE = """
  text { font: 14px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #24292f }
  .title { font-size: 19px; font-weight: 600 } .small { font-size: 12.5px; fill: #57606a }
  .axis { stroke: #d0d7de; stroke-width: 1 } .bound { fill: #2f81c7; fill-opacity: .22 } .cap { fill: #1f6fb2 }
  .box { stroke: #8c959f; stroke-width: 2 } .kept { fill: #1f6fb2 } .missed { fill: #d1242f }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9aa4af } .axis { stroke: #3d444d }
    .bound { fill: #58a6ff; fill-opacity: .25 } .cap, .kept { fill: #58a6ff }
    .missed { fill: #ff6b6b } .box { stroke: #768390 }
  }
"""


@dataclass(frozen=True)
class Layout:
    """Where things stand, in pixels: the area of the bars, and the four marks that are explained."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    title: tuple[str, ...]
    places: tuple[tuple[int, int], ...]
    note: tuple[str, ...]
    point: float


WIDE = Layout(
    880, 420, 48, 16, 96, 44,
    ("A cost ceiling for every delivery, set the day before",),
    ((0, 56), (330, 56), (730, 56), (0, 80)),
    ("cost of bread, salad and soup left over or missing: {n} later deliveries, unseen by the fit",),
    4.5,
)  # fmt: skip
NARROW = Layout(
    400, 430, 32, 4, 160, 56,
    ("A cost ceiling for every", "delivery, set the day before"),
    ((-28, 74), (-28, 96), (-28, 118), (-28, 140)),
    ("cost of bread, salad and soup left over or missing:", "{n} later deliveries, unseen by the fit"),
    2.8,
)  # fmt: skip


def measured() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bounds and costs of the first fresh rows, and the bounds that a box around the forecast gives."""
    tables = ph.data.make_example("newsvendor")
    names = list(tables.outcomes)
    X, Y = tables.history.drop(columns=names), tables.history[names]
    new = tables.fresh[:N_SHOWN]
    bring = cp.Variable(3, nonneg=True, name="bring")
    problem = ph.DecisionProblem(
        decision=bring,
        cost=lambda z, u: np.array([1, 2, 1.5]) @ cp.pos(z - u) + np.array([2, 4, 4]) @ cp.pos(u - z),
        constraints=[cp.sum(bring) <= 160],
        n_outcomes=3,
    )
    decider = ph.RobustDecider(problem, alpha=0.1, split="time", random_state=0).fit(X, Y)
    bounds, costs = decider.decide(new[X.columns]).cost_bound, decider.measure(new[X.columns], new[names]).realised
    return bounds, costs, box_bounds(decider, problem, X, Y, new[X.columns])


def box_bounds(decider: ph.RobustDecider, problem: ph.DecisionProblem, X, Y, new) -> np.ndarray:
    """Bounds over a Bonferroni box: each product's interval at a third of the risk, from the same calibration rows."""
    rows = decider.split_.calibrate
    box = bonferroni_box(Y.iloc[rows].to_numpy() - decider.centers(X.iloc[rows]), 0.1)
    return ph.robust.decide(problem, box, 1.0, decider.centers(new)).cost_bound


def picture(at: Layout, bounds: np.ndarray, costs: np.ndarray, boxes: np.ndarray) -> str:
    """The whole picture as SVG."""
    frame = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {at.width} {at.height}" width="{at.width}" '
        f'height="{at.height}" role="img"><title>Bounds of {len(bounds)} decisions, and what they cost</title>'
        f"<style>{STYLE}</style>"
    )
    kept = f"{int((costs <= bounds).sum())} of {len(bounds)} below it (promised: 9 of 10)"
    below = at.height - at.bottom + 24
    x = at.left if at is WIDE else 4
    lines = [
        frame,
        *(f'<text class="title" x="{x}" y="{28 + 22 * k}">{text}</text>' for k, text in enumerate(at.title)),
        *legend(at, bounds.mean(), kept, boxes.mean()),
        *days(at, bounds, costs, boxes, 1.05 * boxes.max()),
        *(
            f'<text class="small" x="{x}" y="{below + 17 * k}">{text.format(n=len(bounds))}</text>'
            for k, text in enumerate(at.note)
        ),
        "</svg>\n",
    ]
    return "\n".join(lines)


def days(at: Layout, bounds: np.ndarray, costs: np.ndarray, boxes: np.ndarray, top: float) -> list[str]:
    """Grid lines, and a bar and a point a row."""

    def y(value: float) -> float:
        return round(at.height - at.bottom - (at.height - at.top - at.bottom) * float(value) / top, 1)

    lines = [
        f'<line class="axis" x1="{at.left}" x2="{at.width - at.right}" y1="{y(v)}" y2="{y(v)}"/>'
        f'<text class="small" x="{at.left - 8}" y="{y(v) + 4}" text-anchor="end">{v:.0f}</text>'
        for v in np.arange(0, top, 50)
    ]
    gap = 4 if at is WIDE else 2
    step = (at.width - at.left - at.right) / len(bounds)
    for i, (bound, cost, box) in enumerate(zip(bounds, costs, boxes, strict=True)):
        x, wide = round(at.left + step * i + gap / 2, 1), round(step - gap, 1)
        kind = "kept" if cost <= bound else "missed"
        lines.append(
            f'<rect class="bound" x="{x}" y="{y(bound)}" width="{wide}" height="{y(0) - y(bound):.1f}"/>'
            f'<rect class="cap" x="{x}" y="{y(bound)}" width="{wide}" height="2.5"/>'
            f'<line class="box" x1="{x}" x2="{x + wide:.1f}" y1="{y(box)}" y2="{y(box)}" stroke-dasharray="3 2"/>'
            f'<circle class="{kind}" cx="{x + wide / 2:.1f}" cy="{y(cost)}" r="{at.point}"/>'
        )
    return lines


def legend(at: Layout, bound: float, kept: str, box: float) -> list[str]:
    """What the marks mean."""
    bar = '<rect class="cap" y="-6" width="16" height="2.5"/><rect class="bound" y="-5" width="16" height="11"/>'
    entries = (
        (bar, f"ceiling, known before: {bound:.0f} on average"),
        ('<circle class="kept" cx="8" r="4.5"/>', f"cost, known after: {kept}"),
        ('<circle class="missed" cx="8" r="4.5"/>', "above it"),
        (
            '<line class="box" x2="16" stroke-dasharray="3 2"/>',
            f"ceiling from {'separate ' if at is WIDE else ''}prediction intervals: {box:.0f} on average",
        ),
    )
    return [
        f'<g transform="translate({at.left + x},{y})">{mark}<text class="small" x="24" y="4">{words}</text></g>'
        for (x, y), (mark, words) in zip(at.places, entries, strict=True)
    ]


if __name__ == "__main__":
    found = measured()
    (HERE / "promise.svg").write_text(picture(WIDE, *found), encoding="utf-8")
    (HERE / "promise-phone.svg").write_text(picture(NARROW, *found), encoding="utf-8")
