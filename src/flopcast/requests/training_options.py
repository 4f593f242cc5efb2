"""Options that state what is trained, for how long, where its states are kept, and on which slow parts.

Answers: what do `--lora`, `--qlora`, `--tokens`, `--samples`, `--epochs`, `--offload` and `--slow` put into
the document of a job?
Elsewhere: what adapters are (layers/adapters.py), what a length means (spec/run_length.py), the global
batch of a fine-tune (search/space.py).

Adapters stand beside every separate linear that all blocks have, unless the job names others: so does
QLoRA (arXiv:2305.14314, section 4), and so do Axolotl's `lora_target_linear` and LLaMA-Factory's
`lora_target: all`.
"""

from flopcast.errors import SpecError, spec_error
from flopcast.files.yaml_text import Document
from flopcast.layers.adapted_linears import separate_linears
from flopcast.layers.adapters import BASE_DTYPES
from flopcast.library.edits import in_long_names, merged, placed, plan_words
from flopcast.records import replace
from flopcast.requests.job_files import AUTO, built
from flopcast.requests.job_request import JobRequest
from flopcast.requests.sources import assuming
from flopcast.spec.model import Model

LENGTHS = ("tokens", "samples", "epochs")


def with_offload(document: Document, request: JobRequest) -> Document:
    """Return the document with the placements of an option in its plan, in the place of the plan's own.

    A plan that is missing stays open: it is chosen with these placements.

    Raises
    ------
    SpecError
        The option for the plan states placements, too; or the plan has faults.
    """
    data = document.data if isinstance(document.data, dict) else {}
    if request.offload is None:
        return document
    if isinstance(request.plan, str) and "offload" in plan_words(request.plan, "--plan"):
        allowed, because = (
            "--offload, or offload in --plan, not both",
            "both set the same field of the plan",
        )
        raise spec_error("--offload", request.offload, allowed, because, "leave out one of them")
    document, plan = in_long_names(document, "plan", data.get("plan", AUTO))
    if not isinstance(plan, dict):
        return document  # a fault that is reported where the job is made
    changed = replace(document, data=data | {"plan": plan | {"offload": request.offload}})
    return placed(changed, ("plan", "offload"), "--offload")


def with_slow_parts(document: Document, request: JobRequest) -> Document:
    """Return the document with the slow parts of `--slow` in its site, in the place of the site's own.

    A site that is named, not written out, becomes the base of a changed site, so that its other
    measurements stay.
    """
    if request.slow is None:
        return document
    data = document.data if isinstance(document.data, dict) else {}
    site = data.get("site") or {}
    described = {"base": site} if isinstance(site, str) else site
    if not isinstance(described, dict):
        return document  # a fault that is reported where the job is made
    changed = replace(document, data=data | {"site": described | {"slow": request.slow}})
    return placed(changed, ("site", "slow"), "--slow")


def with_batch(document: Document, request: JobRequest) -> Document:
    """Return the document with the samples of a step that an option states, in the place of the plan's own.

    Raises
    ------
    SpecError
        The option for the plan states the batch too; or the plan has faults.
    """
    if request.batch is None:
        return document
    if isinstance(request.plan, str) and "global_batch" in plan_words(request.plan, "--plan"):
        allowed, because = "--batch, or gbs in --plan, not both", "both set the same field of the plan"
        raise spec_error("--batch", request.batch, allowed, because, "leave out one of them")
    data = document.data if isinstance(document.data, dict) else {}
    document, plan = in_long_names(document, "plan", data.get("plan", AUTO))
    if not isinstance(plan, dict):
        return document  # a fault that is reported where the job is made
    changed = replace(document, data=data | {"plan": plan | {"global_batch": request.batch}})
    return placed(changed, ("plan", "global_batch"), "--batch")


def with_run(document: Document, request: JobRequest) -> Document:
    """Return the document with the length of the run that the options state.

    An option replaces its own field of a file, and `tokens` and `samples` replace each other.
    """
    data = document.data if isinstance(document.data, dict) else {}
    given = {name: getattr(request, name) for name in LENGTHS if getattr(request, name) is not None}
    if not given:
        return document
    own = data.get("run")
    kept = {
        name: value
        for name, value in (own if isinstance(own, dict) else {}).items()
        if name == "epochs" or not given.keys() & {"tokens", "samples"}
    }
    document = replace(document, data=data | {"run": kept | given})
    for name in given:
        document = placed(document, ("run", name), f"--{name}")
    return document


def with_adapters(document: Document, request: JobRequest, *, anew: bool) -> Document:
    """Return the document with adapters of the rank that an option states.

    In place of what a file says (`anew`), but not of a later KEY=VALUE. Targets and dropout stay.

    Raises
    ------
    SpecError
        There are two ranks.
    """
    ranks = {name: getattr(request, name) for name in BASE_DTYPES if getattr(request, name) is not None}
    data = document.data if isinstance(document.data, dict) else {}
    model = data.get("model")
    described = {"base": model} if isinstance(model, str) else model
    if not ranks or not isinstance(described, dict) or (described.get("adapters") and not anew):
        return document
    if len(ranks) > 1:
        allowed, because = (
            "--lora or --qlora, not both",
            "frozen weights are stored either in 16 bits (--lora) or in 4 bits (--qlora)",
        )
        raise spec_error("--qlora", request.qlora, allowed, because, "leave out --lora or --qlora")
    ((name, rank),) = ranks.items()
    adapters = {"rank": rank, "base_dtype": BASE_DTYPES[name]}
    changed = replace(document, data=data | {"model": merged(described, {"adapters": adapters})})
    return placed(changed, ("model", "adapters"), f"--{name}")


def with_usual_targets(document: Document, request: JobRequest) -> Document:
    """Return the document with adapters beside all linears, where an option asks for adapters.

    The targets become an assumption. Those that the job names stay.

    Raises
    ------
    SpecError
        The model has no linears that can be adapted.
    """
    data = document.data if isinstance(document.data, dict) else {}
    model = data.get("model")
    adapters = model.get("adapters") if isinstance(model, dict) else None
    if (request.lora is None and request.qlora is None) or not isinstance(model, dict):
        return document
    if not isinstance(adapters, dict) or "targets" in adapters:
        return document
    try:
        plain = built(
            "model", {name: value for name, value in model.items() if name != "adapters"}, document
        )
    except SpecError:
        return document  # the faults of the model are reported where the job is made
    if not isinstance(plain, Model):
        return document
    targets = separate_linears(plain.blocks, plain.hidden)
    if not targets:
        option = "--lora" if request.qlora is None else "--qlora"
        because = "adapters of experts, of latent attention and of traced blocks are not supported yet"
        allowed = "models whose blocks all have plain attention or a plain MLP"
        raise spec_error(option, adapters.get("rank"), allowed, because, f"leave out {option}")
    changed = data | {"model": merged(model, {"adapters": {"targets": list(targets)}})}
    return assuming(
        replace(document, data=changed), (f"adapters on all linear layers: {', '.join(targets)}",)
    )
