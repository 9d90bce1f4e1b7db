"""Pages: one self-contained HTML file each, for readers who have nothing but a browser."""

from polyhedge.app.report.blocks import Block, Card, Cards, Code, Facts, Heading, Missing, Note, Points, Text
from polyhedge.app.report.figures import Chart, Drawing, Figures, Picture, as_svg, plotly_library, settings_for_pages
from polyhedge.app.report.model import ModelDetails, model_page, model_report
from polyhedge.app.report.over_time import backtest_report, followed_report
from polyhedge.app.report.page import Page, Section, write_page
from polyhedge.app.report.tables import Cell, Column, Table

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
    "followed_report",
    "model_page",
    "model_report",
    "plotly_library",
    "settings_for_pages",
    "write_page",
]
