r"""Per-sample activation gradients :math:`q_i = \nabla_z\,\ell_i` at the output of any module.

The samples of a batch are independent, so one backward pass of the *sum* of the per-sample losses leaves
:math:`\nabla_{z_i} \sum_j \ell_j = q_i` in row i of the gradient, at every requested site at once.
Source: [width], setting; alignment.md, saturation.md B6.
"""

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import _pytree as pytree

__all__ = ["GradientBatch", "SiteGradients", "SiteStatus", "activation_gradients", "collect", "per_sample_loss"]

Batch = tuple[Tensor, Tensor]
Loss = Callable[[Any, Tensor], Tensor]
Pooling = Literal["flatten", "sum"]


class SiteStatus(StrEnum):
    """How a requested site ended."""

    MEASURED = "measured"
    UNREACHED = "unreached"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True, eq=False)
class GradientBatch:
    """Activation gradients of one batch.

    Every requested site is a key of ``gradients`` (rows q_i, ``(size, d)``, at least float32, on the model's device),
    a key of ``refused`` (with the reason), or in ``unreached``. A batch of ``size`` 0 has neither.
    """

    size: int
    gradients: Mapping[str, Tensor]
    refused: Mapping[str, str]
    unreached: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class SiteGradients:
    """Activation gradients of one site over all batches.

    ``values (n, d)`` on the CPU holds the finite rows, in order, or is None unless ``status`` is measured; ``reason``
    says why. ``n_nonfinite`` rows were left out, ``n_zero`` of those kept are exactly zero, ``n_empty_batches``
    batches had no sample.
    """

    site: str
    status: SiteStatus
    reason: str | None
    values: Tensor | None
    n_nonfinite: int
    n_zero: int
    n_empty_batches: int
    pooling: Pooling


def per_sample_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy of each sample: logits ``(B, classes)``, targets ``(B,)`` to ``(B,)``, in nats."""
    if not isinstance(outputs, Tensor):
        raise TypeError(
            f"per_sample_loss: the model must return a tensor of logits, got {type(outputs).__name__}; "
            "pass loss=, a function of (outputs, targets)."
        )
    return F.cross_entropy(outputs, targets, reduction="none")


def activation_gradients(
    model: nn.Module,
    sites: Collection[str],
    batches: Iterable[Batch],
    loss: Loss = per_sample_loss,
    *,
    pooling: Pooling = "flatten",
) -> Iterator[GradientBatch]:
    """Stream per-sample activation gradients at ``sites``, one forward and one backward pass a batch.

    Between batches and after an exception the model is as it was: hooks, ``requires_grad``, ``.grad``, buffers; its
    modes are never touched. Random layers in training mode draw from a private continuation of the global stream,
    which itself does not move. It does not matter which parameters are frozen. Of a structured output the one
    floating-point tensor is taken.

    Valid for: models whose samples do not interact. BatchNorm in training mode is refused; a coupling hidden in a
    model's own code cannot be seen.

    Args:
        model: Any module; ``model(inputs)`` is called.
        sites: Names of modules (``model.named_modules()``), in any order.
        batches: Pairs ``(inputs, targets)``, moved to the model's device. The first dimension is the sample.
        loss: Maps (outputs, targets) to one loss per sample, ``(B,)``.
        pooling: ``"flatten"`` keeps every coordinate; ``"sum"`` adds over positions, which gives the gradient of a
            shift shared by all pixels of ``(B, C, H, W)`` or all tokens of ``(B, T, C)``.

    Raises:
        ValueError: For an unknown site or pooling, or samples coupled by BatchNorm; while streaming, for a loss that
            is not one value per sample.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    if isinstance(sites, str):
        raise TypeError(f"activation_gradients: sites must be a collection of names, got the string {sites!r}.")
    for site in sites:
        if site not in modules:
            near = difflib.get_close_matches(site, filter(None, modules), n=3, cutoff=0.3)
            hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "see model.named_modules()."
            raise ValueError(f"activation_gradients: no module named {site!r}; {hint}")
    if pooling not in _POOLINGS:
        raise ValueError(f"activation_gradients: pooling must be one of {list(_POOLINGS)}, got {pooling!r}.")
    _require_independent_samples(model)
    return _stream(model, {site: modules[site] for site in sites}, batches, loss, pooling)


