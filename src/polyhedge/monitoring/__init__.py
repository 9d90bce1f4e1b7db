"""After the fit: coverage since calibration, the alarm, the log of outcomes, refreshed models, backtests."""
