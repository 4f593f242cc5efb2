"""Job files: one YAML or JSON mapping that names or describes model, cluster, plan, stack and batch.

Answers: which job does this file or command line describe?
Instead of a whole part, a file can contain a text that names a catalogue entry ("perlmutter:32" means 32
nodes of it), or a mapping with `base: NAME` that changes fields of this entry.
"""

import re
from collections.abc import Mapping
from functools import partial

from pydantic import BaseModel

from flopcast.errors import Problem, SpecError, collected, spec_error
from flopcast.files.field_paths import path_of
from flopcast.files.named_files import ReadFile, read_file
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document, read_yaml
from flopcast.fixes import set_to, write
from flopcast.library import catalog
from flopcast.library.edits import in_long_names, merged, without_entry
from flopcast.library.link_files import with_links, without_links
from flopcast.library.schedule_files import with_schedule
from flopcast.library.teachers import with_teacher
from flopcast.records import Record
from flopcast.requests.block_counts import with_num_layers
from flopcast.requests.missing_parts import (
    is_misspelt,
    missing_part,
    not_a_mapping,
    refuse_changes_alone,
    unknown_base,
    with_base_value,
    with_factors,
    with_stacks,
)
from flopcast.requests.missing_plan import (
    faults_of_whole,
    is_whole,
    unmendable,
    with_chosen_plan,
    with_divided_blocks,
)
from flopcast.requests.problem_places import with_places
from flopcast.spec.cluster import Cluster
from flopcast.spec.job import Job
from flopcast.spec.model import Model
from flopcast.spec.plan import Plan
from flopcast.spec.recompute import FIELDS as RECOMPUTE_FIELDS
from flopcast.spec.site import Site
from flopcast.spec.stack import Stack
from flopcast.workload.checks import check
from flopcast.workload.listed_lengths import with_listed_lengths
from flopcast.workload.suggested_fixes import fields_of

NOUNS: Mapping[str, tuple[str, type[BaseModel]]] = {
    "model": ("models", Model),
    "stack": ("stacks", Stack),
    "site": ("sites", Site),
    "cluster": ("clusters", Cluster),
}

AUTO = "auto"  # a word of a plan: choose what is not said
WHOLE = "a whole number of at least 1"
NODES = re.compile(r"[1-9][0-9]{0,8}")


def job_of(document: Document, read: ReadFile = read_file) -> Job:
    """Return the checked job that a document describes.

    Parameters
    ----------
    document : Document
    read : returns at most a given number of bytes, plus one, of a file that the document names

    Raises
    ------
    SpecError
        Faults of its parts or, if each of them is right, every rule that they break together.

    Examples
    --------
    >>> job = job_of(Document("example", {
    ...     "model": "megatron-1.7b", "cluster": "selene:2", "stack": "megatron-2022",
    ...     "batch": {"seq": 2048}, "plan": "dp=16 gbs=64"}, {}))
    >>> job.cluster.num_devices, job.plan.num_micro_batches
    (16, 4)
    """
    job, document, fixed = checked_job(document, read)
    if fixed is None:
        return job
    try:
        return with_chosen_plan(job, fixed)
    except SpecError as error:
        raise SpecError(with_places(error.problems, document)) from None


def checked_job(document: Document, read: ReadFile) -> tuple[Job, Document, dict[str, object] | None]:
    """Return the first three results of `_described` for a job that breaks no rule. No plan is chosen."""
    job, document, fixed, problems = _described(document, read)
    if fixed is None and not is_whole(job):
        fixed = fields_of(job.plan)
    with collected(problems):
        job = with_divided_blocks(_with_lists(job, document)) if fixed is None else job
        faults = faults_of_whole if fixed is None else partial(unmendable, fixed=fixed)
        if broken := faults(job):
            raise SpecError(with_places(with_stacks(broken, job, faults), document))
    if problems:
        raise SpecError(problems)
    return job, document, fixed


OF_TRAINING = ("global_batch", "precision", "optimizer")  # what a plan says of more than how it runs


class OpenJob(Record, eq=False):
    """The job of a search, which chooses all fields of the plan that the request does not state.

    The plan of the job contains only the fixed fields, which `settled` also contains by their long names.
    An "auto" plan fixes the fields that it states. A whole plan fixes only its training settings
    (`OF_TRAINING`). If it can be predicted, `given` is this plan.
    """

    job: Job
    settled: Mapping[str, object]
    given: Plan | None


