"""Plans with missing parts: how they are recognised and completed.

Answers: is a plan complete and, if not, which plan is predicted?
Elsewhere: the choice itself (search/default_plan.py), wrong values of a plan (fitting_values.py), the job
around a plan (job_files.py).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flopcast.errors import InfeasibleError, Problem, SpecError
from flopcast.fixes import set_to
from flopcast.records import replace
from flopcast.spec.divisors import divided_over_chunks, divisors
from flopcast.spec.job import Job
from flopcast.spec.offload import fraction_in
from flopcast.spec.plan_fields import with_runs
from flopcast.spec.rules import EVERY_DEVICE
from flopcast.strict_model import cached_results
from flopcast.workload.checks import check
from flopcast.workload.suggested_fixes import causes, impossible_degrees, plan_of

if TYPE_CHECKING:
    from flopcast.search.chosen_plan import ChosenPlan

MOST_RUNS = 32  # entries of a model's blocks: the catalogue has 3 at most
COMPLETED = ("data_parallel", "tensor_parallel", "pipeline_parallel")  # degrees that may be filled in


def is_whole(job: Job) -> bool:
    """Return whether a plan needs no completion, or cannot be completed.

    A plan is whole if it names its global batch and its degrees multiply to the number of devices; the
    other fields then have their defaults. If they do not, flopcast may choose a degree that is not named.
    If the batch of the job counts samples instead of sequences, a whole plan also names its micro-batch,
    because the default of one sample would make kernels very small.
    """
    plan, devices = job.plan, job.cluster.num_devices
    named = plan.model_fields_set
    if plan.devices == devices:
        return named >= {"global_batch"} | ({"micro_batch"} if job.batch_unit == "samples" else set())
    return devices % plan.devices != 0 or named.issuperset(COMPLETED)


def faults_of_whole(job: Job) -> tuple[Problem, ...]:
    """Return the errors of a job whose plan is not completed.

    If the given number of replicas does not fill the devices, the error concerns this number. Without other
    degrees, the fix is the nearest number with which they fill the devices and that divides the batch.
    """
    plan, devices, named = job.plan, job.cluster.num_devices, job.plan.model_fields_set
    problems, replica = causes(job), plan.devices // plan.data_parallel
    divided = {"stage_layers"}  # blocks are divided once the rest is right
    problems = (
        tuple(each for each in problems if not each.edits or each.edits[0].keys() != divided) or problems
    )
    if "data_parallel" not in named or devices % replica:
        return problems
    most, is_open = devices // replica, not named.issuperset(COMPLETED)
    peers, own = f" / {plan.peers} peers" * (plan.peers > 1), replica // plan.peers
    shared = peers + f" / {own} devices per replica" * (own > 1)
    allowed = f"{most} ({devices} devices{shared})" if shared else f"{most} (the number of devices)"
    whole = [d for d in divisors(most) if "global_batch" in named and plan.global_batch % d == 0]
    fixed = min(whole or divisors(most), key=lambda d: (abs(d - plan.data_parallel), d))
    is_whole = "global_batch" not in named or plan.global_batch % plan.data_parallel == 0
    more = plan.devices > devices and is_whole
    because = "every replica has the same number of devices"
    if plan.devices > devices:
        of = " of each peer" * bool(peers)
        because = f"{plan.data_parallel} replicas{of} need at least {plan.devices} devices"
    other = f"use --gpus {plan.devices}" if more else ""
    return tuple(
        replace(
            problem,
            field="plan.data_parallel",
            value=plan.data_parallel,
            allowed=f"a divisor of {allowed}" if is_open else allowed,
            because=because if is_open else problem.because,
            fix=set_to({"data_parallel": fixed} if is_open else problem.edits[0], other),
            fault="",
        )
        if problem.because == EVERY_DEVICE and problem.edits
        else problem
        for problem in problems
    )


def with_divided_blocks(job: Job) -> Job:
    """Return the job with its blocks divided as equally as possible over its stages, which is an
    assumption.

    The job is unchanged if the number of stages divides the blocks, if its plan or its stack states how
    blocks are divided, or if other rules are broken.
    """
    plan, blocks = job.plan, job.model.num_blocks
    listed = plan.stage_layers or job.stack.pipeline.partition != "even"
    chunks = plan.pipeline_parallel * plan.virtual_stages
    if listed or blocks % plan.pipeline_parallel == 0 or chunks > blocks:
        return job
    layers = divided_over_chunks(blocks, chunks)
    divided = job.model_copy(update={"plan": plan.model_copy(update={"stage_layers": layers})})
    if check(divided):
        return job
    note = (
        f"stage_layers {with_runs(layers)}, because {blocks} blocks do not divide into {chunks} equal parts"
    )
    return divided.model_copy(update={"assumptions": (*job.assumptions, note)})


def with_chosen_plan(job: Job, fixed: Mapping[str, object]) -> Job:
    """Return the job with the plan that `search.default_plan` finds; its assumptions list the chosen
    fields.

    Parameters
    ----------
    fixed : fields of the plan that are fixed, by long name

    Raises
    ------
    SpecError
        The fixed fields contradict each other, so no plan keeps every rule.
    InfeasibleError
        No plan fits. The message names changes with which the job fits.
    """
    from flopcast.search.equal_parts import CHOSEN, of_parts  # what only a choice needs is loaded for it
    from flopcast.search.usual_training import batch_assumed, precision_assumed

    choice = _choice(job, tuple(_implied(fixed).items()))
    if isinstance(choice, InfeasibleError):
        raise InfeasibleError(*choice.args)
    assumptions = [choice.sentence(fixed)]
    if choice.faster_tight is not None:
        assumptions.append(choice.faster_tight.sentence())
    if "global_batch" not in fixed:
        assumptions.append(batch_assumed(job, choice.plan.global_batch))
    if "precision" not in fixed:
        assumptions.append(precision_assumed(job, choice.plan.precision))
    if of_parts(job) is not None:
        assumptions.append(CHOSEN)
    chosen = job.model_copy(update={"plan": choice.plan, "assumptions": (*job.assumptions, *assumptions)})
    if problems := causes(chosen):
        raise SpecError(problems)
    return chosen


@cached_results(64)  # in one session, comparisons, forms and programs ask for the same job again
def _choice(job: Job, settled: tuple[tuple[str, object], ...]) -> "ChosenPlan | InfeasibleError":
    """Return the choice for a job, or why no plan fits; `settled` are the fixed fields and their values."""
    from flopcast.library.curves import load_book
    from flopcast.search.default_plan import NoPlanFitsError, choose
    from flopcast.search.equal_parts import with_equal_parts

    fixed, job = dict(settled), with_equal_parts(job)
    try:
        return _without_stages(job, fixed) or choose(job, fixed, load_book(job.cluster))
    except NoPlanFitsError as error:
        from flopcast.requests.changes_that_fit import advice

        told, changes = advice(job, fixed, error.needed_ratio)
        return InfeasibleError(f"{error}\n{told}", changes)


def _without_stages(job: Job, fixed: Mapping[str, object]) -> "ChosenPlan | None":
    """Return the choice for an exported graph among plans without pipeline stages; None if none fits.

    Blocks of a graph differ in time, so that equal stages are rare. To balance them takes seconds.
    """
    from flopcast.library.curves import load_book
    from flopcast.search.default_plan import choose

    if job.batch_unit != "samples" or "pipeline_parallel" in fixed:
        return None
    try:
        return choose(job, {**fixed, "pipeline_parallel": 1}, load_book(job.cluster))
    except (SpecError, InfeasibleError):
        return None


def _of_runs(job: Job) -> Problem:
    """Return the fault of a choice among plans of a model with very many kinds of layers."""
    allowed = f"at most {MOST_RUNS} entries if flopcast chooses the plan"
    because = "to choose a plan, flopcast estimates thousands of plans for each entry of blocks"
    fix = "list each kind of block once and give their order as model.pattern, or give the whole plan"
    return Problem("model.blocks", f"{len(job.model.blocks)} entries", allowed, because, fix)


def _implied(fixed: Mapping[str, object]) -> Mapping[str, object]:
    """Return the fixed fields, with the number of stages that a list of their blocks implies.

    Parameters that are offloaded imply ZeRO-3.
    """
    placed = fixed.get("offload", ())
    if "zero" not in fixed and isinstance(placed, tuple) and fraction_in(placed, "parameters") > 0:
        return _implied({**fixed, "zero": 3})
    layers, chunks = fixed.get("stage_layers"), fixed.get("virtual_stages", 1)
    if not isinstance(layers, tuple) or not isinstance(chunks, int) or "pipeline_parallel" in fixed:
        return fixed
    stages, rest = divmod(len(layers), chunks)
    return {**fixed, "pipeline_parallel": stages} if stages and not rest else fixed


def _of_groups(job: Job, fixed: Mapping[str, object]) -> Mapping[str, object]:
    """Return what groups of ranks that share states imply: a ZeRO stage, and at least one group."""
    stages, group = [stage for stage in job.stack.sharding.zero_stages if stage], fixed.get("data_shard", 0)
    devices = job.cluster.num_devices
    whole = isinstance(group, int) and group > 0 and devices % group == 0
    replicas = group if whole else devices  # of which a wrong group is no divisor
    wanted = {"zero": min(stages, default=0), "data_parallel": replicas} if group else {}
    return {name: value for name, value in wanted.items() if name not in fixed}


def unmendable(job: Job, fixed: Mapping[str, object]) -> tuple[Problem, ...]:
    """Return the problems of a job with an incomplete plan that no choice of its other fields can fix.

    Parameters
    ----------
    job : Job
    fixed : mapping
        Fields of the plan that the user has set.

    Returns
    -------
    tuple of Problem
        Problems outside the plan, or of fields that the user set and a search does not vary. Jobs that a
        search does not support (listed micro-batches, unequal groups, models of very many runs of blocks)
        return that one problem.
    """
    if len(job.model.blocks) > MOST_RUNS:
        return (_of_runs(job),)
    from flopcast.search.default_plan import SEARCHED
    from flopcast.search.equal_parts import of_parts
    from flopcast.search.screen import of_lists

    if job.batch.listed:
        return (of_lists(job),)
    if len(job.cluster.groups) > 1 and (unequal := of_parts(job)) is not None:
        return (unequal,)
    settled = {f"plan.{name}" for name in fixed if name not in SEARCHED}
    implied = dict(_implied(fixed)) | dict(_of_groups(job, fixed))
    problems = check(job.with_part("plan", **implied))
    usual = check(job.model_copy(update={"plan": plan_of(job, {**implied, **fixed})}))
    with_replicas = {each.field: each for each in usual}  # that use the remaining devices
    lasting = [
        with_replicas.get(each.field, each)
        for each in problems
        if not each.field.startswith("plan") or each.field in settled
    ]
    known = {each.field for each in lasting}
    return (*lasting, *(each for each in impossible_degrees(job, fixed) if each.field not in known))
