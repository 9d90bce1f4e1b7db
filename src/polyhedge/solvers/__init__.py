"""The only place that imports vendor solvers: programs as arrays in, solutions with evidence out."""
