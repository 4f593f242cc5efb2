"""Quantities in files carry their unit; whatever else stands there is a fault with its line and its fix."""

import pytest
from all_cases import all_cases
from job_cases import job_text, places, read_job, told

from flopcast.errors import SpecError, problems_of
from flopcast.files.validate import build
from flopcast.files.yaml_text import read_yaml
from flopcast.spec.cluster import Device, Host, Jitter
from flopcast.spec.data_parallel import Gradients
from flopcast.spec.memory_software import Memory
from flopcast.spec.operations import Draw, Facility, Power
from flopcast.spec.site import SiteFactor
from flopcast.spec.stack import Derate, HostCost, Optimizer, Pipeline
from flopcast.spec.tier import Tier
from flopcast.units import units_of

DEVICE = """\
name: toy
memory_bytes: 80 GB
memory_bytes_per_s: 2 TB/s
peak_flop_per_s:
  fp16: 312 TFLOP/s
  bf16: 300 TFLOP/s
multiprocessors: 108
kernel_launch_s: 3 us
"""
PARTS_WITH_UNITS = (Device, Tier, Pipeline, Optimizer, HostCost, Memory)
PARTS_WITHOUT = (Host, Jitter, Gradients, Derate, SiteFactor, Draw, Power, Facility)
QUANTITIES = [(noun, name) for noun in PARTS_WITH_UNITS for name in noun.model_fields if units_of(name)]


def built(noun, text):
    document = read_yaml(text.encode(), "part.yaml")
    return build(noun, document, document.data)


def refused(noun, text):
    with pytest.raises(SpecError) as error:
        built(noun, text)
    return error.value.problems


def test_a_device_is_read_in_si_units():
    device = built(Device, DEVICE)

    assert (device.memory_bytes, device.memory_bytes_per_s) == (80e9, 2e12)
    assert device.peak_flop_per_s == {"fp16": 312e12, "bf16": 300e12}
    assert device.kernel_launch_s == pytest.approx(3e-6)


@all_cases(
    ("field", "text", "value"),
    [
        ("memory_bytes", "80 GB", 80e9),
        ("memory_bytes", "80GB", 80e9),
        ("memory_bytes", '"80 GB"', 80e9),
        ("memory_bytes", "80 GiB", 80 * 2**30),
        ("memory_bytes", "0.08 TB", 80e9),
        ("memory_bytes", "8e10 B", 80e9),
        ("memory_bytes_per_s", "2 TB/s", 2e12),
        ("memory_bytes_per_s", "16 Tbit/s", 2e12),
        ("kernel_launch_s", "3 us", 3e-6),
        ("kernel_launch_s", "3 µs", 3e-6),
        ("kernel_launch_s", "0.003 ms", 3e-6),
    ],
)
def test_a_quantity_may_be_written_with_any_usual_prefix(field, text, value):
    lines = [f"{field}: {text}" if line.startswith(f"{field}:") else line for line in DEVICE.splitlines()]

    assert getattr(built(Device, "\n".join(lines)), field) == pytest.approx(value, rel=1e-12)


@all_cases(
    "text",
    [
        "80",
        "80e9",
        "80 gb",
        "80 Gb",
        "80 GB/s",
        "80 s",
        "GB",
        "eighty GB",
        "80 GB GB",
        "1e400 GB",
        "nan GB",
        "inf",
        "[80 GB]",
        "{fp16: 80}",
        "80,5 GB",
        "''",
    ],
)
def test_a_quantity_without_the_right_unit_is_refused_with_its_line(text):
    problems = refused(Device, DEVICE.replace("80 GB", text))

    assert {problem.where for problem in problems} == {"part.yaml:2"}
    assert all(problem.field.startswith("memory_bytes") for problem in problems)


@pytest.mark.parametrize("text", ["true", "null", "~"])
def test_a_quantity_is_no_truth_value_and_not_empty(text):
    problems = refused(Device, DEVICE.replace("80 GB", text))

    assert places(problems) == [("part.yaml:2", "memory_bytes")]


def test_the_line_of_a_quantity_inside_a_mapping_is_its_own():
    (problem,) = refused(Device, DEVICE.replace("300 TFLOP/s", "300"))

    assert (problem.where, problem.field) == ("part.yaml:6", "peak_flop_per_s.bf16")
    assert problem.value == 300
    assert "TFLOP/s" in problem.allowed


