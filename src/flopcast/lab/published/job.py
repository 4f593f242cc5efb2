"""Conversion of a published run to the job that reproduces it.

Answers: which job does this row describe, which assumptions does the job contain, and what is missing if
there is no job?
Elsewhere: the meaning of printed names (known_names.py), sizes of models (model.py), the rules for jobs
(workload/checks.py). Nothing here uses the measurements, except the audit of FLOP (model.py).
"""

import re
from collections.abc import Mapping
from functools import partial
from itertools import product

from flopcast.errors import Problem, SpecError, collected, common_problems, problems_of, told_as
from flopcast.files.yaml_text import Document
from flopcast.lab.published import cells
from flopcast.lab.published.known_names import (
    Default,
    KnownSoftware,
    cluster_of,
    defaults_of,
    software_of,
    unknown_year,
)
from flopcast.lab.published.model import model_document, packed_documents, trains_mtp, uniform_documents
from flopcast.lab.validation.run import Run
from flopcast.layers.experts import Experts
from flopcast.library import catalog
from flopcast.library.edits import merged
from flopcast.records import replace
from flopcast.requests.job_files import job_of
from flopcast.requests.missing_parts import USUAL
from flopcast.requests.stand_ins import stand_ins
from flopcast.schedules import OF_ONE_CHUNK
from flopcast.spec.divisors import divided_by_cost, nearest_multiples
from flopcast.spec.job import Job
from flopcast.spec.plan_fields import with_runs

NEEDED = ("tensor_parallel", "pipeline_parallel", "micro_batch", "global_batch")
WITH_TENSOR_PARALLEL = "with_tensor_parallel"  # a default: true where there is tensor parallelism
BY_COST = "by_cost"  # a default: stages end where their part of the cost ends
PACKED = re.compile(r"\bpacked SQuAD")
PACKED_TO = re.compile(r"\bpacked (to [0-9]+ tokens|documents\b.*lengths not stated)")


def reproduce(run: Run) -> Job:
    """Return the job of a training run, with its assumptions.

    Raises
    ------
    SpecError
        The row is an inference run, lacks required facts, contains unknown names, or needs unsupported
        features. All faults are reported, each with the row's line.
    """
    if run.kind != "train":
        because = "flopcast predicts only training runs"
        raise SpecError([_missing(run, "kind", run.kind, "serving", because)])
    if run.refused:
        raise SpecError([_missing(run, "table", run.id, "this defect", run.refused)])
    problems: list[Problem] = []
    software = software_of(run)
    if software is None:
        problems.append(unknown_year(run))
    defaults = defaults_of(run, software) if software else ()
    assumed: list[str] = []
    plan = _plan(run, defaults, assumed)
    data: dict[str, object] = {"plan": plan}
    for part, make in (("cluster", _cluster), ("model", model_document)):
        with collected(problems):
            data[part] = make(run, assumed)
    missing = [name for name in NEEDED if name not in plan]
    missing += ["sequence_length"] if run.sequence_length is None else []
    problems += [_missing(run, name, None, "", "the row does not state it") for name in missing]
    problems += _unknown_schedule(run)
    if problems or software is None:
        raise SpecError([*problems, *([] if missing else _faults_of_mapping(run, data))])
    data["model"] = _trained(data["model"], defaults, run, assumed)
    data["stack"] = _stack(run, software, defaults, assumed)
    if run.site:
        data["site"] = run.site
    assumed += (f"flopcast does not use the column {cell}" for cell in run.unused)
    batch = _packed(run, data["model"], assumed) or _packed_by_default(run, defaults, assumed)
    data["batch"] = {"sequence_length": run.sequence_length} | batch
    _deal_out(run, data, assumed)
    with told_as(lambda problem: replace(problem, where=run.where)):
        job = job_of(Document(run.where, data, {}))
    return job.model_copy(update={"assumptions": tuple(assumed)})


