"""Checks of the arguments of public functions: unknown names, and values of a wrong type.

Answers: which edit corrects a call of a public function?
Elsewhere: values inside jobs (files/validate.py), HTTP requests (ui/request_values.py).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial, wraps
from inspect import Parameter, signature
from numbers import Real
from pathlib import Path
from types import NoneType
from typing import ParamSpec, TypeVar

from flopcast.errors import Problem, SpecError, problems_of, spec_error
from flopcast.files.nearest_names import nearest
from flopcast.quantities import parse_tokens
from flopcast.spec.batch import Batch
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan
from flopcast.spec.plan_fields import short_name

P = ParamSpec("P")
Result = TypeVar("Result")
PARTS = ("model", "cluster", "plan", "stack", "batch")  # of a job, each with a class of its own


def job_field(name: str) -> str:
    """Return the field of a plan or a batch that has this name in flopcast or in another program; "" if
    there is none.

    >>> job_field("microbatch"), job_field("seq_len"), job_field("zero"), job_field("gpus")
    ('micro_batch', 'sequence_length', 'zero', '')
    """
    from flopcast.files.field_names import same_elsewhere

    known = [*Batch.model_fields, *Plan.model_fields]
    return name if name in known else same_elsewhere(name, known)


def known_arguments(function: Callable[P, Result]) -> Callable[P, Result]:
    """Return the function with a check that raises a SpecError, with a fix, for each unknown argument.

    The function has one positional argument, a file or the name of a model.
    """
    first, *known = signature(function).parameters
    fields = {short_name(name, field): name for name, field in Plan.model_fields.items()}

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Result:
        problems, right = [], dict[str, object](kwargs)
        for value in args[1:]:
            allowed, because = "arguments with names", f"only {first} may be passed without a name"
            name = "gpus" if isinstance(value, int) else "plan" if "=" in str(value) else "NAME"
            name = name if name in known else "NAME"
            right |= {name: value} if name in known and name not in kwargs else {}
            problems.append(Problem(function.__name__, value, allowed, because, f"write {name}={value!r}"))
        if args and isinstance(args[0], Mapping):
            because = f"{first} is a path or the name of a model"
            words = ", ".join(f"{key}={each!r}" for key, each in args[0].items())
            takes_parts = "model" in known
            words = words if args[0].keys() <= {*known} or not takes_parts else f"model={dict(args[0])!r}"
            fix = f"write flopcast.{function.__name__ if takes_parts else 'job'}({words})"
            problems.append(Problem(first, args[0], "a text or a path", because, fix))
        elif args and not isinstance(args[0], (str, Path, NoneType)):
            because = f"{first} is a path or the name of a model"
            fix = "write model= before a description of a model" if "model" in known else "pass a path"
            fault = f"is of type {type(args[0]).__name__}"
            problems.append(Problem(first, args[0], "a text or a path", because, fix, fault=fault))
        for name in kwargs.keys() - {first, *known}:
            from flopcast.files.field_names import NEAR

            meant = name if name in fields else job_field(name) or name
            short = short_name(meant, Batch.model_fields[meant]) if meant in Batch.model_fields else ""
            near = [short] if short in known else nearest(name, known, least_ratio=NEAR)
            fix = f"did you mean {near[0]}?" if near else f"remove {name}"
            if meant in fields or meant in Plan.model_fields:
                setting = f"{meant}={kwargs[name]}"
                fix = f'write plan="{setting}", or add {setting} to the plan'
            because = f"{function.__name__} has no such argument"
            fault, value = "is not a known argument", right.pop(name)
            allowed = ", ".join(known) or f"no argument except {first}"
            problems.append(Problem(name, value, allowed, because, fix, fault=fault))
            if near and near[0] not in kwargs:
                right[near[0]] = value
        if args and not isinstance(args[0], (str, Path, NoneType)):
            raise SpecError(problems)  # nothing describes the job
        if problems:  # the other arguments are checked as well
            checked = partial(function, *args[:1], **right)  # type: ignore[arg-type]
            raise SpecError([*problems, *problems_of(checked)])
        return function(*args, **kwargs)

    return call


def mapping_of(name: str, value: object) -> list[Problem]:
    """Return the problem of a mapping instead of one number. Its fix states each entry as an argument.

    >>> mapping_of("batch", {"global_batch": 64, "seq": 4096})[0].fix
    'write batch=64, seq=4096'
    """
    if not isinstance(value, Mapping):
        return []
    fields = {each: job_field(str(each)) or str(each) for each in value}
    written = {"global_batch": "batch", "size": "batch", "sequence_length": "seq", "seq": "seq"}
    arguments = {written.get(field, f"plan.{field}"): value[each] for each, field in fields.items()}
    changes = {key: each for key, each in arguments.items() if "." in key}
    words = [f"{key}={each!r}" for key, each in arguments.items() if "." not in key]
    fix = f"write {', '.join([*words, *([f'changes={changes!r}'] if changes else [])])}"
    because = f"{name} takes one number; pass each of the other settings as a separate argument"
    return [Problem(name, dict(value), "a whole number of sequences", because, fix)]


def without_options(make: Callable[..., object]) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Return a decorator of functions that take a job, so that options of flopcast.job raise a SpecError.

    The fix states the right call. `make` is flopcast.job, which raises the faults of these options.
    """
    return partial(_without_options, make)


