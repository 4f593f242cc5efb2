"""spec/job_file.py: the text of a job, read again, is the job, whatever is in it."""

import math

import pytest
from all_cases import all_cases
from conftest import make_job
from hypothesis import given
from hypothesis import strategies as st

from flopcast.files.validate import build
from flopcast.files.yaml_text import read_yaml
from flopcast.library import catalog
from flopcast.quantities import exactly, parse_quantity
from flopcast.requests.job_files import job_of, load_catalog_job
from flopcast.spec.cluster import Cluster
from flopcast.spec.job import Job
from flopcast.spec.job_file import job_document, job_text
from flopcast.spec.model import Model
from flopcast.spec.run_length import RunLength
from flopcast.spec.site import Site, SiteFactor
from flopcast.spec.stack import Stack
from flopcast.units import SUFFIXES

JOB = make_job()
PLANS = {
    "experts": {
        "model": "mixtral-8x7b",
        "cluster": "dgx-h100:4",
        "stack": "megatron-core",
        "plan": "dp=8 tp=2 pp=2 ep=8 sp zero=1 mbs=1 gbs=64 precision=fp8_blockwise",
    },
    "listed batch": {
        "stack": "megatron-core",
        "batch": {"seq": 4096, "micro_batches": [{"seq": 512, "count": 3}, {"documents": [24, 1000]}]},
        "plan": "tp=4 pp=2 sp gbs=4 precision=bf16",
    },
    "a global batch of its default": {"plan": "tp=8 gbs=1 precision=fp16"},
    "uneven stages": {"plan": "dp=4 pp=2 gbs=16 stage_layers=5,3 precision=bf16", "stack": "megatron-core"},
}


def reread(text):
    return job_of(read_yaml(text.encode(), "job.yaml"))


@all_cases("name", [f"paper/{name}" for name in catalog.names("jobs") if "/" not in name])
def test_jobs_of_the_catalogue_are_read_again_as_they_were(name):
    job = load_catalog_job(name)

    assert reread(job_text(job)) == job


@all_cases("name", PLANS)
def test_jobs_of_many_kinds_are_read_again_as_they_were(name):
    job = make_job(**PLANS[name])

    assert reread(job_text(job)) == job


@all_cases(("kind", "noun"), [("models", Model), ("clusters", Cluster), ("stacks", Stack), ("sites", Site)])
def test_every_noun_of_the_catalogue_is_read_again_as_it_was(kind, noun):
    field = kind.removesuffix("s")
    for name in catalog.names(kind):
        made = getattr(catalog, field)(name)
        text = job_text(JOB.model_copy(update={field: made}))
        document = read_yaml(text.encode(), "job.yaml")
        assert build(noun, document, document.data.get(field, {}), (field,)) == made, name


@given(st.text(max_size=60).filter(str.isprintable), st.floats(0.5, 2.0))
def test_hostile_names_and_numbers_come_back(name, ratio):
    factor = SiteFactor(name="host", ratio=ratio)
    job = JOB.model_copy(
        update={
            "model": JOB.model.model_copy(update={"name": name}),
            "site": Site(name=name, factors=(factor,)),
            "assumptions": (name,),
        }
    )

    assert reread(job_text(job)) == job


@pytest.mark.parametrize("unit", sorted(units[0] for units in SUFFIXES.values()))
@given(value=st.floats(1e-12, 1e21))
def test_quantities_are_written_so_that_they_are_read_as_they_were(unit, value):
    assert parse_quantity(exactly(value, unit), (unit,)) == value


@all_cases("run", [{"tokens": 2e12}, {"samples": 52_002, "epochs": 2.5}])
def test_the_length_of_a_run_comes_back(run):
    job = JOB.model_copy(update={"run": RunLength(**run)})

    assert reread(job_text(job)) == job


def test_a_round_quantity_is_written_as_people_do():
    assert exactly(80e9, "B") == "80 GB"
    assert exactly(300.0, "W") == "300 W"


def test_what_is_left_out_has_its_default():
    told = job_document(JOB)

    assert set(told) == set(Job.model_fields) - {"site", "assumptions", "run", "checkpoint", "loader"}
    assert "tensor_parallel" not in told["plan"]
    assert math.isclose(
        parse_quantity(told["cluster"]["tiers"][0]["latency_s"], ("s",)), JOB.cluster.tiers[0].latency_s
    )
