"""Activation gradients against a one-sample-at-a-time split-model loop, and what happens to hard models."""

from collections import OrderedDict
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rescert.models.cifar_resnet import CifarResNet, insertion_points
from rescert.models.gradients import SiteStatus, activation_gradients, collect, per_sample_loss
from rescert.sim.rng import torch_generator
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch_generator(seed, "noise"), dtype=torch.float64)


def initialised(model, seed=0):
    generator = torch_generator(seed, "model")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator).mul_(0.5)
    return model.double().eval()


def targets(n, classes=3):
    return torch.arange(n) % classes


def split_model_gradients(bottom, top, x, y):
    """The definition: cut the model at z, make z a variable, differentiate one sample's loss."""
    rows = []
    for i in range(len(x)):
        z = bottom(x[i : i + 1]).detach().requires_grad_()
        # A leaf must not be changed in place, so the top part works on a copy; q belongs to z itself.
        (q,) = torch.autograd.grad(F.cross_entropy(top(z.clone()), y[i : i + 1]), z)
        rows.append(q.flatten())
    return torch.stack(rows)


def resnet(norm="group", seed=0, width=0.25):
    return CifarResNet(8, width, 3, 1, norm, generator=torch_generator(seed, "init")).double()


def resnet_parts(model):
    """The chain of ``model`` as (name, function) in order, written out from the architecture."""
    return [
        ("conv1", model.conv1),
        ("norm1", model.norm1),
        ("layer1.0", lambda z: model.layer1[0](F.relu(z))),
        ("layer2.0", model.layer2[0]),
        ("layer3.0", model.layer3[0]),
        ("fc", lambda z: model.fc(z.mean(dim=(2, 3)))),
    ]


def compose(functions):
    def composed(z):
        for function in functions:
            z = function(z)
        return z

    return composed


@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(any),
    norm=st.sampled_from(["group", "batch"]),
    frozen=st.booleans(),
    order=st.permutations(["conv1", "norm1", "layer1.0", "layer2.0", "layer3.0", "fc"]),
    seed=st.integers(0, 5),
)
@settings(max_examples=15, deadline=None)
def test_resnet_sites_agree_with_the_split_model(sizes, norm, frozen, order, seed):
    model = resnet(norm, seed).eval().requires_grad_(not frozen)
    x, y = noise(sum(sizes), 1, 8, 8, seed=seed), targets(sum(sizes))
    if norm == "batch":
        with torch.no_grad():
            model.train()(noise(9, 1, 8, 8, seed=seed + 1))
            model.eval()
    found = collect(model, order, zip(x.split(sizes), y.split(sizes), strict=True))
    assert list(found) == list(order)
    names, functions = zip(*resnet_parts(model), strict=True)
    for cut, site in enumerate(names):
        reference = split_model_gradients(compose(functions[: cut + 1]), compose(functions[cut + 1 :]), x, y)
        assert found[site].status is SiteStatus.MEASURED
        assert found[site].n_empty_batches == sizes.count(0)
        torch.testing.assert_close(found[site].values, reference, **TOLERANCE)


class InPlaceResNet(nn.Module):
    """C1: in-place ReLU right after a convolution, and ``x += f(x)``."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)
        self.branch = nn.Conv2d(2, 2, 3, padding=1)
        self.identity = nn.Identity()
        self.head = nn.Linear(2, 3)

    def bottom(self, x):
        return self.conv(x)

    def middle(self, z):
        return self.relu(z)

    def after_relu(self, z):
        z = z * 1.5
        z += self.branch(z.tanh())
        return self.head((z.pow(2) + self.identity(z)).mean(dim=(2, 3)))

    def forward(self, x):
        return self.after_relu(self.middle(self.bottom(x)))


def test_in_place_operations_after_a_site():
    model, x, y = initialised(InPlaceResNet()), noise(6, 2, 5, 5), targets(6)
    found = collect(model, ["conv", "relu", "branch"], [(x, y)])
    cuts = {
        "conv": split_model_gradients(model.bottom, lambda z: model.after_relu(model.middle(z)), x, y),
        "relu": split_model_gradients(lambda x: model.middle(model.bottom(x)), model.after_relu, x, y),
    }
    for site, reference in cuts.items():
        torch.testing.assert_close(found[site].values, reference, **TOLERANCE)
    # The control: reading the gradient off the output tensor after the in-place change answers for relu(z).
    kept = []
    handle = model.conv.register_forward_hook(lambda m, a, out: kept.append(out))
    losses = F.cross_entropy(model(x), y, reduction="sum")
    handle.remove()
    (wrong,) = torch.autograd.grad(losses, kept)
    assert (wrong.flatten(1) - cuts["conv"]).abs().max() > 1e-3


def test_module_that_returns_its_argument():
    """The gradient at Identity's output must not contain the other path from its input."""
    model, x, y = initialised(InPlaceResNet()), noise(4, 2, 5, 5), targets(4)
    found = collect(model, ["identity"], [(x, y)])["identity"].values

    def stream(x):
        z = model.middle(model.bottom(x)) * 1.5
        return z + model.branch(z.tanh())

    rows = []
    for i in range(4):
        z = stream(x[i : i + 1]).detach()
        out = z.clone().requires_grad_()
        loss = F.cross_entropy(model.head((z.pow(2) + out).mean(dim=(2, 3))), y[i : i + 1])
        rows.append(torch.autograd.grad(loss, out)[0].flatten())
    torch.testing.assert_close(found, torch.stack(rows), **TOLERANCE)


