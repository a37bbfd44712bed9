"""The one table of letters: every symbol that a claim may use, with its meaning and unit.

Units are written for an activation gradient in units of ``q``; a bound on a probability must come out as ``1``.
Letters that only serve inside a proof (indices, slacks, integration variables) are local to that proof.
"""

from collections.abc import Collection
from dataclasses import dataclass

import sympy
from sympy import Expr, Symbol


@dataclass(frozen=True, kw_only=True)
class Letter:
    """One letter: its sympy symbol, how it is printed, what it means, and its definition when it is derived."""

    name: str
    symbol: Symbol
    latex: str
    meaning: str
    unit: str
    definition: Expr | None = None


TABLE: dict[str, Letter] = {}


def letter(
    name: str, latex: str, meaning: str, *, unit: str = "1", definition: Expr | None = None, **assumptions: bool
) -> Symbol:
    """Register a letter and return its symbol.

    Args:
        name: Unique name, also the spelling in text expressions and keyword arguments.
        latex: How the letter is printed.
        meaning: One phrase; a letter has one meaning in the project.
        unit: Unit in terms of ``q``.
        definition: For a derived letter, its value in other letters.
        assumptions: sympy assumptions (``positive=True``, ``integer=True``, ...).

    Raises:
        ValueError: If the name is taken.
    """
    if name in TABLE:
        raise ValueError(f"letter: {name!r} already means {TABLE[name].meaning!r}; choose another name.")
    symbol = Symbol(name, **assumptions)
    TABLE[name] = Letter(name=name, symbol=symbol, latex=latex, meaning=meaning, unit=unit, definition=definition)
    return symbol


def unfold(expr: Expr, keep: Collection[str] = ()) -> Expr:
    """Replace derived letters by their definitions, except those named in ``keep``."""
    while True:
        derived = {
            found.symbol: found.definition
            for symbol in expr.free_symbols
            if (found := TABLE.get(symbol.name)) and found.definition is not None and found.name not in keep
        }
        if not derived:
            return expr
        expr = expr.xreplace(derived)


def latex(expr: Expr) -> str:
    """Render an expression with the letters of the table."""
    return sympy.latex(expr, symbol_names={found.symbol: found.latex for found in TABLE.values()})


M = letter("M", "M", "training samples averaged in mu_M", unit="samples", integer=True, positive=True)
K = letter("K", "K", "test samples averaged in g_K", unit="samples", integer=True, positive=True)
N = letter("N", "N", "width: dimension of the activation gradient", integer=True, positive=True)

# The covariance may be singular or zero, the mean of a certified law may not: hence nonnegative and positive.
mu2 = letter("mu2", r"|\mu|^2", "squared norm of the mean activation gradient", unit="q^2", positive=True)
mu_Sigma_mu = letter(
    "mu_Sigma_mu", r"\mu^\top\Sigma\mu", "variance along the mean, times |mu|^2", unit="q^4", nonnegative=True
)
tr_Sigma = letter("tr_Sigma", r"\operatorname{tr}\Sigma", "total variance", unit="q^2", nonnegative=True)
tr_Sigma2 = letter(
    "tr_Sigma2", r"\operatorname{tr}\Sigma^2", "sum of the squared eigenvalues of Sigma", unit="q^4", nonnegative=True
)
lambda_max = letter(
    "lambda_max", r"\lambda_{\max}", "largest eigenvalue of the covariance Sigma", unit="q^2", nonnegative=True
)

n_eff = letter(
    "n_eff", r"n_{\mathrm{eff}}", "effective number of samples", definition=M * K / (M + K + 1), positive=True
)
d_par = letter(
    "d_par", r"d_\parallel", "alignment dimension along the mean", definition=mu2**2 / mu_Sigma_mu, positive=True
)
d_2 = letter("d_2", r"d_2", "alignment dimension of the spectrum", definition=mu2**2 / tr_Sigma2, positive=True)
# min(d_par, d_2), spelled so that it is defined where one of them is infinite.
d_align = letter(
    "d_align",
    r"d_{\mathrm{align}}",
    "effective alignment dimension min(d_par, d_2)",
    definition=mu2**2 / sympy.Max(mu_Sigma_mu, tr_Sigma2),
    positive=True,
)

