"""`flopcast search` never recommends a slower plan than the one that `flopcast predict` chooses."""

from dataclasses import replace
from functools import cache

import pytest

from flopcast.library.curves import load_book
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import resolve
from flopcast.requests.search_request import SearchRequest, question_of
from flopcast.search.exact import play_each
from flopcast.search.find import find

book_of = cache(load_book)
REQUESTS = {  # model, cluster, devices, and what else is settled
    "everything open": ("llama-3.2-1b", "dgx-h100", 2, {}),
    "most of it settled": (
        "gpt3-175b", "dgx-a100", 128, {"plan": "mbs=1 gbs=256 zero=1 cp=1 tp=8 recompute=selective"}
    ),
    "uneven stages": (
        "llama-3-8b", "dgx-h100", 16, {"plan": "mbs=1 gbs=32 zero=1 cp=1 tp=1 recompute=none"}
    ),
    "experts": (
        "mixtral-8x7b", "dgx-h100", 64, {"plan": "mbs=1 gbs=128 zero=1 cp=1 tp=4 recompute=none"}
    ),
    "one device": ("llama-3.2-1b", "dgx-h100", 1, {}),
    "parameters are sharded": (
        "llama-3-8b", "dgx-a100", 8, {"stack": "torch-fsdp2", "plan": "cp=1 pp=1 tp=1"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REQUESTS)
def test_a_search_recommends_the_chosen_plan_where_it_is_tied_with_the_best_and_else_a_faster_one(name):
    model, cluster, devices, settled = REQUESTS[name]
    request = JobRequest(model=model, cluster=cluster, gpus=devices, **settled)
    chosen = resolve(request)
    ((_, predicted),) = play_each([chosen], book_of)

    stacks = tuple(filter(None, (request.stack,)))
    asked = SearchRequest(job=replace(request, gpus=str(devices)), clusters=(cluster,), stacks=stacks)
    result = find(question_of(asked), book_of)

    first, own = result.plans[0], next(one for one in result.plans if one.played.plan == chosen.plan)
    assert first.played.step_time_s <= predicted.step_time_s * 1.0001
    assert own.played.step_time_s == pytest.approx(predicted.step_time_s, rel=1e-9)
    assert (first is own) == own.near
