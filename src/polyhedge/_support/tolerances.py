"""Numerical tolerances of the whole library.

Each is a share of numbers near 1: problems are standardised by powers of two when they meet their data. A setting of a
method is no tolerance; it is a field of the method's dataclass.
"""

from __future__ import annotations

ROUNDING = 2.0**-44
"""Share of its terms by which a sum in double precision may be off: some hundred roundings."""
CANCELLATION = 1e-12
"""Share of the terms below which a difference or a standard error is what cancellation left of 0."""
TIE = 1e-9
"""Share of the spread of costs up to which two results are equal; a stated rule then chooses between them."""
INSIDE = 1e-9
"""Relative slack of membership in a set, so that computed vertices and maximisers count as inside."""
PIVOT = 1e-9
"""Smallest pivot, and smallest independent part of a unit vector, that a linear system is solved with."""
SOLVER = 1e-9
"""Tolerance that is asked of solvers in the units of a scaled program."""
INPUT = 1e-8
"""Share by which given numbers may miss an identity (symmetry, shares that sum to 1): files print so many digits."""
SOLVED = 1e-7
"""Share of the costs at stake that solvers leave open after they have met their own tolerances."""
OPTIMAL = 1e-6
"""Gap up to which a solution counts as optimal, as a share of the size of the costs at stake."""
FEASIBLE = 1e-6
"""Share of its terms by which a constraint may be violated, and by which an integer may be missed."""
SELECTION_TIE = 1e-6
"""Share of the premium below which the scores of two candidates are equal; the simpler one wins."""
