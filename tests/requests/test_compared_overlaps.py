"""A change that lists several kinds of overlap: one search over all of them is that of each."""

from flopcast.library.curves import load_book
from flopcast.records import replace
from flopcast.render.search_json import as_json
from flopcast.requests.job_request import JobRequest
from flopcast.requests.search_request import SearchRequest, question_of
from flopcast.search.find import find

KINDS = ("none", "chunks", "tiles")
JOB = JobRequest(
    files=("llama-2-7b",),
    cluster="dgx-a100",
    gpus="8",
    seq=2048,
    stack="megatron-core",
    plan="dp=1 tp=8 pp=1 vpp=1 mbs=1,2 gbs=16 sp zero=0 recompute=none",
)


def found(kinds):
    """What a search over these kinds finds."""
    job = replace(JOB, changes=(f"stack.tensor_overlap={','.join(kinds)}",))
    return find(question_of(SearchRequest(job=job)), load_book)


def test_each_kind_has_the_best_plan_that_a_search_of_this_kind_alone_finds():
    together = as_json(found(KINDS), top=1, seconds=1.0, screening_s=1.0)

    alone = [
        as_json(found((kind,)), top=1, seconds=1.0, screening_s=1.0)["settings"][0]["best"]
        for kind in KINDS
    ]
    assert [each["tensor_overlap"] for each in together["settings"]] == list(KINDS)
    assert [each["best"]["step_time_s"] for each in together["settings"]] == [
        each["step_time_s"] for each in alone
    ]
    assert len({each["step_time_s"] for each in alone}) == 3