@dataclass
class Opaque:
    hidden: torch.Tensor


class Wrapping(nn.Module):
    """A linear site that returns its value inside ``wrap`` of it, and a head that takes it out again."""

    def __init__(self, wrap, unwrap):
        super().__init__()
        self.site = WrappedLinear(wrap)
        self.unwrap = unwrap
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.unwrap(self.site(x)).tanh())


class WrappedLinear(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.wrap = wrap

    def forward(self, x):
        return self.wrap(self.linear(x))


STRUCTURES = {
    "tuple": (lambda z: (z, None, torch.arange(3)), lambda out: out[0]),
    "list": (lambda z: [z], lambda out: out[0]),
    "dict": (lambda z: {"mask": torch.ones(2, dtype=torch.bool), "hidden": z}, lambda out: out["hidden"]),
    "ordered nested": (lambda z: OrderedDict(hidden=(z, "text")), lambda out: out["hidden"][0]),
}


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_structured_outputs(structure, frozen):
    model, x, y = initialised(Wrapping(*STRUCTURES[structure])).requires_grad_(not frozen), noise(5, 4), targets(5)
    reference = split_model_gradients(model.site.linear, lambda z: model.head(z.tanh()), x, y)
    torch.testing.assert_close(collect(model, ["site"], [(x, y)])["site"].values, reference, **TOLERANCE)


@pytest.mark.parametrize(
    ("wrap", "unwrap", "reason"),
    [
        (
            lambda z: {"a": z, "b": 2 * z, "c": 7},
            lambda out: out["a"] + out["b"],
            r"found output\['a'\]: float64 \(5, 4\), output\['b'\]: float64 \(5, 4\), output\['c'\]: int",
        ),
        (lambda z: (z, z.new_ones(2)), lambda out: out[0], r"exactly one floating-point tensor, found output\[0\]"),
        (Opaque, lambda out: out.hidden, "found output: Opaque"),
        (lambda z: [], lambda out: torch.ones(5, 4, dtype=torch.float64), "found nothing"),
        (lambda z: z[:2], lambda out: torch.cat([out, out, out])[:5], "does not have the 5 samples"),
        (lambda z: z[:, :0], lambda out: F.pad(out, (0, 4)), r"empty: output of shape \(5, 0\)"),
        (lambda z: z, lambda out: out.detach(), "does not depend on its output"),
    ],
)
def test_refusals_name_the_reason_and_spare_the_rest(wrap, unwrap, reason):
    model, x, y = initialised(Wrapping(wrap, unwrap)), noise(5, 4), targets(5)
    found = collect(model, ["site", "head"], [(x, y)])
    assert found["site"].status is SiteStatus.REFUSED
    assert found["site"].values is None
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(found["site"].reason)
    torch.testing.assert_close(
        found["head"].values,
        model(x).detach().softmax(1) - F.one_hot(y, 3),
        **TOLERANCE,
    )


class Awkward(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(4, 4)
        self.unused = nn.Linear(4, 4)
        self.quiet = nn.Linear(4, 4)
        self.sometimes = nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        with torch.no_grad():
            shift = self.quiet(x)
        z = self.shared(self.shared(x).tanh()) + shift
        if len(x) > 2:
            z = self.sometimes(z)
        return self.head(z)


def test_reused_unreached_and_partly_reached_sites():
    model, x, y = initialised(Awkward()), noise(5, 4), targets(5)
    batches = list(zip(x.split(3), y.split(3), strict=True))
    found = collect(model, ["shared", "unused", "quiet", "sometimes", "head"], batches)
    assert {site: entry.status.value for site, entry in found.items()} == {
        "shared": "refused",
        "unused": "unreached",
        "quiet": "refused",
        "sometimes": "refused",
        "head": "measured",
    }
    assert "called 2 times" in found["shared"].reason
    assert "never called" in found["unused"].reason
    assert "no_grad" in found["quiet"].reason
    assert "reached in only 1 of 2 batches" in found["sometimes"].reason
    first = next(activation_gradients(model, ["unused", "head"], batches))
    assert first.unreached == ("unused",)
    assert first.size == 3


def test_checkpointed_block_is_never_counted_twice():
    """C4 for now: the second call in the backward pass is seen, so the site is refused and others stay right."""

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.block, self.head = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 3)

        def forward(self, x):
            return self.head(checkpoint(self.block, x, use_reentrant=False))

    model, x, y = initialised(Checkpointed()), noise(5, 4), targets(5)
    found = collect(model, ["block.0", "head"], [(x, y)])
    assert "called 2 times" in found["block.0"].reason
    torch.testing.assert_close(found["head"].values, split_model_gradients(model, lambda z: z, x, y), **TOLERANCE)


@pytest.mark.parametrize("chunk", [1, 3, 7, 20])
def test_chunk_size_changes_nothing(chunk):
    model, x, y = resnet().eval(), noise(20, 1, 8, 8), targets(20)
    whole = collect(model, insertion_points(model), [(x, y)])
    parts = collect(model, insertion_points(model), zip(x.split(chunk), y.split(chunk), strict=True))
    for site, entry in whole.items():
        torch.testing.assert_close(parts[site].values, entry.values, rtol=1e-12, atol=1e-14)


def test_loss_scale_passes_through():
    """C13: q is linear in the loss."""
    model, x, y = resnet().eval(), noise(4, 1, 8, 8), targets(4)
    q = collect(model, ["layer2.0"], [(x, y)])["layer2.0"].values
    scaled = collect(model, ["layer2.0"], [(x, y)], lambda o, t: 1e3 * per_sample_loss(o, t))["layer2.0"].values
    torch.testing.assert_close(scaled, 1e3 * q, **TOLERANCE)


def test_nonfinite_and_zero_samples_are_counted():
    model, x, y = resnet().eval(), noise(6, 1, 8, 8), targets(6)
    weights = torch.tensor([1.0, float("nan"), 1.0, 0.0, float("inf"), 1.0], dtype=torch.float64)
    entry = collect(model, ["layer1.0"], [(x, y)], lambda o, t: weights * per_sample_loss(o, t))["layer1.0"]
    clean = collect(model, ["layer1.0"], [(x, y)])["layer1.0"].values
    assert (entry.n_nonfinite, entry.n_zero, len(entry.values)) == (2, 1, 4)
    torch.testing.assert_close(entry.values, clean[[0, 2, 3, 5]] * weights[[0, 2, 3, 5], None], **TOLERANCE)


def test_half_precision_is_reported_in_float32():
    model = initialised(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))).to(torch.bfloat16)
    found = collect(model, ["0"], [(noise(5, 4).to(torch.bfloat16), targets(5))])
    assert found["0"].values.dtype == torch.float32


