"""The published training of DeepSeek-V3 (arXiv:2412.19437) under its own plan; nothing is fitted to it.

The report states degrees, batch, schedule and precision. It says that norms, up-projections of latent
attention and activation functions of experts are recomputed, and, in section 3.3, in which formats
activations, gradients and moments are kept; the stack `hai-llm` has these, and the 20 multiprocessors that
run messages. It states 2.664 million hours of devices for
14.8e12 tokens on 2,048 devices: 19.9 s for each step. How blocks are divided over stages is chosen: three
on the first stage, two on the last.
"""

import pytest

from flopcast.library.curves import load_book
from flopcast.prediction import memory_of, predict
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import resolve

HOURS, TOKENS, DEVICES = 2.664e6, 14.8e12, 2048
SEQUENCES, LENGTH = 15360, 4096
PLAN = (
    f"pp=16 dp=128 ep=64 zero=1 mbs=1 gbs={SEQUENCES} precision=fp8_blockwise stage_layers=3,4x14,2"
    " recompute=selective:mla_up_proj,moe_act,layernorm"
)


def job_of(schedule, *changes):
    plan = f"{PLAN} schedule={schedule}"
    words = {"model": "deepseek-v3", "cluster": "hgx-h800", "gpus": DEVICES, "seq": LENGTH}
    words["stack"] = "hai-llm"
    return resolve(JobRequest(plan=plan, changes=changes, **words))


def step_of(schedule, *changes):
    job = job_of(schedule, *changes)
    return predict(job, load_book(job.cluster))


def test_a_step_with_dualpipe_takes_what_was_published_within_15_percent():
    published_s = HOURS * 3600 / DEVICES / (TOKENS / SEQUENCES / LENGTH)

    report = step_of("dualpipe")

    assert published_s == pytest.approx(19.9, abs=0.05)
    assert report.step_time_s == pytest.approx(published_s, rel=0.15)
    assert report.step_time_low_s < published_s < report.step_time_high_s
    assert report.memory.fits


def test_what_the_report_keeps_in_fewer_bytes_makes_the_training_fit():
    wide = memory_of(job_of("dualpipe", "stack.narrow.smaller_activations=[]"))

    assert wide.verdict == "does not fit"


def test_dualpipe_is_faster_than_1f1b_and_pairs_that_hide_exchanges_faster_than_those_that_wait():
    dual, plain, exposed = (
        step_of(*words).step_time_s
        for words in (("dualpipe",), ("1f1b",), ("dualpipe", "stack.experts.exchange_overlap=none"))
    )

    assert dual < plain
    assert dual < exposed
