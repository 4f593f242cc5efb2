"""Jobs for a program: read from words or files, and written to files.

Answers: how do I get a job without writing a file, and how do I keep one?
Elsewhere: what becomes of a job (api.py), how a request becomes one (requests/resolve.py), kinds of
exports (interop/exports/).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flopcast.errors import SpecError
from flopcast.files.exported import Exported
from flopcast.files.yaml_text import read_yaml
from flopcast.requests.job_files import job_of, read_file
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import resolve, without_options
from flopcast.spec.job import Job
from flopcast.spec.job_file import job_text
from flopcast.units import Number

if TYPE_CHECKING:
    from flopcast.spec.serving_job import ServingJob

Part = str | Mapping[str, object]


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
    price: str | None = None,
    kind: str | None = None,
    arg: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    changes: Sequence[str] = (),
) -> Job:
    """Return the job of these options; parts left out are chosen, and `job.assumptions` lists the choices.

    Parameters
    ----------
    file, model : path of any file that commands read, or a name; name, path (config.json, YAML) or mapping
    cluster, gpus : name, by default dgx-h100, or NAME:NODES for a part of it; how many devices to use
    plan : such as "dp=16 tp=8 pp=8 mbs=1 gbs=1536"; without it, one is chosen as by `flopcast predict`
    stack, offload : name (default: mostly megatron-core); states outside the devices, "optimizer=host"
    batch, seq, images, size : samples of a step; tokens and images of each, "2x1024x768"; sizes of a graph
    inference, autocast, lora, qlora : forward pass alone; mixed precision of a graph; rank of adapters
    tokens, samples, epochs : of the whole run: tokens ("2T"), or samples (sequences of an epoch) and epochs
    site, slow, price : path of measured speeds; slow parts, "device=3:0.8"; price of a device, "2.10 USD/h"
    kind, arg, env, changes : format; arguments {"1": "8"} and environment of a script; "KEY=VALUE" of a job
    checkpoint, loader : how it saves, "lazy file_system"; how samples reach the devices, "decode=9ms:8"

    Raises
    ------
    SpecError, InfeasibleError
        Every error in the file and the parameters; or no plan was given, and none fits.

    Examples
    --------
    >>> job("llama-3-8b", gpus=64, plan="dp=32 tp=2 gbs=512 sp zero=1").assumptions
    ('cluster dgx-h100', 'stack megatron-core', 'sequence_length 8192')
    """
    return _resolved(JobRequest(
        **_common(file, model, site, changes, size, arg, env), inference=inference, autocast=autocast,
        cluster=cluster, gpus=gpus, offload=offload, batch=batch, tokens=tokens, epochs=epochs, lora=lora,
        plan=plan, stack=stack, seq=seq, qlora=qlora, samples=samples, slow=slow, kind=kind, price=price,
        checkpoint=checkpoint, loader=loader, images=images))  # fmt: skip


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
    changes: Sequence[str] = (),
) -> "ServingJob":
    """Return the serving job of these options; `assumptions` of the job lists what was left out.

    Parameters
    ----------
    file : path of a job file with an engine or traffic, or the name of a model
    model, cluster, gpus, site, price, changes : as those of `job`
    engine : name, by default vllm
    plan : such as "tp=8 weights=fp8"; without a degree, the fewest devices on which the model fits
    traffic : such as "rate=4/s prompt=2000 output=300"
    slo : such as "ttft_p99=2s tpot_p99=50ms"

    Raises
    ------
    SpecError
        Every error in the file and the parameters.

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
    try:
        return resolve_serving(request)
    except SpecError as error:
        raise SpecError(map(without_options, error.problems)) from None


def _resolved(request: JobRequest) -> Job:
    """Return the job of a request; faults name arguments in the place of options."""
    try:
        return resolve(request)
    except SpecError as error:
        raise SpecError(map(without_options, error.problems)) from None


def _common(
    file: str | Path | None,
    model: Part | Path | None,
    site: str | Path | None,
    changes: Sequence[str],
    *words: Mapping[str, str] | Mapping[str, int] | None,
) -> dict[str, Any]:
    """Return the fields of a request that have other types than the arguments; `words`: size, arg, env."""
    texts = (tuple(f"{name}={value}" for name, value in (each or {}).items()) for each in words)
    return {
        "files": () if file is None else (str(file),),
        "model": str(model) if isinstance(model, Path) else model,
        "site": None if site is None else Path(site),
        "changes": tuple(changes),
    } | dict(zip(("size", "arg", "env"), texts, strict=False))


def load_job(path: str | Path) -> Job:
    """Read and check a job file (YAML or JSON).

    Raises
    ------
    SpecError
        Every fault of the file, each with its line.

    Examples
    --------
    >>> from flopcast.library.catalog import folder
    >>> loaded = load_job(folder("jobs") / "paper" / "llemma-7b-vista-pp4-tp2-dp2.yaml")
    >>> loaded.plan.short()
    'dp=2 tp=2 pp=4 mbs=4 gbs=64 zero=1 recompute=full partition_activations precision=fp16'
    """
    return job_of(read_yaml(read_file(Path(path)), str(path)))


def dump_job(job: Job) -> str:
    """Return the job as the YAML of a complete file; `load_job` reads the same job from it.

    Examples
    --------
    >>> asked = job(model="llama-3-8b", cluster="dgx-h100:1", plan="dp=8 gbs=64")
    >>> "plan: " in dump_job(asked)
    True
    """
    return job_text(job)


def export_job(job: "Job | ServingJob", kind: str) -> Exported:
    """Return the job as a file of other software, or its predicted step as a trace, as `flopcast export`.

    Parameters
    ----------
    kind : str
        One of `flopcast export -h`, such as "megatron" or "perfetto"; of a job that serves, an engine.

    Returns
    -------
    Exported
        `files`: pairs of a name and its bytes; `notes`: what the format does not say.

    Raises
    ------
    SpecError
        No such kind, or the format has no word for something of the job.

    Examples
    --------
    >>> asked = job(model="llama-3-8b", cluster="dgx-h100:1", plan="tp=8 gbs=64 sp")
    >>> (name, script), = export_job(asked, "megatron").files
    >>> b"--tensor-model-parallel-size 8" in script
    True
    """
    from flopcast.interop.exports.kinds import exported

    return exported(job, kind)
