"""Several training jobs on one network with shared uplinks: how much they slow each other down.

Answers: how much longer is the step of each job because other jobs send at the same time?
Elsewhere: seconds of a step on the network (report/network_use.py), flows of one job that collide
(cost/collectives/collisions.py), the text (render/shared_network_text.py).

Jobs run on nodes of their own and share the uplinks of the widest tier. The uplinks carry C = N B / r
bytes/s for the N devices of all jobs, where B is the bandwidth of one device and r the oversubscription.
While the jobs in S send, each of their devices gets the same part, g(S) = min(1, C / (B · devices of S)).
Steps of different jobs are not synchronised: job j sends in a part u_j of the time, independently of
others. The messages of job i then take

    m_i = sum over S that contain i of P(S) / g(S)

times as long, with P(S) the product of u_j for j in S and 1 - u_j for the others. Longer messages change
the steps, and the steps change u_j, so both are computed again until they agree.
"""

from collections.abc import Callable, Sequence
from itertools import combinations

from flopcast.errors import Problem, SpecError
from flopcast.records import Record
from flopcast.report.network_use import network_seconds
from flopcast.report.report import Report
from flopcast.spec.job import Job
from flopcast.units import Number

MOST_JOBS, MOST_ROUNDS, PRECISION = 8, 100, 1e-6


class SharedJob(Record):
    """One of several jobs on a network.

    Attributes
    ----------
    alone, together : Report
        The prediction without other jobs, and with all of them.
    always_s : float
        The step time if the other jobs sent all the time.
    busy_fraction : float
        Part of the time in which the job's messages occupy the network, when all jobs run.
    slowed_by : tuple of float
        Step time together with one other job, divided by the step time without other jobs, for each job. It
        is 1 for the job itself.
    """

    alone: Report
    together: Report
    always_s: float
    busy_fraction: float
    slowed_by: tuple[Number, ...]

    @property
    def slowdown_ratio(self) -> Number:
        """Return the step time with all jobs, divided by that without other jobs."""
        return self.together.step_time_s / self.alone.step_time_s


def share_network(
    jobs: Sequence[Job], oversubscription_ratio: Number, predict: Callable[[Job], Report]
) -> tuple[SharedJob, ...]:
    """Return how much jobs on one network slow each other down.

    Parameters
    ----------
    jobs : 2 to 8 jobs, whose clusters have the same last tier
    oversubscription_ratio : bandwidth of all devices over that of the uplinks that they share, at least 1
    predict : predicts a job; called about ten times for each

    Raises
    ------
    SpecError
        Fewer jobs than two or more than eight, clusters with different networks, or a ratio below 1.

    Examples
    --------
    >>> from flopcast.jobs import job
    >>> from flopcast.predictor import Predictor
    >>> one = job("llama-3-8b", cluster="dgx-a100:2", plan="dp=16 gbs=16 zero=3", stack="torch-fsdp2")
    >>> first, second = share_network((one, one), 2.0, Predictor().predict)
    >>> 1.0 < first.slowdown_ratio == second.slowdown_ratio < 2.0
    True
    """
    _check(jobs, oversubscription_ratio)
    devices = [job.cluster.num_devices for job in jobs]
    room = sum(devices) / oversubscription_ratio  # devices that can send at full bandwidth
    every = tuple(range(len(jobs)))

    def slowed(job: int, ratio: Number) -> Report:
        return predict(_slower(jobs[job], ratio))

    alone = [slowed(job, max(1.0, devices[job] / room)) for job in every]
    together, busy = list(alone), [_busy(report) for report in alone]
    for _ in range(MOST_ROUNDS):
        ratios = [_mean_ratio(job, every, busy, devices, room) for job in every]
        together = [slowed(job, ratio) for job, ratio in zip(every, ratios, strict=True)]
        before, busy = busy, [_busy(report) for report in together]
        if max(abs(new - old) for new, old in zip(busy, before, strict=True)) < PRECISION:
            break
    always = _mean_ratio(0, every, [1.0] * len(jobs), devices, room)
    return tuple(
        SharedJob(
            alone=alone[job],
            together=together[job],
            always_s=slowed(job, always).step_time_s,
            busy_fraction=busy[job],
            slowed_by=tuple(
                1.0
                if other == job
                else slowed(job, _mean_ratio(job, (job, other), busy, devices, room)).step_time_s
                / alone[job].step_time_s
                for other in every
            ),
        )
        for job in every
    )


def _mean_ratio(
    job: int, among: Sequence[int], busy: Sequence[Number], devices: Sequence[int], room: Number
) -> Number:
    """Return how many times as long the messages of a job take beside the jobs in `among`."""
    others = [other for other in among if other != job]
    mean = 0.0
    for size in range(len(others) + 1):
        for sending in combinations(others, size):
            chance = 1.0
            for other in others:
                chance *= busy[other] if other in sending else 1.0 - busy[other]
            mean += chance * max(1.0, sum(devices[each] for each in (job, *sending)) / room)
    return mean


def _busy(report: Report) -> Number:
    """Return the part of the time in which a job occupies the network."""
    seconds = network_seconds(report.priced, report.job.plan.num_micro_batches)
    return min(1.0, seconds / report.step_time_s)


def _slower(job: Job, ratio: Number) -> Job:
    """Return the job on a network of 1 / ratio of its bandwidth."""
    if ratio == 1.0:
        return job
    *tiers, last = job.cluster.tiers
    slower = last.model_copy(update={"bytes_per_s": last.bytes_per_s / ratio})
    cluster = job.cluster.model_copy(update={"tiers": (*tiers, slower)})
    return job.model_copy(update={"cluster": cluster})


def _check(jobs: Sequence[Job], ratio: Number) -> None:
    """Raise SpecError for everything that is wrong with the jobs and the ratio."""
    problems = []
    if not 2 <= len(jobs) <= MOST_JOBS:
        because = (
            "flopcast computes the slowdown for every subset of the jobs, and each further job doubles "
            "their number"
        )
        problems.append(
            Problem("jobs", len(jobs), f"2 to {MOST_JOBS}", because, f"give 2 to {MOST_JOBS} jobs")
        )
    if not ratio >= 1.0:
        because = (
            "oversubscription is the total bandwidth of the devices divided by the total bandwidth of"
            " their uplinks"
        )
        problems.append(
            Problem("oversubscription", ratio, "1 or more", because, "set oversubscription to 1")
        )
    for place, job in enumerate(jobs, start=1):
        if job.plan.peers > 1:
            because = "the exchange of peers on a shared network is not supported yet"
            field, fix = f"job {place}: plan.peers", "choose a job with one peer"
            problems.append(Problem(field, job.plan.peers, "1", because, fix))
    networks = [job.cluster.tiers[-1] for job in jobs]
    for place, tier in enumerate(networks[1:], start=2):
        if (tier.name, tier.bytes_per_s) != (networks[0].name, networks[0].bytes_per_s):
            because = "all jobs use the same network"
            allowed = f"{networks[0].name} with {networks[0].bytes_per_s:g} B/s per device, as in job 1"
            value = f"{tier.name} with {tier.bytes_per_s:g} B/s"
            fix = "choose jobs on clusters with the same last tier"
            problems.append(Problem(f"job {place}: cluster.tiers", value, allowed, because, fix))
    if problems:
        raise SpecError(problems)
