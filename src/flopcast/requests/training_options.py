"""Options about training: adapters, length of the run, offload, slow parts, and power limit.

Answers: what do `--plan`, `--lora`, `--qlora`, `--tokens`, `--samples`, `--epochs`, `--offload`, `--slow`
and `--power-limit` put into the document of a job?
Elsewhere: adapters (layers/adapters.py), the length of a run (spec/run_length.py), the global batch of a
fine-tune (search/space.py).

Unless the job names other layers, every separate linear layer that all blocks have gets an adapter, as in
QLoRA (arXiv:2305.14314, section 4), with Axolotl's `lora_target_linear`, and with LLaMA-Factory's
`lora_target: all`.
"""

from contextlib import suppress

from flopcast.errors import SpecError, spec_error
from flopcast.files.yaml_text import Document
from flopcast.layers.adapted_linears import separate_linears
from flopcast.layers.adapters import BASE_DTYPES
from flopcast.library import catalog
from flopcast.library.edits import in_long_names, merged, placed, plan_words
from flopcast.quantities import parse_quantity
from flopcast.requests.cluster_options import devices_of_cluster, devices_of_plan
from flopcast.requests.job_files import AUTO, OF_TRAINING, built
from flopcast.requests.job_request import JobRequest
from flopcast.requests.missing_parts import stated_plan
from flopcast.requests.serving_words import OF_SERVING
from flopcast.requests.sources import assuming
from flopcast.requests.usual_values import stated_cluster
from flopcast.spec.model import Model
from flopcast.spec.plan_fields import ALWAYS_SHOWN

LENGTHS = ("tokens", "samples", "epochs")
IN_PLAN = {  # option → the field of the plan that it sets, and its word in --plan
    "offload": ("offload", "offload"),
    "batch": ("global_batch", "gbs"),
}
IN_SITE = {"slow": "slow", "power_limit": "power_limit_w"}  # option → the field of the site that it sets


def with_plan(document: Document, request: JobRequest, devices: int | None) -> Document:
    """Return the document with the plan of the option, which changes only the fields that it states.

    A whole plan, as `Plan.short` writes it, replaces the plan of the file; its degrees fill the devices.
    The plan of an engine is always replaced. If the plan is "auto", the training settings of the file stay.

    Parameters
    ----------
    document : document with the cluster of the options
    request : request whose plan is a text or a mapping
    devices : number of devices in a launch script
    """
    if request.plan is None:
        return document
    replaced = placed(document.with_part("plan", request.plan), ("plan",), "--plan")
    own, new = stated_plan(document), stated_plan(replaced)
    if not own or not new:  # faults are reported where the job is made
        return document if new and document.mapping.get("plan") else replaced
    if AUTO in new:
        settled = own if AUTO in own else {name: own[name] for name in OF_TRAINING if name in own}
        return replaced.with_part("plan", settled | new)
    if any(name in document.mapping for name in OF_SERVING) or _is_whole(new, document, request, devices):
        left_out = ", ".join(name for name in own if name not in new)
        note = f"the given plan replaces the whole plan of {document.name}, including its {left_out}"
        return assuming(replaced, (note,)) if left_out and request.source is None else replaced
    document, _ = in_long_names(document, "plan", document.mapping["plan"])
    document = document.with_part("plan", own | new)
    for name in new:
        document = placed(document, ("plan", name), "--plan")
    return document


def _is_whole(
    plan: dict[str, object], document: Document, request: JobRequest, devices: int | None
) -> bool:
    """Return whether a plan states what `Plan.short` always states, and its degrees fill the devices."""
    stated = devices_of_plan(Document("", {"plan": {"data_parallel": 1} | plan}, {}))
    sizes = {request.gpus, devices, devices_of_plan(document), devices_of_cluster(document)}
    return plan.keys() >= {*ALWAYS_SHOWN} and stated is not None and stated in sizes


def with_plan_options(document: Document, request: JobRequest) -> Document:
    """Return the document whose plan has the placements and the batch of the options.

    If there is no plan, flopcast chooses one with these fields.

    Raises
    ------
    SpecError
        The option for the plan also states the field, or the plan has faults.
    """
    for option, (name, word) in IN_PLAN.items():
        value = getattr(request, option)
        if value is None:
            continue
        if isinstance(request.plan, str) and name in plan_words(request.plan, "--plan"):
            allowed = f"--{option}, or {word} in --plan, not both"
            because = "both set the same field of the plan"
            raise spec_error(f"--{option}", value, allowed, because, "leave out one of them")
        document, plan = in_long_names(document, "plan", document.mapping.get("plan", AUTO))
        if isinstance(plan, dict):  # another fault is reported where the job is made
            changed = document.with_part("plan", plan | {name: value})
            document = placed(changed, ("plan", name), f"--{option}")
    return document