def open_job_of(document: Document, read: ReadFile = read_file) -> OpenJob:
    """Return the job of a document with an open plan; `read` as in `job_of`.

    Raises
    ------
    SpecError
        The job has faults that no plan can fix.
    """
    job, document, fixed, problems = _described(document, read)
    given = None
    if fixed is None:
        given = job.plan if is_whole(job) and not check(job) else None
        stated = job.plan.model_fields_set
        named = [name for name in OF_TRAINING if name != "global_batch" or name in stated]
        fixed = {name: getattr(job.plan, name) for name in named}
        job = job.model_copy(update={"plan": Plan(**fixed)})
    problems += with_places(unmendable(job, fixed), document)
    if problems:
        raise SpecError(problems)
    return OpenJob(job=job, settled=fixed, given=given)


def _described(
    document: Document, read: ReadFile
) -> tuple[Job, Document, dict[str, object] | None, list[Problem]]:
    """Return the job that a document describes, each part valid by itself, and the document in long names.

    Where the plan is "auto", or missing, the third value holds the fields that are settled all the same,
    and the job's plan is a placeholder. The fourth value holds the errors of files of measured links. If
    there are any, the job has no measured links, and can still be checked against the rules.

    Each part is built even if an earlier part has errors, so that the errors of all parts are reported. A
    part with errors is not also reported as missing.
    """
    if not isinstance(document.data, dict):
        raise SpecError([not_a_mapping(document)])
    problems, data = list[Problem](), dict(document.data)
    fixed: dict[str, object] | None = None
    written, data["plan"] = data.get("plan", AUTO), AUTO  # which stays if one name contradicts another
    with collected(problems):
        document, data["plan"] = in_long_names(document, "plan", written)
        fixed, data["plan"] = _settled(data["plan"])
    try:
        data["plan"] = with_schedule(data.get("plan"), document, read)
    except SpecError as error:
        problems += error.problems
        data["plan"] = merged(data["plan"], {"schedule": AUTO})  # reported: the rest is checked without it
    data, of_links = with_links(data, document, read)
    try:
        in_long_names(document, "batch", data.get("batch"))  # errors use the name that was written
    except SpecError as error:
        problems += error.problems
        data.pop("batch")
    for key in NOUNS:
        if key in data:
            try:
                data[key] = built(key, data[key], document)
            except SpecError as error:
                problems += with_factors(error.problems, data.pop(key))
        elif key in ("model", "cluster", "stack") and not is_misspelt(key, data):
            problems.append(missing_part(key, document.where(())))
    try:
        job = build(Job, document, data)
    except SpecError as error:
        from flopcast.requests.fitting_values import with_fitting_values

        reported = {problem.field.split(".")[0] for problem in problems}
        own = [p for p in error.problems if p.field not in reported]
        problems += with_fitting_values(own, document, data, fixed)
    if problems:
        from flopcast.files.misplaced_keys import with_sections

        raise SpecError(with_sections([*of_links, *problems], document, Job))
    if of_links:
        job = job.model_copy(update={"cluster": without_links(job.cluster)})
    if fixed is None:
        return job, document, None, of_links
    names = (*fixed, *(RECOMPUTE_FIELDS if "recompute" in fixed else ()))  # which one word may settle
    return job, document, {name: getattr(job.plan, name) for name in dict.fromkeys(names)}, of_links


def _settled(plan: object) -> tuple[dict[str, object] | None, object]:
    """Return the fixed fields of a plan that is to be chosen, None of one that is given; and the plan.

    >>> _settled({"auto": True, "micro_batch": 2})
    ({'micro_batch': 2}, {'global_batch': 1, 'micro_batch': 2})
    """
    if not isinstance(plan, dict) or plan.get(AUTO) is not True:
        return None, plan
    fixed = {name: value for name, value in plan.items() if name != AUTO}
    return fixed, {"global_batch": 1} | fixed


