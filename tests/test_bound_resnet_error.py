"""Error laws of finite networks: excluded, fitted and judged on planted errors, and on trained networks."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import SIGNS, SPREAD
from rescert.theory.claims import Claim, Kind, Source
from rescert.theory.symbols import D, L, alpha, c_bias, c_embed, c_lazy, c_noise
from rescert.theory.symbols import M_units as M
from rescert.verify.bounds import check, error_measurements, rate_search
from rescert.verify.bounds.error_laws import model, nearest, readings, values, varied
from rescert.verify.bounds.error_measurements import Errors, Shape, grid, measure
from rescert.verify.bounds.rate_search import ALPHA, STAGES, TOLERANCE, confirm, search, tolerance
from rescert.verify.bounds.resnet_error import TARGET
from rescert.verify.bounds.target import Effort
from rescert.verify.observations import Observations, log_errors
from scipy import optimize, stats
from sympy import sqrt

PLANTED_BIAS, PLANTED_NOISE = 0.18, 0.4


def law(expression):
    return Claim(
        id="user.law",
        kind=Kind.RATE,
        quantity=TARGET.quantity,
        expression=sympy.sympify(expression),
        assumptions=(),
        source=Source(paper="user", place="text"),
        statement="",
    )


TRUE = {
    "fixed D": c_bias / L + c_noise / sqrt(L * M),
    "over D": c_bias / L + c_noise * sqrt(D) / sqrt(L * M),
    "over D, one root": c_bias / L + c_noise * sqrt(D / (L * M)),
    "over alpha": c_bias / L + c_noise * alpha / sqrt(L * M),
    "over D and alpha": c_bias / L + c_noise * alpha * sqrt(D) / sqrt(L * M),
    "a term too many": c_bias / L + c_noise * sqrt(D) / sqrt(L * M) + c_embed / sqrt(D),
    "higher orders": c_bias / L + c_noise / sqrt(L * M) + c_lazy / (L * M),
}
WRONG = {
    "1/L^2": c_bias / L**2 + c_noise / sqrt(L * M),
    "1/(LM)": c_bias / L + c_noise / (L * M),
    "D": c_bias / L + c_noise * D / sqrt(L * M),
    "1/sqrt(M)": c_bias / L + c_noise / sqrt(M),
    "1/L alone": c_bias / L,
    "1/sqrt(LM) alone": c_noise / sqrt(L * M),
    "1/sqrt(L)": c_bias / sqrt(L) + c_noise / sqrt(L * M),
    "1/(L sqrt(M))": c_bias / L + c_noise / (L * sqrt(M)),
    "bias with sqrt(D)": (c_bias * sqrt(D)) / L + c_noise * sqrt(D) / sqrt(L * M),
    "1/L^2 over D": c_bias / L**2 + c_noise * sqrt(D) / sqrt(L * M),
    "D/(LM)": c_bias / L + c_noise * D / (L * M),
    "alpha^2": c_bias / L + c_noise * alpha**2 / sqrt(L * M),
    "sqrt(alpha)": c_bias / L + c_noise * sqrt(alpha) / sqrt(L * M),
}


def plant(plan, store=None, *, seed, data_seed, alpha, **options):
    """Errors of networks that do not exist, with the law of the theory, in place of ``measure``."""
    rng = np.random.default_rng([seed, data_seed])
    columns = {name: [] for name in ("depth", "units", "embed_dim", "alpha", "repeat")}
    deviations = []
    for shape, count in plan.items():
        noise = PLANTED_NOISE * shape.alpha * math.sqrt(shape.embed_dim / (shape.depth * shape.units))
        for repeat in range(count):
            deviations.append(PLANTED_BIAS / shape.depth * SIGNS + noise * SPREAD * rng.standard_normal(len(SIGNS)))
            for name, x in zip(columns, (*shape, repeat), strict=True):
                columns[name].append(x)
    observations = Observations.from_deviations(deviations, **columns)
    cells = observations.cells()
    relative = np.array([squares.var(ddof=1) / squares.mean() ** 2 for squares in cells.squares])
    counts = np.array([len(squares) for squares in cells.squares])
    half = stats.norm.isf(alpha / 2 / len(cells)) / 2 * np.sqrt(np.maximum(relative, relative.mean()) / counts)
    error = np.exp(log_errors(cells.squares, "planted"))
    return Errors(
        observations=observations, cells=cells, error=error, low=error * np.exp(-half), high=error * np.exp(half)
    )


@pytest.fixture
def planted(monkeypatch):
    monkeypatch.setattr(rate_search, "measure", plant)


# How a law reads


def test_a_law_is_read_from_text():
    claim = check.bound("c1/L + c2*sqrt(D)/sqrt(L*M)", of="resnet_error")
    assert claim.kind is Kind.RATE
    assert sympy.simplify(claim.expression - TRUE["over D"]) == 0
    assert varied(model(claim)) == ("depth", "units", "embed_dim")


def test_readings_are_the_sum_and_the_quadrature():
    shapes = {
        name: np.array([x]) for name, x in zip(("depth", "units", "embed_dim", "alpha"), (4, 9, 4, 2.0), strict=True)
    }
    both = readings(model(law(TRUE["over D and alpha"])))
    found = [values(one, {"c_bias": 2.0, "c_noise": 3.0}, shapes)[0] for one in both]
    assert found == pytest.approx([0.5 + 2, math.hypot(0.5, 2)])
    assert len(readings(model(law(c_bias / L)))) == 1


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (1 / L + c_noise / sqrt(L * M), "needs one constant"),
        (c_bias * c_noise / L, "needs one constant"),
        (c_bias / L + c_bias / M, "stands in two terms"),
        (c_bias / L + c_noise / L, "their constants are one"),
        (2 * c_bias / L, "the constant stands for every number"),
        (-c_bias / L, "the constant stands for every number"),
        (c_bias**2 / L, "the constant stands for every number"),
        (c_bias / (1 + L), "is no power of L"),
        (c_bias * sympy.log(L) / L, "is no power of L"),
        (c_bias * sympy.exp(-L), "is no power of L"),
    ],
)
def test_what_is_no_law_is_refused_before_anything_is_trained(expression, message, monkeypatch):
    monkeypatch.setattr(rate_search, "measure", None)
    with pytest.raises(ValueError, match=message):
        search(law(expression), Effort())


def test_points_are_values_of_the_letters():
    drawn = TARGET.points(np.random.default_rng(0), 100)
    assert set(drawn) == set(TARGET.quantity.symbols)
    assert all((x > 0).all() for x in drawn.values())
    assert all((drawn[name] % 1 == 0).all() for name in ("L", "M_units", "D"))


# Whether any constants fit


def test_two_shapes_and_one_constant_are_halved_evenly():
    shapes = {"depth": np.array([1.0, 2.0])} | dict.fromkeys(("units", "embed_dim", "alpha"), np.ones(2))
    found = nearest(model(law(c_bias / L)), shapes, np.ones(2), np.ones(2))
    assert found.factor == pytest.approx(math.sqrt(2))
    assert found.constants["c_bias"] == pytest.approx(math.sqrt(2))
    assert found.deciding == (0, 1)


POSITIVE = st.floats(0.1, 10)


@settings(max_examples=40, deadline=None)
@given(
    errors=st.lists(st.tuples(POSITIVE, st.floats(1, 1.5)), min_size=3, max_size=8),
    name=st.sampled_from(["fixed D", "1/L^2", "1/sqrt(M)", "1/L alone"]),
    data=st.data(),
)
def test_no_constants_come_nearer(errors, name, data):
    n = len(errors)
    low, width = np.array(errors).T
    high = low * width
    sizes = st.lists(st.integers(1, 200), min_size=n, max_size=n)
    shapes = {"depth": np.array(data.draw(sizes), float), "units": np.array(data.draw(sizes), float)}
    shapes |= {"embed_dim": np.ones(n), "alpha": np.ones(n)}
    for reading in readings(model(law((TRUE | WRONG)[name]))):
        found = nearest(reading, shapes, low, high)
        p = {"sum": 1, "quadrature": 2}[reading.combine]

        def off(log_constants, reading=reading):
            law = values(reading, dict(zip(reading.coefficients, np.exp(log_constants), strict=True)), shapes)
            return max(np.max(np.log(law / high)), np.max(np.log(low / law)))

        zero_to_tiny = np.log(np.maximum([*found.constants.values()], 1e-12))
        assert off(zero_to_tiny) == pytest.approx(math.log(found.factor), abs=1e-6)
        start = data.draw(st.lists(st.floats(-3, 3), min_size=len(zero_to_tiny), max_size=len(zero_to_tiny)))
        rival = optimize.minimize(off, start, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9})
        assert rival.fun >= math.log(found.factor) - 1e-7
        # The witness: an inequality that holds for each term, hence for all constants, and that the errors break.
        assert len(found.deciding) <= len(reading.terms) + 1
        for number in range(len(reading.terms)):
            alone = values(reading, {c: float(i == number) for i, c in enumerate(reading.coefficients)}, shapes) ** p
            greater = sum(w * alone[i] for i, w in found.greater.items())
            assert greater <= sum(w * alone[i] for i, w in found.smaller.items()) * (1 + 1e-6)
        assert sum(w * high[i] ** p for i, w in found.smaller.items()) == pytest.approx(1, rel=1e-6)
        broken = sum(w * low[i] ** p for i, w in found.greater.items())
        assert broken == pytest.approx(found.factor ** (2 * p), rel=1e-6)


# The grid and the search, on planted errors


@pytest.mark.parametrize("name", TRUE)
def test_the_grid_varies_what_the_law_speaks_of(name):
    columns = varied(model(law(TRUE[name])))
    shapes = grid(columns)
    assert len(shapes) == len(set(shapes)) <= 70
    for column in ("depth", "units", "embed_dim", "alpha"):
        assert (len({getattr(shape, column) for shape in shapes}) > 1) == (column in columns)


@pytest.mark.parametrize("name", TRUE)
def test_a_true_law_is_supported_on_planted_errors(name, planted):
    found = search(law(TRUE[name]), Effort(seed=1))
    assert found.counterexample is None
    assert not found.undecided
    assert found.finished
    assert {"cells", "fit", "exponents", "rivals", "nearest", "tolerance"} <= set(found.results)
    json.dumps(found.results, allow_nan=False)
    constants = {row["name"]: row for row in found.results["fit"]["constants"]}
    assert constants["c_bias"]["value"] == pytest.approx(PLANTED_BIAS, rel=0.15)
    assert [n for n, row in constants.items() if row["needed"]] == ["c_bias", "c_noise"]
    low, high = constants["c_bias"]["interval"]
    assert low <= PLANTED_BIAS * 1.1
    assert high >= PLANTED_BIAS * 0.9
    if "alpha" not in varied(model(law(TRUE[name]))):
        first = next(row for row in found.results["rivals"] if "^-" not in row["law"])
        assert first["claimed"] or (len(constants) > 2 and first["law"] == "a/L + b sqrt(D/(LM))")
        assert first["reading"] == "quadrature"


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_law_is_refuted_on_planted_errors(name, planted):
    claim = law(WRONG[name])
    found = search(claim, Effort(seed=1))
    example = found.counterexample
    assert example is not None
    assert example.confirmed == "fresh draws"
    assert example.confidence == 1 - ALPHA
    assert confirm(claim, json.loads(json.dumps(example.where))) == example
    assert all(row["factor"] > 1 for row in found.results["nearest"])


def test_a_refutation_rests_on_other_data_and_other_weights(planted):
    found = search(law(WRONG["1/(LM)"]), Effort(seed=1))
    seeds = {(case.where["seed"], case.where["data_seed"]) for case in found.cases}
    where = found.counterexample.where
    assert all(where["seed"] != seed and where["data_seed"] != data for seed, data in seeds)
    assert len(where["networks"]) <= 6


def test_a_violation_that_other_data_do_not_confirm_leaves_the_law_open(planted, monkeypatch):
    monkeypatch.setattr(rate_search, "confirmed", lambda *args: None)
    found = search(law(WRONG["1/(LM)"]), Effort(seed=1))
    assert found.counterexample is None
    assert "other data do not confirm" in found.undecided[0]


def test_a_table_can_be_checked_by_hand(planted):
    example = search(law(WRONG["D"]), Effort(seed=1)).counterexample
    table = dict(example.table)
    errors, shapes = {}, {}
    for key, text in table.items():
        if found := re.match(r"(e\d+): error at L = (\d+), M = (\d+), D = (\d+)", key):
            errors[found[1]] = [float(x) for x in re.match(r".* in \[(.*), (.*)\],", text).groups()]
            shapes[found[1]] = [float(x) for x in found.groups()[1:]]
    greater, smaller = table["the law, terms added as written, for all constants"].split(" <= ")
    sides = [[pair.split(" ") for pair in side.split(" + ")] for side in (greater, smaller)]
    terms = (lambda L, M, D: 1 / L, lambda L, M, D: D / math.sqrt(L * M))
    for term in terms:
        more, less = (sum(float(w) * term(*shapes[e]) for w, e in side) for side in sides)
        assert more <= less * 1.002
    by_errors = [sum(float(w) * errors[e][end] for w, e in side) for side, end in zip(sides, (0, 1), strict=True)]
    assert by_errors[1] == pytest.approx(1, rel=2e-3)
    assert by_errors[0] > TOLERANCE**2


def test_no_time_is_no_support(planted):
    found = search(law(TRUE["fixed D"]), Effort(seed=1, seconds=0))
    assert not found.finished
    assert "first look" in found.undecided[0]


def test_an_exponent_a_little_wrong_is_left_open_or_refuted(planted):
    found = search(law(c_bias / L ** sympy.Rational(3, 2) + c_noise / sqrt(L * M)), Effort(seed=1))
    assert found.counterexample is not None or found.undecided


def test_the_same_seed_gives_the_same_counterexample(planted):
    claim = law(WRONG["1/sqrt(M)"])
    one, two, other = (search(claim, Effort(seed=seed)).counterexample for seed in (3, 3, 4))
    assert one == two != other


def test_planted_laws_are_never_refuted_and_rarely_left_open(planted):
    found = [search(law(TRUE["fixed D"]), Effort(seed=seed)) for seed in range(6)]
    assert not [one.counterexample for one in found if one.counterexample]
    assert sum(bool(one.undecided) for one in found) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fixed D", "over D", "over alpha"])
def test_no_false_refutation_on_two_hundred_planted_seeds(name, planted):
    for seed in range(200):
        errors = plant(
            {s: STAGES["first look"].repeats(s) for s in grid(varied(model(law(TRUE[name]))))},
            seed=seed,
            data_seed=0,
            alpha=ALPHA,
        )
        shapes = errors.cells.shapes
        best = min(nearest(one, shapes, errors.low, errors.high).factor for one in readings(model(law(TRUE[name]))))
        assert best <= tolerance(model(law(TRUE[name])))


@pytest.mark.parametrize(
    "where",
    [
        {},
        {"seed": 1, "data_seed": 1, "networks": []},
        {"seed": 1, "data_seed": 1, "networks": [{"L": 8}]},
        {"seed": "1", "data_seed": 1, "networks": [{"L": 8, "M": 8, "D": 8, "alpha": 1.0, "repeats": 2}]},
        {"seed": 1, "data_seed": 1, "networks": [{"L": 8, "M": 8, "D": 8, "alpha": 1.0, "repeats": 1}]},
        {"seed": 1, "data_seed": 1, "networks": [{"L": 0, "M": 8, "D": 8, "alpha": 1.0, "repeats": 2}]},
        {"seed": 1, "data_seed": 1, "networks": [{"L": 8, "M": 8, "D": 8, "alpha": -1.0, "repeats": 2}]},
        {"seed": 1, "data_seed": 1, "networks": [{"L": 8, "M": 10**9, "D": 8, "alpha": 1.0, "repeats": 2}]},
    ],
)
def test_a_place_that_is_none_is_refused(where):
    with pytest.raises(ValueError, match="expected seed, data_seed and networks"):
        confirm(law(TRUE["fixed D"]), where)


# Trained networks


@pytest.fixture
def small(monkeypatch):
    """Four depths and widths that take a second, and a limit to match."""
    monkeypatch.setattr(error_measurements, "DEPTHS", (4, 12, 36))
    monkeypatch.setattr(error_measurements, "UNITS", (4, 32, 256, 2048))
    coarse = {name: dataclasses.replace(care, weights=2**18, limit_error=2e-3) for name, care in STAGES.items()}
    monkeypatch.setattr(rate_search, "STAGES", coarse)
    monkeypatch.setattr(rate_search, "AGAIN", coarse["fit"])


def test_trained_networks_refute_a_wrong_law_and_support_the_right_one(small):
    right = search(law(TRUE["fixed D"]), Effort(seed=0, workers=1))
    assert right.counterexample is None
    assert not right.undecided
    claim = law(WRONG["1/(LM)"])
    wrong = search(claim, Effort(seed=0, workers=1))
    assert wrong.counterexample is not None
    assert confirm(claim, wrong.counterexample.where) == wrong.counterexample


def test_intervals_hold_the_error_of_many_networks(tmp_path):
    from rescert.sim.records import Store

    shapes, options = [Shape(8, 8, 10, 1.0), Shape(8, 256, 10, 1.0)], {"data_seed": 5, "alpha": 1e-3, "workers": 1}
    with Store(tmp_path) as store:
        few = measure(dict.fromkeys(shapes, 4), store, limit_error=1e-3, seed=0, **options)
        many = measure(dict.fromkeys(shapes, 64), store, limit_error=5e-4, seed=1, **options)
    assert few.shapes == shapes
    assert ((few.low < many.error) & (many.error < few.high)).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_trained_networks_refute_every_wrong_law(name):
    claim = law(WRONG[name])
    found = search(claim, Effort(seed=0, workers=2))
    assert found.counterexample is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fixed D", "over D", "over alpha"])
def test_trained_networks_never_refute_a_true_law_on_twenty_seeds(name):
    found = [search(law(TRUE[name]), Effort(seed=seed, workers=2)) for seed in range(20)]
    assert not [one.counterexample for one in found if one.counterexample]
    assert sum(bool(one.undecided) for one in found) <= 2
