"""What the alignment suite runs under each preset: populations, grids, draws and networks."""

from dataclasses import dataclass
from typing import Any

Sizes = tuple[tuple[int, int], ...]

# Laws that reach, or nearly reach, B_exact, each at the sample sizes where it does: fractions decide them.
EXTREMAL: tuple[tuple[dict[str, Any], Sizes], ...] = (
    ({"name": "bernoulli", "pi": "1/2"}, ((1, 1), (1, 3), (2, 2), (4, 4))),
    ({"name": "bernoulli", "pi": "4/5"}, ((1, 1), (1, 3), (2, 2), (4, 4))),
    ({"name": "bernoulli", "pi": "99/100"}, ((1, 1), (2, 2), (4, 4))),
    ({"name": "bernoulli", "pi": "1/5"}, ((2, 2),)),
    ({"name": "bernoulli", "pi": "3/100"}, ((4, 4),)),
    ({"name": "bernoulli", "pi": "1/100"}, ((8, 8),)),
    ({"name": "bernoulli", "pi": "3/1000"}, ((16, 16),)),
    ({"name": "rare-atom", "M": 4, "eps": "1/1000"}, ((4, 4),)),
    ({"name": "rare-atom", "M": 16, "eps": "1/1000000"}, ((16, 16),)),
    ({"name": "rare-atom-2d", "M": 2, "eps": "1/36"}, ((2, 2),)),
    ({"name": "rare-atom-2d", "M": 4, "eps": "1/400"}, ((4, 4),)),
    ({"name": "rare-atom-2d", "M": 16, "eps": "1/2500"}, ((16, 16),)),
    ({"name": "rare-atom-2d", "M": 64, "eps": "1/40000"}, ((64, 64),)),
    ({"name": "lattice", "dim": 2}, ((1, 1), (2, 3), (4, 4))),
    ({"name": "lattice", "dim": 3}, ((1, 2), (3, 3))),
)


@dataclass(frozen=True, kw_only=True)
class NetworkStudy:
    """Trained ResNets: every width with every seed, probed at every site.

    ``grid`` must let the misalignment fall from about .5 to about .01; ``direct`` holds the (M, K) of the
    distribution-free certificate, which needs M + K samples a group.
    """

    data: str
    pool: int
    sizes: tuple[int, int, int]
    widths: tuple[float, ...]
    seeds: int
    steps: int
    batch_size: int
    lr: float
    optimiser: str
    sites: tuple[str, ...] = ("layer1.2", "layer2.2", "layer3.2")
    depth: int = 20
    grid: Sizes = tuple((m, m) for m in (1, 4, 16, 64, 256, 1024))
    trials: int = 4000
    level: float = 0.95
    direct: Sizes = ((1, 1), (4, 4), (16, 16))


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One size of the suite.

    Attributes:
        dims: Widths N of the continuous populations.
        d_aligns: Their effective alignment dimensions.
        sizes: Pairs (M, K).
        rounds: Draws of the successive looks at a simulated cell; a cell decided early stops early.
        identity_rounds: Draws of the successive looks at the mean and the variance of X.
        networks: The trained networks.
    """

    dims: tuple[int, ...]
    d_aligns: tuple[float, ...]
    sizes: Sizes
    rounds: tuple[int, ...]
    identity_rounds: tuple[int, ...]
    networks: NetworkStudy


def _diagonal(*counts: int) -> Sizes:
    return tuple((m, m) for m in counts)


PRESETS = {
    "quick": Preset(
        dims=(64,),
        d_aligns=(0.25,),
        sizes=(*_diagonal(1, 2, 4, 8, 16, 32, 64), (1, 16), (16, 1), (8, 64)),
        rounds=(20_000, 80_000, 400_000),
        identity_rounds=(2_000_000, 6_000_000, 24_000_000),
        networks=NetworkStudy(
            data="mnist-5k",
            pool=2,
            sizes=(2000, 2048, 500),
            widths=(0.25, 0.5, 1.0, 1.5),
            seeds=2,
            steps=60,
            batch_size=64,
            lr=1e-3,
            optimiser="adamw",
        ),
    ),
    "paper": Preset(
        dims=(16, 256, 1024),
        d_aligns=(0.05, 1.0),
        sizes=(*_diagonal(1, 2, 4, 8, 16, 32, 64, 128), (1, 16), (16, 1), (8, 64), (64, 8)),
        rounds=(20_000, 80_000, 400_000, 2_000_000),
        identity_rounds=(2_000_000, 6_000_000, 24_000_000, 100_000_000),
        networks=NetworkStudy(
            data="mnist-5k",
            pool=1,
            sizes=(2000, 2500, 500),
            widths=(0.25, 0.5, 1.0, 2.0),
            seeds=3,
            steps=300,
            batch_size=64,
            lr=1e-3,
            optimiser="adamw",
            trials=20_000,
        ),
    ),
    "full": Preset(
        dims=(4, 16, 64, 256, 1024),
        d_aligns=(0.01, 0.1, 1.0, 10.0),
        sizes=(*_diagonal(1, 2, 4, 8, 16, 32, 64, 128, 256), (1, 16), (16, 1), (8, 64), (64, 8), (1, 256)),
        rounds=(20_000, 80_000, 400_000, 2_000_000, 10_000_000),
        identity_rounds=(2_000_000, 6_000_000, 24_000_000, 100_000_000),
        networks=NetworkStudy(
            data="mnist-5k",
            pool=1,
            sizes=(2000, 2500, 500),
            widths=(0.25, 0.5, 1.0, 2.0, 4.0),
            seeds=5,
            steps=1000,
            batch_size=64,
            lr=1e-3,
            optimiser="adamw",
            trials=50_000,
        ),
    ),
}
