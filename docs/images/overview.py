"""Draw `overview.svg`, the method in six steps: data, predictor, residuals, set or policy, calibration, decision.

Run it as ``python docs/images/overview.py``; `overview-phone.svg` is the same for narrow pages. The points are drawn at
random and the set holds as many of them as it promises; no figure of the library is in the picture, which follows a
light or a dark page.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
ALPHA = 0.1
STYLE = """
  text { font: 13.5px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #24292f }
  .title { font-size: 16px; font-weight: 600 } .small { font-size: 13px; fill: #57606a }
  .card { fill: none; stroke: #d0d7de } .axis { stroke: #8c959f; stroke-width: 1 }
  .train { fill: #8c959f } .learn { fill: #bc6c00 } .calibrate { fill: #1f6fb2 } .missed { fill: #d1242f }
  .new { fill: #1a7f37 } .line { fill: none; stroke: #1f6fb2; stroke-width: 2 } .arrow { fill: #8c959f }
  .set { fill: #2f81c7; fill-opacity: .2; stroke: #1f6fb2; stroke-width: 2 } .bound { fill: #2f81c7; fill-opacity: .22 }
  .cap { fill: #1f6fb2 } .radius { stroke: #1f6fb2; stroke-width: 2; stroke-dasharray: 4 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9aa4af } .card { stroke: #3d444d } .axis { stroke: #768390 }
    .train, .arrow { fill: #768390 } .learn { fill: #e3a14b } .calibrate, .cap { fill: #58a6ff }
    .missed { fill: #ff6b6b } .new { fill: #4ac26b } .line, .radius { stroke: #58a6ff }
    .bound { fill: #58a6ff; fill-opacity: .25 } .set { fill: #58a6ff; fill-opacity: .2; stroke: #58a6ff }
  }
"""
STEPS = (
    ("Past rows, split once", "Features and outcomes.", "Rows that train, rows that learn,", "rows that calibrate."),
    ("Predictor", "Any regressor, fitted on the", "training rows. The new row's", "forecast is the centre."),
    ("Residuals", "What the forecast missed on the", "learning rows: outcome minus", "forecast."),
    ("Set or policy", "Shaped by what decisions cost: a", "set of outcomes, or one decision", "and its planned cost."),
    ("Calibration", "Scores of the calibration rows.", "The one of the conformal rank", "is the radius."),
    ("Decision", "For a new row: what to do, and", "what it costs at most, with", "probability 1 - alpha or more."),
)


@dataclass(frozen=True)
class Layout:
    """Where things stand, in pixels: cards, their drawing (and its scale), and the words beside or below it."""

    columns: int
    card: tuple[int, int]
    gap: int
    drawing: tuple[int, int, float]
    words: tuple[int, int]


WIDE = Layout(3, (280, 228), 20, (60, 44, 1.0), (16, 174))
NARROW = Layout(1, (392, 130), 18, (8, 38, 0.85), (156, 62))
SIZE = (160, 100)
"""Of a drawing."""


def sample() -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Residuals, corners of a set that is tight towards the upper right, scores, and their conformal radius."""
    rng = np.random.default_rng(4)
    residuals = rng.normal(size=(59, 2)) @ np.array([[1.0, 0.0], [0.45, 0.8]])
    angles = np.deg2rad([5, 50, 95, 190, 260])
    W = np.column_stack([np.cos(angles), np.sin(angles)]) / np.array([[1.0], [1.0], [1.0], [1.9], [1.9]])
    scores = (residuals @ W.T).max(axis=1)
    radius = float(np.sort(scores)[int(np.ceil((len(scores) + 1) * (1 - ALPHA))) - 1])
    corners = [np.linalg.solve(W[[k, (k + 1) % len(W)]], [radius, radius]) for k in range(len(W))]
    return residuals, np.array(corners), scores, radius


def dot(x: float, y: float, kind: str, r: float = 2.6) -> str:
    """One point."""
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{r}"/>'


def drawings() -> list[str]:
    """The six drawings, each within `SIZE`."""
    residuals, corners, scores, radius = sample()
    width, height = SIZE

    def at(points: np.ndarray) -> np.ndarray:
        return np.array([width / 2 - 4, height / 2 - 3]) + points * np.array([19.0, -14.5])

    kinds = ["train"] * 4 + ["learn"] * 2 + ["calibrate"] * 2
    table = "".join(
        f'<rect class="{kind}" x="{30 * k + 8}" y="{12 * i + 3}" width="{26 if k < 3 else 38}" height="8" rx="2"/>'
        for i, kind in enumerate(kinds)
        for k in range(4)
    )
    rng = np.random.default_rng(0)
    x = rng.uniform(8, 150, 26)
    curve = lambda v: 62 - 0.24 * v + 13 * np.sin(v / 24)  # noqa: E731
    path = " ".join(f"{v:.0f},{curve(v):.1f}" for v in range(4, 157, 4))
    fit = "".join(dot(v, curve(v) + 9 * e, "train") for v, e in zip(x, rng.normal(size=26), strict=True))
    axes = f'<path class="axis" d="M4 {height / 2 - 3}H152M{width / 2 - 4} 2V98"/>'
    cloud = "".join(dot(*point, "learn") for point in at(residuals))
    shape = " ".join(f"{a:.1f},{b:.1f}" for a, b in at(corners))
    low, high = scores.min(), scores.max()
    place = lambda s: 8 + 140 * (s - low) / (high - low)  # noqa: E731
    ranks = "".join(
        dot(place(s), 88 - 80 * i / len(scores), "calibrate" if s <= radius else "missed")
        for i, s in enumerate(np.sort(scores))
    )
    limit = f'<path class="radius" d="M{place(radius):.1f} 2V98"/>'
    bar = (
        '<rect class="bound" x="52" y="16" width="56" height="76"/>'
        '<rect class="cap" x="52" y="14" width="56" height="4"/>'
        '<path class="axis" d="M24 92H136"/>'
    )
    return [
        table,
        f'{fit}<polyline class="line" points="{path}"/>',
        axes + cloud,
        f'{axes}<polygon class="set" points="{shape}"/>{cloud}',
        ranks + limit,
        bar + dot(80, 42, "new", 6),
    ]


def picture(at: Layout) -> str:
    """The whole picture as SVG."""
    (wide, high), gap = at.card, at.gap
    rows = -(-len(STEPS) // at.columns)
    width, height = at.columns * wide + (at.columns - 1) * gap + 8, rows * high + (rows - 1) * gap + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img"><title>The method: {", ".join(title.lower() for title, *_ in STEPS)}</title><style>{STYLE}</style>'
    ]
    for k, ((title, *words), drawing) in enumerate(zip(STEPS, drawings(), strict=True)):
        x, y = 4 + (wide + gap) * (k % at.columns), 4 + (high + gap) * (k // at.columns)
        beside = '<path class="arrow" d="{}"/>'.format(
            f"M{wide + 4} {high // 2 - 6}l{gap - 8} 6l-{gap - 8} 6z"
            if at.columns > 1
            else f"M{wide // 2 - 6} {high + 4}l6 {gap - 8}l6 -{gap - 8}z"
        )
        is_last = k == len(STEPS) - 1 or (at.columns > 1 and (k + 1) % at.columns == 0)
        left, top = at.words
        lines += [
            f'<g transform="translate({x},{y})"><rect class="card" width="{wide}" height="{high}" rx="8"/>',
            f'<text class="title" x="16" y="28">{k + 1} · {title}</text>',
            f'<g transform="translate({at.drawing[0]},{at.drawing[1]}) scale({at.drawing[2]})">{drawing}</g>',
            *(f'<text class="small" x="{left}" y="{top + 19 * i}">{text}</text>' for i, text in enumerate(words)),
            "" if is_last else beside,
            "</g>",
        ]
    return "\n".join([*filter(None, lines), "</svg>\n"])


if __name__ == "__main__":
    (HERE / "overview.svg").write_text(picture(WIDE), encoding="utf-8")
    (HERE / "overview-phone.svg").write_text(picture(NARROW), encoding="utf-8")
