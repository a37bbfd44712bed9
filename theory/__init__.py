"""What the objects are and what is claimed of them; sympy only."""
