"""The paper's learners: Corollary 1 (`miqcp`), Algorithm 1 (`ccg`), Algorithm 2 (`pinball`), its boxes (`boxes`)."""
