"""Hypothesis strategies: random finite laws with rational atoms and weights."""

from fractions import Fraction

from hypothesis import strategies as st
from rescert.sim.populations import FiniteSupport

rationals = st.fractions(min_value=-3, max_value=3, max_denominator=4)


@st.composite
def finite_laws(draw, *, max_dim=3, max_atoms=3):
    """A FiniteSupport with up to ``max_atoms`` atoms in R^1..R^max_dim; atoms may coincide, weights are positive."""
    dim = draw(st.integers(1, max_dim))
    atoms = draw(st.lists(st.lists(rationals, min_size=dim, max_size=dim), min_size=1, max_size=max_atoms))
    parts = draw(st.lists(st.integers(1, 6), min_size=len(atoms), max_size=len(atoms)))
    return FiniteSupport(atoms, [Fraction(part, sum(parts)) for part in parts])
