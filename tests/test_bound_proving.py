"""What z3 decides: true bounds are proved, wrong ones never, and the points it names are what it says."""

import random
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rescert.theory import registry
from rescert.theory.claims import Kind
from rescert.verify.bounds.ask import bound
from rescert.verify.bounds.proving import decide, orderings

pytest.importorskip("z3")

B_EXACT = "((1/M + 1/K)/d_par + 1/(M*K*d_2))/(1 + (1/M + 1/K)/d_par + 1/(M*K*d_2))"
V = "((1/M + 1/K)*mu_Sigma_mu + {})"
TRUE = {
    "B_exact": B_EXACT,
    "B_align": "1/(1 + n_eff*d_align)",
    "B_align by min": "1/(1 + n_eff*min(d_par, d_2))",
    "B_align times 1.5": "1.5/(1 + n_eff*d_align)",
    "at most 1": "min(1, 1/(1 + n_eff*d_align))",
    "root of B_exact": f"sqrt({B_EXACT})",
    "odds of B_align": "1/(n_eff*d_align)",
    "odds of B_exact": "(1/M + 1/K)/d_par + 1/(M*K*d_2)",
    "largest eigenvalue": "((1/M + 1/K)*lambda_max*mu2 + tr_Sigma2/(M*K))/mu2**2",
    "lambda times trace": "((1/M + 1/K)*mu_Sigma_mu + lambda_max*tr_Sigma/(M*K))/mu2**2",
    "traces": "((1/M + 1/K)*tr_Sigma*mu2 + tr_Sigma**2/(M*K))/mu2**2",
    "the larger of two": f"max({B_EXACT}, 1/(1 + n_eff*d_align))",
    "absolute value": "abs(1/(1 + n_eff*d_align))",
    "a third of the least": "1/(1 + min(M, K)/3*d_align)",
    "dimension": "((1/M + 1/K)*lambda_max*mu2 + N*lambda_max**2/(M*K))/mu2**2",
    "root of the trace": "((1/M + 1/K)*mu2*sqrt(tr_Sigma2) + tr_Sigma2/(M*K))/mu2**2",
}
WRONG = {
    "W1": "1/(1 + M*K/(M+K)*d_align)",
    "W2": "(1/M + 1/K)*mu_Sigma_mu/((1/M + 1/K)*mu_Sigma_mu + mu2**2)",
    "W3": "1/(1 + n_eff*max(d_par, d_2))",
    "W5": "1/(1 + min(M, K)/2*d_align)",
    "W6": f"{V.format('tr_Sigma**2/N/(M*K)')}/({V.format('tr_Sigma**2/N/(M*K)')} + mu2**2)",
    "W7": f"4/9*{B_EXACT}",
    "W9": f"{V.format('tr_Sigma2/(M*(K+1))')}/({V.format('tr_Sigma2/(M*(K+1))')} + mu2**2)",
    "from M = K = 8 on": "(M + K + 8 - min(M, K))/(M + K + 8 - min(M, K) + M*K*d_align)",
}


@pytest.mark.parametrize("text", TRUE.values(), ids=TRUE)
def test_a_true_bound_is_proved(text):
    start = time.process_time()
    decision = decide(bound(text))
    assert decision is not None
    assert decision.proved
    assert "for every law" in decision.implication
    assert time.process_time() - start < 4


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_wrong_bound_comes_with_letters_at_which_it_lies_below_b_exact(text):
    decision = decide(bound(text))
    assert decision is not None
    assert not decision.proved
    exact, claimed = bound(B_EXACT).numeric(), bound(text).numeric()
    assert claimed(**_needed(text, decision.hint)) < exact(**_needed(B_EXACT, decision.hint))


def _needed(text, hint):
    return {name: hint[name] for name in bound(text).arguments}


@pytest.mark.parametrize(
    "text",
    [
        "exp(-n_eff*d_align/2)",
        "normal_cdf(-sqrt(d_par))",
        "log(1 + 1/d_2)",
        "1/mu_Sigma_mu",  # no value at the edge mu'Sigma mu = 0
        "mu2**(1/7)",
        "1/(d_par - d_2)",
        "sqrt(1 - d_align)",
    ],
)
def test_what_is_outside_its_reach_is_left_open(text):
    assert decide(bound(text)) is None


def test_above_in_the_interior_is_not_enough():
    # Where mu'Sigma mu = 0 this is 0, and B_exact is not.
    edge = "min(1, mu_Sigma_mu*10**9/mu2**2)*1/(n_eff*d_align)"
    decision = decide(bound(edge))
    assert decision is None or not decision.proved


def test_lower_bounds_hold_below_zero_only():
    assert decide(bound("-1/M", kind="lower-bound")).proved
    assert not decide(bound("1/(1 + M*K + tr_Sigma)", kind="lower-bound")).proved


def test_ten_terms_end_in_time():
    text = " + ".join(f"M**{i % 4}*K**{i % 3}/(1 + M*mu2 + K)" for i in range(10))
    start = time.process_time()
    decide(bound(f"({text})/(n_eff*d_align)"))
    assert time.process_time() - start < 15


def test_orderings_between_claims():
    (found,) = orderings(registry.find("alignment.certificate"), registry.claims())
    assert (found.other, found.relation) == ("alignment.cantelli", ">=")
    (turned,) = orderings(registry.find("alignment.cantelli"), registry.claims())
    assert turned.relation == "<="
    one, other = bound("1/(1 + n_eff*d_par)", id="one"), bound("1/(1 + n_eff*d_2)", id="other")
    assert orderings(one, [other])[0].relation == "incomparable"
    assert orderings(one, [bound("1/(n_eff*d_par + 1)", id="same")])[0].relation == "=="
    assert orderings(one, [bound("1/2", id="lower", kind="lower-bound")]) == []


def test_the_registered_ordering_is_decided():
    claim = registry.find("alignment.ordering")
    assert claim.kind is Kind.ORDERING
    assert decide(claim).proved


pieces = st.sampled_from(
    ["1/(n_eff*d_align)", "1/d_par", "1/(M*d_2)", "1/(K*d_par)", "tr_Sigma/mu2", "1/(M*K*d_2)", "1/M", "0"]
)


@given(pieces, pieces, st.fractions(0, 3, max_denominator=4), st.booleans())
@settings(max_examples=25, deadline=None)
def test_what_is_proved_holds_in_fractions_at_moments_of_laws(one, other, weight, capped):
    total = f"{one} + ({weight})*({other})"
    claim = bound(f"({total})/(1 + {total})" if capped else total)
    decision = decide(claim)
    if decision is None or not decision.proved:
        return
    rng, exact = random.Random(0), bound(B_EXACT)
    for _ in range(60):
        spectrum = [Fraction(rng.randint(0, 6), rng.randint(1, 5)) for _ in range(rng.randint(1, 4))]
        mean2 = [Fraction(rng.randint(0, 6)) for _ in spectrum]
        mean2[0] += 1
        letters = {
            "M": rng.choice([1, 2, 5, 40]),
            "K": rng.choice([1, 3, 40]),
            "mu2": sum(mean2),
            "mu_Sigma_mu": sum((m * x for m, x in zip(mean2, spectrum, strict=True)), Fraction()),
            "tr_Sigma": sum(spectrum),
            "tr_Sigma2": sum(x * x for x in spectrum),
        }
        if letters["tr_Sigma"]:
            assert claim.exact(**letters) >= exact.exact(**letters)
