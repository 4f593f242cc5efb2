"""The largest value that fits: the next larger one does not."""

import json

import pytest
from command_line import flopcast

from flopcast.errors import SpecError
from flopcast.jobs import job
from flopcast.prediction import memory_of
from flopcast.search.largest_values import CHANGED, largest_values, step_of
from flopcast.ui.responses import TASKS

WORDS = {"cluster": "rtx-4090-8:1", "lora": 16, "seq": 1024, "plan": "dp=4 tp=2 sp zero=1 mbs=1 gbs=64"}


def test_the_next_larger_value_breaks_the_verdict_and_full_recompute_allows_more():
    tuned = job("llama-3-8b", **WORDS)
    for name in CHANGED:
        plain, full = largest_values(tuned, name)
        step = step_of(tuned, name)

        assert (plain.recompute, full.recompute) == ("none", "full")
        assert plain.fits < plain.tight < full.tight, name
        for value, wrong in ((plain.fits, ("tight", "does not fit")), (plain.tight, ("does not fit",))):
            here, beyond = (memory_of(CHANGED[name](tuned, each)).verdict for each in (value, value + step))
            assert here not in wrong, name
            assert beyond in wrong, name


def test_the_command_and_the_page_give_the_same_values():
    options = [text for key, value in WORDS.items() for text in (f"--{key}", str(value))]
    of_python = largest_values(job("llama-3-8b", **WORDS), "rank")

    told = json.loads(flopcast("memory", "llama-3-8b", *options, "--largest", "rank", "--json").out)
    text = flopcast("memory", "llama-3-8b", *options, "--largest", "rank").out
    request = {"model": "llama-3-8b", "find": "largest_rank", **WORDS}
    page = json.loads(TASKS["api.search"](request, lambda _: None)[1])

    assert told["largest"] == page["largest"]
    rows = [(each["recompute"], each["fits"], each["tight"]) for each in told["largest"]["values"]]
    assert rows == [(each.recompute, each.fits, each.tight) for each in of_python]
    assert all(f"{value:,}" in text for _, *values in rows for value in values)


def test_a_plan_with_interleaved_stages_has_a_largest_micro_batch():
    staged = job("llama-3-8b", cluster="dgx-a100:1", seq=1024, plan="dp=4 pp=2 vpp=2 zero=1 mbs=1 gbs=64")

    plain, full = largest_values(staged, "batch")

    assert 1 <= plain.fits < plain.tight < full.tight


def test_nothing_fits_if_the_smallest_value_is_too_large():
    large = job("llama-3-70b", **WORDS)

    assert [(each.fits, each.tight) for each in largest_values(large, "batch")] == [(None, None)] * 2


def test_a_value_that_a_job_does_not_have_is_an_error():
    whole = job("llama-3-8b", cluster="dgx-a100:1", seq=1024, plan="dp=8 gbs=64")

    with pytest.raises(SpecError, match="the job trains no adapters"):
        largest_values(whole, "rank")
    with pytest.raises(SpecError, match="allowed: batch, seq, rank"):
        largest_values(whole, "width")
    served = flopcast("memory", "llama-3-8b", "--engine", "vllm", "--gpus", "1", "--largest", "seq")
    assert (served.code, "an engine has no micro-batch" in served.err) == (1, True)
