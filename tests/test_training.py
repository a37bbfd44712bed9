"""Training loop: it learns, repeats itself, agrees with hand-written steps, and says when it diverges."""

import math

import numpy as np
import pytest
import torch
from rescert.models.cifar_resnet import CifarResNet
from rescert.models.data import Dataset, Split, load, split
from rescert.sim.rng import generator, torch_generator
from rescert.sim.training import evaluate, resolve_device, train
from torch import nn
from torch.nn import functional as F

PARTS = ("train", "probe", "test")


def toy(n=24, side=2):
    x = torch.randn(n, 1, side, side, generator=torch_generator(0, "toy"))
    part = Dataset(name="toy", x=x, y=(x.mean(dim=(1, 2, 3)) > 0).long(), classes=2)
    return Split(train=part, probe=part, test=part, overlap=0)


def linear(side=2):
    model = nn.Sequential(nn.Flatten(), nn.Linear(side**2, 2))
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(generator=torch_generator(1, "linear"))
    return model


def settings(**changed):
    base = {"steps": 12, "batch_size": 5, "lr": 0.1, "rng": generator(0, "batches"), "device": "cpu"}
    return {**base, **changed}


def test_resnet_learns_digits():
    data = split(load("digits"), (800, 400, 400), generator(0, "split"))
    model = CifarResNet(8, 0.5, 10, 1, generator=torch_generator(0, "init"))
    result = train(model, data, **settings(steps=80, batch_size=64, lr=0.05))
    assert not result.diverged
    assert result.losses.shape == (80,)
    assert result.losses[-10:].mean() < 0.5 * result.losses[:10].mean()
    # 400 guesses among 10 classes are right with probability .1: five standard errors above.
    assert result.test.accuracy > 0.1 + 5 * math.sqrt(0.09 / 400)
    assert result.train == evaluate(model, data.train)
    assert not model.training


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_same_seed_same_result_to_the_bit(optimiser):
    def run(seed):
        data = split(load("digits"), (200, 50, 50), generator(0, "split"))
        model = CifarResNet(8, 0.25, 10, 1, generator=torch_generator(0, "init"))
        return train(
            model, data, **settings(batch_size=32, rng=generator(seed), optimiser=optimiser, checkpoints=[5, 12])
        )

    first, same, other = run(0), run(0), run(1)
    assert np.array_equal(first.losses, same.losses)
    for step in (5, 12):
        for key, value in first.checkpoints[step].items():
            assert torch.equal(value, same.checkpoints[step][key]), key
    assert not np.array_equal(first.losses, other.losses)


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_sgd_agrees_with_momentum_written_out(schedule):
    data, model, by_hand = toy(), linear().double(), linear().double()
    data = Split(
        **{k: Dataset(name="toy", x=data.train.x.double(), y=data.train.y, classes=2) for k in PARTS}, overlap=0
    )
    steps, lr, momentum, decay = 12, 0.1, 0.8, 0.01
    train(model, data, **settings(momentum=momentum, weight_decay=decay, schedule=schedule))
    rng, order, velocity = generator(0, "batches"), [], None
    while len(order) < steps:
        permutation = rng.permutation(24)
        order += [permutation[i : i + 5] for i in range(0, 20, 5)]
    for t, rows in enumerate(order[:steps]):
        x, y = data.train.x[torch.from_numpy(rows)], data.train.y[torch.from_numpy(rows)]
        grads = torch.autograd.grad(F.cross_entropy(by_hand(x), y), list(by_hand.parameters()))
        grads = [g + decay * p.detach() for g, p in zip(grads, by_hand.parameters(), strict=True)]
        velocity = grads if velocity is None else [momentum * v + g for v, g in zip(velocity, grads, strict=True)]
        rate = lr * (0.5 * (1 + math.cos(math.pi * t / steps)) if schedule == "cosine" else 1)
        with torch.no_grad():
            for p, v in zip(by_hand.parameters(), velocity, strict=True):
                p -= rate * v
    for p, q in zip(model.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-12)


def test_evaluation_is_the_mean_over_all_samples():
    data, model = toy().train, linear()
    logits = model(data.x).detach()
    score = evaluate(model, data)
    assert score.loss == pytest.approx(float(F.cross_entropy(logits, data.y)), rel=1e-6)
    assert score.accuracy == int((logits.argmax(1) == data.y).sum()) / 24


def test_checkpoints_are_copies_and_callback_sees_every_step():
    model, seen = linear(), []
    start = {k: v.clone() for k, v in model.state_dict().items()}
    result = train(model, toy(), **settings(checkpoints=[0, 12], on_step=lambda step, loss: seen.append((step, loss))))
    assert sorted(result.checkpoints) == [0, 12]
    for key, value in model.state_dict().items():
        assert torch.equal(result.checkpoints[0][key], start[key])
        assert torch.equal(result.checkpoints[12][key], value)
        assert result.checkpoints[12][key].data_ptr() != value.data_ptr()
    assert [step for step, _ in seen] == list(range(1, 13))
    assert [loss for _, loss in seen] == result.losses.tolist()


def test_divergence_is_marked_and_stops_the_run():
    result = train(linear(), toy(), **settings(lr=1e38, steps=50))
    assert result.diverged
    assert len(result.losses) < 50
    assert not math.isfinite(result.losses[-1])
    assert np.isfinite(result.losses[:-1]).all()
    assert result.train is result.probe is result.test is None


def test_divergence_in_the_last_step_is_marked():
    result = train(linear(), toy(), **settings(lr=1e38, steps=1, momentum=0.0, weight_decay=1e5))
    assert np.isfinite(result.losses).all()
    assert result.diverged


def test_messages():
    with pytest.raises(ValueError, match=r"batch_size within 1..24 \(samples of toy\), got steps=12, batch_size=25"):
        train(linear(), toy(), **settings(batch_size=25))
    with pytest.raises(ValueError, match="steps must be at least 1"):
        train(linear(), toy(), **settings(steps=0))
    with pytest.raises(ValueError, match=r"checkpoints must lie within 0..steps=12, got \[13\]"):
        train(linear(), toy(), **settings(checkpoints=[13]))
    with pytest.raises(ValueError, match="optimiser must be 'sgd' or 'adamw', got 'lion'"):
        train(linear(), toy(), **settings(optimiser="lion"))
    with pytest.raises(ValueError, match="schedule must be 'cosine' or 'constant', got 'step'"):
        train(linear(), toy(), **settings(schedule="step"))


def test_resolve_device(monkeypatch):
    assert resolve_device("cpu") == torch.device("cpu")
    for name in ("gpu", "cuda:", "cuda:x", "cpu:0", ""):
        with pytest.raises(ValueError, match="device must be 'auto', 'cpu', 'cuda' or 'cuda:i'"):
            resolve_device(name)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == torch.device("cpu")
    for name in ("cuda", "cuda:1"):
        with pytest.raises(ValueError, match="sees 0 CUDA devices; take 'cpu' or 'auto'"):
            resolve_device(name)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto") == torch.device("cuda")
    assert resolve_device("cuda:0") == torch.device("cuda:0")
    with pytest.raises(ValueError, match="'cuda:1' is not there"):
        resolve_device("cuda:1")
