"""What a simulation of X = u . v leaves behind: counts and power sums that add up, batch after batch."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Draws:
    """What ``trials`` independent draws of X leave behind; Draws of the same setting can be added.

    Attributes:
        trials: Number of draws.
        misaligned: Draws with X <= 0 (ties count).
        shift: The pivot of the power sums, near E X, so that nothing cancels.
        scale: The unit of the power sums.
        sums: Sums of ((X - shift) / scale)^r for r = 1..4, in float64.
        route: How X was drawn.
    """

    trials: int
    misaligned: int
    shift: float
    scale: float
    sums: tuple[float, float, float, float]
    route: str

    def __add__(self, other: "Draws") -> "Draws":
        """Pool two sets of draws.

        Raises:
            ValueError: If their pivots or routes differ, as they do between populations.
        """
        if (self.shift, self.scale, self.route) != (other.shift, other.scale, other.route):
            raise ValueError(
                f"Draws: cannot add draws of different settings: {self.route} about {self.shift:.6g} in units of "
                f"{self.scale:.6g}, and {other.route} about {other.shift:.6g} in units of {other.scale:.6g}."
            )
        first, second, third, fourth = (a + b for a, b in zip(self.sums, other.sums, strict=True))
        return Draws(
            trials=self.trials + other.trials,
            misaligned=self.misaligned + other.misaligned,
            shift=self.shift,
            scale=self.scale,
            sums=(first, second, third, fourth),
            route=self.route,
        )

    @property
    def frequency(self) -> float:
        """Fraction of draws with X <= 0."""
        return self.misaligned / self.trials

    def central_moment(self, order: int) -> float:
        """Return the plug-in central moment of X of order 2, 3 or 4."""
        raw = [1.0, *(s / self.trials for s in self.sums)]
        terms = (math.comb(order, r) * raw[r] * (-raw[1]) ** (order - r) for r in range(order + 1))
        return math.fsum(terms) * self.scale**order

    @property
    def mean(self) -> float:
        """Sample mean of X."""
        return self.shift + self.scale * self.sums[0] / self.trials

    @property
    def variance(self) -> float:
        """Unbiased sample variance of X; NaN for one draw."""
        return self.central_moment(2) * self.trials / (self.trials - 1) if self.trials > 1 else math.nan

    @property
    def mean_error(self) -> float:
        """Standard error of the mean."""
        return math.sqrt(self.variance / self.trials)

    @property
    def variance_error(self) -> float:
        """Standard error of the variance; of use where E X^4 is finite."""
        return math.sqrt(max(self.central_moment(4) - self.central_moment(2) ** 2, 0.0) / self.trials)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A probability estimated without hits: a mean of conditional probabilities and its standard error."""

    p: float
    standard_error: float
    trials: int
    route: str
