"""Finite ResNets: the author's grid against the numpy port, share of the GEMM peak, memory.

The grid is L and M each in floor(10^linspace(0, 2.5, 10)), D = N = 10, 5 repeats, K = 100 steps; float32 where it is
safe (L M >= 138), else float64. Ours is run in full, weights drawn included; of the numpy port a few steps per shape
are timed and scaled up, its steps being alike.

Alone: ``python tests/bench/bench_ensembles.py``; ``make bench`` collects ``bench()``.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from rescert.sim.ensembles import Descent, FiniteJob, Shape, data, init_parameters, train_ensemble, train_parameters
from rescert.sim.perceptron_kernel import CompiledDescent
from rescert.sim.rng import generator
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parents[1]))
from resnet_oracle import NumpyResNet

D = N = 10
SIDES = np.floor(10 ** np.linspace(0, 2.5, 10)).astype(int)
REPEATS, STEPS = 5, 100
CORES = len(os.sched_getaffinity(0))
X, Y = data(D, N, np.random.default_rng(2))


def grid():
    descent = Descent(X=X, Y=Y, steps=STEPS)
    return [
        FiniteJob(
            shape=Shape(depth=L, units=M, embed_dim=D),
            descent=descent,
            rng=generator(0, "bench", i, j, r),
            dtype="float32" if L * M >= 138 else "float64",
        )
        for i, L in enumerate(SIDES)
        for j, M in enumerate(SIDES)
        for r in range(REPEATS)
    ]


def seconds_of_grid(threads, clock):
    start = clock()
    runs = train_ensemble(grid(), threads=threads)
    assert not any(run.diverged for run in runs)
    return clock() - start


def seconds_of_port(clock):
    total = 0.0
    for L in SIDES:
        for M in SIDES:
            start = clock()
            net = NumpyResNet(*init_parameters(Shape(depth=L, units=M, embed_dim=D), generator(0, "bench")), X, Y)
            net.train(0)
            drawn = clock()
            steps = max(2, int(300 / (L * (1 + M / 50))))
            net.train(steps)
            total += REPEATS * (drawn - start + STEPS * (clock() - drawn) / (steps + 1))
    return total


def speed():
    seconds_of_grid(1, time.process_time)  # compiled and cached
    with threadpool_limits(1):
        port, ours = seconds_of_port(time.process_time), seconds_of_grid(1, time.process_time)
    port_wall, ours_wall = seconds_of_port(time.perf_counter), seconds_of_grid(CORES, time.perf_counter)
    about = f"numpy port, float64, per layer, {len(SIDES) ** 2} shapes x {REPEATS} x {STEPS} steps"
    return {
        f"Fig-2 grid on {CORES} cores": {
            "ratio": port_wall / ours_wall,
            "baseline": f"{about}, wall time, BLAS on every core: {port_wall:.1f} s, ours {ours_wall:.2f} s",
            "goal": 12.0,
            "unit": "x",
        },
        "Fig-2 grid, one thread each": {
            "ratio": port / ours,
            "baseline": f"{about}, processor time: {port:.1f} s, ours {ours:.2f} s",
            "goal": 12.0,
            "unit": "x",
        },
    }


def share_of_peak(size=1000, side=1500):
    """12 L M D N operations a step over the time of a step, over the rate of a float32 GEMM, the best of each."""
    U, V = init_parameters(Shape(depth=size, units=size, embed_dim=D), generator(0, "peak"), dtype="float32")
    running = CompiledDescent(U, V, X, Y, alpha=1.0, rates=(float(D), float(D)), midpoint=False)
    A = generator(0, "gemm").standard_normal((side, side), np.float32)
    step, gemm = np.inf, np.inf
    with threadpool_limits(1):
        for _ in range(12):
            start = time.process_time()
            running.advance(2)
            between = time.process_time()
            A @ A
            step, gemm = min(step, (between - start) / 2), min(gemm, time.process_time() - between)
    peak = 2 * side**3 / gemm
    return {
        "step at L=M=1000, share of GEMM peak": {
            "value": 12 * size * size * D * N / step / peak,
            "baseline": f"float32, one thread: {step * 1e3:.1f} ms a step; GEMM {peak / 1e9:.0f} GFLOP/s",
            "goal": 0.30,
            "unit": "",
        }
    }


def memory(size=1000):
    code = f"""
import numpy as np
from rescert.sim.ensembles import Shape, data, train_finite
X, Y = data({D}, {N}, np.random.default_rng(2))
train_finite(Shape(depth={size}, units={size}, embed_dim={D}), X, Y, steps=2, rng=np.random.default_rng(0))
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    kilobytes = int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    return {
        "memory at L=M=1000": {
            "value": kilobytes * 1024 / 1e6,
            "baseline": "float32, peak resident size of the whole process",
            "goal": 500.0,
            "unit": "MB",
        }
    }


def bench() -> dict[str, dict]:
    """Measure everything."""
    train_parameters(*init_parameters(Shape(depth=1, units=1, embed_dim=D), generator(0)), Descent(X=X, Y=Y, steps=1))
    return speed() | share_of_peak() | memory()


if __name__ == "__main__":
    print(json.dumps(bench(), indent=1))
