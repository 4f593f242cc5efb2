"""A search tries what the stack has an option for, and more only where the user names it."""

import numpy as np
from all_cases import all_cases
from command_line import flopcast
from conftest import make_job

from flopcast.library import catalog
from flopcast.search.grid import batches
from flopcast.search.space import Space

NEUTRAL = {  # field of a plan that a stack may lack → the value that plans then have
    "tensor_parallel": 1,
    "sequence_parallel": 0,
    "pipeline_parallel": 1,
    "virtual_stages": 1,
    "context_parallel": 1,
}
WORDS = (
    "search",
    "--model",
    "megatron-1.7b",
    "--cluster",
    "dgx-a100:1",
    "--seq",
    "2048",
    "--stack",
    "pytorch-ddp",
)


def tried(job, **space):
    """Every value of each field among the plans that a search tries."""
    values = {name: set() for name in NEUTRAL}
    for _, plans in batches(job, Space(gbs=64, **space)):
        columns = {name: np.unique(getattr(plans, name)) for name in NEUTRAL if name != "sequence_parallel"}
        for name, column in columns.items():
            values[name] |= set(column.tolist())
        values["sequence_parallel"].add(plans.structure.sequence_parallel)
    return values


@all_cases("stack", catalog.names("stacks"))
def test_fields_that_a_stack_cannot_change_keep_their_neutral_value(stack):
    job = make_job(cluster="dgx-a100:2", stack=stack, plan="dp=16 gbs=64 zero=0")
    fixed = job.stack.switches.fixed

    values = tried(job)

    assert {name: values[name] for name in fixed} == {name: {NEUTRAL[name]} for name in fixed}
    assert all(len(values[name]) > 1 for name in set(NEUTRAL) - set(fixed))
    assert tried(job, tp=2)["tensor_parallel"] == {2}


def test_the_answer_says_what_was_not_tried_and_how_to_try_it():
    without, named = (flopcast(*WORDS, "--plan", f"gbs=64 mbs=1 {words}").out for words in ("", "tp=1,2"))

    assert "this stack tries tensor parallelism, sequence parallelism, pipeline" in without
    assert "this stack tries sequence parallelism, pipeline parallelism" in named
    assert "tp=2" in named
    assert "tp=2" not in without
