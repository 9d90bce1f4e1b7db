"""The certified bound and the learner that attains it (`scenario`), and the searches behind them."""