@all_cases(("noun", "name"), QUANTITIES)
def test_no_quantity_of_any_part_is_taken_without_a_unit(noun, name):
    problems = refused(noun, f"{name}: 1")

    (problem,) = [problem for problem in problems if problem.field == name]
    assert problem.value == 1
    assert problem.where == "part.yaml:1"
    assert "a number and a unit" in problem.allowed


@all_cases(("noun", "name"), QUANTITIES)
def test_writing_what_the_fault_advises_mends_it(noun, name):
    (problem,) = [p for p in refused(noun, f"{name}: 1") if p.field == name]

    advised = problem.fix.removeprefix("write ")

    if name != "peak_flop_per_s":  # a mapping, so that one number is wrong twice
        left = noun.model_fields.keys() - {name}
        assert name in advised
        assert {p.field for p in told_of(noun, advised)} <= left


def told_of(noun, text):
    return tuple(problems_of(lambda: built(noun, text)))


@all_cases("noun", PARTS_WITHOUT)
def test_ratios_and_counts_take_bare_numbers(noun):
    assert [name for name in noun.model_fields if units_of(name)] == []


def test_a_negative_quantity_is_refused_with_its_line():
    (problem,) = refused(Device, DEVICE.replace("80 GB", "-80 GB"))

    assert (problem.where, problem.field) == ("part.yaml:2", "memory_bytes")
    assert problem.allowed == "a quantity above 0 B"


def test_every_fault_of_a_part_is_told_not_only_the_first():
    text = DEVICE.replace("80 GB", "80").replace("3 us", "3").replace("108", "none") + "colour: red\n"

    assert places(refused(Device, text)) == [
        ("part.yaml:2", "memory_bytes"),
        ("part.yaml:7", "multiprocessors"),
        ("part.yaml:8", "kernel_launch_s"),
        ("part.yaml:9", "colour"),
    ]


def test_two_faults_on_one_line_are_both_told():
    problems = refused(Tier, "{name: n, devices: 8, bytes_per_s: 300, latency_s: 5 us, colour: red}")

    assert sorted(problem.field for problem in problems) == ["bytes_per_s", "colour"]


def test_a_missing_field_is_told_where_its_mapping_begins():
    (problem,) = refused(Device, DEVICE.replace("multiprocessors: 108\n", ""))

    assert (problem.where, problem.field) == ("part.yaml:1", "multiprocessors")
    assert "missing" in str(problem)
    assert problem.fix.startswith("add multiprocessors")


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("memory_byte", "memory_bytes"), ("multi_processors", "multiprocessors"), ("Name", "name")],
)
def test_a_misspelt_key_is_told_what_was_meant(wrong, meant):
    problems = refused(Device, DEVICE.replace(f"{meant}:", f"{wrong}:"))

    (problem,) = [problem for problem in problems if problem.field == wrong]
    assert problem.fix == f"did you mean {meant}?"
    assert meant in problem.allowed.split(", ")


def test_a_key_like_no_other_is_advised_to_go():
    problems = refused(Device, DEVICE + "zzz: 1\n")

    assert [problem.fix for problem in problems] == ["remove zzz"]


def test_units_reach_quantities_deep_inside_a_job():
    text = job_text(
        cluster="""\
cluster:
  groups:
    - count: 1
      node:
        device:
          name: toy
          memory_bytes: 80 GB
          memory_bytes_per_s: 2 TB/s
          peak_flop_per_s: {fp16: 312 TFLOP/s}
          multiprocessors: 108
          kernel_launch_s: 3 us
        devices: 8
        host: epyc-7763
  tiers:
    - {name: nvlink, devices: 8, bytes_per_s: 2.4 Tbit/s, latency_s: 5 us}"""
    )

    cluster = read_job(text).cluster
    wrong = told(text.replace("2.4 Tbit/s", "2.4").replace("312 TFLOP/s", "312"))

    assert cluster.node.device.memory_bytes == 80e9
    assert cluster.tiers[0].bytes_per_s == pytest.approx(300e9)
    assert places(wrong) == [
        ("job.yaml:10", "cluster.groups[0].node.device.peak_flop_per_s.fp16"),
        ("job.yaml:16", "cluster.tiers[0].bytes_per_s"),
    ]


def test_a_fix_has_the_unit_of_the_mapping_whose_key_is_called_like_another_field():
    (problem,) = refused(Device, DEVICE.replace("bf16: 300 TFLOP/s", "ratio: fast"))[:1]

    assert problem.field == "peak_flop_per_s.ratio"
    assert problem.fix == "write ratio: 1 FLOP/s"