def _faults_of_mapping(run: Run, data: Mapping[str, object]) -> list[Problem]:
    """Return the faults of the plan and the batch of a row with an unknown model, machine or software."""

    def cluster_with(**changes: object) -> dict[str, object]:
        machine = run.machine.model_copy(update={"device": "H100"} | changes)
        return _cluster(run.model_copy(update={"machine": machine}), [])

    try:
        clusters = [data.get("cluster") or cluster_with()]
    except SpecError:  # the number of devices is wrong as well, and no fault may depend on it
        clusters = [cluster_with(num_devices=size, devices_per_node=None) for size in (1, 64)]
    models = [data["model"]] if "model" in data else stand_ins()
    data = {**USUAL, "batch": {"sequence_length": run.sequence_length}, **data}
    jobs = [
        Document(run.where, {**data, "model": model, "cluster": cluster}, {})
        for model, cluster in product(models, clusters)
    ]
    found = common_problems([problems_of(partial(job_of, job)) for job in jobs])
    return [replace(each, where=run.where) for each in found]


def _printed_plan(run: Run) -> dict[str, object]:
    """Return the fields of the plan in the row, by long name."""
    printed = run.mapping
    names = (*cells.DEGREES, *NEEDED, "virtual_stages", "expert_parallel", "expert_tensor_parallel")
    stated = {name: getattr(printed, name) for name in (*names, "sequence_parallel", "zero")}
    plan: dict[str, object] = {name: value for name, value in stated.items() if value is not None}
    words = {
        "recompute": cells.recompute_word(printed.recompute) if printed.recompute else None,
        "precision": cells.precision_word(printed.precision) if printed.precision else None,
        "schedule": _schedule(run),
        "offload": cells.offload_word(printed.offload) if printed.offload else None,
    }
    return plan | {name: word for name, word in words.items() if word is not None} | cells.sharding(run)


def _schedule(run: Run) -> str | None:
    """Return the row's schedule, if it differs from the schedule that the number of virtual stages implies.

    Many sources print "1F1B" for the interleaved schedule, too.
    """
    word = cells.schedule_word(run.mapping.schedule)
    return None if word == OF_ONE_CHUNK else word


