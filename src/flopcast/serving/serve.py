"""The prediction of a serving job: from the job to the report.

Answers: which latencies do the requests of a traffic have on a deployment?
Elsewhere: each step (the modules below), the content of the report (serving_report.py).

A grid of passes is lowered, rewritten and priced as in training. A scheduler then simulates the requests of
one replica. For the intervals, the requests are simulated again with slower and with faster passes.
"""

import math
from collections.abc import Callable

from flopcast.cost.factors import NINETY_PERCENT
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.errors import SpecError, spec_error
from flopcast.records import Record, field, replace
from flopcast.serving.arrivals import in_steady_state, requests_of
from flopcast.serving.checks import serving_problems
from flopcast.serving.estimates import report_of
from flopcast.serving.front_end import with_front_end
from flopcast.serving.instances import Instances, instances_of
from flopcast.serving.joined_pools import EnginePool, run_joined
from flopcast.serving.kv_transfer import kv_transfer
from flopcast.serving.output_mixture import output_mixture
from flopcast.serving.pools import pools_of
from flopcast.serving.power import power_of_kinds
from flopcast.serving.requests import Requests, share_of
from flopcast.serving.scheduler import run
from flopcast.serving.served import Served
from flopcast.serving.serving_report import ServingReport
from flopcast.serving.summary import LEAVE_OUT_SHARE, is_stable, saturation_per_s, summarise
from flopcast.serving.time_shares import time_shares
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.traffic import DEFAULT_REQUESTS
from flopcast.strict_model import cached_results
from flopcast.units import Number

KEPT_UP_RATIO = 0.97  # of requests that end to requests that arrive, below which the queue may grow
HALFWAY = NINETY_PERCENT / 2  # where latencies near saturation begin to rise: only objectives need it
MOST_KEPT = 8  # simulations
Play = Callable[[Requests, Number], Served]  # of requests, with passes that are longer by a ratio


class Simulation(Record, eq=False):
    """The requests of one engine, the instances of each kind, and the function that simulates requests on
    them.
    """

    requests: Requests
    kinds: list[Instances]
    play: Play
    known: dict[Number, Served] = field(default_factory=dict)  # by the ratio by which passes are longer
    stable_rates: dict[Number, float] = field(default_factory=dict)  # by the same ratio

    @property
    def waits_for_passes_only(self) -> bool:
        """Return whether nothing but passes takes time: no copy between pools, no load of an adapter, and
        no pause between turns.
        """
        requests = self.requests
        return len(self.kinds) == 1 and not requests.adapter_ids.size and bool((requests.after < 0).all())

    def served(self, ratio: Number) -> Served:
        """Return the served requests, with passes that are longer by a ratio.

        Results are stored for each ratio. In a closed loop, all times follow from those of the passes.
        """
        if ratio not in self.known:
            is_stretched = ratio != 1.0 and self.requests.concurrency > 0 and self.waits_for_passes_only
            self.known[ratio] = (
                self.served(1.0).stretched(ratio) if is_stretched else self.play(self.requests, ratio)
            )
        return self.known[ratio]


def serve(
    job: ServingJob,
    book: CurveBook,
    trace: Requests | None = None,
    leave_out_share: float = LEAVE_OUT_SHARE,
    *,
    steady: bool = True,
) -> ServingReport:
    """Predict how an engine serves its traffic.

    Parameters
    ----------
    job : ServingJob
    book : CurveBook
        The curves of the job's cluster.
    trace : Requests or None
        The requests of the trace, if the traffic names a trace.
    leave_out_share : float
        Share of the requests that is not counted, as in summary.py.
    steady : bool
        See `simulation_of`.

    Raises
    ------
    SpecError
        The job contradicts itself, or needs a feature that is not supported. The error lists every fault.
    """
    simulation = simulation_of(job, book, trace, leave_out_share, steady=steady)
    requests, kinds, play = simulation.requests, simulation.kinds, simulation.play
    served = simulation.served(1.0)
    shares = [
        time_shares(kind, book, requests, table) for kind, table in zip(kinds, served.tables, strict=True)
    ]
    above = max(each.certainty.log_sigma_factor for each in shares)
    below = max(each.certainty.below_log_sigma_factor for each in shares)
    plays = {0.0: served}
    for place in (-NINETY_PERCENT, NINETY_PERCENT, *([HALFWAY] if job.slo.text() else [])):
        plays[place] = simulation.served(math.exp(place * (below if place < 0 else above)))
    saturation = None
    if not keeps_up(job, simulation, served):
        saturation = _saturation_per_s(job, simulation, 1.0)
    slower = plays[NINETY_PERCENT], math.exp(NINETY_PERCENT * above)
    power = power_of_kinds(kinds, [each.power for each in shares], served)
    pools = None
    if job.plan.pools:
        pools = pools_of(kinds, shares, served, kv_transfer(job, book, requests.prompt_tokens))
    mixture = output_mixture(job.traffic, requests, lambda given: play(given, 1.0))
    report = report_of(job, kinds[-1].memory, plays, shares[-1], saturation, power, leave_out_share, pools)
    return replace(report, mixture=mixture, stable_if_slower=keeps_up(job, simulation, *slower))