def _without_options(make: Callable[..., object], function: Callable[P, Result]) -> Callable[P, Result]:
    known, name = signature(function).parameters, function.__name__

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Result:
        if options := {word: value for word, value in kwargs.items() if word not in known}:
            from flopcast.files.field_names import NEAR

            fields = Plan.model_fields.items()
            spellings = {*Plan.model_fields, *(short_name(each, field) for each, field in fields)}
            groups: dict[str, list[str]] = {"job": [*map(repr, args[:1])], "space": [], "": []}
            taken = signature(make).parameters
            removed = {word for word in options if not nearest(word, [*taken, *known], least_ratio=NEAR)}
            removed -= spellings if "space" in known else set()
            for word, value in ((word, value) for word, value in options.items() if word not in removed):
                own = nearest(word, known, least_ratio=NEAR)
                group = "space" if word in spellings and "space" in known else "" if own else "job"
                groups[group].append(f"{own[0] if group == '' else word}={value!r}")
            space = [f"space=flopcast.Space({', '.join(groups['space'])})"] if groups["space"] else []
            words = ", ".join([f"flopcast.job({', '.join(groups['job'])})", *space, *groups[""]])
            fix = f"write flopcast.{name}({words})"
            because = f"{name} takes a job, and flopcast.job takes the options of the job"
            allowed, fault, problems = ", ".join(known), "is not a known argument", list[Problem]()
            for option, value in options.items():
                near = nearest(option, known, least_ratio=NEAR)
                if not args or not isinstance(args[0], str):
                    other = f"remove {option}" if option in removed else f"pass {option} to flopcast.job"
                    fix = f"did you mean {near[0]}?" if near else other
                if option in spellings and "space" in known:
                    fix = f"write space=flopcast.Space({option}={value!r})"
                problems.append(Problem(option, value, allowed, because, fix, fault=fault))
            if args and isinstance(args[0], str):
                stated = {word: value for word, value in options.items() if word in taken}
                raise SpecError([*problems[:1], *problems_of(partial(make, args[0], **stated))])
            raise SpecError([*problems, *wrong_types(function, args, kwargs)])
        if wrong := wrong_types(function, args, kwargs):
            given = [each for each in args[:1] if not isinstance(each, Sequence) or isinstance(each, str)]
            raise SpecError(
                [*(found for each in given for found in problems_of(partial(check_job, each))), *wrong]
            )
        return function(*args, **kwargs)

    return call


def wrong_types(
    function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> list[Problem]:
    """Return the problems of arguments that should be numbers or paths, but have another type.

    >>> def wait(job: Job, seconds: float | None = None) -> None: ...
    >>> [problem.fix for problem in wrong_types(wait, [], {"seconds": "2e3"})]
    ['write seconds=2000']
    """
    parameters, problems = _parameters(function), list[Problem]()
    for name, value in [*zip(parameters, args, strict=False), *kwargs.items()]:
        kind = parameters[name].annotation if name in parameters else None
        number = isinstance(value, Real) and not isinstance(value, bool)
        if value is None and parameters[name].default is None:
            continue
        if kind in (float, float | None) and not number:
            allowed, example = "a number", _number_in(str(value))
        elif kind in (Path | str, Path | str | None) and not isinstance(value, (str, Path)):
            allowed, example = "a text or a path", "'FILE'"
        else:
            continue
        because = f"the value is of type {type(value).__name__}"
        problems.append(Problem(name, value, allowed, because, f"write {name}={example}"))
    return problems


@cache
def _parameters(function: Callable[..., object]) -> Mapping[str, Parameter]:
    return signature(function).parameters


def _number_in(text: str) -> str:
    """Return the number that a text means, or a word for a number.

    >>> _number_in("1TT"), _number_in("soon"), _number_in("2e3")
    ('1000000000000', 'NUMBER', '2000')
    """
    try:
        from flopcast.meant_quantities import meant_count

        return f"{parse_tokens(meant_count(text) or text):.15g}".replace("+", "")
    except ValueError:
        return "NUMBER"


def check_job(value: object, name: str = "job") -> None:
    """Raise an error for a value that is not a job, and for a job with a part of a wrong type.

    Raises
    ------
    SpecError
        The value is not a job. The fix contains the call of flopcast.job that creates a job from it.
    """
    if isinstance(value, Job):
        for part in PARTS:
            kind, given = Job.model_fields[part].annotation, getattr(value, part)
            if isinstance(kind, type) and not isinstance(given, kind):
                because = "model_copy does not check the values that it gets"
                fix = f"pass {part} to flopcast.job, or write {part}=flopcast.{kind.__name__}(...)"
                raise spec_error(f"{name}.{part}", given, f"a flopcast.{kind.__name__}", because, fix)
        return
    made = "flopcast.job(...)"
    if isinstance(value, str):
        made = f"flopcast.job({value!r})"
    elif isinstance(value, Mapping):
        made = f"flopcast.job({', '.join(f'{key}={each!r}' for key, each in value.items())})"
    because, fix = f"the value is of type {type(value).__name__}", f"write {made}"
    if hasattr(value, "traffic"):
        function = "search_deployments" if name == "jobs" else "predict_serving"
        because, fix = "this job serves requests", f"write flopcast.{function}(...)"
    raise spec_error(name, value, "a job, as flopcast.job returns it", because, fix)
