"""Draw `promise.svg`, the picture of the front page: what each decision was said to cost at most, and what it cost.

Run it as ``python docs/images/promise.py``. The rows are those of the README's ten lines. Days appear one after the
other where the viewer allows motion; the picture is whole without it, and follows a light or a dark page.
"""

from pathlib import Path

import cvxpy as cp
import numpy as np

import polyhedge as ph
from polyhedge_study.demo import bonferroni_box

HERE = Path(__file__).parent
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 880, 420, 48, 16, 96, 44
SECONDS_A_ROW = 0.22
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
  @media (prefers-reduced-motion: no-preference) {
    .before, .after { opacity: 0; animation: show .3s ease-out forwards }
    @keyframes show { to { opacity: 1 } }
  }
"""


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
    decider = ph.RobustDecider(problem, alpha=0.1, random_state=0).fit(X, Y)
    bounds, costs = decider.decide(new[X.columns]).cost_bound, decider.measure(new[X.columns], new[names]).realised
    return bounds, costs, box_bounds(decider, problem, X, Y, new[X.columns])


def box_bounds(decider: ph.RobustDecider, problem: ph.DecisionProblem, X, Y, new) -> np.ndarray:
    """Bounds over a Bonferroni box: each product's interval at a third of the risk, from the same calibration rows."""
    rows = decider.split_.calibrate
    box = bonferroni_box(Y.iloc[rows].to_numpy() - decider.centers(X.iloc[rows]), 0.1)
    return ph.robust.decide(problem, box, 1.0, decider.centers(new)).cost_bound


def picture(bounds: np.ndarray, costs: np.ndarray, boxes: np.ndarray) -> str:
    """The whole picture as SVG."""
    frame = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img"><title>Bounds of {len(bounds)} decisions, and what they cost</title><style>{STYLE}</style>'
    )
    title = "Every morning: what to bring, and what the day will cost at most"
    note = f"cost of bread, salad and soup left over or missing; {len(bounds)} deliveries that nothing was fitted to"
    kept = f"{int((costs <= bounds).sum())} of {len(bounds)} kept (promised 9 of 10)"
    lines = [
        frame,
        f'<text class="title" x="{LEFT}" y="28">{title}</text>',
        *legend(bounds.mean(), kept, boxes.mean()),
        *days(bounds, costs, boxes, 1.05 * boxes.max()),
        f'<text class="small" x="{LEFT}" y="{HEIGHT - BOTTOM + 24}">{note}</text>',
        "</svg>\n",
    ]
    return "\n".join(lines)


def days(bounds: np.ndarray, costs: np.ndarray, boxes: np.ndarray, top: float) -> list[str]:
    """Grid lines, and a bar and a point a row."""

    def y(value: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * float(value) / top, 1)

    lines = [
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(v)}" y2="{y(v)}"/>'
        f'<text class="small" x="{LEFT - 8}" y="{y(v) + 4}" text-anchor="end">{v:.0f}</text>'
        for v in np.arange(0, top, 50)
    ]
    step = (WIDTH - LEFT - RIGHT) / len(bounds)
    for i, (bound, cost, box) in enumerate(zip(bounds, costs, boxes, strict=True)):
        x, wide = round(LEFT + step * i + 2, 1), round(step - 4, 1)
        kind = "kept" if cost <= bound else "missed"
        lines.append(
            f'<g class="before" style="animation-delay:{SECONDS_A_ROW * i:.2f}s">'
            f'<rect class="bound" x="{x}" y="{y(bound)}" width="{wide}" height="{y(0) - y(bound):.1f}"/>'
            f'<rect class="cap" x="{x}" y="{y(bound)}" width="{wide}" height="2.5"/>'
            f'<line class="box" x1="{x}" x2="{x + wide:.1f}" y1="{y(box)}" y2="{y(box)}" stroke-dasharray="3 2"/></g>'
            f'<circle class="after {kind}" style="animation-delay:{SECONDS_A_ROW * (i + 1.6):.2f}s" '
            f'cx="{x + wide / 2:.1f}" cy="{y(cost)}" r="4.5"/>'
        )
    return lines


def legend(bound: float, kept: str, box: float) -> list[str]:
    """What the marks mean, in two lines."""
    bar = '<rect class="cap" y="-6" width="16" height="2.5"/><rect class="bound" y="-5" width="16" height="11"/>'
    entries = {
        (0, 56): (bar, f"bound, known before: {bound:.0f} in the mean"),
        (330, 56): ('<circle class="kept" cx="8" r="4.5"/>', f"cost, known after: {kept}"),
        (730, 56): ('<circle class="missed" cx="8" r="4.5"/>', "above it"),
        (0, 80): (
            '<line class="box" x2="16" stroke-dasharray="3 2"/>',
            f"bound over a conformal box around the forecast: {box:.0f} in the mean",
        ),
    }
    return [
        f'<g transform="translate({LEFT + x},{y})">{mark}<text class="small" x="24" y="4">{words}</text></g>'
        for (x, y), (mark, words) in entries.items()
    ]


if __name__ == "__main__":
    (HERE / "promise.svg").write_text(picture(*measured()), encoding="utf-8")
