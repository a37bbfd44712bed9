"""A claim as a function of arrays, and the ratio that says how near it is to being broken."""

import functools
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import sympy
from numpy.typing import ArrayLike, NDArray
from sympy import Symbol

from ...sim.laws import Population
from ...theory.claims import Claim, Kind
from ...theory.evaluation import total
from .exact_case import FiniteCase

Floats = NDArray[np.float64]
ROUNDING = 1e-9
# A ratio of ones, of any size: what a bound of the wrong unit depends on and a sound one does not.
_UNITS = {"mu2": 1, "mu_Sigma_mu": 2, "tr_Sigma": 1, "tr_Sigma2": 2, "lambda_max": 1}


class Screen:
    """Values of a claim's expression in float64, NaN where it has none, and its ratio to the quantity."""

    def __init__(self, claim: Claim) -> None:
        self.claim, self.kind, self.names = claim, claim.kind, claim.arguments
        modules = [{"Reciprocal": _reciprocal}, "scipy", "numpy"]
        self._function = sympy.lambdify([Symbol(n) for n in self.names], total(claim.expression, self.names), modules)

    def values(self, letters: Mapping[str, ArrayLike]) -> Floats:
        """Evaluate at arrays that broadcast against each other."""
        arrays = [np.asarray(letters[name], dtype=np.float64) for name in self.names]
        shape = np.broadcast_shapes(*(a.shape for a in arrays)) if arrays else ()
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = np.asarray(self._function(*arrays))
        if np.iscomplexobj(found):
            found = np.where(found.imag == 0, found.real, np.nan)
        return np.broadcast_to(found.astype(np.float64), shape)

    def at(self, case: FiniteCase) -> float:
        """Evaluate at one law with M and K."""
        return float(self.values(float_letters(case.law, case.M, case.K)))

    def ratio(self, p: ArrayLike, bound: ArrayLike) -> Floats:
        """How near the claim is to being broken: beyond 1 it is.

        Args:
            p: The quantity.
            bound: The expression.
        """
        p, bound = np.broadcast_arrays(np.asarray(p, dtype=float), np.asarray(bound, dtype=float))
        over, under = (bound, p) if self.kind is Kind.LOWER_BOUND else (p, bound)
        with np.errstate(all="ignore"):
            ratio = over / under
            if self.kind is Kind.IDENTITY:
                ratio = np.maximum(ratio, 1 / ratio)
        # A negative upper bound is broken even by 0; of a lower bound that is 0 or less there is nothing to break.
        broken = over > under
        ratio = np.where(under <= 0, np.where(broken, np.inf, np.where(over == under, 1.0, 0.0)), ratio)
        return np.where(np.isnan(bound) | np.isnan(p), np.nan, ratio)

    def guide(self, p: ArrayLike, bound: ArrayLike) -> Floats:
        """What a search climbs: the ratio, but below 1 no higher than that of the complements.

        Near P = 1 every bound is tight, and nothing is to be found there unless the complements agree as well.
        """
        ratio = self.ratio(p, bound)
        if self.kind is Kind.IDENTITY:
            return ratio
        p, bound = np.asarray(p, dtype=float), np.asarray(bound, dtype=float)
        over, under = (1 - p, 1 - bound) if self.kind is Kind.LOWER_BOUND else (1 - bound, 1 - p)
        with np.errstate(all="ignore"):
            complement = np.where(under > 0, over / under, np.where(over < 0, 0.0, 1.0))
        return np.where(ratio > 1, ratio, np.minimum(ratio, complement))

    def suspect(self, p: ArrayLike, bound: ArrayLike) -> NDArray[np.bool_]:
        """Where floats cannot tell that the claim holds."""
        p, bound = np.asarray(p, dtype=float), np.asarray(bound, dtype=float)
        ratio = self.ratio(p, bound)
        idle = {Kind.UPPER_BOUND: bound >= 1, Kind.LOWER_BOUND: bound <= 0}.get(self.kind, False)
        return (ratio > 1 - ROUNDING) & ~idle & ~((p == 0) & (bound == 0))

    def depends_on_units(self) -> bool:
        """Whether the expression changes when q is measured in other units."""
        letters = {"M": 3.0, "K": 5.0, "N": 4.0, "mu2": 0.7, "mu_Sigma_mu": 0.9, "tr_Sigma": 2.9, "tr_Sigma2": 2.3}
        letters["lambda_max"] = 1.2
        scaled = {name: x * 1.7 ** _UNITS.get(name, 0) for name, x in letters.items()}
        return not np.allclose(self.values(letters), self.values(scaled), rtol=1e-9, atol=0, equal_nan=True)


@functools.lru_cache(maxsize=4)
def screen_of(claim: Claim) -> Screen:
    """Compile a claim once a process."""
    return Screen(claim)


def float_letters(law: Population, M: int, K: int) -> dict[str, float]:
    """Every underived letter, as floats."""
    letters = {"M": M, "K": K, "N": law.dim, **law.moments.as_dict()}
    return {name: float(x) for name, x in letters.items()}


def _reciprocal(x: Any) -> Any:
    x = np.asarray(x, dtype=float)
    return np.where(x == 0, np.inf, 1 / np.where(x == 0, 1.0, x))
