"""Files as they are found, read as jobs, written in every format that is written, and read again."""

import re
from functools import cache

import pytest
from all_cases import all_cases
from foreign_cases import FOREIGN, files, job_in
from megatron_cases import EXPECTED, REFUSED_BY_RULES, job_on, script

from flopcast.api import predict
from flopcast.errors import SpecError
from flopcast.interop.exports.deepspeed import LEFT_OPEN
from flopcast.interop.exports.kinds import KINDS
from flopcast.interop.exports.same_job import canonical_stack, differences, read_back
from flopcast.requests.job_request import JobRequest
from flopcast.requests.sources import source_of

CLUSTERS = {"llama3_405b_2024.toml": "dgx-h100:64", "llama3_70b_float8_tp.toml": "dgx-h100:32"}
SCRIPTS = [f"megatron/{name}" for name in EXPECTED if name not in REFUSED_BY_RULES]
NAMES = {
    "megatron": "run.sh",
    "deepspeed": "ds_config.json",
    "torchtitan": "train.toml",
    "megatron-bridge": "overrides.yaml",
}
PROGRAMS = {
    "megatron": "Megatron-LM's",
    "deepspeed": "DeepSpeed's",
    "torchtitan": "torchtitan's",
    "megatron-bridge": "Megatron-Bridge's",
}
NODES = (1, 2, 4, 8, 16, 32, 64)
MOST = [*files(), *SCRIPTS]
PAIRS = [(name, kind) for name in MOST for kind in NAMES]
FIELD = re.compile(r"(model|plan|batch)(\.\w+)+")
WRITTEN = {  # format → files that are written in it at least: what is refused must not become more
    "megatron": 49,
    "deepspeed": 25,  # bf16 without ZeRO cannot be written
    "torchtitan": 13,
    "megatron-bridge": 49,
}


@cache
def found_job(name):
    """A file as a job on the first number of nodes on which rules let it through; None where none does."""
    kind, _, file = name.partition("/")
    if kind == "megatron":
        return job_on(script(file))
    said = {"model": "llama-3.1-8b", "seq": 4096} if kind == "deepspeed" else {}
    for nodes in NODES:
        try:
            return job_in(FOREIGN / name, CLUSTERS.get(file, f"dgx-h100:{nodes}"), **said)
        except SpecError:
            continue
    return None


@cache
def written(kind, name):
    """What a writer makes of a file's job, or the faults of what it cannot say."""
    try:
        return KINDS[kind].export(found_job(name)), ()
    except SpecError as error:
        return None, error.problems


def again(kind, job, text):
    """What the command line makes of an exported file, whose format nobody names."""
    said = JobRequest(gpus=job.cluster.num_devices, model=job.model.name if kind == "deepspeed" else None)
    document = source_of(text, NAMES[kind], said).document
    if kind == "deepspeed" and isinstance(document.data, dict):
        document.data.pop("model", None)
    return read_back(document, job, LEFT_OPEN if kind == "deepspeed" else ())


@cache
def step_time_s(job):
    """Seconds of a job's step; each file is written in several formats."""
    return predict(job).step_time_s


def text_of(made):
    """The one file of an export."""
    ((_, content),) = made.files
    return content


def with_stack_of(found, job):
    """A job that was read again, with the name and the stack of the one that was written."""
    model = found.model.model_copy(update={"name": job.model.name})
    return found.model_copy(update={"model": model, "stack": job.stack})


def test_most_files_are_jobs_on_some_number_of_devices():
    kinds = [name.partition("/")[0] for name in MOST if found_job(name) is not None]

    counts = {kind: kinds.count(kind) for kind in set(kinds)}
    assert counts.keys() == {name.partition("/")[0] for name in MOST}
    assert min(counts.values()) >= 3


@all_cases(("name", "kind"), PAIRS)
def test_a_file_comes_back_as_the_same_job_or_is_refused_field_by_field(name, kind):
    job = found_job(name)
    if job is None:
        return  # refused when it is read: tests of the reader say why
    made, problems = written(kind, name)
    if problems:
        assert all(FIELD.fullmatch(problem.field) for problem in problems)
        assert all(f"cannot be exported to {PROGRAMS[kind]}" in str(problem) for problem in problems)
        return

    found = again(kind, job, text_of(made))

    assert differences(job, found) == ()
    if (alike := with_stack_of(found, job)) != job:
        assert step_time_s(alike) == pytest.approx(step_time_s(job), rel=1e-12)


@all_cases(("name", "kind"), PAIRS)
def test_a_stack_that_comes_back_another_is_told_with_what_it_loses(name, kind):
    job = found_job(name)
    made, _ = written(kind, name) if job else (None, ())
    if made is None:
        return

    kept = canonical_stack(again(kind, job, text_of(made))) == canonical_stack(job)

    losses = [note for note in made.notes if "cannot contain the stack" in note]
    assert len(losses) == (0 if kept else 1)


@all_cases("name", [name for name in MOST if name.partition("/")[0] in NAMES])
def test_a_file_is_written_in_its_own_format_with_its_stack_and_takes_as_long(name):
    kind, job = name.partition("/")[0], found_job(name)
    if job is None:
        return
    made, problems = written(kind, name)
    assert problems == ()

    found = again(kind, job, text_of(made))

    assert canonical_stack(found) == canonical_stack(job)
    assert step_time_s(found) == step_time_s(job)


@all_cases("name", SCRIPTS)
def test_writing_again_what_was_written_gives_the_same_bytes(name):
    job = found_job(name)
    once = text_of(written("megatron", name)[0])

    found = again("megatron", job, once)

    named = found.model_copy(update={"model": found.model.model_copy(update={"name": job.model.name})})
    assert text_of(KINDS["megatron"].export(named)) == once


@all_cases("kind", WRITTEN)
def test_a_format_takes_many_of_the_files(kind):
    taken = [name for name in MOST if found_job(name) is not None and written(kind, name)[0] is not None]

    assert len(taken) >= WRITTEN[kind]
