"""Named random streams: a stream is known by what it is for, so adding or reordering work changes no other draw."""

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def _digest(root: int, path: tuple[str | int, ...]) -> bytes:
    return hashlib.sha256(repr((root, *path)).encode()).digest()


def generator(root: int, *path: str | int) -> np.random.Generator:
    """Return the NumPy stream called ``path`` under the seed ``root``."""
    return np.random.Generator(np.random.SFC64(int.from_bytes(_digest(root, path)[:16], "big")))


def torch_generator(root: int, *path: str | int, device: str = "cpu") -> "torch.Generator":
    """Return the torch stream called ``path`` under the seed ``root``."""
    import torch  # seconds, where NumPy's streams do

    return torch.Generator(device).manual_seed(int.from_bytes(_digest(root, path)[:8], "big") >> 1)
