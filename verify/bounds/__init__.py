"""A bound of the user's own: stated, decided where that can be done, searched for a counterexample where it cannot."""
