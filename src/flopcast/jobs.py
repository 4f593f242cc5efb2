"""Jobs for a program: created from options or files, and written to files.

Answers: how do I create a job without writing a file, and how do I save one?
Elsewhere: what a job is used for (api.py), how a request is converted to a job (requests/resolve.py), kinds
of exports (interop/exports/).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flopcast.argument_checks import check_job, known_arguments, mapping_of
from flopcast.errors import Problem, SpecError, problems_of, told_as
from flopcast.files.exported import Exported
from flopcast.files.named_files import read_file
from flopcast.files.yaml_text import read_yaml
from flopcast.records import replace
from flopcast.requests.job_files import job_of
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import resolve
from flopcast.requests.words import separate_changes
from flopcast.spec.job import Job
from flopcast.spec.job_file import job_text
from flopcast.units import Number

if TYPE_CHECKING:
    from flopcast.spec.serving_job import ServingJob

Part = str | Mapping[str, object]


@known_arguments
def job(
    file: str | Path | None = None,
    *,
    model: Part | Path | None = None,
    cluster: Part | None = None,
    gpus: int | None = None,
    plan: Part | None = None,
    stack: Part | None = None,
    offload: Part | None = None,
    batch: int | None = None,
    inference: bool = False,
    size: Mapping[str, int] | None = None,
    autocast: bool = False,
    seq: int | None = None,
    images: str | Part | None = None,
    lora: int | None = None,
    qlora: int | None = None,
    tokens: str | Number | None = None,
    samples: str | int | None = None,
    epochs: Number | None = None,
    checkpoint: Part | None = None,
    loader: Part | None = None,
    site: str | Path | None = None,
    slow: Part | None = None,
    power_limit: str | None = None,
    price: str | None = None,
    kind: str | None = None,
    arg: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    changes: Sequence[str] | Mapping[str, object] = (),
) -> Job:
    """Return the job that these options describe; `job.assumptions` lists what flopcast chose.

    Parameters
    ----------
    file : path of a file that `flopcast predict` reads, or the name of a model
    model, cluster, plan, stack, offload, images, checkpoint, loader, slow : as the options of `flopcast
        predict` with these names, as text or as a mapping of their fields
    gpus, batch, seq, inference, autocast, lora, qlora, tokens, samples, epochs, site, price, kind : as the
        options of `flopcast predict` with these names
    power_limit : as the option --power-limit, such as "500 W"
    size, arg, env : mappings from names to values, such as {"batch": 8} or {"1": "8"}
    changes : texts of the form KEY=VALUE, one text with spaces between them, or a mapping such as
        {"plan.recompute": "full"}

    Raises
    ------
    SpecError, InfeasibleError
        The input is wrong (all errors are listed), or no plan was given and no plan fits into memory.

    Examples
    --------
    >>> job("llama-3-8b", gpus=64, plan="dp=32 tp=2 gbs=512 sp zero=1").assumptions
    ('cluster dgx-h100', 'stack megatron-core', 'sequence_length 8192')
    """
    return _resolved(JobRequest(
        **_common(file, model, site, changes, size, arg, env), inference=inference, autocast=autocast,
        cluster=cluster, gpus=gpus, offload=offload, batch=batch, tokens=tokens, epochs=epochs, lora=lora,
        plan=plan, stack=stack, seq=seq, qlora=qlora, samples=samples, slow=slow, kind=kind, price=price,
        checkpoint=checkpoint, loader=loader, images=images, power_limit=power_limit))  # fmt: skip


@known_arguments
def serving_job(
    file: str | Path | None = None,
    *,
    model: Part | Path | None = None,
    cluster: Part | None = None,
    gpus: int | None = None,
    engine: Part | None = None,
    plan: Part | None = None,
    traffic: Part | None = None,
    slo: Part | None = None,
    site: str | Path | None = None,
    price: str | None = None,
    changes: Sequence[str] | Mapping[str, object] = (),
) -> "ServingJob":
    """Return the serving job that these options describe; `assumptions` lists what flopcast chose.

    Parameters
    ----------
    file : path of a job file with an engine or traffic, or the name of a model
    model, cluster, gpus, site, price, changes : as those of `job`
    engine : name, by default vllm
    plan : such as "tp=8 weights=fp8"; by default, the tensor-parallel degree and the number of replicas
        that serve the traffic best
    traffic : such as "rate=4/s prompt=2000 output=300"
    slo : such as "ttft_p99=2s tpot_p99=50ms"

    Raises
    ------
    SpecError
        All errors in the file and the parameters.

    Examples
    --------
    >>> asked = serving_job("llama-3.1-70b", gpus=8, plan="tp=8", traffic="rate=4/s prompt=2000 output=300")
    >>> asked.engine.name, asked.plan.tensor_parallel, asked.replicas
    ('vllm', 8, 1)
    """
    from flopcast.requests.serving_request import resolve_serving

    request = JobRequest(
        **_common(file, model, site, changes), cluster=cluster, gpus=gpus, plan=plan, engine=engine,
        traffic=traffic, slo=slo, price=price,
    )  # fmt: skip
    with told_as(_without_options):
        return resolve_serving(request)


def _without_options(problem: Problem) -> Problem:
    """Return a fault with names of arguments instead of options."""
    from flopcast.requests.argument_names import without_options

    return without_options(problem)


def _resolved(request: JobRequest) -> Job:
    """Return the job of a request; faults name arguments instead of options."""
    with told_as(_without_options):
        if wrong := mapping_of("batch", request.batch):
            request = replace(request, batch=None)
            from flopcast.requests.checked_request import check_request

            raise SpecError([*wrong, *problems_of(lambda: check_request(request))])
        return resolve(request)


def _common(
    file: str | Path | None,
    model: Part | Path | None,
    site: str | Path | None,
    changes: Sequence[str] | Mapping[str, object],
    *words: Mapping[str, str] | Mapping[str, int] | None,
) -> dict[str, Any]:
    """Return the fields of a request that have other types than the arguments; `words`: size, arg, env."""
    if isinstance(changes, Mapping):
        changes = [f"{name}={value}" for name, value in changes.items()]
    else:
        given = [changes] if isinstance(changes, str) else changes
        changes = [word for text in given for word in separate_changes(text)]
    texts = (tuple(f"{name}={value}" for name, value in (each or {}).items()) for each in words)
    return {
        "files": () if file is None else (str(file),),
        "model": str(model) if isinstance(model, Path) else model,
        "site": None if site is None else Path(site),
        "changes": tuple(changes),
    } | dict(zip(("size", "arg", "env"), texts, strict=False))


@known_arguments
def load_job(path: str | Path) -> Job:
    """Read and check a job file (YAML or JSON).

    Raises
    ------
    SpecError
        All errors of the file, each with its line.

    Examples
    --------
    >>> from flopcast.library.catalog import folder
    >>> loaded = load_job(folder("jobs") / "paper" / "llemma-7b-vista-pp4-tp2-dp2.yaml")
    >>> loaded.plan.short()
    'dp=2 tp=2 pp=4 mbs=4 gbs=64 zero=1 recompute=full partition_activations precision=fp16'
    """
    return job_of(read_yaml(read_file(Path(path)), str(path)))


def dump_job(job: Job) -> str:
    """Return the job as the text of a complete YAML job file, which `load_job` can read.

    Examples
    --------
    >>> asked = job(model="llama-3-8b", cluster="dgx-h100:1", plan="dp=8 gbs=64")
    >>> "plan: " in dump_job(asked)
    True
    """
    check_job(job)
    return job_text(job)


def export_job(job: "Job | ServingJob", kind: str) -> Exported:
    """Return the job as a file of other software, or its predicted step as a trace, like `flopcast export`.

    Parameters
    ----------
    kind : str
        A format that `flopcast export -h` lists, such as "megatron" or "perfetto". For a serving job: an
        engine, such as "vllm".

    Returns
    -------
    Exported
        `files` contains pairs of a file name and bytes. `notes` lists settings that the format cannot
        express.

    Raises
    ------
    SpecError
        There is no such format, or the format cannot express a setting of the job.

    Examples
    --------
    >>> asked = job(model="llama-3-8b", cluster="dgx-h100:1", plan="tp=8 gbs=64 sp")
    >>> (name, script), = export_job(asked, "megatron").files
    >>> b"--tensor-model-parallel-size 8" in script
    True
    """
    from flopcast.interop.exports.kinds import exported

    return exported(job, kind)
