"""Residual networks, insertion points, activation gradients and data."""
