r"""The ResNet of two-layer perceptrons as compiled loops: one layer forward, one layer backward, and the descent.

Written for D and N of a few tens, where a layer is a handful of thin matrix products and M N values of tanh.

- Wide layers have units in the SIMD lanes, cut into blocks that stay in the cache: weights (L, blocks, D, lanes).
- Narrow layers, of at most NARROW units, have D or N there, so that nothing is summed over lanes: (L, M, lanes).
- What fills up the lanes is zero and stays zero.
- Gradients are added to the weights as they arise; the weights that come next are fetched meanwhile.
- States, adjoints and sums over blocks are float64, the rest has the dtype of the weights.

Rounding may be reordered in sums over lanes only: anywhere else it would break tanh. Importing this file needs numba.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import DTypeLike, NDArray

from .register_tiles import LANES, LINE_BYTES, combine, compiled, contract

__all__ = ["CompiledDescent", "backward_and_update", "residual"]

NARROW = 24
BLOCK_BYTES = 2048  # of one row of a block: what a layer works on at a time then fits the first two caches


def _make_tanh(dtype: type, integer: type, degree: int, saturated: float) -> Callable[[Any], Any]:
    one, two, limit = dtype(1), dtype(2), dtype(saturated)
    mantissa = np.finfo(dtype).nmant
    rounding, shift = dtype(1.5 * 2**mantissa), integer(mantissa)
    steps, step = dtype(2 / math.log(2)), dtype(math.log(2) / 2)
    taylor = tuple(dtype(2.0**k / math.factorial(k)) for k in range(degree, -1, -1))

    def tanh(x: Any) -> Any:
        # 1 - 2 / (1 + exp(2 x)) with exp(2 x) = 2^k exp(2 r). Adding 1.5 * 2^mantissa rounds to the integer k and
        # leaves it in the low bits, whence a shift moves it into the exponent. A NaN fails both comparisons and stays.
        x = limit if x > limit else x
        x = -limit if x < -limit else x
        k = x * steps + rounding
        r = x - (k - rounding) * step
        exp = taylor[0]
        for c in taylor[1:]:
            exp = exp * r + c
        exp = integer(dtype(exp).view(integer) + integer(dtype(k).view(integer) << shift)).view(dtype)
        return one - two / (one + exp)

    return tanh


_tanh_single = _make_tanh(np.float32, np.int32, degree=6, saturated=9.1)
_tanh_double = _make_tanh(np.float64, np.int64, degree=12, saturated=19.1)


def _tanh(x: Any) -> Any:
    """Within 2e-7 (float32) or 4e-16 (float64) of tanh; compiled code only."""
    raise NotImplementedError


@overload(_tanh, jit_options={"fastmath": {"contract"}, "error_model": "numpy"})
def _choose_tanh(x: Any) -> Callable[[Any], Any]:
    return _tanh_single if x == types.float32 else _tanh_double


@compiled
def _activations(T: Any, c: Any, x: Any, ahead: Any) -> None:
    """T = tanh(c x): c, x are h, U or U', h'."""
    T[:] = 0
    combine(T, c, x, ahead)
    for n in range(T.shape[0]):
        t = T[n]
        for j in range(t.shape[0]):
            t[j] = _tanh(t[j])


@compiled
def _gates(Q: Any, c: Any, x: Any, T: Any, ahead: Any) -> None:
    """Q = (1 - T^2) * (c x): c, x are b, V or V', b'."""
    Q[:] = 0
    combine(Q, c, x, ahead)
    one = T.dtype.type(1)
    for n in range(T.shape[0]):
        t, q = T[n], Q[n]
        for j in range(t.shape[0]):
            q[j] *= one - t[j] * t[j]


@compiled
def residual(F: Any, T: Any, U: Any, V: Any, h: Any, layer: int) -> None:
    """T_l = tanh(U_l' h / D) and F = sum over units of V_l T_l, for l = ``layer``.

    Shapes, wide: ``F (N, D)`` float64; in the dtype of the weights ``T (L, blocks, N, lanes)``, ``h (N, D)``, which
    comes divided by D, and ``U, V (L, blocks, D, lanes)``. Narrow, all in the dtype of the weights: ``F (N, lanes)``,
    ``T (L, M, lanes)``, ``h (lanes, D)`` by columns, and ``U, V (L, M, lanes)``.
    """
    F[:] = 0
    if U.ndim == 3:
        U_l, V_l, T_l = U[layer], V[layer], T[layer]
        _activations(T_l, U_l, h.T, U_l)
        combine(F, T_l.T, V_l, V_l)
    else:
        L, blocks = U.shape[:2]
        for k in range(blocks):
            here, ahead = (layer, k), (layer, k + 1) if k + 1 < blocks else (min(layer + 1, L - 1), 0)
            _activations(T[here], h, U[here], U[ahead])
            contract(F, T[here], V[here], V[ahead])


@compiled
def backward_and_update(G: Any, T: Any, U: Any, V: Any, b: Any, h_step: Any, b_step: Any, Q: Any, layer: int) -> None:
    """G = sum over units of U_l Q, then U_l += h_step Q' and V_l += b_step T_l', with Q = (1 - T_l^2) * (V_l' b).

    Shapes: ``G`` and ``b`` as ``F`` and ``h`` in ``residual``; ``h_step, b_step (N, D)``, narrow ``(N, lanes)``: h and
    b times minus the step sizes; ``Q`` a work space ``(N, lanes)``, narrow ``(M, lanes)``.
    """
    G[:] = 0
    if U.ndim == 3:
        U_l, V_l, T_l = U[layer], V[layer], T[layer]
        _gates(Q, V_l, b.T, T_l, T_l)
        combine(G, Q.T, U_l, U_l)
        combine(U_l, Q, h_step, U_l)
        combine(V_l, T_l, b_step, V_l)
    else:
        blocks = U.shape[1]
        for k in range(blocks):
            here, ahead = (layer, k), (layer, k + 1) if k + 1 < blocks else (max(layer - 1, 0), 0)
            _gates(Q, b, V[here], T[here], T[ahead])
            contract(G, Q, U[here], U[ahead])
            combine(U[here], h_step.T, Q, V[ahead])
            combine(V[here], b_step.T, T[here], V[ahead])


@compiled
def _add(out: Any, c: float, x: Any) -> None:
    for i in range(x.shape[0]):
        out[i] += c * x[i]


@compiled
def _scale(out: Any, c: float, x: Any) -> None:
    """Write c x to out, without the zeros that fill the rows of x."""
    rows, columns = out.shape
    for n in range(min(rows, x.shape[0])):
        for d in range(columns):
            out[n, d] = c * x[n, d]


@compiled
def _advance(state: Any, ds: float, F: Any, F_before: Any, first: bool) -> None:
    """Step from one layer to the next by Adams-Bashforth 2, the first time by Euler; F_before becomes F."""
    a, b = (1.0, 0.0) if first else (1.5, -0.5)
    for i in range(state.shape[0]):
        state[i] += ds * (a * F[i] + b * F_before[i])
        F_before[i] = F[i]


@compiled
def forward(output: Any, H: Any, T: Any, U: Any, V: Any, x: Any, ds: float, midpoint: bool, work: Any) -> None:
    """Fill ``H (L, N D)`` with the states where the layers stand, and ``output (N D)`` with x + ds sum_l F_l.

    For narrow layers, here and below, rows of D are filled up to the lanes.

    Layer l stands at l/L and leads on by Euler; with ``midpoint`` it stands at (l + 1/2)/L, after half a step of
    Euler, and leads on by Adams-Bashforth 2. ``ds`` is alpha / (L M).
    """
    h, _, _, _, F, state, F_before = work
    L, D = len(H), h.shape[1]
    flat_F = F.reshape(-1)
    for i in range(x.shape[0]):
        output[i] = state[i] = x[i]
    for node in range(-1 if midpoint else 0, L):  # -1 is the half step
        layer = max(node, 0)
        H_l = H[layer]
        for i in range(x.shape[0]):
            H_l[i] = state[i]
        _scale(h, 1 / D, state.reshape(F.shape))
        residual(F, T, U, V, h, layer)
        if node < 0:
            _add(state, ds / 2, flat_F)
        elif midpoint:
            _add(output, ds, flat_F)
            _advance(state, ds, flat_F, F_before, node == 0)
        else:
            _add(state, ds, flat_F)
    if not midpoint:
        for i in range(x.shape[0]):
            output[i] = state[i]


@compiled
def backward(adjoint: Any, H: Any, T: Any, U: Any, V: Any, ds: float, rates: Any, midpoint: bool, work: Any) -> None:
    """Carry ``adjoint (N D)`` from the output to the input, as ``forward`` mirrored, and update every layer.

    ``rates`` are (eta eta_u / alpha, eta eta_v / alpha).
    """
    b, h_step, b_step, Q, G, _, G_before = work
    L, D = len(H), b.shape[1]
    flat_h_step, flat_b_step, flat_G = h_step.reshape(-1), b_step.reshape(-1), G.reshape(-1)
    for node in range(L if midpoint else L - 1, -1, -1):  # L is the half step, without update
        layer = min(node, L - 1)
        H_l = H[layer]
        rate_u, rate_v = (rates[0] / D, rates[1]) if node < L else (0.0, 0.0)
        _scale(b, 1, adjoint.reshape(G.shape))
        for i in range(adjoint.shape[0]):
            flat_h_step[i] = -rate_u * H_l[i]
            flat_b_step[i] = -rate_v * adjoint[i]
        backward_and_update(G, T, U, V, b, h_step, b_step, Q, layer)
        if node == L:
            _add(adjoint, ds / D / 2, flat_G)
        elif midpoint:
            _advance(adjoint, ds / D, flat_G, G_before, node == L - 1)
        else:
            _add(adjoint, ds / D, flat_G)


@compiled
def mean_square(output: Any, y: Any, entries: int) -> Any:
    """Mean of (output - y)^2 over the entries, those that fill rows not counted."""
    total = 0.0
    for i in range(y.shape[0]):
        total += (output[i] - y[i]) ** 2
    return total / entries


@compiled
def descend(
    losses: Any,
    output: Any,
    H: Any,
    T: Any,
    U: Any,
    V: Any,
    x: Any,
    y: Any,
    ds: float,
    rates: Any,
    midpoint: bool,
    entries: int,
    adjoint: Any,
    work: Any,
) -> None:
    """Take ``len(losses)`` steps of gradient descent, from one forward pass (``output``, ``H``, ``T``) to another.

    ``losses[k]`` becomes the mean square of output - y after a step; the descent ends at one that is not finite.
    """
    for k in range(losses.shape[0]):
        for i in range(y.shape[0]):
            adjoint[i] = (output[i] - y[i]) / entries
        backward(adjoint, H, T, U, V, ds, rates, midpoint, work)
        forward(output, H, T, U, V, x, ds, midpoint, work)
        losses[k] = mean_square(output, y, entries)
        if not math.isfinite(losses[k]):
            break


class CompiledDescent:
    """Gradient descent of one network, held in blocks; the weights given are not changed.

    Shapes: ``U, V (L, D, M)`` in the dtype to compute in; ``X, Y (D, N)``. One network is a batch of one.

    Args:
        U: Input weights.
        V: Output weights.
        X: Inputs.
        Y: Targets.
        alpha: Residual scale.
        rates: (eta eta_u / alpha, eta eta_v / alpha).
        midpoint: Layers by Adams-Bashforth 2 at midpoints instead of Euler.
    """

    def __init__(
        self,
        U: NDArray,
        V: NDArray,
        X: NDArray,
        Y: NDArray,
        *,
        alpha: float,
        rates: tuple[float, float],
        midpoint: bool,
    ) -> None:
        (L, D, M), N, dtype = U.shape, X.shape[1], U.dtype
        if M <= NARROW:
            columns, lanes = _filled(D), _filled(N)
            self._U, self._V = (_aligned((L, M, columns), dtype) for _ in "UV")
            self._U[:, :, :D], self._V[:, :, :D] = U.swapaxes(1, 2), V.swapaxes(1, 2)
            self._T, Q = _aligned((L, M, lanes), dtype), _aligned((M, lanes), dtype)
            h, F = _aligned((D, lanes), dtype).T, _aligned((N, columns), dtype)
        else:
            columns = D
            self._U, self._V = _blocks(U), _blocks(V)
            blocks, lanes = self._U.shape[1], self._U.shape[3]
            self._T, Q = _aligned((L, blocks, N, lanes), dtype), _aligned((N, lanes), dtype)
            h, F = _aligned((N, D), dtype), np.zeros((N, D))
        self._shape, size = (N, D), N * columns
        self._H, self._output, self._adjoint = np.zeros((L, size)), np.zeros(size), np.zeros(size)
        self._x, self._y = (np.pad(A.T.astype(float), ((0, 0), (0, columns - D))).reshape(-1) for A in (X, Y))
        self._ds, self._rates, self._midpoint = alpha / (L * M), rates, midpoint
        h_step, b_step = (_aligned((N, columns), dtype) for _ in "hb")
        self._work = (h, h_step, b_step, Q, F, np.zeros(size), np.zeros(size))
        forward(self._output, self._H, self._T, self._U, self._V, self._x, self._ds, self._midpoint, self._work)

    @property
    def output(self) -> NDArray[np.float64]:
        """Output of the network as it is now."""
        N, D = self._shape
        return self._output.reshape(1, N, -1)[:, :, :D].swapaxes(1, 2).copy()

    def advance(self, steps: int) -> NDArray[np.float64]:
        """Take ``steps`` steps; return the loss after each, NaN after one that is not finite."""
        losses = np.full(steps, np.nan)
        descend(
            losses, self._output, self._H, self._T, self._U, self._V, self._x, self._y,
            self._ds, self._rates, self._midpoint, math.prod(self._shape), self._adjoint, self._work,
        )  # fmt: skip
        return losses[None]

    def update_rms(self, r: int, U: NDArray, V: NDArray) -> tuple[float, float]:
        """Root mean square of the change of the weights since they were ``U`` and ``V``."""
        return _distance(self._U, U), _distance(self._V, V)


def _aligned(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray:
    """Zeros that start at a cache line: a register loaded across two lines takes twice as long."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(size + LINE_BYTES, np.uint8)
    start = -memory.ctypes.data % LINE_BYTES
    return memory[start : start + size].view(dtype).reshape(shape)


def _filled(count: int) -> int:
    return -(-count // LANES) * LANES


def _blocks(W: NDArray) -> NDArray:
    """(L, D, M) to (L, blocks, D, lanes)."""
    L, D, M = W.shape
    blocks = -(-M * W.itemsize // BLOCK_BYTES)
    lanes = _filled(-(-M // blocks))
    out = _aligned((L, blocks, D, lanes), W.dtype)
    for k in range(blocks):
        units = W[:, :, k * lanes : (k + 1) * lanes]
        out[:, k, :, : units.shape[2]] = units
    return out


def _distance(held: NDArray, W: NDArray) -> float:
    total = 0.0
    with np.errstate(over="ignore"):  # the weights of a run about to diverge
        if held.ndim == 3:
            total += np.square(held[:, :, : W.shape[1]].swapaxes(1, 2) - W, dtype=float).sum()
        else:
            lanes = held.shape[3]
            for k in range(held.shape[1]):
                units = W[:, :, k * lanes : (k + 1) * lanes]
                total += np.square(held[:, k, :, : units.shape[2]] - units, dtype=float).sum()
    return math.sqrt(total / W.size)
