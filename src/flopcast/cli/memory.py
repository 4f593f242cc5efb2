"""`flopcast memory`."""

import click

from flopcast.cli import options
from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.terminal import print_text
from flopcast.errors import spec_error
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import resolve
from flopcast.requests.serving_words import serves

option = DocumentedOptions(__name__)


@click.command("memory")
@options.job_options(
    without=[name for name in options.OF_RUN if name != "epochs"],
    samples=options.SAMPLES,
    epochs=option("--epochs"),
    **options.SERVING,
)
@option("--largest", type=click.Choice(("batch", "seq", "rank")))
@option("--json", "wants_json", is_flag=True)
@options.writes_document
def command(request: JobRequest, largest: str | None, wants_json: bool) -> None:
    """Print the memory of a job on each device, and whether the job fits.

    The memory in use includes tensors, the cache of PyTorch's allocator, communication buffers and the CUDA
    context, like the number that nvidia-smi shows. The job fits if every pipeline stage fits. With
    --offload, the output also says whether the offloaded tensors fit into host memory or onto the drives.

    \b
    flopcast memory llama-3-8b --gpus 16
    flopcast memory job.yaml
    flopcast memory job.yaml plan.recompute=selective plan.micro_batch=2
    flopcast memory qwen2.5-7b --cluster rtx-4090-8 --gpus 1 --lora 16 --seq 1024 --largest rank
    flopcast memory llama-3.1-70b --engine vllm --cluster dgx-h100:1 --plan "tp=4"

    With --engine, --traffic or --slo, the command prints the memory of serving: weights, activations, the
    CUDA context and libraries, and how many tokens and requests fit into the KV cache.
    """
    from flopcast.plans_that_fit import CHANGES_THAT_FIT
    from flopcast.prediction import memory_of
    from flopcast.render.fit_advice import fit_advice
    from flopcast.render.plain_data import FORMAT_VERSION
    from flopcast.render.report_json import memory_as_json
    from flopcast.render.report_text import marked_memory_text

    if serves(request):
        if largest is not None:
            allowed, because = "no value", "an engine has no micro-batch and trains no adapters"
            raise spec_error("--largest", largest, allowed, because, "remove --largest")
        _memory_of_serving(request, wants_json)
        return
    if largest is not None:
        from flopcast.layout_answers import LARGEST, layout_answer

        found = layout_answer(f"{LARGEST}{largest}", lambda resolved: resolved(request), placements=False)
        options.print_found(found, wants_json, lambda each: each.data, lambda each: each.text)
        return
    job = resolve(request)
    memory = memory_of(job)
    changes, told = fit_advice(job, memory, CHANGES_THAT_FIT)
    if wants_json:
        options.print_json({"format_version": FORMAT_VERSION, "memory": memory_as_json(memory)} | told)
    else:
        print_text(marked_memory_text(job, memory, changes))


def _memory_of_serving(request: JobRequest, wants_json: bool) -> None:
    """Print what fills the memory of each kind of instance."""
    from flopcast.render import serving_memory_text
    from flopcast.requests.serving_request import checked_serving

    job = checked_serving(request, fits=False)
    if wants_json:
        options.print_json(serving_memory_text.as_json(job))
    else:
        print_text(serving_memory_text.marked_text(job))