def collect(
    model: nn.Module,
    sites: Collection[str],
    batches: Iterable[Batch],
    loss: Loss = per_sample_loss,
    *,
    pooling: Pooling = "flatten",
) -> dict[str, SiteGradients]:
    """Gather the activation gradients of all samples; arguments as for :func:`activation_gradients`.

    Returns:
        One entry a requested site, in the order asked for, whatever became of it.

    Raises:
        ValueError: As :func:`activation_gradients`, and if the batches hold no sample at all.
    """
    rows: dict[str, list[Tensor]] = {site: [] for site in sites}
    refused: dict[str, str] = {}
    n_full = n_empty = 0
    for batch in activation_gradients(model, sites, batches, loss, pooling=pooling):
        n_empty += batch.size == 0
        n_full += batch.size > 0
        refused = {**batch.refused, **refused}
        for site, q in batch.gradients.items():
            rows[site].append(q.cpu())
    if not n_full:
        raise ValueError(f"collect: the batches hold no sample ({n_empty} empty batches); pass at least one.")
    for site, parts in rows.items():
        if site not in refused and 0 < len(parts) < n_full:
            refused[site] = f"reached in only {len(parts)} of {n_full} batches"
    return {site: _site(site, rows.pop(site), refused.get(site), n_empty, pooling) for site in list(rows)}


def _site(site: str, parts: list[Tensor], refusal: str | None, n_empty: int, pooling: Pooling) -> SiteGradients:
    status, reason = SiteStatus.MEASURED, refusal
    values, n_nonfinite, n_zero = None, 0, 0
    if refusal is not None:
        status = SiteStatus.REFUSED
    elif not parts:
        status, reason = SiteStatus.UNREACHED, "the forward pass never called this module"
    else:
        q = torch.cat(parts)
        parts.clear()
        finite = q.isfinite().all(dim=1)
        values = q if finite.all() else q[finite]
        n_nonfinite, n_zero = len(q) - len(values), int((values == 0).all(dim=1).sum())
    return SiteGradients(
        site=site,
        status=status,
        reason=reason,
        values=values,
        n_nonfinite=n_nonfinite,
        n_zero=n_zero,
        n_empty_batches=n_empty,
        pooling=pooling,
    )


def _stream(
    model: nn.Module, modules: Mapping[str, nn.Module], batches: Iterable[Batch], loss: Loss, pooling: Pooling
) -> Iterator[GradientBatch]:
    device = next((parameter.device for parameter in model.parameters()), None)
    private_random = _PrivateRandom(device)
    for inputs, targets in batches:
        if len(targets) == 0:
            yield GradientBatch(size=0, gradients={}, refused={}, unreached=())
            continue
        with private_random(), _restored(model), torch.inference_mode(False), torch.enable_grad():
            taps = {site: _Tap() for site in modules}
            handles = [module.register_forward_hook(taps[site]) for site, module in modules.items()]
            try:
                losses = loss(model(inputs.to(device)), targets.to(device))
                batch = _backward(taps, losses, len(targets), pooling)
            finally:
                for handle in handles:
                    handle.remove()
        yield batch


def _backward(taps: "Mapping[str, _Tap]", losses: Tensor, size: int, pooling: Pooling) -> GradientBatch:
    if losses.shape != (size,):
        raise ValueError(
            f"activation_gradients: loss must return one value per sample, shape ({size},), got {tuple(losses.shape)}; "
            "use reduction='none'."
        )
    edges = {site: tap.edge for site, tap in taps.items() if tap.edge is not None}
    found: dict[str, Tensor | None] = dict.fromkeys(edges)
    if edges and losses.requires_grad:
        grads = torch.autograd.grad(
            losses, tuple(edges.values()), grad_outputs=torch.ones_like(losses), allow_unused=True
        )
        found = dict(zip(edges, grads, strict=True))
    gradients: dict[str, Tensor] = {}
    refused: dict[str, str] = {}
    # The taps are read after the backward pass: activation checkpointing calls a module again in there.
    for site, tap in taps.items():
        q = found.get(site)
        if tap.calls == 0:
            continue
        if tap.calls > 1:
            refused[site] = f"called {tap.calls} times in one pass, so its gradient is not that of one activation"
        elif tap.refusal is not None:
            refused[site] = tap.refusal
        elif q is None:
            refused[site] = "the loss does not depend on its output through differentiable operations"
        elif q.ndim == 0 or len(q) != size:
            refused[site] = f"output of shape {tuple(q.shape)} does not have the {size} samples as first dimension"
        elif q.numel() == 0:
            refused[site] = f"empty: output of shape {tuple(q.shape)}"
        else:
            gradients[site] = _POOLINGS[pooling](q.to(torch.promote_types(q.dtype, torch.float32)))
    unreached = tuple(site for site, tap in taps.items() if tap.calls == 0)
    return GradientBatch(size=size, gradients=gradients, refused=refused, unreached=unreached)


