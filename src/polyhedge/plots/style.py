"""One look for all pictures: colours that colour-blind readers can tell apart, on light and dark paper alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# After Okabe and Ito, in mid-tones that stand out from white and from black.
BLUE, ORANGE, GREEN, RED, PURPLE = "#2f7fc1", "#dd8a0d", "#0a9a74", "#d1495b", "#b274c4"
GREY = "#858c97"
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, RED, GREY)
# Colours repeat after six sets, lines after four: together they tell apart more than a picture can hold.
LINES = ("-", "--", "-.", ":")


def new_axes(ax: Axes | None, size: tuple[float, float] = (6.4, 4.8)) -> Axes:
    """The given axes, or those of a new figure. Nothing is shown."""
    if ax is not None:
        return ax
    return pyplot().subplots(figsize=size, layout="constrained")[1]


def pyplot() -> Any:
    """`matplotlib.pyplot`, or an error that says how to get it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("Drawing needs matplotlib: pip install 'polyhedge[plot]'.") from error
    return plt


def plain(text: str) -> str:
    r"""A name as a label that shows it as it is: between two dollars matplotlib would read mathematics, or fail."""
    return text.replace("$", r"\$")


def tidy(ax: Axes) -> Axes:
    """A light grid behind the data and no frame on the right and at the top."""
    ax.grid(color=GREY, alpha=0.25, linewidth=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax
