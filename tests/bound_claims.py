"""Claims on the misalignment for tests of the search, and a judge of counterexamples that shares no code with it."""

from fractions import Fraction

import sympy
from oracles import enumerate_tuples
from rescert.sim.enumeration import exact_law_rational
from rescert.sim.populations import build
from rescert.theory.alignment import MISALIGNMENT
from rescert.theory.claims import Claim, Kind, Source
from rescert.theory.symbols import K, M, mu2, mu_Sigma_mu, tr_Sigma2

SOURCE = Source(paper="tests", place="zoo")


def claim(expression, kind=Kind.UPPER_BOUND, name="yours"):
    return Claim(
        id=name,
        kind=kind,
        quantity=MISALIGNMENT,
        expression=sympy.S(expression),
        assumptions=(),
        source=SOURCE,
        statement="",
    )


def by_variance(along, across):
    """V / (V + |mu|^4) with V = along mu'Sigma mu + across tr Sigma^2: Cantelli with a variance of one's own."""
    variance = along * mu_Sigma_mu + across * tr_Sigma2
    return variance / (variance + mu2**2)


def only_from(m, wrong, right):
    """``wrong`` where M and K are both at least m, else ``right``."""
    before = sympy.Min(1, sympy.Max(0, m - sympy.Min(M, K)))
    return before * right + (1 - before) * wrong


def breaks(claim, where):
    """Whether a finite case breaks a claim: enumerated tuple by tuple where that is possible, the rest by sympy."""
    law, m, k = build(**where["population"]), where["M"], where["K"]
    if len(law.weights) ** (m + k) <= 5000:
        p = enumerate_tuples(law.atoms, law.weights, m, k)[0]
    else:
        p = exact_law_rational(law, m, k).p
    mean = [sum(w * a[j] for w, a in zip(law.weights, law.atoms, strict=True)) for j in range(law.dim)]
    second = sympy.zeros(law.dim)
    for weight, atom in zip(law.weights, law.atoms, strict=True):
        step = sympy.Matrix([sympy.Rational(*(x - y).as_integer_ratio()) for x, y in zip(atom, mean, strict=True)])
        second += sympy.Rational(*weight.as_integer_ratio()) * step * step.T
    mu = sympy.Matrix([sympy.Rational(*Fraction(x).as_integer_ratio()) for x in mean])
    letters = {
        "M": sympy.Integer(m),
        "K": sympy.Integer(k),
        "N": sympy.Integer(law.dim),
        "mu2": (mu.T * mu)[0],
        "mu_Sigma_mu": (mu.T * second * mu)[0],
        "tr_Sigma": second.trace(),
        "tr_Sigma2": (second * second).trace(),
    }
    if "lambda_max" in claim.arguments:
        letters["lambda_max"] = max(second.eigenvals(multiple=True), key=lambda x: sympy.re(x.evalf(30)))
    letters["n_eff"] = letters["M"] * letters["K"] / (letters["M"] + letters["K"] + 1)
    for name, below in (
        ("d_par", letters["mu_Sigma_mu"]),
        ("d_2", letters["tr_Sigma2"]),
        ("d_align", max(letters["mu_Sigma_mu"], letters["tr_Sigma2"])),
    ):
        letters[name] = letters["mu2"] ** 2 / below if below else sympy.oo
    value = claim.expression.subs({x: letters[str(x)] for x in claim.expression.free_symbols})
    gap = sympy.re((sympy.Rational(*p.as_integer_ratio()) - value).evalf(40))
    return {Kind.UPPER_BOUND: gap > 0, Kind.LOWER_BOUND: gap < 0, Kind.IDENTITY: gap != 0}[claim.kind]