p_target = letter("p_target", "p", "misalignment probability asked for, in (0, 1)", positive=True)
o_target = letter("o_target", "o", "odds of alignment asked for", definition=(1 - p_target) / p_target, positive=True)
pi_atom = letter("pi_atom", r"\pi", "weight of the atom 1 of a Bernoulli law on {0, 1}", positive=True)
eps = letter("eps", r"\varepsilon", "weight of the rare atom of a two-atom law", positive=True)

a = letter("a", "a", "exponent of a power-law spectrum, lambda_i = i^-a", nonnegative=True)
b = letter("b", "b", "growth exponent of a leading eigenvalue, lambda_1 = N^b", nonnegative=True)
s = letter("s", "s", "growth exponent of the signal, |mu|^2 = N^s", real=True)
c_signal = letter("c_signal", "c", "signal per dimension, |mu|^2 >= c N", unit="q^2", positive=True)
sigma2 = letter("sigma2", r"\sigma^2", "bound on the operator norm of Sigma", unit="q^2", positive=True)

# The hidden width: finite residual networks of depth L, M units a block and embedding dimension D, and their limit.
L = letter("L", "L", "depth: residual blocks of a network", unit="blocks", integer=True, positive=True)
M_units = letter("M_units", "M", "hidden width: units of a residual block", unit="units", integer=True, positive=True)
D = letter("D", "D", "embedding dimension: entries of the hidden state", integer=True, positive=True)
N_data = letter("N_data", "N", "data points of the training set", unit="samples", integer=True, positive=True)
P_budget = letter("P_budget", "P", "parameter budget L M D", positive=True)
alpha = letter("alpha", r"\alpha", "residual scale: a block is multiplied by alpha / (LM)", positive=True)
sigma_u = letter("sigma_u", r"\sigma_u", "standard deviation of the entries of U at initialisation", positive=True)
sigma_v = letter("sigma_v", r"\sigma_v", "standard deviation of the entries of V at initialisation", positive=True)
S_scale = letter(
    "S_scale",
    "S",
    "initial residual scale over the critical one, alpha sigma_v / sqrt(D)",
    definition=alpha * sigma_v / sympy.sqrt(D),
    positive=True,
)
eta = letter("eta", r"\eta", "step size of gradient descent", positive=True)
eta_u = letter("eta_u", r"\eta_u", "step scale of U", positive=True)
eta_v = letter("eta_v", r"\eta_v", "step scale of V", positive=True)
c_bias = letter("c_bias", r"c_1", "constant of the bias 1 / L", positive=True)
c_noise = letter("c_noise", r"c_2", "constant of the fluctuation (LM)^(-1/2)", positive=True)
c_lazy = letter("c_lazy", r"c_3", "constant of the linearisation 1 / alpha", positive=True)
c_embed = letter("c_embed", r"c_4", "constant of the embedding, D^(-1/2)", positive=True)

# A step of a fixed size along the training direction, and the mean of cross-gradients.
L_smooth = letter(
    "L_smooth", "L", "smoothness of the held-out loss along the step, in units of 1 / eta's", positive=True
)
gain_mean = letter(
    "gain_mean",
    r"E\,Y",
    "mean of Y = mu_M . g_K - (eta L / 2) |mu_M|^2, the gain sure per step size",
    unit="q^2",
    real=True,
)
gain_variance = letter("gain_variance", r"\operatorname{Var} Y", "variance of the same Y", unit="q^4", positive=True)
n_samples = letter(
    "n_samples", "n", "samples averaged in the cross-gradient", unit="samples", integer=True, positive=True
)
B_norm = letter("B_norm", "B", "bound on |q| |phi|, the norm of a sample's cross-gradient", positive=True)
delta = letter("delta", r"\delta", "probability with which a bound may fail, in (0, 1)", positive=True)
