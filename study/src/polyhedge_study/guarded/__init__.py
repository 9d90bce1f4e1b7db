"""Methods that promise a bound on the cost of the decision that is taken: Polyhedge, and its rivals."""
