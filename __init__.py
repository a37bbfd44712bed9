"""rescert: certificates for width, depth and hidden width of residual networks."""

from .version import VERSION as __version__

__all__ = ["__version__"]
