"""The schema of the document: a real run fits it, and what is not a document does not."""

import json
from concurrent.futures import ThreadPoolExecutor
from importlib import resources

import jsonschema
import pytest
from documents import example, network, trained, verdict
from rescert.sim.records import Run, versions
from rescert.theory import registry
from rescert.verify import alignment, document
from rescert.verify.alignment_presets import NetworkStudy, Preset
from rescert.verify.decisions import Status
from rescert.verify.suites import Context

SCHEMA = json.loads((resources.files("rescert.reports") / "schema" / "verify.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
TINY = Preset(
    dims=(8,),
    d_aligns=(0.25,),
    sizes=((1, 1), (8, 8)),
    rounds=(500,),
    identity_rounds=(1000,),
    networks=NetworkStudy(
        data="digits",
        pool=1,
        sizes=(200, 60, 100),
        widths=(0.25,),
        seeds=1,
        steps=3,
        batch_size=32,
        lr=0.05,
        optimiser="sgd",
        sites=("layer1.0",),
        depth=8,
        grid=((1, 1), (64, 64)),
        trials=200,
        direct=((1, 1), (64, 64)),
    ),
)


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["format"]["const"] == document.DOCUMENT_FORMAT


def test_a_real_run_fits(tmp_path):
    options = {"suites": ["alignment"], "preset": "quick", "seed": 0, "device": "cpu"}
    run = Run.create(tmp_path / "run", job="verify", options=options)
    claims = [registry.find("alignment.mean"), registry.find("alignment.certificate")]
    with ThreadPoolExecutor(1) as executor:
        context = Context(run=run, device="cpu", executor=executor)
        result = alignment.run(context, claims, preset=TINY)
    built = document.build(
        job="verify",
        options=options,
        versions=versions(),
        out=run.path,
        verdicts=result.verdicts,
        results={"alignment": result.results},
    )
    document.write(built, run.path)
    VALIDATOR.validate(document.read(run.path))


@pytest.mark.parametrize(
    "found",
    [
        example(),
        example([]),
        example(cells=[], networks=[], trends=[]),
        example(networks=[network(0.25, diverged=True, sites={}, losses=[2.3, float("nan")], probe_loss=None)]),
        example() | {"width": {"anything": 1}},
    ],
)
def test_documents_that_fit(found):
    VALIDATOR.validate(found)


def _with_verdict(**changes):
    found = example()
    found["verdicts"][0] |= changes
    return found


@pytest.mark.parametrize(
    "found",
    [
        example() | {"format": 2},
        {key: item for key, item in example().items() if key != "nonfinite"},
        example() | {"wdith": 3},
        _with_verdict(status="VERIFIED"),
        _with_verdict(status="REFUTED"),  # without a counterexample
        _with_verdict(tried={"symbolic": {"SUPPORTED": 0}}),
        _with_verdict(extra=1),
        example(cells=[trained(0.25, p=1.5)]),
    ],
)
def test_documents_that_do_not(found):
    assert not VALIDATOR.is_valid(found)


def test_a_refuted_verdict_carries_its_counterexample():
    example_of_failure = {"subject": "s", "evidence": "exact", "observed": 1.0, "expected": 0.5, "detail": ""}
    VALIDATOR.validate(example([verdict("a.b", Status.REFUTED, counterexample=example_of_failure)]))
