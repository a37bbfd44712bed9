r"""The claims of the alignment certificate: moments of X = mu_M . g_K, B_exact and B_align, and how sharp they are.

Source throughout: [width]. The definitions live in ``certificate.py``, the proofs in ``alignment_proofs.py``.
"""

import sympy
from sympy import Integer

from . import alignment_proofs as proofs
from .certificate import B_ALIGN, B_EXACT, D_2, D_ALIGN, D_PAR, MEAN, N_EFF, VARIANCE, samples_needed
from .claims import Claim, Kind, Quantity, Source
from .symbols import K, M, d_2, d_align, d_par, o_target, pi_atom

__all__ = [
    "B_ALIGN",
    "B_EXACT",
    "CLAIMS",
    "D_2",
    "D_ALIGN",
    "D_PAR",
    "MEAN",
    "MISALIGNMENT",
    "N_EFF",
    "VARIANCE",
    "samples_needed",
]

IID = "the M + K samples are independent and identically distributed, with finite second moments"
NONZERO_MEAN = "mu is not zero (for mu = 0: d_align = 0 and the bound is 1)"

MISALIGNMENT = Quantity(
    id="misalignment",
    meaning="probability that a training mean and a test mean of activation gradients do not align",
    latex=r"P(\mu_M^\top g_K \le 0)",
    symbols=(
        *("M", "K", "N", "n_eff", "d_par", "d_2", "d_align"),
        *("mu2", "mu_Sigma_mu", "tr_Sigma", "tr_Sigma2", "lambda_max"),
    ),
)
_MOMENTS = ("M", "K", "mu2", "mu_Sigma_mu", "tr_Sigma2")


_WIDTH = "[width]"

