"""Pages: one self-contained HTML file each, for readers who have nothing but a browser."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.app.report.model import ModelDetails as ModelDetails, model_report as model_report
    from polyhedge.app.report.over_time import (
        backtest_report as backtest_report,
        monitoring_report as monitoring_report,
    )
else:  # imported when they are first used
    __getattr__, __dir__, __all__ = lazy(__name__)
