"""spec/checkpoints.py and its rules: short forms, and checkpoints that contradict a cluster."""

import pytest
from all_cases import all_cases
from job_cases import job_text, read_job, told
from pydantic import TypeAdapter

from flopcast.spec.checkpoints import Checkpoint, CheckpointField

STORE = "{capacity_bytes: 1 PB, read_bytes_per_s: 1 TB/s, write_bytes_per_s: 1 TB/s}"
CLUSTER = f'cluster: {{base: "dgx-a100:1", object_store: {STORE}}}'


def job_with(checkpoint, **parts):
    return job_text(cluster=CLUSTER, checkpoint=f"checkpoint: {checkpoint}", **parts)


@all_cases(
    "stated",
    [
        Checkpoint(),
        Checkpoint(method="lazy", to="nvme", every_steps=100),
        Checkpoint(method="synchronous", every_s=599.5, files="layer", writers="all_ranks"),
        Checkpoint(method="chunked", to="object_store", staging="allocated", host_bytes=64e9),
    ],
)
def test_the_short_form_reads_back(stated):
    assert TypeAdapter(CheckpointField).validate_python(stated.text()) == stated


def test_a_short_form_a_mapping_and_a_change_say_the_same():
    text = read_job(job_with("lazy object_store every=10min"))
    mapping = read_job(job_with("{method: lazy, to: object_store, every_s: 10 min}"))
    changed = read_job(job_with("{base: lazy object_store, every_s: 10 min}"))

    assert text.checkpoint == mapping.checkpoint == changed.checkpoint
    assert text.checkpoint.every_s == 600


@all_cases(
    ("words", "fix"),
    [
        ("lazi", "write lazy in place of lazi"),
        ("lazy lazy", "leave out lazy"),
        ("lazy host every=3parsecs", "write every=10min in place of every=3parsecs"),
        ("lazy host cache=4", "write cache=4GB in place of cache=4"),
        ("{every_steps: 3, every_s: 2 s}", "leave out every_s"),
    ],
)
def test_wrong_words_are_told_with_a_fix(words, fix):
    (problem,) = told(job_with(words))

    assert problem.field == "checkpoint"
    assert problem.fix == fix


def test_a_storage_that_the_cluster_does_not_describe_is_a_fault():
    (problem,) = told(job_with("lazy file_system"))

    assert problem.field == "checkpoint.to"
    edit, _, other = problem.fix.partition(", or ")
    assert told(job_with(f"lazy {edit.split()[-1]}")) == ()
    assert other == "describe cluster.file_system"
    assert told(job_with("lazy object_store")) == told(job_with("lazy host")) == ()


def test_staging_of_a_synchronous_checkpoint_is_a_fault():
    (problem,) = told(job_with("synchronous host staging=pinned"))

    assert problem.field == "checkpoint.staging"


@pytest.mark.parametrize("word", ["every=0", "every=3parsecs", "cache=4", "files=tensor", "every=-1s"])
def test_settings_that_are_no_setting_are_faults(word):
    assert len(told(job_with(f"lazy host {word}"))) == 1
