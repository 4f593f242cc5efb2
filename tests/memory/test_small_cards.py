"""What fits on one card of 16 GB: fine-tuning of Llama 3 8B on a T4, as notebooks of libraries run it."""

import math

import pytest
from conftest import make_job

from flopcast.errors import SpecError
from flopcast.library.curves import load_book
from flopcast.prediction import predict

ONE_T4 = {
    "base": "aws-g4dn",
    "groups": [{"count": 1, "node": {"device": "t4-16gb", "devices": 1, "host": "xeon-platinum-8259cl"}}],
}


def fine_tuning(model="llama-3-8b", precision="fp16", **adapters):
    """One sequence of 1024 tokens at a time on one T4, with adapters of rank 16 in attention."""
    return make_job(
        model={"base": model, "adapters": {"rank": 16, "targets": ["q", "k", "v", "out"], **adapters}},
        cluster=ONE_T4,
        stack="torch-fsdp2",
        plan=f"dp=1 mbs=1 gbs=8 recompute=full precision={precision}",
    )


def test_eight_billion_parameters_fit_a_t4_in_four_bits_only():
    """Their 16-bit weights alone have 16.06 GB; the card shows 15 GiB."""
    fits = {}
    for base_dtype in ("nf4", "fp16"):
        chosen = {"base_dtype": base_dtype} if base_dtype == "nf4" else {}
        job = fine_tuning(**chosen)
        fits[base_dtype] = predict(job, load_book(job.cluster)).memory.fits

    assert fits == {"nf4": True, "fp16": False}


def test_low_rank_adapters_of_one_billion_parameters_fit_a_t4_in_half_precision():
    job = fine_tuning(model="llama-3.2-1b")

    report = predict(job, load_book(job.cluster))

    fastest_s = 4 * 0.97e9 * 8 * 1024 / 65e12  # FLOP of frozen weights, forward and backward, at the peak
    assert report.memory.fits
    assert fastest_s < report.step_time_low_s < report.step_time_s < report.step_time_high_s < math.inf
    assert report.step_time_high_s > 1.3 * report.step_time_s


def test_a_t4_refuses_bf16_and_names_half_precision():
    with pytest.raises(SpecError) as told:
        fine_tuning(precision="bf16", base_dtype="nf4")

    (problem,) = told.value.problems
    assert (problem.field, problem.value, problem.allowed) == ("plan.precision", "bf16", "fp16, fp32")
    assert problem.fix == "set precision to fp16"