class _Tap:
    """Forward hook that hands on a copy of the module's output and remembers the copy's place in the graph.

    The copy is what makes a following in-place operation harmless, and it tells an output from the input where a module
    returns its argument. An edge, unlike the tensor, does not follow later in-place changes: ``retain_grad`` and
    ``autograd.grad(loss, output)`` answer for the changed value (cases.md C1).
    """

    def __init__(self) -> None:
        self.calls = 0
        self.edge: GradientEdge | None = None
        self.refusal: str | None = None

    def __call__(self, module: nn.Module, args: object, output: Any) -> Any:
        self.calls += 1
        if not torch.is_grad_enabled():
            self.refusal = "runs under torch.no_grad()"
            return None
        paths, spec = pytree.tree_flatten_with_path(output)
        leaves = [leaf for _, leaf in paths]
        floating = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
        if len(floating) != 1:
            listed = ", ".join(f"output{pytree.keystr(path)}: {_describe(leaf)}" for path, leaf in paths) or "nothing"
            self.refusal = f"output must hold exactly one floating-point tensor, found {listed}"
            return None
        source = leaves[floating[0]]
        if not source.requires_grad:
            source = source.detach().requires_grad_()
        copy = source.clone()
        self.edge = get_gradient_edge(copy)
        leaves[floating[0]] = copy
        return pytree.tree_unflatten(leaves, spec)


def _describe(leaf: object) -> str:
    if isinstance(leaf, Tensor):
        return f"{str(leaf.dtype).removeprefix('torch.')} {tuple(leaf.shape)}"
    return type(leaf).__name__


def _require_independent_samples(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if not isinstance(module, _BatchNorm):
            continue
        if module.training:
            fix = "is in training mode; call model.eval()"
        elif module.running_mean is None:
            fix = "keeps no running statistics; build it with track_running_stats=True"
        else:
            continue
        raise ValueError(
            f"activation_gradients: {name or 'the model'} ({type(module).__name__}) {fix}: normalising by the batch "
            "couples its samples, and a per-sample gradient is not defined."
        )


@contextmanager
def _restored(model: nn.Module) -> Iterator[None]:
    """Freeze every parameter inside; give back flags and buffers as they were.

    Frozen, the graph begins at the first site: the network below it stores nothing, no layer keeps its input for the
    gradient of a weight, and ``.grad`` is out of reach.
    """
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    buffers = [
        (module, name, buffer, buffer.clone())
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    try:
        for parameter, _ in flags:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter, flag in flags:
            parameter.requires_grad_(flag)
        with torch.no_grad():
            for module, name, buffer, value in buffers:
                module._buffers[name] = buffer
                buffer.copy_(value)


class _PrivateRandom:
    """A continuation of the global random streams: each use goes on where the last one ended, the global stay put.

    Without it dropout would use the same masks in every batch, and so couple samples of different batches.
    """

    def __init__(self, device: torch.device | None) -> None:
        self.devices = [device] if device is not None and device.type == "cuda" else []
        self.states: list[Tensor] = []

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with torch.random.fork_rng(self.devices):
            if self.states:
                torch.set_rng_state(self.states[0])
                for device, state in zip(self.devices, self.states[1:], strict=True):
                    torch.cuda.set_rng_state(state, device)
            try:
                yield
            finally:
                self.states = [torch.get_rng_state(), *(torch.cuda.get_rng_state(d) for d in self.devices)]


def _sum_positions(q: Tensor) -> Tensor:
    if q.ndim == 3:
        return q.sum(dim=1)
    return q.flatten(2).sum(dim=2) if q.ndim > 3 else q


_POOLINGS: dict[str, Callable[[Tensor], Tensor]] = {"flatten": lambda q: q.flatten(1), "sum": _sum_positions}
