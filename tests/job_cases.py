"""Job files as text, and what they are told."""

from flopcast.errors import problems_of
from flopcast.files.yaml_text import read_yaml
from flopcast.requests.job_files import job_of

LINES = {
    "model": "model: megatron-1.7b",
    "cluster": "cluster: dgx-a100:1",
    "stack": "stack: megatron-2022",
    "batch": "batch: {sequence_length: 2048}",
    "plan": 'plan: "dp=8 mbs=1 gbs=16 precision=fp16"',
}


def job_text(**changes):
    """The text of a small right job, some of its parts written differently; None leaves one out."""
    return "\n".join(line for line in (LINES | changes).values() if line is not None) + "\n"


def read_job(text):
    """The job that a text describes, checked."""
    return job_of(read_yaml(text.encode(), "job.yaml"))


def told(text):
    """Every fault of a job's text."""
    return tuple(problems_of(lambda: read_job(text)))


def places(problems):
    """Where each fault is, and of what."""
    return sorted((problem.where, problem.field) for problem in problems)
