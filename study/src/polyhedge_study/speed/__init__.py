"""Times as ratios within one run: decisions against solvers, learners against sizes, peers on the same sets.

These benches do not go through `Experiment`: what is compared is timed in turns, close together on one idle machine, so
that its moods cancel out. Rows of an earlier run, or of workers beside one another, would bring them back.
"""
