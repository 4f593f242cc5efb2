"""The cost of slow devices, hosts and links of a job, and how long unequal peers wait for each other.

Answers: how long would the step be without the slow parts, how much time does each of them cost, and which
peers wait?
Elsewhere: the notation of slow parts (spec/slow_parts.py), prices on a slow part (cost/part_prices.py).
"""

from collections import defaultdict

from flopcast.cost.factors import FactorBook
from flopcast.cost.item_prices import Priced
from flopcast.cost.part_prices import axes_of, with_parts
from flopcast.cost.parts import layout_of
from flopcast.records import Record, replace
from flopcast.report.loader import LoadedStep
from flopcast.report.outer_round import OuterRound, link_fractions, outer_round
from flopcast.spec.job import Job
from flopcast.spec.slow_parts import SlowPart
from flopcast.timeline.step import simulated_seconds


class Straggler(Record):
    """A slow part, and the time that it adds to the step if it is the only slow part.

    Several slow parts together cost less than the sum of their single costs if they delay the same stage,
    or stages that wait for each other.
    """

    part: SlowPart
    alone_s: float


class Stragglers(Record):
    """The cost of all slow parts of a job.

    `step_time_s` is the mean step with all slow parts, and `without_s` the mean step without slow parts.
    `each` has one entry for every slow part alone. The sum of these costs may differ from the total,
    because stages wait only for the slowest part.
    """

    step_time_s: float
    without_s: float
    each: tuple[Straggler, ...]

    @property
    def lost_s(self) -> float:
        """Return the seconds of a step that are lost to slow parts."""
        return self.step_time_s - self.without_s

    @property
    def lost_fraction(self) -> float:
        """Return the fraction of the step time, and of the cost of the step, that is lost to slow parts."""
        return self.lost_s / self.step_time_s


class EqualPeers(Record):
    """A group of equally fast peers, in a job whose peers differ.

    `device` is the name of their devices. `link_fraction` is the speed of their links to other peers,
    relative to the mean link of the cluster. In each round, they wait for `waits_s` until the slowest peers
    have trained all inner steps.
    """

    peers: tuple[int, ...]
    device: str
    inner_step_s: float
    link_fraction: float
    waits_s: float


def equal_peers(
    job: Job, priced: Priced, outer: OuterRound | None, loader: LoadedStep | None, jitter_ratio: float
) -> tuple[EqualPeers, ...]:
    """Return the peers of each speed, the slowest first; nothing if all peers are equal.

    Parameters
    ----------
    priced : prices with rows for the parts of the job that differ in speed
    outer, loader : those of the slowest peers; None without other peers, and without an input pipeline
    jitter_ratio : mean step of the devices of a peer divided by their best step
    """
    layout = layout_of(job.plan, job.cluster, job.site, axes_of(priced.programs))
    if layout is None or outer is None:
        return ()
    kinds = defaultdict[tuple[tuple[int, ...], float, str], list[int]](list)
    replicas = job.plan.data_parallel
    nodes = [each for each in job.cluster.groups for _ in range(each.count)]
    for peer, link_fraction in enumerate(link_fractions(job)):
        own = layout.of_replicas[peer * replicas : (peer + 1) * replicas]
        first = nodes[peer * len(nodes) // job.plan.peers].node.device.name
        kinds[tuple(sorted(set(own))), link_fraction, first].append(peer)
    found = []
    for (patterns, link_fraction, device), peers in kinds.items() if len(kinds) > 1 else ():
        of_peer = replace(priced, patterns=tuple(layout.patterns[each] for each in patterns))
        inner_step_s = jitter_ratio * simulated_seconds(of_peer)
        if loader is not None:
            inner_step_s = replace(loader, device_step_s=inner_step_s).step_time_s
        waits_s = max(outer.compute_s - inner_step_s * outer.inner_steps, 0.0)
        found.append(
            EqualPeers(
                peers=tuple(peers),
                device=device,
                inner_step_s=inner_step_s,
                link_fraction=link_fraction,
                waits_s=waits_s,
            )
        )
    return tuple(sorted(found, key=lambda each: -each.inner_step_s))


def stragglers_of(job: Job, priced: Priced, step_time_s: float, clean_s: float) -> Stragglers | None:
    """Return the cost of the slow parts of a job; None if it has none.

    Parameters
    ----------
    priced : prices with rows for the parts of the job that differ in speed
    step_time_s, clean_s : the step of the devices with all slow parts, with jitter and without
    """
    if not job.site.slow:
        return None
    jitter_ratio = step_time_s / clean_s
    axes, book = axes_of(priced.programs), FactorBook(priced.site, priced.levels)

    def mean_step_s(slow: tuple[SlowPart, ...]) -> float:
        site = job.site.model_copy(update={"slow": slow})
        layout = layout_of(job.plan, job.cluster, site, axes)
        inner_s = jitter_ratio * simulated_seconds(with_parts(priced.equal, layout, job.cluster))
        outer = outer_round(job.model_copy(update={"site": site}), book, inner_s)
        return inner_s if outer is None else outer.step_time_s

    without_s = mean_step_s(())
    each = tuple(Straggler(part=part, alone_s=mean_step_s((part,)) - without_s) for part in job.site.slow)
    outer = outer_round(job, book, step_time_s)
    whole_s = step_time_s if outer is None else outer.step_time_s
    return Stragglers(step_time_s=whole_s, without_s=without_s, each=each)
