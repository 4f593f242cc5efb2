"""A job that no plan fits is answered with changes that make it fit, each of them tried."""

import re

import pytest
from all_cases import all_cases

from flopcast.errors import InfeasibleError
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import resolve

TUNED = {"model": "llama-3-8b", "cluster": "rtx-4090-8", "gpus": 1, "samples": "10k"}


def told(**asked):
    """What is said of a job that does not fit."""
    with pytest.raises(InfeasibleError) as error:
        resolve(JobRequest(**asked))
    return str(error.value)


def fits(**asked):
    """Whether the plan that is chosen for a job fits with room to spare."""
    try:
        job = resolve(JobRequest(**asked))
    except InfeasibleError:
        return False
    return predict(job, load_book(job.cluster)).memory.verdict == "fits"


def test_each_change_that_is_named_fits_and_no_smaller_one_of_its_kind_does():
    text = told(**TUNED, lora=16)

    length, devices = (int(re.search(rf"\n  --{name} (\d+)", text).group(1)) for name in ("seq", "gpus"))
    frozen = int(re.search(r"--qlora 16 --seq (\d+) instead of --lora 16", text).group(1))
    assert frozen > length
    assert fits(**TUNED, qlora=16, seq=frozen)
    assert not fits(**TUNED, qlora=16, seq=2 * frozen)
    assert fits(**TUNED, lora=16, seq=length)
    assert not fits(**TUNED, lora=16, seq=2 * length)
    assert fits(**TUNED | {"gpus": devices}, lora=16)
    assert not fits(**TUNED | {"gpus": devices // 2}, lora=16)


def test_a_length_that_nobody_gave_is_called_assumed():
    assert "A sequence has 8,192 tokens (assumed, because no length was given)" in told(**TUNED, lora=16)
    assert "A sequence has 16,384 tokens. " in told(
        **TUNED, lora=16, seq=16384, plan="auto dp=1 tp=1 pp=1 cp=1"
    )


def test_the_fullest_stage_is_named_only_where_there_are_several():
    alone = told(**TUNED, lora=16)
    several = told(model="llama-3-70b", cluster="dgx-h100", gpus=8, seq=1024, plan="auto pp=8 gbs=64")

    assert "fullest stage" not in alone
    assert "on its fullest stage" in several


@all_cases(
    ("asked", "unhelpful"),
    [
        ({"lora": 16}, "instead of --qlora"),
        ({"qlora": 16, "seq": 131072}, "--qlora"),
        ({"lora": 16, "plan": "auto dp=1 tp=1 pp=1 cp=1"}, "--gpus"),
        ({"lora": 16, "model": "llama-3-70b", "plan": "auto dp=1 tp=1 pp=1"}, "--seq"),
    ],
)
def test_what_does_not_help_is_not_named(asked, unhelpful):
    """Weights that are in 4 bits already, devices that a fixed plan cannot use, weights too large alone."""
    assert unhelpful not in told(**TUNED | asked)


def test_where_no_change_helps_larger_devices_or_a_smaller_model_are_named():
    text = told(model="llama-3-8b", cluster="rtx-2080-ti-8", gpus=1, seq=128, plan="auto dp=1 tp=1 pp=1")

    assert "Use larger devices or a smaller model" in text
    assert "--" not in text
