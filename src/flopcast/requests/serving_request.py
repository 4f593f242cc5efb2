"""Conversion of a request to a serving job with engine, deployment, traffic and defaults.

Answers: which serving job does a request describe?
Elsewhere: requests (job_request.py), the recognition of serving requests (serving_words.py), files, changes
and clusters (resolve.py), the rules (serving/checks.py).
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from flopcast.errors import Problem, SpecError, collected, problems_of, spec_error, told_as
from flopcast.files.misplaced_keys import with_sections
from flopcast.files.named_files import ReadFile, read_file
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document
from flopcast.library import catalog
from flopcast.library.curves import load_serving_book
from flopcast.library.edits import in_long_names, merged
from flopcast.library.engine_releases import engine_of_release, release_in_name
from flopcast.library.traffic_text import slo_of
from flopcast.records import replace
from flopcast.requests.cluster_options import with_usual_size
from flopcast.requests.drafting_words import with_drafting
from flopcast.requests.job_files import built
from flopcast.requests.job_request import JobRequest
from flopcast.requests.problem_places import with_places
from flopcast.requests.resolve import Made, made_from
from flopcast.requests.served_formats import as_stored, with_formats
from flopcast.requests.serving_words import (
    OF_SERVING,
    as_written,
    nested_pools,
    refuse_options_of_serving,
    refuse_other_words,
    traffic_of_text,
)
from flopcast.search.deployments.choose import chosen_deployment
from flopcast.serving.checks import broken_rules, serving_problems
from flopcast.serving.memory import serving_memory
from flopcast.serving.requests import Requests
from flopcast.serving.unknown_release import release_age
from flopcast.spec.deployment import Deployment
from flopcast.spec.engine import Engine
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.traffic import Slo, Traffic

USUAL_ENGINE = "vllm"
USUAL_LOAD = {"concurrency": 16}
USUAL_LENGTHS = {"prompt_tokens": 1000, "output_tokens": 300}
OF_TRAINING = (
    "stack", "offload", "slow", "seq", "batch", "images", "lora", "qlora", "tokens", "samples", "epochs",
    "checkpoint", "loader",
)  # fmt: skip
Answer = TypeVar("Answer")
Complete = Callable[[ServingJob], tuple[ServingJob, list[str]]]  # adds what a plan leaves out, with notes
TRACED = 2_000  # requests of a trace that determine the deployment
ROOM = 8  # requests of the longest kind for which a deployment that flopcast chooses has a cache


def resolve_serving(request: JobRequest, complete: Complete | None = None) -> ServingJob:
    """Return the serving job that a request describes. For `complete` and errors, see `answered`."""
    return answered(request, lambda job: job, complete)


def checked_serving(
    request: JobRequest, complete: Complete | None = None, *, fits: bool = True
) -> ServingJob:
    """Return the serving job of a request, which breaks no rule. For errors, see `answered`.

    `fits` states whether the job must also fit into memory.
    """

    def checked(job: ServingJob) -> ServingJob:
        if fits:
            check_serving(job)
        elif problems := broken_rules(job):
            raise SpecError(problems)
        return job

    return answered(request, checked, complete)


def answered(
    request: JobRequest, answer: Callable[[ServingJob], Made], complete: Complete | None = None
) -> Made:
    """Return the answer to a serving request. Errors name the line or the option of the value.

    Parameters
    ----------
    complete : chooses the fields that the plan of the job omits; by default `with_best_degrees`

    Raises
    ------
    SpecError
        Every fault of the files and the other values, including options of training.
    """

    def of_job(
        answer: Callable[[ServingJob], Answer], completed: Complete
    ) -> Callable[[Document, ReadFile], Answer]:
        def answer_of(document: Document, read: ReadFile) -> Answer:
            job = serving_job_of(with_usual_size(document), read, completed)
            try:
                return answer(job)
            except SpecError as error:
                raise SpecError(with_places(error.problems, document)) from None

        return answer_of

    refuse_options_of_serving(request)
    check = of_job(check_serving, with_degree)  # to choose degrees takes longer
    if wrong := list(_options_of_training(request)):
        none: dict[str, Any] = dict.fromkeys(OF_TRAINING)
        rest = replace(request, **none)
        raise SpecError([*wrong, *problems_of(lambda: made_from(rest, check))])
    return made_from(request, of_job(answer, complete or with_best_degrees), check)


def check_serving(job: ServingJob) -> None:
    """Raise SpecError if a serving job cannot be predicted, with every rule that it breaks."""
    from flopcast.interop.request_traces.reader import trace_of

    prompt = job.traffic.prompt_tokens
    problems = serving_problems(job, _longest(job.traffic), int(prompt.mean) if prompt else 0)
    with collected(problems):
        trace_of(job)
    if problems:
        raise SpecError(problems)


def _options_of_training(request: JobRequest) -> Iterator[Problem]:
    """Yield the faults of options that apply to training only, in a request that serves."""
    named = [f"--{name}" for name in OF_SERVING if getattr(request, name) is not None]
    for name in OF_TRAINING:
        if getattr(request, name) is None:
            continue
        given, verb = " and ".join(named), "describes" if len(named) < 2 else "describe"
        because = f"the option applies to training, and {given or 'the file'} {verb} a serving job"
        fix = f"remove --{name}" + (f", or remove {given} to predict training" if given else "")
        fix = "write images=2x1024x768 in --traffic" if name == "images" else fix
        yield Problem(f"--{name}", getattr(request, name), "no value in a serving job", because, fix)


def serving_job_of(document: Document, read: ReadFile, complete: Complete | None = None) -> ServingJob:
    """Return the serving job that a document describes; by default, `with_degree` completes its plan.

    Raises
    ------
    SpecError
        All faults of its parts (model, cluster, …).
    """
    if not isinstance(document.data, dict):
        allowed = "a mapping with model, cluster, engine, plan and traffic"
        because, fix = "a serving job consists of these parts", "begin the file with model: llama-3-8b"
        where, fault = document.where(()), "is not a mapping"
        raise spec_error("document", document.data, allowed, because, fix, where, fault)
    data: dict[str, object] = {"traffic": {}, "plan": {}, **document.data}
    notes, problems = list[str](), list[Problem]()
    usual: dict[str, int] = {}  # values of the traffic that the document does not state
    if "engine" not in data:
        data["engine"] = USUAL_ENGINE
        notes.append(f"engine {USUAL_ENGINE}")
    makers: dict[str, Callable[[object], object]] = {
        "model": lambda value: built("model", value, document),
        "cluster": lambda value: built("cluster", value, document),
        "engine": lambda value: _engine(value, document),
        "plan": lambda value: _deployment(value, document),
        "traffic": lambda value: _traffic(value, document, usual, read),
        "slo": lambda value: _slo(value, document),
    }
    for key, make in makers.items():
        if key in data:
            try:
                data[key] = make(data[key])
            except SpecError as error:
                problems += error.problems
                data.pop(key)
    try:
        job = build(ServingJob, document, data)
    except SpecError as error:
        reported = {problem.field.split(".")[0] for problem in problems}
        problems += [each for each in error.problems if each.field.split(".")[0] not in reported]
        if not {"traffic"} >= reported:
            raise SpecError(with_sections(problems, document, ServingJob)) from None
        with collected(problems):
            job = build(ServingJob, document, data | {"traffic": Traffic(**USUAL_LOAD, **USUAL_LENGTHS)})
            problems += with_places(broken_rules((complete or with_degree)(job)[0]), document)
    if problems:
        raise SpecError(with_sections(problems, document, ServingJob))
    job = _with_prompts_that_fit(job, usual, notes)
    if release_age(job.engine):
        known = f"constants were fitted to releases of {job.engine.fitted_from} and later"
        notes.append(f"engine {job.engine.label}: {known}, so the intervals are wider")
    job = as_stored(_without_unused_tower(job, notes), document.data.get("model"), notes)
    job, chosen = (complete or with_degree)(job)
    return job.model_copy(update={"assumptions": (*job.assumptions, *notes, *chosen)})


def _with_prompts_that_fit(job: ServingJob, usual: dict[str, int], notes: list[str]) -> ServingJob:
    """Return a job whose prompts, if they have the usual length, fit into the context of the model.

    The usual prompts begin with the shared prefix, if it is as long as they are. Notes state the `usual`
    values.
    """
    name, reason, traffic = "prompt_tokens", "", job.traffic
    if name in usual:
        prefix, most = traffic.shared_prefix_tokens, job.model.context_length
        left = int(most - traffic.output_tokens.mean) if most and traffic.output_tokens else 0
        usual[name] += prefix * (prefix >= usual[name])
        if 0 < left < usual[name]:
            usual[name], reason = left, f": the context of the model has {most} tokens"
        prompts = Traffic(**USUAL_LOAD, **USUAL_LENGTHS | {name: usual[name]}).prompt_tokens
        job = job.model_copy(update={"traffic": traffic.model_copy(update={name: prompts})})
    for each, value in usual.items():
        notes.append(f"traffic {each.removesuffix('_tokens')}={value}{reason * (each == name)}")
    return job


def _without_unused_tower(job: ServingJob, notes: list[str]) -> ServingJob:
    """Return a job whose model has a vision tower only if requests have images; a note says so."""
    if job.model.vision is None or job.traffic.images:
        return job
    notes.append("the vision tower is left out, because requests have no images")
    return job.with_part("model", vision=None)


def _engine(data: object, document: Document) -> Engine:
    """Return an engine by its name, a base with changes, or a description."""
    changes = dict(data) if isinstance(data, dict) else {"base": data}
    if "base" not in changes:
        return build(Engine, document, data, ("engine",))
    name, release = release_in_name(str(changes.pop("base")))
    own_name = catalog.known("engines", name)
    if own_name is None:
        unknown = catalog.unknown_name("engines", str(name), "engine", document.where(("engine",)))
        meant = next((str(*edit.values()) for edit in unknown.edits), USUAL_ENGINE)
        further = problems_of(lambda: _engine({"base": meant, **changes}, document)) if changes else []
        raise SpecError([unknown, *further])
    if release:
        changes = {"release": release} | changes
    if changes.get("release", "") != "":
        where = document.where(("engine", "release"))
        own_name = engine_of_release(own_name, changes["release"], where)
    if not changes:
        return catalog.engine(own_name)
    if {"max_sequences", "max_tokens"} & changes.keys():
        changes = {"small_devices": None} | changes
    made = merged(catalog.document("engines", own_name).data, changes)
    return build(Engine, document, made, ("engine",)).model_copy(update={"name": own_name})


def _deployment(data: object, document: Document) -> Deployment:
    document, words = in_long_names(document, "plan", data)
    nested = nested_pools(words)
    if isinstance(nested, dict):
        refuse_other_words(nested, document)
        nested = with_drafting(nested, document)
    with told_as(lambda problem: as_written(problem, str(data))):
        return build(Deployment, document, nested, ("plan",))


def _traffic(data: object, document: Document, assumed: dict[str, int], read: ReadFile) -> Traffic:
    """Return the traffic; a load and lengths that are not stated are the usual ones, added to `assumed`."""
    if isinstance(data, str):
        where = document.where(("traffic",))
        words: object = traffic_of_text(data, where, opens_files=read is read_file)
        document = Document(where, words, {})
    else:
        document, words = in_long_names(document, "traffic", data)
    if isinstance(words, dict) and "trace" not in words:
        usual = {} if {"rate_per_s", "concurrency"} & words.keys() else USUAL_LOAD
        usual = usual | {name: value for name, value in USUAL_LENGTHS.items() if name not in words}
        assumed |= usual
        words = words | usual
    traffic = build(Traffic, document, words, ("traffic",))
    if traffic.trace is not None and read is not read_file:
        allowed, because = "no trace over HTTP", "a request over HTTP cannot read files of the server"
        fix = "write rate=4/s in place of the trace, or use the command line"
        raise spec_error("traffic.trace", traffic.trace, allowed, because, fix, "request")
    return traffic


def _slo(data: object, document: Document) -> Slo:
    if isinstance(data, str):
        return slo_of(data, document.where(("slo",)))
    return build(Slo, document, data, ("slo",))


def with_best_degrees(job: ServingJob) -> tuple[ServingJob, list[str]]:
    """Return the job with the degrees and the number of replicas that serve its traffic best, and notes on
    these choices.

    Formats are chosen as in `with_degree`, and so is the degree if no deployment fits. If the traffic is a
    trace, its first requests determine the choice.
    """
    if "tensor_parallel" in job.plan.model_fields_set or job.plan.pools:
        return with_degree(job)
    formatted, notes = with_formats(job)
    chosen = chosen_deployment(formatted, load_serving_book(job.cluster), _beginning_of_trace(job))
    if chosen is None:
        return with_degree(job)
    job = formatted.model_copy(update={"plan": chosen.plan})
    return job, [*notes, chosen.note(job)]


def _beginning_of_trace(job: ServingJob) -> Requests | None:
    """Return the first requests of the traffic's trace; None if it names none."""
    from flopcast.interop.request_traces.reader import trace_of

    trace = trace_of(job)
    return None if trace is None else trace.requests.first(TRACED)