def _plan(run: Run, defaults: tuple[Default, ...], assumed: list[str]) -> dict[str, object]:
    """Return the row's plan by long name, with the software's defaults for missing fields."""
    plan = _printed_plan(run)
    fixed = set(plan)
    for default in defaults:
        narrower = "precision" in default.where
        for name, value in default.plan.items():
            if name not in fixed or narrower:
                plan[name] = value
                assumed.append(f"{name} {value}: {default.because}")
                fixed.add(name)
    for name, degree in cells.implied_degrees(run, plan).items():
        plan[name] = degree
        assumed.append(
            f"{name} {degree}: this follows from other degrees of the row or from the stated sharding"
        )
    if plan.get("sequence_parallel") == WITH_TENSOR_PARALLEL:
        plan["sequence_parallel"] = _degree(plan, "tensor_parallel") > 1
    if "data_parallel" not in plan and run.machine.num_devices:
        others = 1
        for name in cells.DEGREES[1:]:
            others *= _degree(plan, name)
        plan["data_parallel"] = max(1, run.machine.num_devices // others)
    return plan


def _degree(plan: Mapping[str, object], name: str) -> int:
    value = plan.get(name, 1)
    return value if isinstance(value, int) else 1


def _cluster(run: Run, assumed: list[str]) -> dict[str, object]:
    """Return the catalogue's cluster with the row's devices and the printed network bandwidth."""
    known, machine, problems = cluster_of(run), run.machine, list[Problem]()
    if known is None:
        unknown = catalog.unknown_name("devices", machine.device, "gpu_model", run.where)
        problems.append(unknown)
    if machine.num_devices is None:
        because = "the row does not state the number of devices"
        problems.append(_missing(run, "num_gpus", None, "", because))
    if known is None or machine.num_devices is None:
        raise SpecError(problems)
    own = catalog.cluster(known.cluster)
    per_node = machine.devices_per_node or own.node.devices
    inside = min(machine.num_devices, per_node)
    if machine.num_devices % inside:
        allowed, because = f"a multiple of {per_node}", f"a node of {known.cluster} has {per_node} devices"
        fix = f"write {nearest_multiples(machine.num_devices, per_node)}"
        raise SpecError([run.fault("num_gpus", machine.num_devices, allowed, because, fix)])
    group: dict[str, object] = {"count": -(-machine.num_devices // inside), "node": {"devices": inside}}
    if known.replaces:
        group["node"] = {"devices": inside, "device": known.replaces}
    wider = [str(at) for at, tier in enumerate(own.tiers) if inside > tier.devices == own.node.devices]
    tiers: dict[str, dict[str, object]] = {at: {"devices": inside} for at in wider}
    network = cells.node_bytes_per_s(machine.network, per_node)
    if network:
        tiers.setdefault(str(len(own.tiers) - 1), {})["bytes_per_s"] = f"{network / per_node / 1e9:g} GB/s"
    elif machine.network and machine.num_devices > inside:
        assumed.append(
            f"network of {known.cluster}: '{machine.network}' does not state the bandwidth of a node, so "
            "the bandwidth of the catalogue is used"
        )
    assumed.append(f"cluster {known.cluster}: {known.because}")
    changes: dict[str, object] = {"base": known.cluster, "groups": {"0": group}}
    return changes | ({"tiers": tiers} if tiers else {})


def _unknown_schedule(run: Run) -> list[Problem]:
    """Return the error for an unknown pipeline schedule; empty if the schedule is known."""
    printed = run.mapping.schedule
    if not printed or cells.schedule_word(printed):
        return []
    problem = _missing(run, "pp_schedule", printed, "this schedule", "the schedule is not known")
    return [replace(problem, allowed=f"one of {', '.join(cells.SCHEDULES)}, or an empty cell")]


def _trained(model: object, defaults: tuple[Default, ...], run: Run, assumed: list[str]) -> object:
    """Return the model with details of this training: adapters, capacities and loads of experts."""
    document = dict(model) if isinstance(model, dict) else {}
    own = catalog.model(str(document["base"]))
    mtp = trains_mtp(run, own)
    if mtp is not None:
        document["mtp"] = own.mtp if mtp else 0
        assumed.append(
            f"mtp {document['mtp']}: this follows from the FLOP per token that the source prints"
        )
    experts: dict[str, object] = {}
    for default in defaults:
        experts |= default.experts
        if default.model:
            document |= default.model
            assumed.append(f"model {dict(default.model)}: {default.because}")
        if default.adapters:
            document["adapters"] = dict(default.adapters)
            assumed.append(f"adapters {dict(default.adapters)}: {default.because}")
            if run.says("QLoRA"):
                document["adapters"] |= {"base_dtype": "nf4"}
    stated = cells.adapters(run.notes, run.architecture.gated is not False)
    if stated and "adapters" not in document:
        document["adapters"] = stated | ({"base_dtype": "nf4"} if run.says("QLoRA") else {})
        assumed.append(f"adapters {stated}: the remarks state this; all other settings are those of PEFT")
    changed = {
        str(place): {"feed_forward": experts}
        for place, block in enumerate(own.blocks)
        if experts and isinstance(block.feed_forward, Experts)
    }
    return merged(document, {"blocks": changed}) if changed else document


def _packed(run: Run, model: object, assumed: list[str]) -> dict[str, object]:
    """Return the documents of packed sequences, with lengths computed from the printed FLOP if possible."""
    if PACKED_TO.search(run.notes) and run.sequence_length:
        assumed.append("the lengths of packed samples are uniform, up to the length of the packed sequence")
        return {"documents": uniform_documents(run.sequence_length)}
    if not PACKED.search(run.notes):
        return {}
    own = catalog.model(str(model["base"])) if isinstance(model, dict) else None
    documents = packed_documents(run, own) if own else None
    if documents is None:
        return {"packed": True}
    assumed.append(
        f"{len(documents)} documents of {documents[0]} tokens: this follows from the FLOP per token that"
        f" the source prints"
    )
    return {"documents": documents}


def _packed_by_default(run: Run, defaults: tuple[Default, ...], assumed: list[str]) -> dict[str, object]:
    """Return the lengths of the documents in a sequence if the software packs several documents.

    All documents have the mean length of the data set that the software uses by default.
    """
    for default in defaults:
        if default.document_tokens and run.sequence_length:
            count = max(1, round(run.sequence_length / default.document_tokens))
            length = run.sequence_length // count
            assumed.append(f"{count} documents of {length} tokens: {default.because}")
            return {"documents": (*[length] * (count - 1), run.sequence_length - length * (count - 1))}
    return {}


def _stack(
    run: Run, software: KnownSoftware, defaults: tuple[Default, ...], assumed: list[str]
) -> dict[str, object]:
    """Return the software's stack with its defaults and the row's attention kernel."""
    stack: object = {"base": software.stack}
    assumed.append(f"stack {software.stack}: {software.because}")
    for default in defaults:
        if default.stack:
            stack = merged(stack, default.stack)
            assumed.append(f"stack {dict(default.stack)}: {default.because}")
    if run.mapping.flash_attention is not None:
        kernel = "flash" if run.mapping.flash_attention else "materialised"
        stack = merged(stack, {"attention_kernel": kernel})
    return stack if isinstance(stack, dict) else {}


def _deal_out(run: Run, data: dict[str, object], assumed: list[str]) -> None:
    """Return the number of blocks in each chunk if chunks are uneven, divided as in Megatron-Core's
    recipes, or by cost.

    If counting the embedding and the head as one layer each makes the number divisible, the first and the
    last chunk have one block fewer (`account_for_embedding_in_pipeline_split`,
    `account_for_loss_in_pipeline_split`). Otherwise all chunks have as many blocks as the fullest one,
    and the last chunk, then the first, takes the remaining blocks (`pipeline_model_parallel_layout` in
    the recipes of DeepSeek-V3: "Et*4|(t*4|)*14tmL").
    """
    plan, model = data["plan"], data["model"]
    if not isinstance(plan, dict) or not isinstance(model, dict):
        return
    total = run.architecture.num_layers or catalog.model(str(model["base"])).num_blocks
    chunks, sizes = _degree(plan, "pipeline_parallel") * _degree(plan, "virtual_stages"), run.architecture
    by_cost = plan.pop("stage_layers", None) == BY_COST and chunks > 1
    if by_cost and sizes.hidden and sizes.ffn_hidden and sizes.vocabulary:
        widths = sizes.hidden, sizes.ffn_hidden, sizes.vocabulary
        plan["stage_layers"] = divided_by_cost(total, *widths, chunks)
        return
    layers = chunk_layers(total, chunks)
    if layers:
        plan["stage_layers"] = layers
        assumed.append(f"stage_layers {with_runs(layers)}: embedding and head count as layers")


def chunk_layers(blocks: int, chunks: int) -> tuple[int, ...]:
    """Return the blocks of each chunk if they do not divide evenly; () if they do, or if no such list is
    possible.

    >>> chunk_layers(126, 64)[:3], chunk_layers(61, 4), chunk_layers(61, 32)[-2:]
    ((1, 2, 2), (16, 16, 16, 13), (2, 0))
    """
    if blocks % chunks == 0:
        return ()
    if (blocks + 2) % chunks == 0:
        size = (blocks + 2) // chunks
        return (size - 1, *[size] * (chunks - 2), size - 1)
    size = -(-blocks // chunks)
    left = chunks * size - blocks
    last = max(size - left, 0)
    first = size - (left - (size - last))
    return (first, *[size] * (chunks - 2), last) if first >= 0 else ()


def _missing(run: Run, field: str, value: object, primitive: str, because: str) -> Problem:
    """Return why a row cannot become a job: an unsupported feature, or a missing fact."""
    allowed = f"rows without {primitive}" if primitive else "a row that states it"
    return run.fault(
        field, value, allowed, because, *([] if primitive else [f"write the value of {field}"])
    )
