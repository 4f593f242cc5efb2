"""Files as they are found, read as jobs, written and read again: for every pair of reader and writer."""

from functools import cache

import pytest
from foreign_cases import FOREIGN, files, job_in
from megatron_cases import EXPECTED, REFUSED_BY_RULES, job_on, script

from flopcast.api import predict
from flopcast.errors import SpecError
from flopcast.io.exports.deepspeed import LEFT_OPEN
from flopcast.io.exports.kinds import KINDS
from flopcast.io.exports.same_job import canonical_stack, differences, read_back
from flopcast.io.sources import Said, source_of

PAIRS = ("deepspeed", "torchtitan")
CLUSTERS = {"llama3_405b_2024.toml": "dgx-h100:64", "llama3_70b_float8_tp.toml": "dgx-h100:32"}
SCRIPTS = [name for name in EXPECTED if name not in REFUSED_BY_RULES]
NAMES = {
    "megatron": "run.sh",
    "deepspeed": "ds_config.json",
    "torchtitan": "train.toml",
    "megatron-bridge": "overrides.yaml",
}


@cache
def found_jobs():
    """Every file of both formats that a rule lets through on some number of devices, as a job."""
    jobs = {}
    for name in files():
        kind, _, file = name.partition("/")
        for nodes in (1, 2, 4, 8, 16, 32, 64) if kind in PAIRS else ():
            said = {"model": "llama-3.1-8b", "seq": 4096} if kind == "deepspeed" else {}
            try:
                jobs[name] = job_in(FOREIGN / name, CLUSTERS.get(file, f"dgx-h100:{nodes}"), **said)
                break
            except SpecError:
                continue
    return jobs


def written(kind, job):
    ((_, content),) = KINDS[kind].export(job).files
    return content


def again(kind, job):
    """What the command line makes of the exported file, whose format nobody names."""
    said = Said(devices=job.cluster.num_devices, model=job.model.name if kind == "deepspeed" else None)
    document = source_of(written(kind, job), NAMES[kind], said).document
    if kind == "deepspeed" and isinstance(document.data, dict):
        document.data.pop("model", None)
    return read_back(document, job, LEFT_OPEN if kind == "deepspeed" else ())


def test_most_files_are_jobs_on_some_number_of_devices():
    kinds = [name.partition("/")[0] for name in found_jobs()]

    assert min(kinds.count(kind) for kind in PAIRS) >= 4


@pytest.mark.parametrize("name", [name for name in files() if name.partition("/")[0] in PAIRS])
def test_a_file_that_was_read_is_written_as_a_file_of_the_same_job(name):
    kind, job = name.partition("/")[0], found_jobs().get(name)
    if job is None:
        return  # refused when it is read: tests of the reader say why

    found = again(kind, job)

    assert differences(job, found) == ()
    assert canonical_stack(found) == canonical_stack(job)


@pytest.mark.parametrize("name", [name for name in files() if name.partition("/")[0] in PAIRS])
def test_the_step_of_what_is_read_again_is_the_same(name):
    kind, job = name.partition("/")[0], found_jobs().get(name)
    if job is None:
        return

    found = again(kind, job)

    assert predict(found).step_time_s == predict(job).step_time_s


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_step_of_a_script_that_is_written_again_is_the_same(name):
    job = job_on(script(name))

    assert predict(again("megatron", job)).step_time_s == predict(job).step_time_s


@pytest.mark.parametrize("name", SCRIPTS)
def test_writing_again_what_was_written_gives_the_same_bytes(name):
    job = job_on(script(name))
    written_once = again("megatron", job)

    named = written_once.model_copy(
        update={"model": written_once.model.model_copy(update={"name": job.model.name})}
    )
    assert written("megatron", named) == written("megatron", job)


def refusals(kind, job):
    """What a writer says of a job that it refuses; nothing where it writes it."""
    try:
        written(kind, job)
    except SpecError as error:
        return [str(problem) for problem in error.problems]
    return []


@pytest.mark.parametrize("kind", PAIRS)
def test_one_format_into_another_keeps_model_plan_and_batch_or_is_refused(kind):
    kept = 0
    for name, job in found_jobs().items():
        for other in {*NAMES} - {kind} if name.startswith(kind) else ():
            told = refusals(other, job)
            kept += not told
            assert all("cannot be exported" in problem for problem in told)
            assert told or differences(job, again(other, job)) == ()

    assert kept