CLAIMS = (
    Claim(
        id="alignment.mean",
        kind=Kind.IDENTITY,
        quantity=Quantity(
            id="alignment_mean", meaning="mean of the alignment X", latex="E X", symbols=_MOMENTS, unit="q^2"
        ),
        expression=MEAN,
        assumptions=(IID,),
        source=Source(paper=_WIDTH, place="exact mean and variance of mu_M . g_K"),
        statement=r"E[\mu_M^\top g_K] = |\mu|^2",
        proof=proofs.mean,
    ),
    Claim(
        id="alignment.variance",
        kind=Kind.IDENTITY,
        quantity=Quantity(
            id="alignment_variance",
            meaning="variance of the alignment X",
            latex=r"\operatorname{Var} X",
            symbols=_MOMENTS,
            unit="q^4",
        ),
        expression=VARIANCE,
        assumptions=(IID,),
        source=Source(paper=_WIDTH, place="exact mean and variance of mu_M . g_K"),
        statement=r"\operatorname{Var}(\mu_M^\top g_K) = \left(\tfrac1M + \tfrac1K\right)\mu^\top\Sigma\mu"
        r" + \tfrac1{MK}\operatorname{tr}\Sigma^2 \quad\text{for every } N",
        proof=proofs.variance,
    ),
    Claim(
        id="alignment.cantelli",
        kind=Kind.UPPER_BOUND,
        quantity=MISALIGNMENT,
        expression=B_EXACT,
        assumptions=(IID, NONZERO_MEAN),
        source=Source(paper=_WIDTH, place="B_exact, by Cantelli's inequality"),
        statement=r"P(\mu_M^\top g_K \le 0) \le B_{\mathrm{exact}} = \frac{v}{v + |\mu|^4},"
        r"\quad v = \operatorname{Var}(\mu_M^\top g_K)",
        proof=proofs.cantelli,
    ),
    Claim(
        id="alignment.certificate",
        kind=Kind.UPPER_BOUND,
        quantity=MISALIGNMENT,
        expression=B_ALIGN,
        assumptions=(IID, NONZERO_MEAN),
        source=Source(paper=_WIDTH, place="Theorem 1"),
        statement=r"P(\mu_M^\top g_K \le 0) \le B_{\mathrm{align}}"
        r" = \frac{1}{1 + n_{\mathrm{eff}}\,d_{\mathrm{align}}}, \quad n_{\mathrm{eff}} = \frac{MK}{M+K+1},"
        r"\quad d_{\mathrm{align}} = \min(d_\parallel, d_2)",
        proof=proofs.certificate,
    ),
    Claim(
        id="alignment.ordering",
        kind=Kind.ORDERING,
        quantity=Quantity(
            id="bound_difference",
            meaning="how much B_align exceeds B_exact",
            latex=r"B_{\mathrm{align}} - B_{\mathrm{exact}}",
            symbols=MISALIGNMENT.symbols,
        ),
        expression=B_ALIGN - B_EXACT,
        assumptions=("mu is not zero and Sigma is not zero",),
        source=Source(paper=_WIDTH, place="Theorem 1, against B_exact"),
        statement=r"B_{\mathrm{exact}} \le B_{\mathrm{align}}, \quad\text{with equality iff } d_\parallel = d_2",
        proof=proofs.ordering,
    ),
    Claim(
        id="alignment.n_eff",
        kind=Kind.IDENTITY,
        quantity=Quantity(
            id="effective_samples",
            meaning="effective number of samples: its inverse adds the weights in the variance of X",
            latex=r"n_{\mathrm{eff}}",
            symbols=("M", "K", "n_eff"),
            unit="samples",
        ),
        expression=N_EFF,
        assumptions=("M, K >= 1",),
        source=Source(paper=_WIDTH, place="definition of n_eff"),
        statement=r"\frac1{n_{\mathrm{eff}}} = \frac1M + \frac1K + \frac1{MK}, \quad "
        r"n_{\mathrm{eff}} \to M \ (K \to \infty), \quad n_{\mathrm{eff}} \sim M/2 \ (M = K \to \infty)",
        proof=proofs.n_eff,
    ),
    Claim(
        id="alignment.samples_needed",
        kind=Kind.EQUIVALENCE,
        quantity=Quantity(
            id="samples_needed",
            meaning="smallest real M = K for which B_align is at most p",
            latex=r"\min\{M = K : B_{\mathrm{align}} \le p\}",
            symbols=("p_target", "o_target", *MISALIGNMENT.symbols[4:]),
            unit="samples",
        ),
        expression=o_target / d_align + sympy.sqrt((o_target / d_align) ** 2 + o_target / d_align),
        assumptions=("0 < p < 1", "0 < d_align < infinity"),
        source=Source(paper=_WIDTH, place="Theorem 1, solved for M = K"),
        statement=r"M = K:\quad B_{\mathrm{align}} \le p \iff M \ge t + \sqrt{t^2 + t},"
        r"\quad t = \frac{1-p}{p\,d_{\mathrm{align}}}",
        proof=proofs.samples,
    ),
    Claim(
        id="alignment.samples_needed_given_K",
        kind=Kind.EQUIVALENCE,
        quantity=Quantity(
            id="samples_needed_given_K",
            meaning="smallest real M for which B_align is at most p, at a given K",
            latex=r"\min\{M : B_{\mathrm{align}} \le p\}",
            symbols=("K", "p_target", "o_target", *MISALIGNMENT.symbols[4:]),
            unit="samples",
        ),
        expression=o_target * (K + 1) / (K * d_align - o_target),
        assumptions=("0 < p < 1", "K d_align > (1 - p) / p; otherwise no M suffices"),
        source=Source(paper=_WIDTH, place="Theorem 1, solved for M"),
        statement=r"B_{\mathrm{align}} \le p \iff M \ge \frac{t (K+1)}{K - t} \text{ and } K > t,"
        r"\quad t = \frac{1-p}{p\,d_{\mathrm{align}}}; \quad K d_{\mathrm{align}} \le \tfrac{1-p}{p}:"
        r"\text{ no } M \text{ suffices}",
        proof=proofs.samples_given_K,
    ),
    Claim(
        id="alignment.odds_loss",
        kind=Kind.IDENTITY,
        quantity=Quantity(
            id="odds_loss",
            meaning="odds of B_align over odds of B_exact: what the one number d_align gives away",
            latex=r"\frac{B_{\mathrm{align}}}{1 - B_{\mathrm{align}}} \Big/"
            r" \frac{B_{\mathrm{exact}}}{1 - B_{\mathrm{exact}}}",
            symbols=MISALIGNMENT.symbols,
        ),
        expression=(M + K + 1) / ((M + K) * d_align / d_par + d_align / d_2),
        assumptions=("mu is not zero and Sigma is not zero",),
        source=Source(paper=_WIDTH, place="Theorem 1, against B_exact"),
        statement=r"1 \le \frac{M + K + 1}{(M + K)\,d_{\mathrm{align}}/d_\parallel + d_{\mathrm{align}}/d_2}"
        r" \le M + K + 1",
        proof=proofs.odds_loss,
    ),
    Claim(
        id="alignment.attained",
        kind=Kind.IDENTITY,
        quantity=Quantity(
            id="misalignment_bernoulli",
            meaning="misalignment probability at M = K = 1 for q in {0, 1} with P(q = 1) = pi",
            latex=r"P(q q' \le 0)",
            symbols=("pi_atom",),
        ),
        expression=1 - pi_atom**2,
        assumptions=("N = 1, M = K = 1", "q is Bernoulli(pi)"),
        source=Source(paper=_WIDTH, place="Theorem 1, equality case"),
        statement=r"P = B_{\mathrm{exact}} = 1 - \pi^2, \quad\text{and } P = B_{\mathrm{exact}} = B_{\mathrm{align}}"
        r" = \tfrac34 \text{ for } \pi = \tfrac12",
        proof=proofs.attained,
    ),
    Claim(
        id="alignment.sharp",
        kind=Kind.LIMIT,
        quantity=Quantity(
            id="tightness_rare_atom",
            meaning="P(X <= 0) / B_exact for the atoms 1 and -(M - 1), the latter with weight eps -> 0, at M = K",
            latex=r"\lim_{\varepsilon \to 0} P(\mu_M^\top g_K \le 0) / B_{\mathrm{exact}}",
            symbols=("M",),
        ),
        expression=Integer(1),
        assumptions=("N = 1, M = K", "q = 1 with weight 1 - eps, q = -(M - 1) with weight eps"),
        source=Source(paper=_WIDTH, place="B_exact, sharpness"),
        statement=r"P / B_{\mathrm{exact}} \to 1 \text{ for every } M = K: \text{ no function of } M, K"
        r" \text{ and these moments that stays below } c\,B_{\mathrm{exact}},\ c < 1, \text{ bounds every law}",
        proof=proofs.sharp,
    ),
    Claim(
        id="alignment.sharp_align",
        kind=Kind.LIMIT,
        quantity=Quantity(
            id="tightness_rare_atom_align",
            meaning="P(X <= 0) / B_align for the same law",
            latex=r"\lim_{\varepsilon \to 0} P(\mu_M^\top g_K \le 0) / B_{\mathrm{align}}",
            symbols=("M",),
        ),
        expression=2 * M / (2 * M + 1),
        assumptions=("N = 1, M = K", "q = 1 with weight 1 - eps, q = -(M - 1) with weight eps"),
        source=Source(paper=_WIDTH, place="Theorem 1, sharpness"),
        statement=r"P / B_{\mathrm{align}} \to \frac{2M}{2M+1} \text{ for every } M = K",
        proof=proofs.sharp_align,
    ),
)
