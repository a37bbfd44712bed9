"""The quantity ``resnet_error``: how far a finite ResNet is from its limit, as a law with constants of its own.

It is ``output_error`` of ``theory/rates.py``, with more letters: the output after 10 gradient steps, less that of the
Neural Mean ODE of the same D and alpha. A law is a sum of terms, each a constant times powers of L, M, D and alpha.

A claim of kind RATE says that for some constants, at least 0 and the same at every shape, the error is the law: up to a
tolerance for terms of higher order, and with the terms added as written or in quadrature, since bias and fluctuation
add in quadrature and the two differ by a constant factor at most. A constant that comes out as 0 is no violation: that
term is reported as not needed. A law without D, or without alpha, is one at D = 10, or alpha = 1.
Source: [hidden-width], error bounds.
"""

import dataclasses

import numpy as np

from ...theory.claims import Kind
from ...theory.rates import OUTPUT_ERROR
from .target import Points, Target


def _points(rng: np.random.Generator, count: int) -> Points:
    sizes = {"L": 7, "M_units": 12, "D": 7}
    powers = {name: np.floor(2 ** rng.uniform(0, most, size=count)) for name, most in sizes.items()}
    constants = {name: rng.uniform(0.01, 10, size=count) for name in ("c_bias", "c_noise", "c_lazy", "c_embed")}
    return powers | {"alpha": 2 ** rng.uniform(0, 5, size=count)} | constants


TARGET = Target(
    quantity=dataclasses.replace(
        OUTPUT_ERROR,
        id="resnet_error",
        meaning=f"{OUTPUT_ERROR.meaning}, after 10 gradient steps, for some constants c",
        symbols=("L", "M_units", "D", "alpha", "c_bias", "c_noise", "c_lazy", "c_embed"),
    ),
    kinds=(Kind.RATE,),
    points=_points,
    home="rate_search",
    spellings={"M": "M_units", "c1": "c_bias", "c2": "c_noise", "c3": "c_lazy", "c4": "c_embed"},
    limits=(0.0, np.inf),
)
