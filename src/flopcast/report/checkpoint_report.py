"""The report of `flopcast checkpoint`: checkpoints of a job, other methods, and loading by another plan.

Answers: how much time does saving take with each method, and which bytes does each rank of another plan
read?
Elsewhere: the numbers of one checkpoint (economics/), how it is printed (render/checkpoint_text.py).
"""

from flopcast.economics.checkpoint_cost import (
    CheckpointCost,
    by_method,
    checkpoint_cost,
    checkpoint_problems,
)
from flopcast.economics.checkpoints import SaveRates, restore_s
from flopcast.economics.failures import LostTime
from flopcast.economics.step import update_s
from flopcast.errors import InfeasibleError, Problem, SpecError
from flopcast.records import Record
from flopcast.report.report import Report
from flopcast.spec.checkpoints import HOST, STORES, Checkpoint
from flopcast.spec.cluster import Cluster
from flopcast.spec.described_tiers import storage_of
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan
from flopcast.workload.program import Programs
from flopcast.workload.resharding import Reads, reads
from flopcast.workload.saved_states import saved_states


class Resharded(Record, eq=False):
    """A checkpoint that another plan loads.

    Attributes
    ----------
    job : Job
        The job that loads it.
    reads : Reads
        The bytes of the saved states that each of its ranks reads.
    restore_s : float
        Seconds until the states are loaded.
    """

    job: Job
    reads: Reads
    restore_s: float


class CheckpointReport(Record, eq=False):
    """The checkpoints of a job, those of every method at its best interval, and loading by another plan.

    `lost` is None if the devices fail faster than the job restarts. `resharded` is None if no other plan is
    given. If the job does not state how it saves, `assumptions` do.
    """

    job: Job
    cost: CheckpointCost
    methods: dict[str, CheckpointCost]
    lost: dict[str, LostTime | None]
    resharded: Resharded | None
    assumptions: tuple[str, ...]

    @property
    def goodput(self) -> float | None:
        """Return the share of useful time with the checkpoints of the job; None if there is no progress."""
        return _goodput(_lost(self.cost, self.job.cluster))

    def goodput_of(self, method: str) -> float | None:
        """Return the share of useful time with a method at its best interval; None without progress."""
        return _goodput(self.lost[method])


def checkpoint_report(
    report: Report, loading: Job | None = None, both: tuple[Programs, Programs] | None = None
) -> CheckpointReport:
    """Return the cost of checkpoints, given the prediction of a step.

    Parameters
    ----------
    report : of the job
    loading : a job with the same model, which loads the checkpoint
    both : programs of the two jobs that `job_of_states` returns

    Raises
    ------
    SpecError
        Checkpoints follow each other too fast or have no room; or the other plan cannot load them.
    """
    job, programs = report.job, report.priced.programs
    checkpoint = job.checkpoint or usual_checkpoint(job.cluster)
    seconds = (report.step_time_s, update_s(report.timeline, report.priced))
    rates = SaveRates.of(report.priced.levels)
    cost = checkpoint_cost(job, checkpoint, programs, *seconds, rates)
    problems = checkpoint_problems(cost, job.cluster)
    problems += () if loading is None else _problems_of_loading(job, loading, programs)
    if problems:
        raise SpecError(problems)
    free = checkpoint.model_copy(update={"every_steps": None, "every_s": None})
    methods = by_method(job, free, programs, *seconds, rates)
    resharded = None
    if loading is not None and both is not None:
        resharded = _resharded(loading, *both, checkpoint, rates)
    assumed = () if job.checkpoint else (f"checkpoint {checkpoint.text()}; set --checkpoint to change it",)
    return CheckpointReport(
        job=job,
        cost=cost,
        methods=methods,
        lost={name: _lost(each, job.cluster) for name, each in methods.items()},
        resharded=resharded,
        assumptions=(*report.assumptions, *assumed),
    )


def usual_checkpoint(cluster: Cluster) -> Checkpoint:
    """Return the checkpoint settings of a job that states none: the first storage that the cluster
    describes.
    """
    stores = (name for name in STORES if name == HOST or storage_of(cluster, name) is not None)
    return Checkpoint.model_validate({"to": next(stores)})


def job_of_states(job: Job) -> Job:
    """Return the job without recompute, whose ranks hold the same states in the order of the layers."""
    names = [name for name in Plan.model_fields if name.startswith("recompute")]
    usual = {name: Plan.model_fields[name].default for name in names}
    return job.model_copy(update={"plan": job.plan.model_copy(update=usual)})


def _resharded(
    loading: Job, old: Programs, new: Programs, checkpoint: Checkpoint, rates: SaveRates
) -> Resharded:
    found = reads(new, old)
    cluster = loading.cluster
    saved = saved_states(new, checkpoint, cluster.node.devices)
    return Resharded(
        job=loading, reads=found, restore_s=restore_s(saved, found.rank_bytes, checkpoint, cluster, rates)
    )


def _problems_of_loading(job: Job, loading: Job, programs: Programs) -> tuple[Problem, ...]:
    """Return why a plan cannot load the checkpoint of another: other states, or experts that are cut."""
    old, new = job.plan, loading.plan
    found = []
    for name in ("optimizer", "precision"):
        ours, theirs = getattr(old, name), getattr(new, name)
        if ours != theirs:
            because = "the checkpoint contains the states of the plan that saved it"
            found.append(Problem(f"--to-plan: {name}", theirs, ours, because, f"set {name} to {ours}"))
    cut = [plan for plan in (old, new) if plan.expert_tensor_parallel > 1]
    if programs.expert_parameters is not None and cut:
        because = "loading experts that are sharded by tensor parallelism is not supported yet"
        found.append(
            Problem(
                "--to-plan: expert_tensor_parallel",
                cut[0].expert_tensor_parallel,
                "1 in both plans",
                because,
                "set expert_tensor_parallel to 1 in both plans",
            )
        )
    return tuple(found)


def _lost(cost: CheckpointCost, cluster: Cluster) -> LostTime | None:
    try:
        return cost.lost(cluster)
    except InfeasibleError:
        return None


def _goodput(lost: LostTime | None) -> float | None:
    return None if lost is None else float(1.0 / lost.wall.value)
