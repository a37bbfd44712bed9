r"""The exact law of the gain of a fixed step, Y = mu_M . g_K - c |mu_M|^2 with c = eta L / 2, for a finite law."""

from dataclasses import dataclass
from fractions import Fraction

from .enumeration import integer_sums, require_counts
from .finite_laws import FiniteSupport


@dataclass(frozen=True, kw_only=True)
class StepLaw:
    """P(Y <= 0), E Y and Var Y, in fractions."""

    p: Fraction
    mean: Fraction
    variance: Fraction


def step_law(population: FiniteSupport, M: int, K: int, c: Fraction) -> StepLaw:
    """Enumerate Y in exact rational arithmetic; for small M, K and few atoms.

    P(Y <= 0) is the probability of no decrease where the held-out loss of a sample is g . theta + (L/2) |theta|^2, and
    an upper limit of it for every L-smooth loss. Source: [width], Theorem 2.

    Raises:
        ValueError: If M or K < 1, or c is negative.
    """
    require_counts("step_law", M=M, K=K)
    if c < 0:
        raise ValueError(f"step_law: c = eta L / 2 must be at least 0, got {c}.")
    U = integer_sums(population, M)
    V = U if K == M else integer_sums(population, K)
    # Y times M^2 K denominator^2 times the denominator of c is an integer.
    scale, curvature = M * c.denominator, K * c.numerator
    hit = first = second = 0
    for u, p in U.items():
        own = curvature * sum(x * x for x in u)
        for v, r in V.items():
            y = scale * sum(x * z for x, z in zip(u, v, strict=True)) - own
            weight = p * r
            hit += weight * (y <= 0)
            first += weight * y
            second += weight * y * y
    total = sum(U.values()) * sum(V.values())
    unit = Fraction(1, M * M * K * c.denominator * population.denominator**2)
    mean = Fraction(first, total) * unit
    return StepLaw(p=Fraction(hit, total), mean=mean, variance=Fraction(second, total) * unit**2 - mean**2)
