"""Claims on the misalignment: how they are searched, and how a counterexample is confirmed."""

from .counterexample import confirm
from .search import search

__all__ = ["confirm", "search"]
