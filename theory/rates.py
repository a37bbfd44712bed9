r"""The claims of the hidden width: how far finite networks are from their limit, at which scale and shape.

A claim of kind RATE has one of two forms. A number is an exponent: the power of the one size that the quantity names,
to be fitted freely and judged on both sides. ``lazy_slope`` and ``chaos`` come from upper bounds, and are attained
where no symmetry removes the leading term. An expression with constants c is a law in several sizes: the constants are
fitted, positive and the same at every size; they depend on the data, the step k and the initialisation. The
EQUIVALENCE is between orders: ``critical_scale`` is where the change of U leaves its plateau, up to a constant.

Definitions: ``mean_ode.py``, ``phase_diagram.py``, ``shapes.py``; proofs: ``rates_proofs.py``.
Source: [hidden-width], [all-shapes].
"""

from sympy import Integer, Rational, sqrt

from . import rates_proofs as proofs
from .claims import Claim, Kind, Quantity, Source
from .phase_diagram import Phase, Regime, regime
from .shapes import BOUND, Shape, best_shape
from .symbols import D, L, alpha, c_bias, c_lazy, c_noise
from .symbols import M_units as M

__all__ = ["CLAIMS", "OUTPUT_ERROR", "Phase", "Regime", "Shape", "best_shape", "regime"]

STEPS = "after a fixed number k of full-batch gradient steps, with constants that depend on k and on the data"
SMOOTH = "smooth blocks: a layer passes an error on times 1 + C/L at most, a step times 1 + A, C and A free of L and M"
SMOOTH_IN_D = f"{SMOOTH}, and of D"
INIT = "entries of U and V independent, centred, of standard deviation sqrt(D), with light tails"
CHAOS = "units independent of each other: exactly for k = 0, in the limit for k >= 1 (propagation of chaos)"
CENTRED = "E[V sigma(<U, h>/D)] = 0 for every h at initialisation"
CRITICAL = "alpha = 1: maximal local updates"
FIXED_D = "D fixed"
PERCEPTRON = "two-layer-perceptron blocks"
BALANCED = "D = O(M)"

_WIDTH, _SHAPES = "[hidden-width]", "[all-shapes]"
_SPREAD = "the root mean square, over the entries, of the output's standard deviation over initialisations"
_SD = r"d \log \operatorname{sd}(h_L) / d \log "

OUTPUT_ERROR = Quantity(
    id="output_error",
    meaning="root mean square, over entries and data, of the output less that of the Neural Mean ODE",
    latex=r"\|h_L - h(1)\|_{\mathrm{rms}}",
    symbols=("L", "M_units", "D", "alpha", "c_bias", "c_noise"),
)


def _exponent(name: str, latex: str, meaning: str) -> Quantity:
    return Quantity(id=f"{name}_exponent", meaning=f"exponent of {meaning}", latex=latex, symbols=())