def simulation_of(
    job: ServingJob,
    book: CurveBook,
    trace: Requests | None = None,
    leave_out_share: float = LEAVE_OUT_SHARE,
    *,
    steady: bool = True,
) -> Simulation:
    """Return the simulation that `serve` runs.

    Parameters
    ----------
    job, book, trace, leave_out_share : see `serve`
    steady : whether a closed loop begins in its steady state, if its first requests are not counted.
        Otherwise, all requests start together, as in a benchmark

    Raises
    ------
    SpecError
        As `serve`.
    """
    return _simulation(job.model_copy(update={"assumptions": ()}), book, trace, leave_out_share, steady)


@cached_results(MOST_KEPT)  # the deployment that flopcast chooses for a job is predicted afterwards
def _simulation(
    job: ServingJob, book: CurveBook, trace: Requests | None, leave_out_share: float, steady: bool
) -> Simulation:
    if trace is not None and job.busy_engines > 1:
        trace = share_of(trace.first(job.traffic.num_requests), job.busy_engines)
    requests = requests_of(_of_one_replica(job).traffic, trace, job.image_tokens)
    if steady and requests.concurrency <= leave_out_share * requests.size:
        requests = in_steady_state(requests, job.traffic.seed)
    longest = int((requests.prompt_tokens + requests.output_tokens).max())
    if problems := serving_problems(job, longest, int(requests.prompt_tokens.max())):
        raise SpecError(problems)
    if job.plan.pools and requests.output_tokens.max() == 1:
        because = "the prefill instances generate the first token of each output"
        fix = "remove prefill and decode from the plan, or serve longer outputs"
        raise spec_error("traffic.output_tokens", 1, "outputs of two tokens and more", because, fix)
    kinds = [instances_of(each, book, longest) for each in job.kinds]
    return Simulation(requests=requests, kinds=kinds, play=_play(job, book, kinds))


def keeps_up(job: ServingJob, simulation: Simulation, served: Served, ratio: Number = 1.0) -> bool:
    """Return whether an engine keeps up with its requests.

    Close to the largest stable rate, the queue grows so slowly that a run of some minutes does not show it.
    If fewer requests end than arrive, the function therefore compares their rate with the rate at which
    requests end if other requests always wait.

    Parameters
    ----------
    served : the served requests, with passes that are longer by `ratio`
    """
    if not is_stable(served):
        return False
    rate = (job.traffic.rate_per_s or 0.0) / job.engines
    if job.traffic.turns > 1 or summarise(served).requests_per_s >= KEPT_UP_RATIO * rate:
        return True
    return rate <= _saturation_per_s(job, simulation, ratio)


def _saturation_per_s(job: ServingJob, simulation: Simulation, ratio: Number) -> float:
    """Return the largest stable rate of one replica, from a run that is long enough to become steady.

    If all passes are longer by a ratio, all times of such a run are, unless it waits for something else.
    """
    if ratio in simulation.stable_rates:
        return simulation.stable_rates[ratio]
    requests = simulation.requests
    if ratio != 1.0 and simulation.waits_for_passes_only:
        return _saturation_per_s(job, simulation, 1.0) / ratio
    if job.traffic.trace is None and requests.size < DEFAULT_REQUESTS:
        traffic = _of_one_replica(job).traffic.model_copy(update={"requests": DEFAULT_REQUESTS})
        requests = requests_of(traffic, None, job.image_tokens)
    found = saturation_per_s(requests, lambda given: simulation.play(given, ratio))
    simulation.stable_rates[ratio] = found
    return found


def _play(job: ServingJob, book: CurveBook, kinds: list[Instances]) -> Play:
    """Return what plays requests: one engine, or the engines of two pools."""
    last, engine = kinds[-1], job.engine
    if len(kinds) == 1:
        return lambda requests, ratio: with_front_end(
            run(requests, last.limits, last.times.stretched(ratio)), engine, ratio
        )

    def pool(kind: Instances, ratio: Number) -> EnginePool:
        number = kind.job.engines // job.engines
        return EnginePool(engines=number, limits=kind.limits, pass_seconds=kind.times.stretched(ratio))

    def joined(requests: Requests, ratio: Number) -> Served:
        transfer_s = kv_transfer(job, book, requests.prompt_tokens).alone_s
        served = run_joined(requests, pool(kinds[0], ratio), pool(last, ratio), transfer_s)
        return with_front_end(served, engine, ratio, has_pools=True)

    return joined


def _of_one_replica(job: ServingJob) -> ServingJob:
    """Return the job with the traffic of one engine: an equal share of the rate or of the concurrency."""
    traffic, replicas = job.traffic, job.busy_engines
    if replicas == 1:
        return job
    share: dict[str, object] = {"repeated_requests": traffic.repeated_requests // replicas}
    if traffic.requests is not None or traffic.trace is not None:
        share["requests"] = max(traffic.num_requests // replicas, 1)
    if traffic.rate_per_s is not None:
        share["rate_per_s"] = traffic.rate_per_s / replicas
    if traffic.concurrency is not None:
        share["concurrency"] = max(round(traffic.concurrency / replicas), 1)
    return job.model_copy(update={"traffic": traffic.model_copy(update=share)})
