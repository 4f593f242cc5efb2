"""render/report_json.py: the public keys, nine digits, and the same bytes for the same job."""

import json
import math
import sys

import pytest
from all_cases import all_cases
from children import ran
from conftest import make_job
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_reports import PARTS, report_of, sample_report

from flopcast.prediction import memory_of
from flopcast.render.report_json import as_json, memory_as_json
from flopcast.units import nine_digits

PUBLIC = {  # the promise: keys may be added, never renamed
    "format_version", "job", "step_time_s", "step_time_low_s", "step_time_high_s", "tokens_per_s",
    "tokens_per_s_per_device", "model_tflops_per_device", "mfu", "hfu", "mfu_peak", "flop_convention",
    "model_parameters", "active_parameters", "model_flop", "hardware_flop", "breakdown", "factors",
    "memory", "assumptions", "evidence", "warnings",
}  # fmt: skip
INNER = {
    "job": {"model", "cluster", "plan", "stack", "site"},
    "mfu_peak": {"dtype", "flop_per_s"},
    "memory": {
        "allocated_bytes", "reserved_bytes", "device_used_bytes", "capacity_bytes", "fits", "by_category",
        "per_stage",
    },
}  # fmt: skip
ROWS = {
    "factors": {"name", "log_sigma", "d_log_step"},
    "evidence": {"curve", "source", "relative_error", "extrapolated"},
}
PRINT_ONE = """
import json
from flopcast.api import predict
from flopcast.requests.job_files import load_catalog_job
from flopcast.render.report_json import as_json
print(json.dumps(as_json(predict(load_catalog_job("paper/llemma-7b-perlmutter-pp4-tp2-dp2")))))
"""


def numbers(data):
    """Every number of nested plain data."""
    if isinstance(data, dict):
        data = list(data.values())
    if isinstance(data, list):
        return [number for part in data for number in numbers(part)]
    return [data] if isinstance(data, (int, float)) and not isinstance(data, bool) else []


@all_cases("name", PARTS)
def test_every_promised_key_is_there(name):
    data = as_json(sample_report(name))

    assert data.keys() >= PUBLIC
    assert all(data[key].keys() >= inner for key, inner in INNER.items())
    assert all(row.keys() >= keys for name, keys in ROWS.items() for row in data[name])


@all_cases("name", PARTS)
def test_a_report_survives_the_way_through_text(name):
    data = as_json(sample_report(name))

    assert json.loads(json.dumps(data, allow_nan=False)) == data


@all_cases("name", PARTS)
def test_no_measured_number_has_more_than_nine_digits(name):
    data = as_json(sample_report(name))

    told = [number for number in numbers(data) if number != int(number)]
    assert len(told) > 20
    assert all(float(f"{number:.9g}") == number for number in told)


@settings(max_examples=60, deadline=None)
@given(value=st.floats(allow_nan=False, allow_infinity=False, width=64))
def test_nine_digits_change_a_number_by_less_than_they_can_tell(value):
    told = nine_digits(value)

    assert nine_digits(told) == told
    assert math.isclose(told, value, rel_tol=5.1e-9, abs_tol=1e-300)


def test_the_same_job_gives_the_same_bytes():
    texts = [json.dumps(as_json(report_of(make_job(**PARTS["batched"])))) for _ in range(2)]

    assert texts[0] == texts[1]


def test_the_same_job_gives_the_same_bytes_in_another_process():
    # Python orders sets of strings differently in every process: nothing printed may follow that order
    texts = [
        ran([sys.executable, "-c", PRINT_ONE], env={"PYTHONHASHSEED": seed}, text=True, check=True).stdout
        for seed in ("1", "2")
    ]

    assert texts[0] == texts[1]
    assert json.loads(texts[0])["job"]["model"]


@all_cases("name", PARTS)
def test_rates_follow_from_the_step_and_the_job(name):
    report = sample_report(name)
    data, job = as_json(report), report.job

    tokens = job.plan.global_batch * job.batch.sequence_length
    assert data["tokens_per_s"] == pytest.approx(tokens / data["step_time_s"], rel=1e-8)
    assert data["tokens_per_s_per_device"] == pytest.approx(data["tokens_per_s"] / job.cluster.num_devices)
    assert data["model_tflops_per_device"] * 1e12 == pytest.approx(
        data["mfu"] * data["mfu_peak"]["flop_per_s"]
    )
    assert data["hfu"] / data["mfu"] == pytest.approx(data["hardware_flop"] / data["model_flop"])


@all_cases("name", PARTS)
def test_the_printed_breakdown_still_sums_to_the_printed_step(name):
    data = as_json(sample_report(name))

    assert sum(data["breakdown"].values()) == pytest.approx(data["step_time_s"], rel=1e-7)


def test_the_job_is_named_so_that_it_can_be_found_again():
    data = as_json(sample_report("sequential"))["job"]

    assert (data["cluster"], data["devices"], data["site"]) == ("perlmutter", 32, "none")
    assert data["stack"] == "gpt-neox-deepspeed@2024-09"
    assert (data["plan"]["tensor_parallel"], data["plan"]["recompute"]) == (4, "full")


def test_a_stack_without_an_era_is_named_plainly():
    job = make_job(stack={"base": "megatron-2022", "name": "mine", "era": ""})

    assert as_json(report_of(job))["job"]["stack"] == "mine"


def test_parameters_are_counted_exactly_and_once():
    # 1024 wide, 8 layers: 12 h² + 13 h with biases, less without; embedding and head untied
    data = as_json(sample_report("one stage"))

    table = 50257 * 1024
    matrices = 8 * 12 * 1024**2
    assert 0 < data["model_parameters"] - (2 * table + matrices) < 8 * 13 * 1024 + 2 * 1024 + 1
    assert data["active_parameters"] == data["model_parameters"]


def test_memory_alone_has_the_shape_of_the_memory_in_a_report():
    alone = memory_as_json(memory_of(make_job(**PARTS["batched"])))

    assert alone == as_json(sample_report("batched"))["memory"]
    assert [row["stage"] for row in alone["per_stage"]] == [0, 1, 2, 3]
    assert {row["moment"] for row in alone["per_stage"]} <= {"backward", "update"}