def test_pooling_by_sum_is_the_gradient_of_a_shared_shift():
    model, x, y = resnet().eval(), noise(4, 1, 8, 8), targets(4)
    q = collect(model, ["layer1.0", "fc"], [(x, y)], pooling="sum")
    block, tail = model.layer1, compose([model.layer2, model.layer3, lambda z: model.fc(z.mean(dim=(2, 3)))])
    shift = torch.zeros(4, 4, 1, 1, dtype=torch.float64, requires_grad=True)
    z = block(F.relu(model.norm1(model.conv1(x)))).detach()
    (reference,) = torch.autograd.grad(per_sample_loss(tail(z + shift), y).sum(), shift)
    torch.testing.assert_close(q["layer1.0"].values, reference.flatten(1), **TOLERANCE)
    assert q["fc"].values.shape == (4, 3)
    tokens = initialised(nn.Sequential(nn.Linear(2, 5), nn.Flatten(), nn.Linear(15, 3)))
    flat, summed = (collect(tokens, ["0"], [(noise(4, 3, 2), targets(4))], pooling=p)["0"] for p in ("flatten", "sum"))
    torch.testing.assert_close(summed.values, flat.values.reshape(4, 3, 5).sum(1), **TOLERANCE)


class Stateful(nn.Module):
    """Counts its calls in a buffer, replaces another one, and draws dropout masks; fails on request."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("last", torch.zeros(1))
        self.linear, self.dropout, self.head = nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 3)
        self.fail = False

    def forward(self, x):
        self.calls += 1
        self.last = x.sum(dtype=torch.float32).reshape(1)
        z = self.dropout(self.linear(x))
        if self.fail:
            raise RuntimeError("planted failure")
        return self.head(z)


def state(model):
    return (
        {k: v.clone() for k, v in model.state_dict().items()},
        [p.requires_grad for p in model.parameters()],
        [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        [m.training for m in model.modules()],
        [len(m._forward_hooks) for m in model.modules()],
        torch.get_rng_state(),
        torch.is_grad_enabled(),
    )


def assert_same(before, after):
    torch.testing.assert_close(before, after, rtol=0, atol=0)


@pytest.mark.parametrize("failure", ["none", "forward", "loss", "loss shape", "batches", "abandoned"])
def test_everything_is_as_it_was(failure):
    model = initialised(Stateful())
    model.head.requires_grad_(False)
    model.train()
    model.linear.weight.grad = torch.full_like(model.linear.weight, 7.0)
    model.fail = failure == "forward"
    identities = {name: id(buffer) for name, buffer in model.named_buffers()}

    def batches():
        yield noise(5, 4), targets(5)
        if failure == "batches":
            raise RuntimeError("planted failure")
        yield noise(5, 4), targets(5)

    def loss(outputs, y):
        if failure == "loss":
            raise RuntimeError("planted failure")
        return per_sample_loss(outputs, y).mean() if failure == "loss shape" else per_sample_loss(outputs, y)

    before = state(model)
    if failure == "none":
        collect(model, ["linear", "head"], batches(), loss)
    elif failure == "abandoned":
        stream = activation_gradients(model, ["linear"], batches(), loss)
        next(stream)
        assert_same(before, state(model))
        del stream
    else:
        with pytest.raises((RuntimeError, ValueError), match=r"planted failure|one value per sample, shape \(5,\)"):
            collect(model, ["linear", "head"], batches(), loss)
    assert_same(before, state(model))
    assert identities == {name: id(buffer) for name, buffer in model.named_buffers()}


def test_dropout_masks_differ_between_batches():
    model = initialised(Stateful()).train()
    x, y = noise(50, 4), targets(50)
    first, second = (b.gradients["dropout"] for b in activation_gradients(model, ["dropout"], [(x, y), (x, y)]))
    assert not torch.equal(first, second)


def test_runs_inside_no_grad_and_inference_mode():
    model, x, y = resnet().eval(), noise(4, 1, 8, 8), targets(4)
    reference = collect(model, ["layer2.0"], [(x, y)])["layer2.0"].values
    for guard in (torch.no_grad(), torch.inference_mode()):
        with guard:
            torch.testing.assert_close(collect(model, ["layer2.0"], [(x, y)])["layer2.0"].values, reference)


def test_batch_norm_in_training_couples_samples_and_is_refused():
    model, x, y = resnet("batch").train(), noise(4, 1, 8, 8), targets(4)
    buffers = {k: v.clone() for k, v in model.named_buffers()}
    with pytest.raises(ValueError, match=r"norm1 \(BatchNorm2d\) is in training mode; call model.eval\(\)"):
        collect(model, ["layer1.0"], [(x, y)])
    assert_same(buffers, dict(model.named_buffers()))
    untracked = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)).eval()
    with pytest.raises(ValueError, match=r"1 \(BatchNorm1d\) keeps no running statistics"):
        collect(untracked, ["0"], [(noise(5, 4), targets(5))])
    assert collect(model.eval(), ["layer1.0"], [(x, y)])["layer1.0"].status is SiteStatus.MEASURED
    assert_same(buffers, dict(model.named_buffers()))


def test_messages():
    model, x, y = resnet().eval(), noise(4, 1, 8, 8), targets(4)
    with pytest.raises(ValueError, match=r"no module named 'layer1.1'; did you mean 'layer1.0' or"):
        activation_gradients(model, ["layer1.1"], [(x, y)])
    with pytest.raises(ValueError, match=r"see model.named_modules\(\)"):
        activation_gradients(model, ["ÿÿ"], [(x, y)])
    with pytest.raises(TypeError, match="a collection of names, got the string 'fc'"):
        collect(model, "fc", [(x, y)])
    with pytest.raises(ValueError, match=r"pooling must be one of \['flatten', 'sum'\], got 'mean'"):
        collect(model, ["fc"], [(x, y)], pooling="mean")
    with pytest.raises(ValueError, match=r"hold no sample \(1 empty batches\)"):
        collect(model, ["fc"], [(x[:0], y[:0])])
    with pytest.raises(ValueError, match=r"hold no sample \(0 empty batches\)"):
        collect(model, ["fc"], [])
    with pytest.raises(TypeError, match="must return a tensor of logits, got dict; pass loss="):
        per_sample_loss({"logits": x}, y)
