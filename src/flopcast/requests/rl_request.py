"""The file of a step of reinforcement learning: a serving job, a training job, and how they are combined.

Answers: which step does a file describe, and which faults does it have?
Elsewhere: the jobs themselves (serving_request.py, resolve.py), what a step is (rl/step.py).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from flopcast.errors import Problem, SpecError, collected, problems_of, spec_error, told_as
from flopcast.files.field_paths import path_of
from flopcast.files.inputs import exists
from flopcast.files.named_files import read_file
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document
from flopcast.fixes import only_value, set_to
from flopcast.library.edits import edited_document
from flopcast.records import replace
from flopcast.requests.cluster_options import with_gpus
from flopcast.requests.job_request import JobRequest, JobSource
from flopcast.requests.missing_parts import USUAL
from flopcast.requests.resolve import resolve
from flopcast.requests.rl_files import OF_STEP, is_step
from flopcast.requests.sources import import_options, with_other_model
from flopcast.requests.words import SCRIPTS
from flopcast.spec.described_tiers import FIELDS, storage_of
from flopcast.spec.divisors import nearest_divisor
from flopcast.spec.job import Job

if TYPE_CHECKING:
    from flopcast.spec.rl_plan import RlPlan
    from flopcast.spec.serving_job import ServingJob

ENDINGS = (".yaml", ".yml", ".json")
SHARED = ("cluster", "gpus", "model", "traffic", "seq")  # options beside a trainer's file
OF_SCRIPTS = ("arg", "env")  # and beside a script
OPTIONS = tuple(
    each.name for each in fields(JobRequest) if each.name not in ("files", "changes", "source", "kind")
)
NOT_GIVEN = (None, (), "", False)
Made = TypeVar("Made")


class RlRequest(NamedTuple):
    """The step that a file describes."""

    rollout: "ServingJob"
    training: Job
    plan: "RlPlan"


def rl_document(request: JobRequest) -> Document | None:
    """Return the document of a request that names the file of a step; None for any other request.

    The file is a file of flopcast, or a script or YAML file of a trainer (interop/configs/rl_formats.py).

    Raises
    ------
    SpecError
        The file cannot be read or has faults, or it is unclear to which of the two jobs an option belongs.
    """
    read = _read(request)
    if read is None:
        return None
    own, script = is_step(read.data), Path(request.files[0]).suffix in SCRIPTS
    document = read if own else _step_of_trainer(read, request)
    if document is None:
        return None
    _refuse_kind(request)
    shared = () if own else (*SHARED, *(OF_SCRIPTS if script else ()))
    given = [
        option for option in OPTIONS if option not in shared and getattr(request, option) not in NOT_GIVEN
    ]
    because = "the file describes two jobs, and the option does not say which one it applies to"
    allowed = "no value together with a file of a reinforcement learning step"
    fix = "write it into the file, or as rollout.KEY=VALUE or training.KEY=VALUE"
    wrong = [Problem(f"--{option}", getattr(request, option), allowed, because, fix) for option in given]
    with collected(wrong):
        for part in OF_STEP:
            document = _edited_part(document, part, request.changes)
        others = [change for change in request.changes if change.partition(".")[0] not in OF_STEP]
        document = edited_document(document, others)
    if wrong:
        raise SpecError([*wrong, *problems_of(partial(rl_request, document))])
    return document


def _refuse_kind(request: JobRequest) -> None:
    """Raise SpecError if the request names the format of the file, which only the file of one job has."""
    if request.kind:
        allowed, because = "no --kind", "the file describes a step of reinforcement learning"
        raise spec_error("--kind", request.kind, allowed, because, f"remove --kind {request.kind}")


def _read(request: JobRequest) -> Document | None:
    """Return the content of YAML or JSON files, or the settings of a trainer that a script starts."""
    if not request.files or not all(exists(file) for file in request.files):
        return None
    path, *others = map(Path, request.files)
    if all(each.suffix in ENDINGS for each in (path, *others)):
        try:
            documents = [_content(each) for each in (path, *others)]
        except SpecError:
            return None  # reported with the other errors where the job is read
        return documents[0] if not others else _merged(documents)
    if others or path.suffix not in SCRIPTS:
        return None
    from flopcast.interop.configs.rl_formats import READERS
    from flopcast.interop.configs.trainer_commands import trainer_document

    raw = read_file(path)
    starts = any(start.encode() in raw for start in READERS)
    return trainer_document(raw, str(path), request.arg, request.env) if starts else None


def _content(file: Path) -> Document:
    """Return the content of a file; of several YAML documents, the one that starts an engine."""
    raw = read_file(file)
    if b"\n---" in raw:
        from flopcast.interop.serving.containers import one_manifest

        raw = one_manifest(raw)
    from flopcast.requests.missing_parents import read_job

    return read_job(raw, str(file))


def _merged(documents: Sequence[Document]) -> Document | None:
    """Return the settings of a step that stand in several files; None for other files."""
    from flopcast.interop.configs.rl_formats import MERGED, start_of

    starts = {start_of(each.data) for each in documents}
    merged = next((one for start, one in MERGED.items() if start in starts), None)
    return merged(documents) if merged else None


def _step_of_trainer(read: Document, request: JobRequest) -> Document | None:
    """Return the step that a file of another program describes, on the cluster of the request."""
    from flopcast.interop.configs.rl_formats import step_of

    document = step_of(read, import_options(request))
    if document is None or not isinstance(document.data, dict):
        return None
    data = dict(document.data)
    for part in OF_STEP:
        data[part] = _with_options(data[part], request, serves=part == OF_STEP[0])
    return replace(document, data=data)


def _with_options(job: dict[str, object], request: JobRequest, *, serves: bool) -> dict[str, object]:
    """Return one of the jobs with the model, cluster and lengths of the request."""
    sized = isinstance(request.cluster, str) and ":" in request.cluster
    machine = Document("", {"cluster": request.cluster or USUAL["cluster"]}, {})
    machine = with_gpus(machine, None if sized else job["gpus"])
    changed = {key: value for key, value in job.items() if key != "gpus"}
    changed |= machine.mapping
    if isinstance(request.model, str):
        made = with_other_model(Document("", changed, {}), request.model).data
        changed = made if isinstance(made, dict) else changed
    if serves and request.traffic is not None:
        changed["traffic"] = request.traffic
    if not serves and request.seq is not None:
        changed["batch"] = {"sequence_length": request.seq}
    if request.cluster is None and not serves:
        notes = job.get("assumptions")
        usual = f"cluster {USUAL['cluster']}"
        changed["assumptions"] = [*(notes if isinstance(notes, list) else []), usual]
    return changed


def _edited_part(document: Document, part: str, changes: Sequence[str]) -> Document:
    """Return the document after the changes of one of its jobs, such as "training.plan.gbs=512"."""
    own = [change.removeprefix(f"{part}.") for change in changes if change.startswith(f"{part}.")]
    data = document.mapping
    if not own or not isinstance(data.get(part), dict):
        return document
    inner = edited_document(_document(document, part), own)
    lines = {path: line for path, line in document.lines.items() if path[:1] != (part,)}
    lines |= {(part, *path): line for path, line in inner.lines.items()}
    places = {
        (part, *path): place.replace("argument ", f"argument {part}.")
        for path, place in inner.places.items()
    }
    return replace(
        document, data=data | {part: inner.data}, lines=lines, places={**document.places, **places}
    )


def rl_request(document: Document) -> RlRequest:
    """Return the step that a document describes.

    Raises
    ------
    SpecError
        Every fault of both jobs and of the plan.
    """
    from flopcast.requests.serving_request import checked_serving, with_degree
    from flopcast.spec.rl_plan import RlPlan

    data = dict(document.mapping)
    problems: list[Problem] = []

    def tried(make: Callable[[], Made], part: str) -> Made | None:
        with collected(problems), told_as(lambda one: replace(one, field=f"{part}{one.field}")):
            return make()
        return None

    own = {name: value for name, value in data.items() if name not in OF_STEP}
    plan = tried(lambda: build(RlPlan, document, own), "")
    wrong = {path_of(each.field)[0] for each in problems}
    right = {name: value for name, value in own.items() if name not in wrong}
    rollout = tried(lambda: checked_serving(_request(document, "rollout"), with_degree), "rollout.")
    training = tried(lambda: resolve(_request(document, "training")), "training.")
    with suppress(SpecError):  # the other settings may contradict the jobs, too
        if training and not wrong & {"prompts", "samples"}:
            from flopcast.requests.problem_places import with_places

            planned = rollout or checked_serving(_request(_without_plan(document), "rollout"), with_degree)
            stated = plan or build(RlPlan, document, right)
            problems += with_places([*_contradictions(planned, training, stated)], document)
    if plan is None or rollout is None or training is None or problems:
        raise SpecError([_with_storage(each, rollout) for each in problems] if rollout else problems)
    unstated = {"prompts", "samples"} - plan.model_fields_set
    notes = tuple(f"{name} {getattr(plan, name)}" for name in sorted(unstated))
    rollout = rollout.model_copy(update={"assumptions": (*rollout.assumptions, *notes)})
    return RlRequest(rollout, training, plan)


def _contradictions(rollout: "ServingJob", training: Job, plan: "RlPlan") -> Iterator[Problem]:
    """Yield what the two jobs contradict each other in: devices, model, lengths of answers."""
    devices = [job.cluster.num_devices for job in (rollout, training)]
    if not plan.apart and devices[0] != devices[1]:
        allowed = f"{devices[0]} devices, as many as rollout.cluster has"
        because = "both jobs run on the same devices"
        node = training.cluster.node.devices
        written = [f"{training.cluster.name}:{max(each // node, 1)}" for each in devices]
        fix = set_to({"training.cluster": written[0]} if devices[0] % node == 0 else "", {"apart": True})
        yield Problem("training.cluster", written[1], allowed, because, fix)
    yield from _of_handoff(plan, rollout)
    if training.plan.peers > 1:
        because = "peers are not supported yet in a step of reinforcement learning"
        fix = set_to(peers=1, inner_steps=1)
        yield Problem("training.plan.peers", training.plan.peers, "1", because, fix)
    batch = training.plan.global_batch
    if plan.answers % batch:
        allowed = f"a divisor of {plan.answers}, the number of answers of a step (prompts x samples)"
        because = "all optimizer steps train on the same number of answers"
        fix = set_to(global_batch=nearest_divisor(plan.answers, batch))
        yield Problem("training.plan.global_batch", batch, allowed, because, fix)
    shapes = [(job.model.hidden, job.model.num_blocks, job.model.vocabulary) for job in (rollout, training)]
    if shapes[0] != shapes[1]:
        allowed = f"a model of the same size as {rollout.model.name}"
        because = "the engine generates with the weights that are trained"
        fix = set_to({"training.model": rollout.model.name}, {"rollout.model": training.model.name})
        yield Problem("training.model", training.model.name, allowed, because, fix)
    lengths = (rollout.traffic.prompt_tokens, rollout.traffic.output_tokens)
    whole = round(sum(each.mean for each in lengths if each))
    known = round(training.batch.mean_sequence_tokens)
    if whole > known:
        allowed = f"at least {whole} tokens"
        because = "a prompt and its mean answer together have this many tokens"
        fix = set_to({"training.batch.sequence_length": whole})
        yield Problem("training.batch.sequence_length", known, allowed, because, fix)


def _with_storage(problem: Problem, rollout: "ServingJob") -> Problem:
    """Return a fault of handoff_over; its fix does not rely on a storage that the cluster lacks."""
    meant = only_value(problem.fix) if problem.field == "handoff_over" else ""
    if meant not in FIELDS or storage_of(rollout.cluster, meant):
        return problem
    described = f"describe rollout.{FIELDS[meant]} and set handoff_over to {meant}"
    return replace(problem, fix=set_to({"handoff_over": "link"}, described))


def _of_handoff(plan: "RlPlan", rollout: "ServingJob") -> Iterator[Problem]:
    """Yield settings of the handoff that cannot be used together, or that the cluster does not allow."""
    known = [name for name in ("file_system", "object_store") if storage_of(rollout.cluster, name)]
    if plan.handoff_over == "nvme" and plan.apart:
        because = "drives belong to a node, and training and generation have different nodes"
        allowed, fix = "link, file_system or object_store", set_to(handoff_over=[*known, "link"][0])
        yield Problem("handoff_over", "nvme", allowed, because, fix)
    elif plan.handoff_over != "link" and storage_of(rollout.cluster, plan.handoff_over) is None:
        field = f"rollout.{FIELDS[plan.handoff_over]}"
        because = (
            "the cluster does not describe this storage, and flopcast needs its rates to predict the "
            "handoff"
        )
        allowed = f"{', '.join(['link', *known])}, unless {field} is described"
        fix = set_to({"handoff_over": "link"}, f"describe {field}")
        yield Problem("handoff_over", plan.handoff_over, allowed, because, fix)
    if plan.packed_experts and plan.handoff == "full":
        because = "packed_experts changes how files contain adapters, but this handoff sends all weights"
        fix = set_to("remove packed_experts", {"handoff": "adapter"})
        yield Problem("packed_experts", True, "false with handoff: full", because, fix)
    for field in ("handoff_tensor_s", "packed_experts"):
        value = getattr(plan, field)
        if plan.handoff_over == "link" and value not in (None, False):
            because = "only a handoff over files writes and loads tensors one by one"
            fix = set_to(f"remove {field}", *({"handoff_over": name} for name in known[:1]))
            yield Problem(field, value, "no value with handoff_over: link", because, fix)


def _request(document: Document, part: str) -> JobRequest:
    """Return the request for the job in one part of the document."""
    return JobRequest(source=JobSource(document=_document(document, part)))


def _without_plan(document: Document) -> Document:
    """Return the document without the plan of its rollout, so that errors of this plan do not matter."""
    rollout = document.mapping["rollout"]
    kept = {key: value for key, value in rollout.items() if key != "plan"}
    return replace(document, data=document.mapping | {"rollout": kept})


def _document(document: Document, part: str) -> Document:
    """Return one part of the document as a document of its own."""
    data = document.data[part] if isinstance(document.data, Mapping) else {}
    lines = {path[1:]: line for path, line in document.lines.items() if path[:1] == (part,)}
    places = {path[1:]: place for path, place in document.places.items() if path[:1] == (part,)}
    return Document(document.name, data, lines, places)
