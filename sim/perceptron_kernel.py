r"""The ResNet of two-layer perceptrons as compiled loops: one layer forward, one layer backward, and the descent.

Written for D and N of a few tens, where a layer is a handful of thin matrix products and M N values of tanh:

- units lie in the SIMD lanes and are cut into blocks that stay in the cache: weights are (L, blocks, D, lanes), units
  added to fill the last block are zero and stay zero;
- both kinds of product, sums of rows and products summed over lanes, go by register tiles of 2 rows by 5;
- gradients are added to the weights as they arise; the weights that come next are fetched meanwhile;
- states, adjoints and sums over blocks are float64, the rest has the dtype of the weights.

Rounding may be reordered in sums over lanes only: anywhere else it would break tanh. Importing this file needs numba.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload
from numpy.typing import DTypeLike, NDArray

__all__ = ["CompiledDescent", "backward_and_update", "residual"]

LINE_BYTES = 64  # a cache line, and the widest SIMD register
BLOCK_BYTES = 2048  # of one row of a block: what a layer works on at a time then fits the first two caches

# Without reference counts: they would cost more than the arithmetic of a narrow layer. So nothing is allocated here.
_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "_nrt": False}
_compiled = njit(fastmath={"contract"}, **_OPTIONS)
_compiled_sums = njit(fastmath={"contract", "reassoc", "nsz"}, **_OPTIONS)


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
        exp = dtype(0)
        for c in taylor:
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


def _fetch_call(typing: Any, row: Any, j: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(start, [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
        builder.call(prefetch, [address, number(0), number(2), number(1)])  # to read, into the second-level cache, data
        return context.get_dummy_value()

    return types.void(row, j), generate


# _fetch(row, j) asks for the cache line of row[j]: weights come from memory, and the hardware looks ahead too little.
_fetch: Any = intrinsic(_fetch_call)


@_compiled
def _fetch_pair(x: Any, i: int) -> None:
    line = LINE_BYTES // x.itemsize
    if x.shape[1] >= 4 * line:  # narrower layers stay in the cache anyway
        for row in range(i, min(i + 2, x.shape[0])):
            x_row = x[row]
            for j in range(0, x_row.shape[0], line):
                _fetch(x_row, j)


@_compiled
def _combine(out: Any, c: Any, x: Any, ahead: Any) -> None:
    """Add sums of rows, out_i += sum_r c_ir x_r, and fetch the rows of ``ahead`` on the way."""
    rows, terms = c.shape
    pairs, fives = rows - rows % 2, terms - terms % 5
    for r in range(0, fives, 5):
        x0, x1, x2, x3, x4 = x[r], x[r + 1], x[r + 2], x[r + 3], x[r + 4]
        for i in range(0, pairs, 2):
            if r == 0:
                _fetch_pair(ahead, i)
            out_a, out_b = out[i], out[i + 1]
            a0, a1, a2, a3, a4 = c[i, r], c[i, r + 1], c[i, r + 2], c[i, r + 3], c[i, r + 4]
            b0, b1, b2, b3, b4 = c[i + 1, r], c[i + 1, r + 1], c[i + 1, r + 2], c[i + 1, r + 3], c[i + 1, r + 4]
            for j in range(out_a.shape[0]):
                y0, y1, y2, y3, y4 = x0[j], x1[j], x2[j], x3[j], x4[j]
                out_a[j] += (a0 * y0 + a1 * y1) + (a2 * y2 + (a3 * y3 + a4 * y4))
                out_b[j] += (b0 * y0 + b1 * y1) + (b2 * y2 + (b3 * y3 + b4 * y4))
    for i in range(rows):
        out_i = out[i]
        for r in range(fives if i < pairs else 0, terms):
            c_ir, x_r = c[i, r], x[r]
            for j in range(out_i.shape[0]):
                out_i[j] += c_ir * x_r[j]


@_compiled_sums
def _contract(out: Any, x: Any, y: Any, ahead: Any) -> None:
    """Add products summed over lanes, out_ik += <x_i, y_k>, and fetch the rows of ``ahead`` on the way."""
    rows, columns = out.shape
    pairs, fives = rows - rows % 2, columns - columns % 5
    zero = x.dtype.type(0)
    for i in range(0, pairs, 2):
        _fetch_pair(ahead, i)
        x_a, x_b = x[i], x[i + 1]
        for k in range(0, fives, 5):
            y0, y1, y2, y3, y4 = y[k], y[k + 1], y[k + 2], y[k + 3], y[k + 4]
            a0 = a1 = a2 = a3 = a4 = b0 = b1 = b2 = b3 = b4 = zero
            for j in range(x_a.shape[0]):
                a, b = x_a[j], x_b[j]
                z0, z1, z2, z3, z4 = y0[j], y1[j], y2[j], y3[j], y4[j]
                a0, a1, a2, a3, a4 = a0 + a * z0, a1 + a * z1, a2 + a * z2, a3 + a * z3, a4 + a * z4
                b0, b1, b2, b3, b4 = b0 + b * z0, b1 + b * z1, b2 + b * z2, b3 + b * z3, b4 + b * z4
            for q, (sum_a, sum_b) in enumerate(((a0, b0), (a1, b1), (a2, b2), (a3, b3), (a4, b4))):
                out[i, k + q] += sum_a
                out[i + 1, k + q] += sum_b
    for i in range(rows):
        for k in range(fives if i < pairs else 0, columns):
            x_i, y_k, total = x[i], y[k], zero
            for j in range(x_i.shape[0]):
                total += x_i[j] * y_k[j]
            out[i, k] += total


@_compiled
def _activations(T: Any, h: Any, U: Any, ahead: Any) -> None:
    """T = tanh(P), P = h U."""
    T[:] = 0
    _combine(T, h, U, ahead)
    for n in range(T.shape[0]):
        t = T[n]
        for j in range(t.shape[0]):
            t[j] = _tanh(t[j])


@_compiled
def _gates(Q: Any, b: Any, V: Any, T: Any, ahead: Any) -> None:
    """Q = sech^2(P) * (b V), from T = tanh(P)."""
    Q[:] = 0
    _combine(Q, b, V, ahead)
    one = T.dtype.type(1)
    for n in range(T.shape[0]):
        t, q = T[n], Q[n]
        for j in range(t.shape[0]):
            q[j] *= one - t[j] * t[j]


@_compiled
def residual(F: Any, T: Any, U: Any, V: Any, h: Any, layer: int) -> None:
    """T_l = tanh(U_l' h / D) and F = sum over units of V_l T_l, for l = ``layer``.

    Shapes: ``F (N, D)`` float64; in the dtype of the weights ``T (L, blocks, N, lanes)``, ``h (N, D)``, which comes
    divided by D, and ``U, V (L, blocks, D, lanes)``.
    """
    L, blocks = U.shape[:2]
    F[:] = 0
    for k in range(blocks):
        here, ahead = (layer, k), (layer, k + 1) if k + 1 < blocks else (min(layer + 1, L - 1), 0)
        _activations(T[here], h, U[here], U[ahead])
        _contract(F, T[here], V[here], V[ahead])


@_compiled
def backward_and_update(G: Any, T: Any, U: Any, V: Any, b: Any, h_step: Any, b_step: Any, Q: Any, layer: int) -> None:
    """G = sum over units of U_l Q, then U_l += h_step Q' and V_l += b_step T_l', with Q = (1 - T_l^2) * (V_l' b).

    Shapes: as in ``residual``; ``b (N, D)``; ``h_step, b_step (N, D)``: h and b times minus the step sizes; ``Q`` a
    work space ``(N, lanes)``.
    """
    blocks = U.shape[1]
    G[:] = 0
    for k in range(blocks):
        here, ahead = (layer, k), (layer, k + 1) if k + 1 < blocks else (max(layer - 1, 0), 0)
        _gates(Q, b, V[here], T[here], T[ahead])
        _contract(G, Q, U[here], U[ahead])
        _combine(U[here], h_step.T, Q, V[ahead])
        _combine(V[here], b_step.T, T[here], V[ahead])


@_compiled
def _add(out: Any, c: float, x: Any) -> None:
    for i in range(x.shape[0]):
        out[i] += c * x[i]


@_compiled
def _advance(state: Any, ds: float, F: Any, F_before: Any, euler: bool) -> None:
    """Step from one layer to the next, by Euler or by Adams-Bashforth 2; F_before becomes F."""
    a, b = (1.0, 0.0) if euler else (1.5, -0.5)
    for i in range(state.shape[0]):
        state[i] += ds * (a * F[i] + b * F_before[i])
        F_before[i] = F[i]


@_compiled
def forward(output: Any, H: Any, T: Any, U: Any, V: Any, x: Any, ds: float, midpoint: bool, work: Any) -> None:
    """Fill ``H (L, N D)`` with the states where the layers stand, and ``output (N D)`` with x + ds sum_l F_l.

    Layer l stands at l/L and leads on by Euler; with ``midpoint`` it stands at (l + 1/2)/L, after half a step of
    Euler, and leads on by Adams-Bashforth 2. ``ds`` is alpha / (L M).
    """
    L, _, D, _ = U.shape
    h, _, _, _, F, state, F_before = work
    flat_h, flat_F, one_over_D = h.reshape(-1), F.reshape(-1), 1 / D
    for i in range(x.shape[0]):
        state[i] = output[i] = x[i]
    for node in range(-1 if midpoint else 0, L):  # -1 is the half step
        layer = max(node, 0)
        H_l = H[layer]
        for i in range(x.shape[0]):
            H_l[i] = state[i]
            flat_h[i] = one_over_D * state[i]
        residual(F, T, U, V, h, layer)
        if node < 0:
            _add(state, ds / 2, flat_F)
        else:
            _add(output, ds, flat_F)
            _advance(state, ds, flat_F, F_before, node == 0 or not midpoint)


@_compiled
def backward(adjoint: Any, H: Any, T: Any, U: Any, V: Any, ds: float, rates: Any, midpoint: bool, work: Any) -> None:
    """Carry ``adjoint (N D)`` from the output to the input, as ``forward`` mirrored, and update every layer.

    ``rates`` are (eta eta_u / alpha, eta eta_v / alpha).
    """
    L, _, D, _ = U.shape
    b, h_step, b_step, Q, G, _, G_before = work
    flat_b, flat_h_step, flat_b_step, flat_G = b.reshape(-1), h_step.reshape(-1), b_step.reshape(-1), G.reshape(-1)
    for node in range(L if midpoint else L - 1, -1, -1):  # L is the half step, without update
        layer = min(node, L - 1)
        H_l = H[layer]
        rate_u, rate_v = (rates[0] / D, rates[1]) if node < L else (0.0, 0.0)
        for i in range(adjoint.shape[0]):
            flat_b[i] = adjoint[i]
            flat_h_step[i] = -rate_u * H_l[i]
            flat_b_step[i] = -rate_v * adjoint[i]
        backward_and_update(G, T, U, V, b, h_step, b_step, Q, layer)
        if node == L:
            _add(adjoint, ds / D / 2, flat_G)
        else:
            _advance(adjoint, ds / D, flat_G, G_before, node == L - 1 or not midpoint)


@_compiled
def mean_square(output: Any, y: Any) -> Any:
    """Mean of (output - y)^2 over the entries."""
    total = 0.0
    for i in range(y.shape[0]):
        total += (output[i] - y[i]) ** 2
    return total / y.shape[0]


@_compiled
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
    adjoint: Any,
    work: Any,
) -> None:
    """Take ``len(losses)`` steps of gradient descent, from one forward pass (``output``, ``H``, ``T``) to another.

    ``losses[k]`` becomes the mean square of output - y after a step; the descent ends at one that is not finite.
    """
    for k in range(losses.shape[0]):
        for i in range(y.shape[0]):
            adjoint[i] = (output[i] - y[i]) / y.shape[0]
        backward(adjoint, H, T, U, V, ds, rates, midpoint, work)
        forward(output, H, T, U, V, x, ds, midpoint, work)
        losses[k] = mean_square(output, y)
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
        self._U, self._V = _blocks(U), _blocks(V)
        blocks, lanes = self._U.shape[1], self._U.shape[3]
        self._T = _aligned((L, blocks, N, lanes), dtype)
        self._H, self._output, self._adjoint = np.zeros((L, N * D)), np.zeros(N * D), np.zeros(N * D)
        self._x, self._y = (np.ascontiguousarray(A.T, float).reshape(-1) for A in (X, Y))
        self._ds, self._rates, self._midpoint = alpha / (L * M), rates, midpoint
        b, h_step, b_step = np.zeros((3, N, D), dtype)
        F, state, F_before = np.zeros((N, D)), np.zeros(N * D), np.zeros(N * D)
        self._work = (b, h_step, b_step, _aligned((N, lanes), dtype), F, state, F_before)
        forward(self._output, self._H, self._T, self._U, self._V, self._x, self._ds, self._midpoint, self._work)

    @property
    def output(self) -> NDArray[np.float64]:
        """Output of the network as it is now."""
        return self._output.reshape(1, *self._work[0].shape).swapaxes(1, 2).copy()

    def advance(self, steps: int) -> NDArray[np.float64]:
        """Take ``steps`` steps; return the loss after each, NaN after one that is not finite."""
        losses = np.full(steps, np.nan)
        descend(
            losses, self._output, self._H, self._T, self._U, self._V, self._x, self._y,
            self._ds, self._rates, self._midpoint, self._adjoint, self._work,
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


def _blocks(W: NDArray) -> NDArray:
    """(L, D, M) to (L, blocks, D, lanes)."""
    L, D, M = W.shape
    line = LINE_BYTES // W.itemsize
    blocks = -(-M * W.itemsize // BLOCK_BYTES)
    lanes = -(-M // (blocks * line)) * line
    out = _aligned((L, blocks, D, lanes), W.dtype)
    for k in range(blocks):
        units = W[:, :, k * lanes : (k + 1) * lanes]
        out[:, k, :, : units.shape[2]] = units
    return out


def _distance(blocks: NDArray, W: NDArray) -> float:
    lanes, total = blocks.shape[3], 0.0
    for k in range(blocks.shape[1]):
        units = W[:, :, k * lanes : (k + 1) * lanes]
        total += np.square(blocks[:, k, :, : units.shape[2]] - units, dtype=float).sum()
    return math.sqrt(total / W.size)
