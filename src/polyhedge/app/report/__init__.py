"""Pages: one self-contained HTML file each, for readers who have nothing but a browser."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.app.report.model import ModelDetails, model_report
    from polyhedge.app.report.over_time import backtest_report, monitoring_report
    from polyhedge.app.report.page import (
        Block,
        Card,
        Cards,
        Cell,
        Chart,
        Code,
        Column,
        Drawing,
        Facts,
        Figures,
        Heading,
        Missing,
        Note,
        Page,
        Picture,
        Points,
        Section,
        Table,
        Text,
        as_svg,
        plotly_library,
        settings_for_pages,
        write_page,
    )
    from polyhedge.app.report.pictures import draw
else:  # imported when they are first used
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "Block",
    "Card",
    "Cards",
    "Cell",
    "Chart",
    "Code",
    "Column",
    "Drawing",
    "Facts",
    "Figures",
    "Heading",
    "Missing",
    "ModelDetails",
    "Note",
    "Page",
    "Picture",
    "Points",
    "Section",
    "Table",
    "Text",
    "as_svg",
    "backtest_report",
    "draw",
    "model_report",
    "monitoring_report",
    "plotly_library",
    "settings_for_pages",
    "write_page",
]
