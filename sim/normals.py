"""Fast normal draws in float32, and the blocks in which large draws are made."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray


def row_blocks(count: int, width: int, *, elements: int = 2**21) -> Iterator[slice]:
    """Cut ``count`` rows of ``width`` entries into slices of at most ``elements`` entries (at least one row)."""
    rows = max(1, elements // max(1, width))
    for start in range(0, count, rows):
        yield slice(start, min(start + rows, count))


def standard_normal(shape: tuple[int, ...], rng: np.random.Generator, dtype: DTypeLike = np.float64) -> NDArray:
    """Draw standard normals; in float32 by a vectorised Box-Muller transform of the generator's own bits.

    In float32 this is twice as fast as ``Generator.standard_normal`` and no slower than ``Tensor.normal_``, whose
    generator keeps only 32 bits of a seed. The radius comes from 31 bits and a half-step offset: |z| <= 6.7, against
    the 5.8 of 24-bit uniforms.
    """
    if np.dtype(dtype) == np.float64:
        return rng.standard_normal(shape)
    size = math.prod(shape)
    z = torch.empty(size + size % 2, dtype=torch.float32)
    for pair in z.split(2**16):  # bits, radius, angle and result of one piece stay in the cache
        half = pair.numel() // 2
        bits = torch.from_numpy(rng.integers(-(2**63), 2**63, dtype=np.int64, size=half).view(np.int32))
        radius = bits[:half].to(torch.float32).abs_().add_(0.5).mul_(2.0**-31).log_().mul_(-2.0).sqrt_()
        angle = bits[half:].to(torch.float32).mul_(math.pi * 2.0**-31)
        torch.cos(angle, out=pair[:half]).mul_(radius)
        torch.sin(angle, out=pair[half:]).mul_(radius)
    return z[:size].view(shape).numpy()


def scale_rows(z: NDArray, *factors: NDArray) -> NDArray:
    """Multiply z by broadcast factors in place; torch does it at twice the speed of numpy."""
    out = torch.from_numpy(z)
    for factor in factors:
        out.mul_(torch.from_numpy(factor.astype(z.dtype)))
    return z
