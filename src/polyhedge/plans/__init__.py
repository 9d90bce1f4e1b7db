"""Plans: residual laws and decision rules z(x), v(x), and the contest between them."""
