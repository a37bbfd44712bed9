r"""Sums of rows and products of rows as compiled loops, for matrices of a few tens of rows.

Lanes, the columns, come in multiples of LANES, so a row is a whole number of SIMD registers. Both products go by tiles
whose factors or sums stay in registers: sums of rows by 5 rows and 5 terms, products summed over lanes by 2 rows and 5.
Rounding may be reordered in sums over lanes only. Importing this file needs numba.
"""

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core.cgutils import for_range_slice, get_item_pointer
from numba.extending import intrinsic

__all__ = ["LANES", "LINE_BYTES", "combine", "compiled", "contract"]

LANES = 16  # a multiple of what a SIMD register holds; the compiler has to know it
LINE_BYTES = 64  # a cache line, and the widest SIMD register

# Without reference counts: they would cost more than the arithmetic of a narrow layer. So nothing is allocated here.
_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "_nrt": False}
compiled = njit(fastmath={"contract"}, **_OPTIONS)
_compiled_sums = njit(fastmath={"contract", "reassoc", "nsz"}, **_OPTIONS)


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


@compiled
def _fetch_rows(x: Any, start: int, stop: int) -> None:
    for i in range(start, min(stop, x.shape[0])):
        for j in range(0, x.shape[1], LINE_BYTES // x.itemsize):
            _fetch(x[i], j)


def _make_tile(rows: int, terms: int) -> Any:
    """Compiled tile(out, c, x, i, r): out_i += sum_r c_ir x_r, for ``rows`` rows from i and ``terms`` terms from r.

    Written in vectors: numba would check whether the rows overlap, for each tile anew and longer than it computes.
    """

    def tile(typing: Any, out: Any, c: Any, x: Any, i: Any, r: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kinds = signature.args[:3]
            arrays = [
                context.make_array(kind)(context, builder, a) for kind, a in zip(kinds, arguments[:3], strict=True)
            ]
            lanes = ir.VectorType(context.get_value_type(out.dtype), LANES)
            alignment = context.get_abi_sizeof(lanes.element)
            everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)

            def address(which: int, row: Any, column: Any) -> Any:
                return get_item_pointer(context, builder, kinds[which], arrays[which], [row, column])

            def line(which: int, row: Any, j: Any) -> Any:
                return builder.bitcast(address(which, row, j), lanes.as_pointer())

            def factor(row: Any, term: Any) -> Any:
                number = builder.load(address(1, row, term))
                first = builder.insert_element(ir.Constant(lanes, ir.Undefined), number, ir.IntType(32)(0))
                return builder.shuffle_vector(first, first, everywhere)

            some_i = [builder.add(arguments[3], arguments[3].type(n)) for n in range(rows)]
            some_r = [builder.add(arguments[4], arguments[4].type(n)) for n in range(terms)]
            factors = [[factor(i, r) for r in some_r] for i in some_i]
            stop = builder.extract_value(arrays[0].shape, 1)
            with for_range_slice(builder, stop.type(0), stop, stop.type(LANES)) as (j, _):
                x_lines = [builder.load(line(2, r, j), align=alignment) for r in some_r]
                for i, factors_i in zip(some_i, factors, strict=True):
                    out_line = line(0, i, j)
                    total = builder.load(out_line, align=alignment)
                    for c_ir, x_r in zip(factors_i, x_lines, strict=True):
                        total = builder.fadd(total, builder.fmul(c_ir, x_r, flags=["contract"]), flags=["contract"])
                    builder.store(total, out_line, align=alignment)
            return context.get_dummy_value()

        return types.void(out, c, x, i, r), generate

    return intrinsic(tile)


_tile_5_5: Any = _make_tile(5, 5)
_tile_5_1: Any = _make_tile(5, 1)
_tile_1_5: Any = _make_tile(1, 5)
_tile_1_1: Any = _make_tile(1, 1)


@compiled
def combine(out: Any, c: Any, x: Any, ahead: Any) -> None:
    """Add sums of rows, out_i += sum_r c_ir x_r for all rows of out and x, and fetch ``ahead`` on the way."""
    rows, terms = out.shape[0], x.shape[0]
    rows_by_five, terms_by_five = rows - rows % 5, terms - terms % 5
    fetching = ahead.shape[1] >= 4 * LANES  # narrower layers stay in the cache anyway
    for r in range(0, terms_by_five, 5):
        for i in range(0, rows_by_five, 5):
            if fetching and r == 0:
                _fetch_rows(ahead, i, i + 5)
            _tile_5_5(out, c, x, i, r)
        for i in range(rows_by_five, rows):
            _tile_1_5(out, c, x, i, r)
    for r in range(terms_by_five, terms):
        for i in range(0, rows_by_five, 5):
            _tile_5_1(out, c, x, i, r)
        for i in range(rows_by_five, rows):
            _tile_1_1(out, c, x, i, r)


@_compiled_sums
def contract(out: Any, x: Any, y: Any, ahead: Any) -> None:
    """Add products summed over lanes, out_ik += <x_i, y_k>, and fetch ``ahead`` on the way."""
    rows, columns = out.shape
    pairs, fives = rows - rows % 2, columns - columns % 5
    zero = x.dtype.type(0)
    fetching = ahead.shape[1] >= 4 * LANES
    for i in range(0, pairs, 2):
        if fetching:
            _fetch_rows(ahead, i, i + 2)
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
