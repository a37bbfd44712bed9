"""A plain training loop for image classifiers, reproducible from the model's weights and one random stream."""

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..models.data import Dataset, Split

__all__ = ["Evaluation", "TrainingResult", "evaluate", "resolve_device", "train"]

Optimiser = Literal["sgd", "adamw"]
Schedule = Literal["cosine", "constant"]
StepCallback = Callable[[int, float], None]

EVALUATION_BATCH = 500


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Mean cross entropy (nats) and share of right answers on one data set, model in eval mode."""

    loss: float
    accuracy: float


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingResult:
    """What one training run did.

    ``losses`` holds the mini-batch loss before each step, so a run that ``diverged`` is shorter and ends in a
    non-finite value; then ``train``, ``probe`` and ``test`` are None. ``checkpoints`` maps a number of steps taken to
    a copy of the state dict on the CPU.
    """

    losses: np.ndarray
    diverged: bool
    train: Evaluation | None
    probe: Evaluation | None
    test: Evaluation | None
    checkpoints: Mapping[int, dict[str, Tensor]]
    seconds: float
    device: str


def train(
    model: nn.Module,
    data: Split,
    *,
    steps: int,
    batch_size: int,
    lr: float,
    rng: np.random.Generator,
    optimiser: Optimiser = "sgd",
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    schedule: Schedule = "cosine",
    device: str = "auto",
    checkpoints: Collection[int] = (),
    on_step: StepCallback | None = None,
) -> TrainingResult:
    """Train ``model`` in place by mini-batch cross entropy, and leave it in eval mode on ``device``.

    Batches are consecutive pieces of a fresh permutation an epoch; an incomplete last piece is left out. On one CPU
    build and thread count the same weights and ``rng`` give the same result to the bit.

    Args:
        model: Maps images (B, C, H, W) to logits (B, classes).
        data: Trains on ``data.train``; all three parts are evaluated at the end.
        steps: Optimiser steps.
        batch_size: Samples a step.
        lr: Learning rate at the start.
        rng: Source of the batches.
        optimiser: ``"sgd"`` with ``momentum``, or ``"adamw"``.
        momentum: Momentum of SGD; its place in AdamW is beta_1.
        weight_decay: Of torch's optimiser: added to the gradient in SGD, decoupled in AdamW.
        schedule: ``"cosine"`` to 0 after ``steps``, or ``"constant"``.
        device: ``"auto"``, ``"cpu"`` or ``"cuda[:i]"``.
        checkpoints: Numbers of steps after which to keep a state dict; 0 keeps the initial one.
        on_step: Called as ``on_step(steps taken, loss)``.

    Raises:
        ValueError: For a setting outside its range, or a device that is not there.
    """
    if steps < 1 or not 1 <= batch_size <= len(data.train):
        raise ValueError(
            f"train: steps must be at least 1 and batch_size within 1..{len(data.train)} (samples of "
            f"{data.train.name}), got steps={steps}, batch_size={batch_size}."
        )
    if not all(0 <= step <= steps for step in checkpoints):
        raise ValueError(f"train: checkpoints must lie within 0..steps={steps}, got {sorted(checkpoints)}.")
    place = resolve_device(device)
    started = time.perf_counter()
    model.to(place).train()
    update = _optimiser(model, optimiser, lr=lr, momentum=momentum, weight_decay=weight_decay)
    rate = _learning_rate(schedule, lr=lr, steps=steps)
    x, y = data.train.x.to(place), data.train.y.to(place)
    losses: list[float] = []
    kept = {0: _snapshot(model)} if 0 in checkpoints else {}
    batches = _index_batches(len(data.train), batch_size, rng)
    for step in range(1, steps + 1):
        for group in update.param_groups:
            group["lr"] = rate(step - 1)
        rows = next(batches).to(place)
        loss = F.cross_entropy(model(x[rows]), y[rows])
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            break
        update.zero_grad()
        loss.backward()
        update.step()
        if step in checkpoints:
            kept[step] = _snapshot(model)
        if on_step is not None:
            on_step(step, losses[-1])
    model.eval()
    scores = [evaluate(model, part) for part in (data.train, data.probe, data.test)]
    # The last step itself can blow up: then only the evaluation shows it.
    diverged = not all(math.isfinite(value) for value in (losses[-1], *(score.loss for score in scores)))
    fit, probe, test = [None] * len(scores) if diverged else scores
    return TrainingResult(
        losses=np.array(losses),
        diverged=diverged,
        train=fit,
        probe=probe,
        test=test,
        checkpoints=kept,
        seconds=time.perf_counter() - started,
        device=str(place),
    )


@torch.no_grad()
def evaluate(model: nn.Module, data: Dataset) -> Evaluation:
    """Return loss and accuracy of ``model`` on ``data``, on the model's device and in the mode it is in."""
    place = next(model.parameters()).device
    loss, right = 0.0, 0
    for x, y in data.batches(EVALUATION_BATCH):
        logits, target = model(x.to(place)), y.to(place)
        loss += F.cross_entropy(logits, target, reduction="sum").item()
        right += int((logits.argmax(1) == target).sum())
    return Evaluation(loss=loss / len(data), accuracy=right / len(data))


def resolve_device(name: str) -> torch.device:
    """Return the device called ``"auto"`` (CUDA where there is one), ``"cpu"``, ``"cuda"`` or ``"cuda:i"``.

    Raises:
        ValueError: For another name, or CUDA where there is none.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (":" in name and not (kind == "cuda" and index.isdecimal())):
        raise ValueError(f"resolve_device: device must be 'auto', 'cpu', 'cuda' or 'cuda:i', got {name!r}.")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"resolve_device: {name!r} is not there: torch {torch.__version__} sees {torch.cuda.device_count()} CUDA "
            "devices; take 'cpu' or 'auto', or install a CUDA build of torch."
        )
    return torch.device(name)


def _optimiser(
    model: nn.Module, name: Optimiser, *, lr: float, momentum: float, weight_decay: float
) -> torch.optim.Optimizer:
    # One fused kernel: with the many small tensors of a narrow network the optimiser's overhead is seen otherwise.
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr, momentum=momentum, weight_decay=weight_decay, fused=True)
    if name == "adamw":
        betas = (momentum, 0.999)
        return torch.optim.AdamW(model.parameters(), lr, betas=betas, weight_decay=weight_decay, fused=True)
    raise ValueError(f"train: optimiser must be 'sgd' or 'adamw', got {name!r}.")


def _learning_rate(schedule: Schedule, *, lr: float, steps: int) -> Callable[[int], float]:
    if schedule == "cosine":
        return lambda step: lr * 0.5 * (1 + math.cos(math.pi * step / steps))
    if schedule == "constant":
        return lambda step: lr
    raise ValueError(f"train: schedule must be 'cosine' or 'constant', got {schedule!r}.")


def _index_batches(n: int, size: int, rng: np.random.Generator) -> Iterator[Tensor]:
    while True:
        yield from torch.from_numpy(rng.permutation(n)).split(size)[: n // size]


def _snapshot(model: nn.Module) -> dict[str, Tensor]:
    return {key: value.detach().to("cpu", copy=True) for key, value in model.state_dict().items()}
