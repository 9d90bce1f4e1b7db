"""The paper's learners: Algorithm 1 (`ccg`), Algorithm 2 (`pinball`), an ablation (`boxes`)."""
