"""rescert: certificates for width, depth and hidden width of residual networks.

The names below load on first use, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import Any

from .version import VERSION as __version__

_HOMES = {
    "bound": "verify.bounds.ask",
    "check": "verify.bounds.check",
    "Claim": "theory.claims",
    "Kind": "theory.claims",
    "Quantity": "theory.claims",
    "find_claim": "theory.registry",
    "samples_needed": "theory.alignment",
    "build_population": "sim.populations",
    "simulate": "sim.misalignment",
    "collect_gradients": "models.gradients",
    "gram_summary": "verify.estimators",
    "estimate": "verify.estimators",
    "alignment_interval": "verify.certificates",
    "certificate": "verify.certificates",
    "direct_certificate": "verify.certificates",
}
_NAMES = {"find_claim": "find", "build_population": "build", "collect_gradients": "collect"}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    """Load a public name from its home."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), _NAMES.get(name, name))


def __dir__() -> list[str]:
    return sorted(__all__)
