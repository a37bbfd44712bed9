"""The simulations behind the rate report as jobs: a shape or a study in, outputs and errors out."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..theory.mean_ode import Scaling
from . import mean_ode, tangent_ode
from .embedded_resnet import EmbeddedDescent
from .ensembles import Descent, FiniteJob, Shape, data, train_ensemble, train_parameters
from .particles import draw_particles
from .records import Result
from .rng import generator

# Below this many units, 100 steps are chaotic in float32 (spec, "Speed"); 10 steps are safe everywhere.
SAFE_UNITS, SAFE_STEPS = 138, 10
# Networks trained at once for the correlations: a matter of memory only.
BATCH = 250


def finite(params: dict[str, Any], seed: int) -> Result:
    """Train all repeats of one shape.

    Args:
        params: ``depth``, ``units``, ``embed_dim``, ``samples``, ``steps``, ``record``, ``repeats``, ``data_seed``, and
            either ``alpha`` or ``S`` (the initial residual scale over the critical one). Optional ``eta`` and
            ``train_v`` (False keeps V as it is).
        seed: Root of the initial weights.

    Returns:
        ``losses`` (mean over the runs that did not diverge), ``diverged`` (one a repeat), ``update_rms`` and
        ``loss_change`` of each repeat; arrays ``output_<k>`` (repeats, D, N), NaN where a run diverged.
    """
    shape = {name: params[name] for name in ("depth", "units", "embed_dim")}
    scaling = _scaling(params, shape)
    X, Y = _data(params)
    descent = Descent(
        X=X,
        Y=Y,
        steps=params["steps"],
        eta=params.get("eta", scaling.eta),
        eta_u=scaling.eta_u,
        eta_v=scaling.eta_v if params.get("train_v", True) else 0.0,
        alpha=scaling.alpha,
        record=params["record"],
    )
    safe = params["steps"] <= SAFE_STEPS or shape["depth"] * shape["units"] >= SAFE_UNITS
    path = ("finite", *shape.values(), repr(params.get("alpha")), repr(params.get("S")), params["data_seed"])
    jobs = [
        FiniteJob(
            shape=Shape(**shape),
            descent=descent,
            rng=generator(seed, *path, repeat),
            sigma_u=scaling.sigma_u,
            sigma_v=scaling.sigma_v,
            dtype="float32" if safe and params.get("eta") is None else "float64",
        )
        for repeat in range(params["repeats"])
    ]
    runs = train_ensemble(jobs)
    finished = [run for run in runs if not run.diverged]
    missing = np.full_like(X, math.nan)
    return Result(
        values={
            "losses": np.mean([run.losses for run in finished], axis=0).tolist() if finished else [],
            "diverged": [run.diverged for run in runs],
            "loss_change": [float(run.losses[-1] - run.losses[0]) for run in runs],
            "update_rms": {
                name: {str(k): [run.update_rms[name].get(k, math.nan) for run in runs] for k in descent.record or ()}
                for name in ("U", "V")
            },
        },
        # A run that diverged later counts as diverged at every k: those left over at one k would be a choice.
        arrays={
            f"output_{k}": np.stack([missing if run.diverged else run.outputs[k] for run in runs])
            for k in descent.record or ()
        },
    )


def limit(params: dict[str, Any], seed: int) -> Result:
    """Solve the Neural Mean ODE to a stated error.

    Args:
        params: ``embed_dim``, ``samples``, ``steps``, ``record``, ``data_seed``, ``alpha``, ``target_error``,
            ``nodes``, ``particles`` and ``max_runs``.
        seed: Root of the particles.

    Returns:
        The fields of ``mean_ode.Limit`` (errors by ``str(k)``); arrays ``output_<k>`` (D, N).
    """
    X, Y = _data(params)
    found = mean_ode.limit(
        X,
        Y,
        scaling=_scaling(params, {"depth": 1, "units": 1, "embed_dim": params["embed_dim"]}),
        steps=params["steps"],
        record=params["record"],
        rng=generator(seed, "limit", params["embed_dim"], params["steps"], repr(params["alpha"]), params["data_seed"]),
        **{name: params[name] for name in ("target_error", "nodes", "particles", "max_runs")},
    )
    values = {name: value for name, value in vars(found).items() if name != "outputs"}
    for name in ("standard_error", "bias_estimate"):
        values[name] = {str(k): error for k, error in values[name].items()}
    return Result(values=values, arrays={f"output_{k}": output for k, output in found.outputs.items()})


def noiseless(params: dict[str, Any], seed: int) -> dict[str, Any]:
    """Measure the error of networks with the same units in every layer against the limit of those units.

    Args:
        params: ``embed_dim``, ``samples``, ``steps``, ``record``, ``data_seed``, ``alpha``, ``particles``, ``depths``
            and ``nodes`` (of the AB2-midpoint reference).
        seed: Root of the particles.

    Returns:
        ``errors``: ``str(k)`` to one error a depth, in float64.
    """
    D, X, Y = params["embed_dim"], *_data(params)
    tied = draw_particles(generator(seed, "noiseless", D), embed_dim=D, particles=params["particles"])
    kept = {"steps": params["steps"], "record": params["record"], "alpha": params["alpha"]}

    def outputs(depth: int, scheme: Any) -> Mapping[int, NDArray[np.float64]]:
        U, V = (np.array(np.broadcast_to(weights.T, (depth, D, params["particles"]))) for weights in (tied.U, tied.V))
        return train_parameters(U, V, Descent(X=X, Y=Y, scheme=scheme, **kept)).outputs

    exact = outputs(params["nodes"], "ab2")
    networks = [outputs(depth, "euler") for depth in params["depths"]]
    return {"errors": {str(k): [mean_ode.rms(run[k] - exact[k]) for run in networks] for k in params["record"]}}


def lazy(params: dict[str, Any], seed: int) -> dict[str, Any]:
    """Measure the distance of the Neural Mean ODE from the Neural Tangent ODE of the same particles.

    Args:
        params: ``embed_dim``, ``samples``, ``steps``, ``data_seed``, ``init``, ``particles``, ``nodes`` and ``alphas``.
        seed: Root of the particles.

    Returns:
        ``errors``, one an alpha.
    """
    D, X, Y = params["embed_dim"], *_data(params)
    rng = generator(seed, "lazy", params["init"], D)
    tied = draw_particles(rng, embed_dim=D, particles=params["particles"], init=params["init"])

    def end(solve: Any, alpha: float) -> NDArray[np.float64]:
        scaling = Scaling.critical(depth=1, units=1, embed_dim=D, alpha=alpha)
        return solve(tied, X, Y, scaling=scaling, steps=params["steps"], nodes=params["nodes"]).outputs[params["steps"]]

    tangent = end(tangent_ode.solve_ab2, 1.0)
    return {"errors": [mean_ode.rms(end(mean_ode.solve_ab2, alpha) - tangent) for alpha in params["alphas"]]}


def chaos(params: dict[str, Any], seed: int) -> Result:
    """Train many small networks and keep what each of their units moved.

    Args:
        params: ``depth``, ``units``, ``embed_dim``, ``samples``, ``steps``, ``repeats`` and ``data_seed``.
        seed: Root of the initial weights.

    Returns:
        Array ``moved`` (repeats, L M): |dU|^2 of each unit since initialisation.
    """
    L, M, D, R = (params[name] for name in ("depth", "units", "embed_dim", "repeats"))
    X, Y = _data(params)
    rng = generator(seed, "chaos", L, M, D, params["data_seed"])
    moved = []
    for first in range(0, R, BATCH):
        U, V = math.sqrt(D) * rng.standard_normal((2, L, min(BATCH, R - first), M, D))
        networks = EmbeddedDescent(U, V, X, Y)
        networks.advance(params["steps"])
        moved.append(np.sum((networks.U.numpy() - U) ** 2, axis=-1).transpose(1, 0, 2).reshape(-1, L * M))
    return Result(values={}, arrays={"moved": np.concatenate(moved)})


def embedded(params: dict[str, Any], seed: int) -> Result:
    """Train networks between a random, fixed embedding and unembedding.

    The first D rows of one embedding serve the networks of embedding dimension D, so that states of different D can be
    compared coordinate by coordinate.

    Args:
        params: ``depth``, ``units``, ``embed_dim``, ``input_dim``, ``samples``, ``steps``, ``repeats``, ``data_seed``,
            ``embedding`` (its number) and ``tied`` (the same units in every layer, those of one stream for all depths).
        seed: Root of the embedding and of the initial weights.

    Returns:
        Array ``state`` (repeats, D, N): the last hidden states.
    """
    L, M, D, R, d = (params[name] for name in ("depth", "units", "embed_dim", "repeats", "input_dim"))
    X, Y = data(d, params["samples"], np.random.default_rng(params["data_seed"]))
    # Row by row: the rows of a larger D begin with those of a smaller one.
    rows = generator(seed, "embedding", params["embedding"], d).standard_normal((D, 2, d))
    layers = 1 if params["tied"] else L
    rng = generator(seed, "embedded", *(("tied",) if params["tied"] else (L,)), M, D, params["embedding"])
    drawn = math.sqrt(D) * rng.standard_normal((2, layers, R, M, D))
    U, V = np.broadcast_to(drawn, (2, L, R, M, D)) if params["tied"] else drawn.astype(np.float32)
    networks = EmbeddedDescent(U, V, X, Y, embed=rows[:, 0] / math.sqrt(d), unembed=math.sqrt(d) * rows[:, 1])
    networks.advance(params["steps"])
    return Result(values={}, arrays={"state": networks.state.numpy().astype(float)})


def _data(params: dict[str, Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return data(params["embed_dim"], params["samples"], np.random.default_rng(params["data_seed"]))


def _scaling(params: dict[str, Any], shape: dict[str, int]) -> Scaling:
    if "S" in params:
        return Scaling.initial_scale(**shape, S=params["S"])
    return Scaling.critical(**shape, alpha=params["alpha"])
