"""Plans with parts missing: which they are, and how they are completed.

Answers: does a plan say enough to be predicted as it stands, and if not, which plan is predicted?
Elsewhere: the choice itself (search/choose.py), the job around a plan (jobs.py).
"""

from collections.abc import Mapping

from flopcast.errors import Problem
from flopcast.spec.job import Job
from flopcast.units import show

COMPLETED = ("data_parallel", "tensor_parallel", "pipeline_parallel")  # degrees that may be filled in


def is_whole(job: Job) -> bool:
    """Whether a plan says enough to be predicted as it stands, or says too much for any completion.

    It is whole where it names its global batch and its degrees multiply to the devices: the rest then has
    its default. Where they do not, a degree that is not named may make up for it.
    """
    plan, devices = job.plan, job.cluster.num_devices
    named = plan.model_fields_set
    if plan.devices == devices:
        return "global_batch" in named
    return devices % plan.devices != 0 or named.issuperset(COMPLETED)


def with_chosen_plan(job: Job, fixed: Mapping[str, object]) -> Job:
    """The job with the plan that `search.choose` finds; its assumptions say what was filled in.

    Parameters
    ----------
    fixed : mapping
        Fields of the plan that are settled, by long name.

    Raises
    ------
    SpecError
        What is settled contradicts itself, so that no plan keeps every rule.
    InfeasibleError
        No plan fits.
    """
    from flopcast.io.curves import load_book  # what only a choice needs is loaded for a choice
    from flopcast.search.choose import choose

    choice = choose(job, fixed, load_book(job.cluster))
    told = [choice.told(fixed)]
    if "global_batch" not in fixed:
        tokens = choice.plan.global_batch * job.batch.mean_sequence_tokens
        told.append(f"global_batch {choice.plan.global_batch} ({show(tokens, 'tokens')})")
    return job.model_copy(update={"plan": choice.plan, "assumptions": (*job.assumptions, *told)})


def unmendable(job: Job, problems: tuple[Problem, ...], fixed: Mapping[str, object]) -> tuple[Problem, ...]:
    """Those that no choice of a plan could mend: of other nouns, and of settled fields not searched."""
    from flopcast.search.choose import SEARCHED
    from flopcast.search.screen import of_lists

    if job.batch.listed:
        return (of_lists(job),)
    settled = {f"plan.{name}" for name in fixed if name not in SEARCHED}
    return tuple(p for p in problems if not p.field.startswith("plan") or p.field in settled)
