"""Matrices of links out of files: what they hold, and faults with file and line."""

from pathlib import Path

import pytest

from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document, read_yaml
from flopcast.requests.job_files import job_of, open_job_of

JOB = """
model: llama-3-8b
cluster: {base: "dgx-a100:3", tiers: {1: {links: {file: NAME, unit: GB/s}}}}
stack: megatron-core
batch: {seq: 2048}
plan: dp=3 tp=8 gbs=12 sp
"""
GOOD = "0,20,10\n15,0,20\n\n20,12,0\n"


def made(text, name="links.csv"):
    """The job with a matrix of this text, or the faults that it is told."""
    document = read_yaml(JOB.replace("NAME", name).encode(), "folder/job.yaml")

    def read(path: Path, _most: int) -> bytes:
        assert path == Path("folder") / name  # beside the job file
        return text.encode()

    try:
        return job_of(document, read)
    except SpecError as error:
        return [(each.where, each.field, each.value) for each in error.problems]


def test_csv_yaml_and_json_hold_the_same_matrix():
    rows = ((0, 20, 10), (15, 0, 20), (20, 12, 0))
    texts = {
        "links.csv": GOOD,
        "links.yaml": "- [0, 20, 10]\n- [15, 0, 20]\n- [20, 12, 0]\n",
        "links.json": "[[0, 20, 10], [15, 0, 20], [20, 12, 0]]",
    }
    for name, text in texts.items():
        assert made(text, name).cluster.tiers[1].links.rows == rows, name


def test_every_fault_of_a_matrix_has_its_file_and_line():
    file = str(Path("folder") / "links.csv")
    wrong = {
        "not square": ("0,20\n15,0\n20,12\n", [(1, "links.file", "3 rows")]),
        "a hole": ("0,,10\n15,0,20\n20,12,0\n", [(1, "links.file", "")]),
        "no number": ("0,20,10\n15,0,fast\n20,12,0\n", [(2, "links.file", "fast")]),
        "negative": ("0,20,10\n-15,0,20\n20,12,0\n", [(2, "links.file[1][0]", -15.0)]),
        "zero": ("0,20,10\n15,0,0\n20,12,0\n", [(2, "links.file[1][2]", 0.0)]),
        "asymmetric": ("0,20,2\n15,0,20\n\n20,12,0\n", [(4, "links.file[2][0]", 20.0)]),
    }
    for name, (text, faults) in wrong.items():
        expected = (f"{file}:{faults[0][0]}", *faults[0][1:])

        assert made(text)[0] == expected, name


def test_a_fault_of_the_matrix_hides_no_other_fault_of_the_cluster():
    document = Document(
        "request",
        {"model": "llama-3-8b", "stack": "megatron-core", "batch": {"seq": 2048}, "plan": "dp=8 gbs=8"}
        | {
            "cluster": {
                "base": "dgx-a100:1",
                "jitter": {"ratio": 0.5},
                "tiers": {"1": {"links": {"file": "x"}}},
            }
        },
        {},
    )

    try:
        job_of(document, lambda _path, _most: b"0,-1\n1,0\n")
    except SpecError as error:
        fields = {each.field for each in error.problems}

    assert fields == {"links.file[0][1]", "cluster.jitter.ratio"}


def test_a_fault_of_the_matrix_hides_neither_its_unit_nor_the_rules_of_the_job():
    wrong = {
        "unit: GB/s": ("unit: GBps", "cluster.tiers[1].links.unit"),
        "tp=8": ("tp=8 precision=fp8", "plan.precision"),
    }
    for right, (text, field) in wrong.items():
        document = read_yaml(JOB.replace(right, text).encode(), "job.yaml")
        for read_job in (job_of, open_job_of):
            with pytest.raises(SpecError) as error:
                read_job(document, lambda _path, _most: b"0,-20,10\n15,0,20\n20,12,0\n")
            assert [each.field for each in error.value.problems] == ["links.file[0][1]", field]