def with_degree(job: ServingJob) -> tuple[ServingJob, list[str]]:
    """Return the job with a tensor-parallel degree and formats, and notes on those that were chosen.

    The degree is the smallest power of two whose cache has room for several of the longest requests or, if
    none has, the largest that is possible.
    """
    job, notes = with_formats(job)
    if "tensor_parallel" in job.plan.model_fields_set or job.plan.pools:
        return job, notes
    tokens = ROOM * _longest(job.traffic)
    heads = [block.mixer.heads for block in job.model.blocks]
    largest = min(job.cluster.scale_up_devices, job.cluster.num_devices)
    degrees = [
        degree
        for power in range(8)
        if (degree := 2**power) <= largest and all(count % degree == 0 for count in heads)
    ]
    chosen = degrees[-1]
    for degree in degrees:
        if serving_memory(job.with_part("plan", tensor_parallel=degree)).cache_tokens >= tokens:
            chosen = degree
            break
    return job.with_part("plan", tensor_parallel=chosen), [
        *notes,
        (
            f"plan tp={chosen}, the smallest tensor-parallel degree with which the model fits; flopcast "
            "search compares other plans"
        ),
    ]


def _longest(traffic: Traffic) -> int:
    """Return about the tokens of a long request, prompt and output; those of a trace are not read yet."""
    lengths = [length for length in (traffic.prompt_tokens, traffic.output_tokens) if length]
    return int(sum(length.mean for length in lengths)) or 4096
