"""Times as ratios within one run: decisions against solvers, learners against sizes, peers on the same sets."""
