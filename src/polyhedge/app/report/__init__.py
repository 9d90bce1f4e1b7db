"""Pages: one self-contained HTML file each, for readers who have nothing but a browser."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.app.report.model import ModelDetails, model_report
    from polyhedge.app.report.over_time import backtest_report, monitoring_report
else:  # imported when they are first used
    __getattr__, __dir__ = lazy(__name__)

__all__ = ["ModelDetails", "backtest_report", "model_report", "monitoring_report"]
