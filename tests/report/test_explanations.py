"""report/explain: explained numbers are those of the report, and follow from what is told of them."""

import json
from functools import cache
from math import prod

import pytest
from sample_reports import PARTS, report_of, sample_report, with_site
from unmarked import unmarked

from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.library.curves import load_book
from flopcast.render.explanation import as_json, marked_text
from flopcast.report.explain.kernels import ADDED
from flopcast.report.explain.registry import explain, explainable
from flopcast.requests.job_files import job_of

as_text = unmarked(marked_text)

MORE = {  # name → model, plan, stack
    "experts": ("qwen3-30b-a3b", "dp=16 ep=16 gbs=32 zero=1", "megatron-core-2025"),
    "experts alone": ("mixtral-8x7b", "dp=8 tp=2 ep=8 etp=1 gbs=32 sp zero=1", "megatron-core"),
    "sharded": ("llama-3.2-1b", "dp=16 gbs=16 zero=3", "torch-fsdp2"),
    "ring": ("llama-3.2-1b", "tp=2 cp=4 pp=2 gbs=8 sp zero=1", "megatron-core"),
    "8 bits": ("llama-3.2-1b", "tp=4 dp=4 gbs=16 sp precision=fp8 zero=1", "megatron-core"),
}
NAMES = (*PARTS, *MORE)
ALL = pytest.mark.parametrize("name", NAMES)
FITTED = {"gemm_level[a100-sxm4-80gb]": "9 runs of somebody"}


@cache
def report(name):
    if name in PARTS:
        return sample_report(name)
    model, plan, stack = MORE[name]
    data = {"model": model, "cluster": "dgx-h100:2", "stack": stack, "batch": {"seq": 4096}, "plan": plan}
    return report_of(job_of(Document("job", data, {})))


def told_of(made, what):
    return explain(made, load_book(made.job.cluster), FITTED, what)


def of(name, what):
    return told_of(report(name), what)


def names_of(name, kind):
    made = report(name)
    return list(explainable(made, load_book(made.job.cluster), {})[kind])


def leaves(explained):
    """Explanations without parts."""
    if not explained.parts:
        return [explained]
    return [leaf for part in explained.parts for leaf in leaves(part)]


def number(explained, name):
    (found,) = [each.number for each in explained.inputs if each.name == name]
    return found


def parts_sum(explained):
    return sum(part.amount for part in explained.parts)


@ALL
def test_the_step_is_the_sum_of_its_components(name):
    step = of(name, "step")

    assert step.amount == report(name).step_time_s
    assert parts_sum(step) == pytest.approx(step.amount, rel=1e-9)


@ALL
def test_a_component_is_what_the_breakdown_says_and_the_sum_of_its_operators(name):
    for component, seconds in report(name).breakdown.items():
        found = of(name, component)

        assert found.amount == pytest.approx(seconds, rel=1e-9)
        assert not found.parts or parts_sum(found) == pytest.approx(seconds, rel=1e-9)


@ALL
def test_operators_bubble_launches_and_jitter_are_the_whole_step(name):
    made = report(name)
    operators = {
        leaf.name: leaf.amount for component in made.breakdown for leaf in leaves(of(name, component))
    }
    shared = [part for component in made.breakdown for part in leaves(of(name, component))]

    for operator in names_of(name, "operators"):
        expected = sum(part.amount for part in shared if part.name == operator)
        assert of(name, operator).amount == pytest.approx(expected, rel=1e-9)
    assert sum(part.amount for part in shared) == pytest.approx(made.step_time_s, rel=1e-9)
    assert set(operators) - {"launches"} <= {*names_of(name, "operators"), *made.breakdown}


@ALL
def test_one_execution_is_its_own_seconds_times_its_factors(name):
    for operator in names_of(name, "operators"):
        for leaf in leaves(of(name, operator)):
            if (
                any(each.name == "without factors" for each in leaf.inputs)
                and "max(" not in leaf.formula[:4]
            ):
                factors = [each.number for each in leaf.inputs if each.name == "factor"]
                bounds = [each.number for each in leaf.inputs if each.name in ("bound", "least")]
                scaled = max(number(leaf, "without factors") * prod(factors), *bounds, 0.0)
                assert scaled == pytest.approx(number(leaf, "one"), rel=1e-9), operator


@ALL
def test_the_formula_of_a_kernel_gives_its_seconds_from_what_is_told(name):
    seen = 0
    for operator in names_of(name, "operators"):
        for leaf in leaves(of(name, operator)):
            told = {each.name.partition(",")[0]: each.number for each in leaf.inputs}
            if "peak" in told and told["bound"] > 0:
                bound_s = max(told["FLOP"] / told["peak"], told["bytes"] / told["bandwidth"])
                own_s = (told["launch"] + bound_s / told["efficiency"]) * told.get("layout's ratio", 1.0)
                busy = told.get("busy device", 1.0)
                assert told["bound"] == pytest.approx(bound_s, rel=1e-9)
                added_s = sum(told.get(term, 0.0) for term in ADDED)
                alone_s = max(own_s, bound_s) * busy + added_s
                assert told["without factors"] == pytest.approx(alone_s, rel=1e-9)
                seen += 1

    assert seen > 10


