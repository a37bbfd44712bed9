"""Error surfaces as data: sums of powers of the shape, and their logarithms as functions of the parameters."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import optimize

from .observations import SHAPE, Array, Cells, Observations

Combine = Literal["sum", "quadrature"]
# Singular values below this share of the largest one are rounding: the grid does not tell the parameters apart.
RANK_TOLERANCE = 1e-8


@dataclass(frozen=True)
class Term:
    """A positive coefficient times powers of the shape.

    A power is a number, or the name of a free exponent, with "-" before it for its negative:
    ``Term("b", {"depth": "-r", "units": -0.5})`` is b L^-r M^(-1/2).
    """

    coefficient: str
    powers: Mapping[str, float | str]


@dataclass(frozen=True, kw_only=True)
class Model:
    """An error surface: terms that add up, or whose squares do ("quadrature": bias beside fluctuation).

    Raises:
        ValueError: For an unknown way to combine, an unknown column, a repeated coefficient or no term.
    """

    name: str
    terms: tuple[Term, ...]
    combine: Combine = "sum"

    def __post_init__(self) -> None:
        if self.combine not in ("sum", "quadrature"):
            raise ValueError(f"Model {self.name}: combine must be 'sum' or 'quadrature', got {self.combine!r}.")
        unknown = sorted({column for term in self.terms for column in term.powers} - set(SHAPE))
        if unknown:
            raise ValueError(f"Model {self.name}: no column {', '.join(unknown)}; use {', '.join(SHAPE)}.")
        if not self.terms or len(set(self.parameters)) < len(self.terms) + len(self.exponents):
            raise ValueError(f"Model {self.name}: every term needs a coefficient of its own.")

    @property
    def coefficients(self) -> tuple[str, ...]:
        """One a term."""
        return tuple(term.coefficient for term in self.terms)

    @property
    def exponents(self) -> tuple[str, ...]:
        """The free exponents, each once."""
        powers = (power for term in self.terms for power in term.powers.values())
        return tuple(dict.fromkeys(power.removeprefix("-") for power in powers if isinstance(power, str)))

    @property
    def parameters(self) -> tuple[str, ...]:
        """Coefficients, then free exponents."""
        return self.coefficients + self.exponents


class LogSurface:
    """The logarithm of a model on given cells, the limit's own error added in quadrature.

    The logarithm of every term is linear in theta = (log coefficients, exponents); the surface is their log-sum-exp,
    so that neither a huge nor a vanishing term overflows, and its Jacobian is an average weighted by the terms' shares.
    """

    def __init__(self, model: Model, cells: Cells) -> None:
        self.model, self.cells = model, cells
        names = model.parameters
        self.offset = np.zeros((len(model.terms), len(cells)))
        self.slopes = np.zeros((len(model.terms), len(cells), len(names)))
        for j, term in enumerate(model.terms):
            self.slopes[j, :, j] = 1
            for column, power in term.powers.items():
                x = np.log(cells.shapes[column])
                if isinstance(power, str):
                    self.slopes[j, :, names.index(power.removeprefix("-"))] += -x if power.startswith("-") else x
                else:
                    self.offset[j] += power * x
        self._degree = 1 if model.combine == "sum" else 2
        with np.errstate(divide="ignore"):
            self._log_limit = np.log(cells.limit_error)

    def __call__(self, theta: Array, active: np.ndarray) -> tuple[Array, Array]:
        """Return log e, (cells,), and its Jacobian, (cells, parameters), with the active terms only."""
        logs = np.where(active[:, None], self.offset + self.slopes @ theta, -np.inf)
        log_model = np.logaddexp.reduce(self._degree * logs, axis=0) / self._degree
        log_error = np.logaddexp(2 * log_model, 2 * self._log_limit) / 2
        shares = np.exp(self._degree * (logs - log_model) + 2 * (log_model - log_error))
        return log_error, np.einsum("jn,jnk->nk", shares, self.slopes)

    def starts(self, y: Array) -> Iterator[Array]:
        """Yield starting points: terms of equal size, then each term in turn above all others."""
        J = len(self.model.terms)
        for exponent in (0.5, 1.0) if self.model.exponents else (0.5,):
            exponents = np.full(len(self.model.exponents), exponent)
            yield self.balanced(y, exponents)
            for leading in range(J if J > 1 else 0):
                start = self.balanced(y, exponents)
                start[:J] -= np.where(np.arange(J) == leading, 0, 4)
                yield start

    def balanced(self, y: Array, exponents: Array) -> Array:
        """Return theta with these exponents for which every term has the geometric mean of the errors exp(y)."""
        theta = np.concatenate([np.zeros(len(self.model.terms)), exponents])
        theta[: len(self.model.terms)] = y.mean() - (self.offset + self.slopes @ theta).mean(axis=1)
        return theta

    def require_identifiable(self, y: Array, where: str) -> None:
        """Raise a ValueError that names the parameters which these shapes cannot tell apart.

        The test is the rank of the Jacobian at terms of equal size and exponents without coincidences.
        """
        names = self.model.parameters
        if len(self.cells) <= len(names):
            raise ValueError(
                f"{where}: {len(self.cells)} distinct shapes for the {len(names)} parameters {', '.join(names)}; "
                "add shapes."
            )
        generic = self.balanced(y, np.linspace(0.4, 1.1, len(self.model.exponents)))
        _, jacobian = self(generic, np.ones(len(self.model.terms), bool))
        lost = [name for name, bad in zip(names, unidentified(jacobian), strict=True) if bad]
        if lost:
            raise ValueError(
                f"{where}: cannot find {', '.join(lost)} from {len(self.cells)} shapes: {self._confounding(lost)}."
            )

    def _confounding(self, lost: Sequence[str]) -> str:
        powers = [item for term in self.model.terms for item in term.powers.items()]
        logs = {column: np.log(self.cells.shapes[column]) for column, _ in powers}
        fixed = [column for column, x in logs.items() if np.ptp(x) == 0]
        # A column that does not vary is to blame for its own exponents, and only then for anything else.
        blamed = [c for c in fixed if any(c == column and str(p).removeprefix("-") in lost for column, p in powers)]
        if not blamed:
            varying = [column for column in logs if column not in fixed]
            for one, other in itertools.combinations(varying, 2):
                if unidentified(np.column_stack([np.ones(len(self.cells)), logs[one], logs[other]])).any():
                    return f"{one} and {other} vary together only, vary them apart"
        if blamed or fixed:
            return "; ".join(f"{c} is {self.cells.shapes[c][0]:g} throughout, vary it" for c in blamed or fixed)
        return "the terms are proportional to each other on them"


def unidentified(jacobian: Array) -> np.ndarray:
    """Mark the columns that take part in a linear relation between the columns."""
    norms = np.linalg.norm(jacobian, axis=0)
    _, singular, directions = np.linalg.svd(jacobian / np.where(norms > 0, norms, 1), full_matrices=False)
    null = directions[singular <= RANK_TOLERANCE * singular[0]]
    # An order above the rounding of a null direction, far below any part that matters.
    return np.any(np.abs(null) > 1e-4, axis=0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Optimum:
    """The parameters at a minimum, which terms are left, and half the squared log residuals there."""

    theta: Array
    active: np.ndarray
    cost: float
    converged: bool

    def values(self, surface: LogSurface) -> Array:
        """Coefficients, 0 where the term vanished, and exponents, NaN where all their terms did."""
        J = len(self.active)
        defined = np.any(surface.slopes[self.active] != 0, axis=(0, 1))
        coefficients = np.where(self.active, np.exp(np.minimum(self.theta[:J], 700)), 0.0)
        return np.concatenate([coefficients, np.where(defined, self.theta, np.nan)[J:]])


def minimise(surface: LogSurface, y: Array, start: Array, *, method: str = "lm", tolerance: float = 1e-8) -> Optimum:
    """Minimise the squared log residuals; a term whose removal does not raise them is at the boundary 0 and removed."""
    active, theta = np.ones(len(surface.model.terms), bool), start
    while True:
        found = optimize.least_squares(
            lambda t, on: surface(t, on)[0] - y,
            theta,
            jac=lambda t, on: surface(t, on)[1],
            method=method,
            xtol=tolerance,
            ftol=tolerance,
            gtol=tolerance,
            args=(active,),
        )
        theta = found.x
        without = {}
        for j in np.flatnonzero(active) if active.sum() > 1 else ():
            rest = active & (np.arange(len(active)) != j)
            without[j] = 0.5 * float(np.sum((surface(theta, rest)[0] - y) ** 2))
        least = min(without, key=without.__getitem__, default=None)
        if least is None or without[least] > found.cost * (1 + 1e-9) + 1e-24:
            return Optimum(theta=theta, active=active, cost=float(found.cost), converged=bool(found.success))
        active = active & (np.arange(len(active)) != least)


SUM = Model(
    name="a/L + b sqrt(D/(LM))",
    terms=(Term("a", {"depth": -1}), Term("b", {"depth": -0.5, "units": -0.5, "embed_dim": 0.5})),
)
QUADRATURE = dataclasses.replace(SUM, combine="quadrature")


def free_form(observations: Observations, combine: Combine) -> Model:
    """Return a/L + b sqrt(D/(LM)) with its exponents set free, that of D only where D varies."""
    D_varies = np.ptp(observations.embed_dim) > 0
    b = Term("b", {"depth": "-r", "units": "-q", "embed_dim": "t" if D_varies else 0.5})
    name = f"a L^-p + b L^-r M^-q {'D^t' if D_varies else 'sqrt(D)'}"
    return Model(name=name, terms=(Term("a", {"depth": "-p"}), b), combine=combine)


def _rivals() -> tuple[Model, ...]:
    def fluctuation(L: float, M: float) -> Term:
        return Term("b", {"depth": L, "units": M, "embed_dim": -M})  # units count in multiples of D

    alone = Model(name="b sqrt(D/(LM))", terms=(fluctuation(-0.5, -0.5),))
    pairs = {
        "a/sqrt(L) + b sqrt(D/(LM))": (-0.5, fluctuation(-0.5, -0.5)),
        "a/L + b sqrt(D/M)": (-1.0, fluctuation(0, -0.5)),
        "a/L + b/L sqrt(D/M)": (-1.0, fluctuation(-1, -0.5)),
        "a/L + b D/(LM)": (-1.0, fluctuation(-1, -1)),
        "a/L + b D/M": (-1.0, fluctuation(0, -1)),
    }
    combines: tuple[Combine, ...] = ("sum", "quadrature")
    return alone, *(
        Model(name=name, terms=(Term("a", {"depth": power}), b), combine=combine)
        for name, (power, b) in pairs.items()
        for combine in combines
    )


# Surfaces that the theory excludes. Source: spec of the hidden width, "Rates", measured alternatives.
RIVALS = _rivals()