def built(key: str, data: object, document: Document) -> object:
    """Return a model, cluster, stack or site, given as a name, a base with changes, or a description.

    Parameters
    ----------
    key : one of NOUNS: the key of `data` in the document

    Raises
    ------
    SpecError
        There is no such name, or the description has faults.
    """
    kind, noun = NOUNS[key]
    if key == "cluster":
        data = _with_stated_price(data)
    field = key if isinstance(data, str) else f"{key}.base"
    data = {"base": data} if isinstance(data, str) else data
    refuse_changes_alone(key, data, document, noun, partial(built, key, document=document))
    if not isinstance(data, dict) or "base" not in data:
        parts = catalog.with_parts(document, data, (key,)) if key == "cluster" else data
        parts = with_teacher(document, parts, (key,)) if key == "model" else parts
        return _priced(build(noun, document, parts, (key,)))
    changes = {name: value for name, value in data.items() if name != "base"}
    name, nodes = data["base"] if isinstance(data["base"], str) else "", None
    if key == "cluster":
        name, nodes = nodes_of(name, changes, field, document)
    own_name = catalog.known(kind, name) if isinstance(data["base"], str) else None
    if own_name is None:
        raise SpecError([unknown_base(kind, name or data["base"], field, document)])
    if not changes:
        return catalog.cluster(own_name, nodes) if key == "cluster" else getattr(catalog, key)(own_name)
    base = catalog.document(kind, own_name).data
    problems: list[Problem] = []
    if missing := list(without_entry(base, changes, document, (key,))):
        raise SpecError(missing)
    if key == "model":
        changes, problems = with_num_layers(base, changes, document)
    made = merged(base, changes)
    made = with_teacher(document, made, (key,)) if key == "model" else made
    if key == "cluster":
        made = catalog.with_parts(document, made, (key,), nodes)
    try:
        noun_of = _priced(build(noun, document, made, (key,)))
    except SpecError as error:
        own = [with_base_value(problem, base, own_name) for problem in error.problems]
        raise SpecError([*problems, *own]) from None
    if problems:
        raise SpecError(problems)
    return noun_of


def _with_stated_price(data: object) -> object:
    """Return the data of a cluster; a price that is no name of the catalogue becomes that of a device."""
    price = data.get("price") if isinstance(data, dict) else None
    is_stated = not (price is None or isinstance(price, dict) or re.match(r"[A-Za-z][^/]*$", str(price)))
    own = {"price": {"device_usd_per_hour": price}} if is_stated else {}
    return data | own if isinstance(data, dict) else data


def _priced(made: BaseModel) -> BaseModel:
    """Return a cluster with the catalogue's price, if it has none; any other part unchanged."""
    return catalog.with_price(made) if isinstance(made, Cluster) else made


def nodes_of(
    name: str, changes: dict[str, object], field: str, document: Document
) -> tuple[str, int | None]:
    """Return the name of the cluster and its stated number of nodes, "selene:64" or `nodes: 64`, if any."""
    from flopcast.requests.missing_parts import nodes_meant

    own_name, colon, text = name.partition(":")
    if colon and not NODES.fullmatch(text):
        allowed, because = f"NAME, or NAME:NODES, where NODES is {WHOLE}", f"{text!r} is not such a number"
        fix: str = write(f"{own_name.strip()}:{nodes_meant(text.partition(':')[0], own_name, document)}")
        if "," in name:
            fix = "describe the groups under cluster: in a job file, as docs/howto/unequal.md does"
        raise spec_error(field, name, allowed, because, fix, document.where(path_of(field)))
    if "nodes" not in changes:
        return own_name, int(text) if colon else None
    number = changes.pop("nodes")
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        because, nodes = "a cluster has at least one node", nodes_meant(number, own_name, document)
        fix = set_to(nodes=nodes)
        raise spec_error("cluster.nodes", number, WHOLE, because, fix, document.where(("cluster", "nodes")))
    return own_name, number


def _with_lists(job: Job, document: Document) -> Job:
    """Return the job with the micro-batches that its distribution of lengths stands for."""
    try:
        return with_listed_lengths(job)
    except SpecError as error:
        raise SpecError(with_places(tuple(error.problems), document)) from None


def load_catalog_job(name: str) -> Job:
    """Return a job file that ships with flopcast, by its path without suffix: "paper/…".

    Raises
    ------
    SpecError
        There is no such file, or it has a fault.
    """
    if name not in catalog.names("jobs"):
        raise SpecError([catalog.unknown_name("jobs", name)])
    place = catalog.folder("jobs").joinpath(*f"{name}.yaml".split("/"))
    return job_of(read_yaml(place.read_bytes(), f"catalog/jobs/{name}.yaml"))