def with_site_options(document: Document, request: JobRequest) -> Document:
    """Return the document whose site has the slow parts and the power limit of the options.

    If the job names a site, this site becomes the base of a changed site, so that its other measurements
    are kept.
    """
    for option, name in IN_SITE.items():
        if (value := getattr(request, option)) is not None:
            document = _with_site_field(document, name, value, f"--{option.replace('_', '-')}")
    _check_power_limit(document, request.power_limit)
    return document


def _check_power_limit(document: Document, limit: object) -> None:
    """Raise SpecError if the power limit of an option exceeds the board power of the named cluster."""
    own = catalog.known("clusters", str(stated_cluster(document).get("base", "")).partition(":")[0])
    board_w = catalog.cluster(own).node.device.board_power_w if own and limit is not None else None
    limit_w = 0.0
    with suppress(ValueError):  # a text that is no power is reported where the job is made
        limit_w = parse_quantity(str(limit), ("W",))
    if board_w and limit_w > board_w:
        because = f"this is the board power of {catalog.cluster(str(own)).node.device.name}"
        fix = f'write --power-limit "{board_w:.0f} W"'
        raise spec_error("--power-limit", limit, f"at most {board_w:.0f} W", because, fix)


def _with_site_field(document: Document, name: str, value: object, option: str) -> Document:
    site = document.mapping.get("site") or {}
    described = {"base": site} if isinstance(site, str) else site
    if not isinstance(described, dict):
        return document  # a fault that is reported where the job is made
    return placed(document.with_part("site", described | {name: value}), ("site", name), option)


def with_run(document: Document, request: JobRequest) -> Document:
    """Return the document with the length of the run that the options state.

    An option replaces the corresponding field of a file, and `tokens` and `samples` replace each other.
    """
    given = {name: getattr(request, name) for name in LENGTHS if getattr(request, name) is not None}
    if not given:
        return document
    own = document.mapping.get("run")
    kept = {
        name: value
        for name, value in (own if isinstance(own, dict) else {}).items()
        if name == "epochs" or not given.keys() & {"tokens", "samples"}
    }
    document = document.with_part("run", kept | given)
    for name in given:
        document = placed(document, ("run", name), f"--{name}")
    return document


def with_adapters(document: Document, request: JobRequest, *, anew: bool) -> Document:
    """Return the document with adapters of the rank that an option states.

    They replace the adapters of a file (`anew`), but not those of a later KEY=VALUE. Targets and dropout do
    not change.

    Raises
    ------
    SpecError
        There are two ranks, or the rank is 0.
    """
    ranks = {name: getattr(request, name) for name in BASE_DTYPES if getattr(request, name) is not None}
    model = document.mapping.get("model")
    described = {"base": model} if isinstance(model, str) else model
    if not ranks or not isinstance(described, dict) or (described.get("adapters") and not anew):
        return document
    if len(ranks) > 1:
        allowed = "--lora or --qlora, not both"
        because = "frozen weights are stored either in 16 bits (--lora) or in 4 bits (--qlora)"
        raise spec_error("--qlora", request.qlora, allowed, because, "leave out --lora or --qlora")
    ((name, rank),) = ranks.items()
    if rank == 0:
        allowed, because = "a whole number of at least 1", "adapters of rank 0 have no weights"
        fix = f"set --{name} to a value such as 16, or remove --{name} to train without adapters"
        raise spec_error(f"--{name}", rank, allowed, because, fix)
    adapters = {"rank": rank, "base_dtype": BASE_DTYPES[name]}
    changed = document.with_part("model", merged(described, {"adapters": adapters}))
    return placed(changed, ("model", "adapters"), f"--{name}")


def with_usual_targets(document: Document, request: JobRequest) -> Document:
    """Return the document with adapters on all linear layers, if an option requests adapters.

    The targets become an assumption. Targets that the job names are kept.

    Raises
    ------
    SpecError
        The model has no linear layers that can have adapters.
    """
    model = document.mapping.get("model")
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
        allowed = "a model in which every block has plain attention or a plain MLP"
        raise spec_error(option, adapters.get("rank"), allowed, because, f"leave out {option}")
    changed = document.with_part("model", merged(model, {"adapters": {"targets": list(targets)}}))
    return assuming(changed, (f"adapters on all linear layers: {', '.join(targets)}",))