CLAIMS = (
    Claim(
        id="rates.depth_width",
        kind=Kind.RATE,
        quantity=OUTPUT_ERROR,
        expression=c_bias / L + c_noise / sqrt(L * M),
        assumptions=(STEPS, SMOOTH, INIT, CHAOS, CRITICAL, f"{FIXED_D}; any residual blocks"),
        source=Source(paper=_WIDTH, place="error bound for general blocks"),
        statement=r"\|h_L - h(1)\| = O\left(\frac{1}{L} + \frac{1}{\sqrt{LM}}\right) \text{ at fixed } D,"
        r" \text{ for every } M \geq 1",
        proof=proofs.depth_width,
    ),
    Claim(
        id="rates.embed_dim",
        kind=Kind.RATE,
        quantity=OUTPUT_ERROR,
        expression=c_bias / L + c_noise * sqrt(D / (L * M)),
        assumptions=(STEPS, SMOOTH_IN_D, INIT, CHAOS, CRITICAL, PERCEPTRON, BALANCED),
        source=Source(paper=_WIDTH, place="error bound for two-layer-perceptron blocks"),
        statement=r"\|h_L - h(1)\| = O\left(\frac{1}{L} + \frac{\sqrt{D}}{\sqrt{LM}}\right), \quad D = O(M)",
        proof=proofs.embed_dim,
    ),
    Claim(
        id="rates.lazy",
        kind=Kind.RATE,
        quantity=Quantity(
            id="tangent_error",
            meaning="root mean square, over entries and data, of the output less that of the Neural Tangent ODE",
            latex=r"\|h_L - h_{\mathrm{tangent}}(1)\|_{\mathrm{rms}}",
            symbols=("L", "M_units", "D", "alpha", "c_bias", "c_noise", "c_lazy"),
        ),
        expression=c_lazy / alpha + c_bias / L + c_noise * alpha / sqrt(L * M),
        assumptions=(STEPS, SMOOTH, INIT, CHAOS, CENTRED, f"1 << alpha << sqrt(LM), {FIXED_D}"),
        source=Source(paper=_WIDTH, place="error bound of the lazy limit"),
        statement=r"\|h_L - h_{\mathrm{tangent}}(1)\| ="
        r" O\left(\frac{1}{\alpha} + \frac{1}{L} + \frac{\alpha}{\sqrt{LM}}\right)",
        proof=proofs.lazy,
    ),
    Claim(
        id="rates.critical_scale",
        kind=Kind.EQUIVALENCE,
        quantity=Quantity(
            id="critical_residual_scale",
            meaning="order of the largest alpha sigma_v / (LM) at which some step size moves every pre-activation by "
            "order 1 and the loss by no more",
            latex=r"\alpha\sigma_v / (LM)",
            symbols=("L", "M_units", "D"),
        ),
        expression=sqrt(D) / (L * M),
        assumptions=(
            PERCEPTRON,
            "N, the entries of h and y, and pre-activations of order 1",
            "first step of U",
            "the proof takes one data point and units in their linear range, sigma' = 1",
        ),
        source=Source(paper=_WIDTH, place="residual scale necessary and sufficient for maximal local updates"),
        statement=r"\text{maximal local updates} \iff"
        r" \frac{\alpha\,\sigma_v}{LM} = O\left(\frac{\sqrt{D}}{LM}\right)",
        proof=proofs.critical_scale,
    ),
    Claim(
        id="rates.bias_exponent",
        kind=Kind.RATE,
        quantity=_exponent(
            "bias",
            r"d \log\|h_L - h(1)\| / d \log L",
            "L in the output error of networks with the same units in every layer, against the limit of those units",
        ),
        expression=Integer(-1),
        assumptions=(STEPS, SMOOTH),
        source=Source(paper=_WIDTH, place="error bound, the term 1/L"),
        statement=r"\|h_L - h(1)\| \sim L^{-1} \text{ where all layers hold the same units}",
        proof=proofs.bias_exponent,
    ),
    Claim(
        id="rates.variance_depth",
        kind=Kind.RATE,
        quantity=_exponent("variance_depth", f"{_SD} L", f"L in {_SPREAD}"),
        expression=Rational(-1, 2),
        assumptions=(STEPS, SMOOTH, INIT, CHAOS, "L large"),
        source=Source(paper=_WIDTH, place="error bound, the term 1/sqrt(LM)"),
        statement=r"\operatorname{sd}(h_L) \sim L^{-1/2}",
        proof=proofs.variance_depth,
    ),
    Claim(
        id="rates.variance_width",
        kind=Kind.RATE,
        quantity=_exponent("variance_width", f"{_SD} M", f"M in {_SPREAD}"),
        expression=Rational(-1, 2),
        assumptions=(STEPS, SMOOTH, INIT, CHAOS, "LM large; M may be 1"),
        source=Source(paper=_WIDTH, place="error bound, the term 1/sqrt(LM)"),
        statement=r"\operatorname{sd}(h_L) \sim M^{-1/2}",
        proof=proofs.variance_width,
    ),
    Claim(
        id="rates.dimension",
        kind=Kind.RATE,
        quantity=_exponent("dimension", f"{_SD} D", f"D in {_SPREAD}"),
        expression=Rational(1, 2),
        assumptions=(STEPS, SMOOTH_IN_D, INIT, CHAOS, CRITICAL, PERCEPTRON, BALANCED),
        source=Source(paper=_WIDTH, place="error bound for two-layer-perceptron blocks, the factor sqrt(D)"),
        statement=r"\operatorname{sd}(h_L) \sim D^{1/2}",
        proof=proofs.dimension,
    ),
    Claim(
        id="rates.lazy_slope",
        kind=Kind.RATE,
        quantity=_exponent(
            "lazy",
            r"d \log\|h(1) - h_{\mathrm{tangent}}(1)\| / d \log\alpha",
            "alpha in the distance of the Neural Mean ODE from the Neural Tangent ODE of the same particles",
        ),
        expression=Integer(-1),
        assumptions=(STEPS, SMOOTH, CENTRED, "neither (U, -V) nor, for odd activations, (-U, V) distributed as (U, V)"),
        source=Source(paper=_WIDTH, place="error bound of the lazy limit, the term 1/alpha"),
        statement=r"\|h(1) - h_{\mathrm{tangent}}(1)\| = O(\alpha^{-1}),"
        r" \text{ attained where no reflection leaves the initial law as it is}",
        proof=proofs.lazy_slope,
    ),
    Claim(
        id="rates.lazy_slope_symmetric",
        kind=Kind.RATE,
        quantity=_exponent(
            "lazy_symmetric",
            r"d \log\|h(1) - h_{\mathrm{tangent}}(1)\| / d \log\alpha",
            "alpha in the same distance, for an initial law that a reflection leaves as it is",
        ),
        expression=Integer(-2),
        assumptions=(STEPS, SMOOTH, "(U, -V) or, for odd activations, (-U, V) distributed as (U, V)"),
        source=Source(paper=_WIDTH, place="error bound of the lazy limit, sharpened by parity (derived here)"),
        statement=r"\|h(1) - h_{\mathrm{tangent}}(1)\| \sim \alpha^{-2} \text{ for } (U, -V) \text{ distributed as }"
        r" (U, V)",
        proof=proofs.lazy_slope_symmetric,
    ),
    Claim(
        id="rates.chaos",
        kind=Kind.RATE,
        quantity=_exponent(
            "chaos",
            r"d \log \operatorname{corr} / d \log(LM)",
            "LM in the correlation over initialisations of |dU|^2 between two units, averaged over pairs",
        ),
        expression=Integer(-1),
        assumptions=(STEPS, "a mean over the LM units has a variance of order 1/(LM); units exchangeable", FIXED_D),
        source=Source(paper=_WIDTH, place="propagation of chaos; the order derived here"),
        statement=r"\operatorname{corr}(|\Delta U_i|^2, |\Delta U_j|^2) = O\left(\frac{1}{LM}\right)",
    ),
    Claim(
        id="rates.all_shapes",
        kind=Kind.RATE,
        quantity=Quantity(
            id="state_error",
            meaning="root mean square, over entries and data, of a network's last hidden state less that of the limit "
            "in L, M and D, with random embedding and unembedding",
            latex=r"\|h_L - h_\infty\|_{\mathrm{rms}}",
            symbols=("L", "M_units", "D", "c_bias", "c_noise", "c_embed"),
        ),
        expression=BOUND,
        assumptions=(STEPS, INIT, CRITICAL, PERCEPTRON, "random, fixed embedding and unembedding"),
        source=Source(paper=_SHAPES, place="error bound with embedding and unembedding"),
        statement=r"\|h_L - h_\infty\| = O\left(\frac{1}{L} + \sqrt{\frac{D}{LM}} + \frac{1}{\sqrt{D}}\right)",
    ),
    Claim(
        id="rates.best_shape",
        kind=Kind.RATE,
        quantity=_exponent(
            "best_shape",
            r"d \log \min_{LMD = P} \mathrm{bound} / d \log P",
            "P in the least three-term bound over all shapes with LMD = P",
        ),
        expression=Rational(-1, 6),
        assumptions=("the three-term bound of rates.all_shapes, with positive constants (1 in the statement)",),
        source=Source(paper=_SHAPES, place="best shapes at a parameter budget"),
        statement=r"\min_{LMD = P}\left(\frac{1}{L} + \sqrt{\frac{D}{LM}} + \frac{1}{\sqrt{D}}\right) \sim"
        r" \frac{3}{4^{1/3}} P^{-1/6}, \quad D \sim (P/4)^{1/3}, \quad L \gg P^{1/6}",
        proof=proofs.best_shape,
    ),
)