@ALL
def test_the_formula_of_a_message_gives_its_seconds_from_what_is_told(name):
    for operator in names_of(name, "operators"):
        for leaf in leaves(of(name, operator)):
            told = {each.name: each.number for each in leaf.inputs}
            if "bus bandwidth" in told and leaf.formula.startswith("(latency"):
                sent_s = (
                    told["share of the bytes"]
                    * told.get("counted as", told["bytes"])
                    / told["bus bandwidth"]
                )
                own_s = told["latency"] + sent_s / told["efficiency"]
                assert told["without factors"] == pytest.approx(own_s, rel=1e-9)


def test_a_product_tells_its_sizes_and_their_flop():
    up = of("one stage", "mlp.up")

    flop = 2 * number(up, "m") * number(up, "n") * number(up, "k")
    assert number(up, "FLOP") == flop
    assert "NVIDIA A100" in next(each.source for each in up.inputs if each.name.startswith("peak"))


@ALL
def test_a_factor_scales_as_much_of_the_step_as_its_sensitivity_says(name):
    made = report(name)
    for each in made.factors:
        shown = each.name if each.name not in made.breakdown else f"factor.{each.name}"
        found = of(name, shown)

        assert found.amount == pytest.approx(each.share * made.clean_step_time_s, rel=1e-9)
        assert parts_sum(found) == pytest.approx(found.amount, rel=1e-9)


@ALL
def test_the_doubt_about_the_ratio_of_two_plans_scales_no_step_and_has_no_parts(name):
    (doubt,) = [each for each in report(name).factors if not each.scales_step]

    found = of(name, doubt.name)

    assert (found.amount, found.parts, doubt.share) == (0, (), 0)
    assert "ratio of two plans" in found.formula
    assert number(found, "sigma") == doubt.log_sigma_factor > 0


@ALL
def test_memory_is_the_sum_of_its_categories(name):
    made = report(name)
    memory = of(name, "memory")

    assert memory.amount == made.memory.allocated_bytes
    assert parts_sum(memory) == pytest.approx(memory.amount, rel=1e-9)
    for category, size in made.memory.by_category.items():
        assert of(name, f"memory.{category}").amount == size


def test_parameters_are_told_with_the_bytes_of_each():
    found = of("one stage", "memory.parameters")

    assert number(found, "bytes of each") == 2  # fp16
    assert number(found, "parameters of a rank") * 2 == found.amount


def test_mfu_follows_from_what_is_told_of_it():
    made, found = report("batched"), of("batched", "mfu")

    (peak,) = [each.number for each in found.inputs if each.name.startswith("peak")]
    could = number(found, "step") * number(found, "devices") * peak
    assert found.amount == made.metrics.mfu_ratio == pytest.approx(number(found, "model FLOP") / could)


def test_jitter_is_what_it_adds_to_a_clean_step():
    found = of("jitter", "jitter")

    assert found.amount == pytest.approx(0.1 * number(found, "clean step"))


def test_a_level_names_the_runs_that_it_was_fitted_on_and_a_site_comes_before_them():
    made = report("one stage")
    name = "gemm_level[a100-sxm4-80gb]"
    on_site = report_of(with_site(made.job, {name: 1.2}))

    (told,) = [each.source for each in told_of(made, name).inputs if each.name == "level"]
    (here,) = [each.source for each in told_of(on_site, name).inputs if each.name == "level"]

    assert (told, here) == ("9 runs of somebody", "the job's site")


def test_every_constant_of_a_product_has_a_source():
    up = of("one stage", "mlp.up")

    wanted = ("peak", "bandwidth", "efficiency", "launch", "factor")
    assert all(each.source for each in up.inputs if each.name.startswith(wanted))


def test_an_unknown_name_tells_all_names():
    with pytest.raises(SpecError) as error:
        of("one stage", "mlp.upp")

    (problem,) = error.value.problems
    assert problem.fix == "did you mean mlp.up?"
    assert all(f"{kind}: " in problem.allowed for kind in ("whole", "components"))
    with pytest.raises(SpecError) as error:
        of("one stage", "zzz")
    allowed = error.value.problems[0].allowed
    assert all(f"{kind}: " in allowed for kind in ("whole", "components", "operators", "factors"))


@pytest.mark.parametrize("name", ["one stage", "experts", "sequential"])
def test_everything_that_is_named_can_be_shown_as_text_and_as_json(name):
    for kind in ("whole", "components", "operators", "factors", "memory"):
        for what in names_of(name, kind):
            found = of(name, what)

            assert json.loads(json.dumps(as_json(found), allow_nan=False))["value"] == found.amount
            assert as_text(found).startswith(found.name)
