"""Latencies, rates and occupancy of served requests, and whether the load is stable.

Answers: which latencies do requests have, how many of them meet the limits, how full is the engine, and at
which load does it saturate?
Elsewhere: times of single requests and iterations (served.py), percentiles of values (percentiles.py), what
objectives are (spec/traffic.py).

An engine fills up at the beginning and drains at the end. By default, the first and the last tenth of the
requests are therefore served but not counted: latencies are those of the other requests, and rates and
occupancy are those of the time from the first counted arrival to the first arrival of the last tenth. If
requests arrive faster than they are served, few end in this time. Rates are then computed between the ends
of the first and of the last tenth of the requests. If all requests arrive before any of them ends, rates
are those of the whole time.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from flopcast.dtypes import Counts, Flags, Floats, Integers
from flopcast.records import Record, replace
from flopcast.serving.percentiles import Spread, spread_of
from flopcast.serving.requests import Limits, Requests
from flopcast.serving.served import ARRIVALS, LIMITED_BY, Iterations, Served, limit_share
from flopcast.spec.traffic import SLO_METRICS, Percentile, Slo

LEAVE_OUT_SHARE = 0.1  # of the requests, at the beginning and at the end each
BACKLOG_SHARE = 0.95  # of the time: requests wait longer than that where the load is too much
GROWTH_RATIO = 1.2  # of waiting times between the third and the last quarter, if the load is too much


class Objective(Record):
    """One limit of latency, and whether requests keep it."""

    metric: str  # one of SLO_METRICS
    percentile: Percentile  # of requests that must keep the limit
    limit_s: float
    reached_s: float  # the percentile of the latency
    kept_share: float  # of requests, that keep the limit

    @property
    def kept(self) -> bool:
        """Return whether enough requests keep the limit."""
        return self.reached_s <= self.limit_s


class ServingSummary(Record, eq=False):
    """Results of served requests. Latencies are those of the counted requests."""

    ttft: Spread  # from arrival to the first token
    tpot: Spread  # mean time between tokens of a request, for requests of two tokens and more
    end_to_end: Spread  # from arrival to the last token
    queued: Spread  # from arrival to the first iteration
    inter_token: Spread  # between outputs of a sequence, in order of time; drafted tokens come together
    requests_per_s: float  # that end; if the queue grows, output tokens over those of a request
    output_tokens_per_s: float
    prompt_tokens_per_s: float  # computed, without hits of the prefix cache
    goodput_per_s: float  # requests that end and keep every limit
    objectives: tuple[Objective, ...]
    mean_kv_share: float  # of KV blocks in use, over time
    peak_kv_share: float
    busy_share: float  # of the time in which an iteration runs
    hit_share: float  # of prompt tokens, found in the prefix cache
    adapter_hit_share: float  # of admissions, whose adapter was loaded; 1 without adapters
    preempted_share: float  # of requests, that were preempted at least once
    limited_by: Mapping[str, float]  # share of busy time of iterations by LIMITED_BY
    stable: bool  # whether the queue does not grow all the time


def summarise(
    served: Served, slo: Slo | None = None, leave_out_share: float = LEAVE_OUT_SHARE
) -> ServingSummary:
    """Return latencies, rates and occupancy.

    Parameters
    ----------
    served : Served
    slo : Slo or None
        Limits of latency. Without limits, every request meets them.
    leave_out_share : float
        Share of requests, below 0.5, that is not counted at the beginning and again at the end. With 0,
        everything counts from the first arrival to the last token, as in benchmarks of engines.
    """
    order = np.argsort(served.arrival_s, kind="stable")
    size = len(order)
    out = int(leave_out_share * size)
    judged = order[out : size - out]
    stable = is_stable(served)
    begin_s, end_s = _judged_time(served, order, out, stable)
    values = _latencies(served)
    more = served.requests.output_tokens > 1
    spreads = {name: spread_of(each[judged]) for name, each in values.items()}
    spreads["tpot"] = spread_of(values["tpot"][judged[more[judged]]])
    objectives, good = _objectives(values, spreads, slo or Slo())
    table, tables = served.iterations, served.tables
    span_s = end_s - begin_s
    ends = (served.last_token_s > begin_s) & (served.last_token_s <= end_s)
    inside_s = _overlap_s(table, begin_s, end_s)
    busy_s = inside_s.sum()
    occupied = table.kv_blocks / served.limits.kv_blocks
    output_tokens_per_s = _output_tokens(tables, begin_s, end_s) / span_s
    return ServingSummary(
        ttft=spreads["ttft"],
        tpot=spreads["tpot"],
        end_to_end=spreads["end_to_end"],
        queued=spreads["queued"],
        inter_token=_inter_token(table, served.limits, inside_s > 0),
        requests_per_s=float(ends.sum()) / span_s
        if stable
        else output_tokens_per_s / float(served.requests.output_tokens.mean()),
        output_tokens_per_s=output_tokens_per_s,
        prompt_tokens_per_s=sum(
            _inside(each, _prompt_tokens(each, served.limits), begin_s, end_s) for each in tables
        )
        / span_s,
        goodput_per_s=float((ends & good).sum()) / span_s,
        objectives=objectives,
        mean_kv_share=float((occupied * inside_s).sum()) / span_s / served.engines,
        peak_kv_share=float(occupied.max()),
        busy_share=float(busy_s) / span_s / served.engines,
        hit_share=float(served.hit_tokens[judged].sum() / served.requests.prompt_tokens[judged].sum()),
        adapter_hit_share=1.0 - served.adapter_loads / (size + float(served.preemptions.sum())),
        preempted_share=float((served.preemptions[judged] > 0).mean()),
        limited_by={word: limit_share(table, code) for code, word in enumerate(LIMITED_BY)},
        stable=stable,
    )


def _judged_time(served: Served, order: Integers, out: int, stable: bool) -> tuple[float, float]:
    """Return the begin and the end of the time whose rates are judged, without `out` requests at each end.

    `order` are the requests in order of arrival.
    """
    size = len(order)
    begin_s = float(served.arrival_s[order[out]])
    end_s = float(served.arrival_s[order[size - out]]) if out else served.end_s
    if not stable and out:
        ends_s = np.sort(served.last_token_s)
        begin_s, end_s = float(ends_s[out - 1]), float(ends_s[size - out - 1])
    if end_s <= max(begin_s, float(served.last_token_s.min())):  # all arrive before any request ends
        begin_s, end_s = float(served.arrival_s.min()), served.end_s
    return begin_s, end_s


def is_stable(served: Served) -> bool:
    """Return whether the engine keeps up with the arrivals.

    It does not keep up if, from the middle of the arrivals on, requests wait in nearly every iteration, and
    the requests of the last quarter wait longer than those of the third quarter. Closed loops and requests
    that all arrive at once are stable.
    """
    first, middle, third, last = np.quantile(served.arrival_s, (0.0, 0.5, 0.75, 1.0))
    if served.requests.concurrency or first == last:
        return True
    if not any(_has_backlog(table, middle, last) for table in served.tables):
        return True
    before = served.queued_s[(served.arrival_s >= middle) & (served.arrival_s < third)]
    after = served.queued_s[served.arrival_s >= third]
    return not (len(before) and after.mean() > GROWTH_RATIO * before.mean())


def _has_backlog(table: Iterations, begin_s: float, end_s: float) -> bool:
    """Return whether requests are left waiting in nearly every iteration of an interval."""
    later = (table.start_s >= begin_s) & (table.start_s <= end_s)
    left_s = float(table.elapsed_s[later & (table.limited_by != ARRIVALS)].sum())
    return bool(later.any()) and left_s >= BACKLOG_SHARE * float(table.elapsed_s[later].sum())


def saturation_per_s(requests: Requests, play: Callable[[Requests], Served]) -> float:
    """Return the largest stable rate: the requests that end per second while other requests always wait.

    The requests are served as if all conversations began at once. The rate is measured from the end of the
    first tenth of the requests until no request waits, or until nine tenths have ended. It is computed from
    output tokens, because requests that began together also end together.

    Parameters
    ----------
    requests : Requests
    play : callable
        Serves requests, like `scheduler.run` with given limits and pass times.
    """
    at_once = np.where(requests.after < 0, 0.0, requests.arrival_s)
    served = play(replace(requests, arrival_s=at_once, concurrency=0))
    ends_s = np.sort(served.last_token_s)
    out = int(LEAVE_OUT_SHARE * len(ends_s))
    begin_s, end_s = ends_s[out - 1] if out else 0.0, ends_s[len(ends_s) - out - 1]
    none_waits_s = (served.arrival_s + served.queued_s).max()
    if begin_s < none_waits_s < end_s:
        end_s = none_waits_s
    if begin_s == end_s:  # all of them end together, in one batch
        return float(len(ends_s) / end_s)
    tokens = _output_tokens(served.tables, begin_s, end_s)
    return float(tokens / requests.output_tokens.mean() / (end_s - begin_s))


def _output_tokens(tables: Iterable[Iterations], begin_s: float, end_s: float) -> float:
    """Return the output tokens of the iterations of all engines in an interval."""
    return sum((_inside(each, each.output_tokens, begin_s, end_s) for each in tables), 0.0)


def _latencies(served: Served) -> dict[str, Floats]:
    """Return the latencies of every request; TPOT is 0 for a request of one token."""
    gaps = np.maximum(served.requests.output_tokens - 1, 1)
    return {
        "ttft": served.first_token_s - served.arrival_s,
        "tpot": (served.last_token_s - served.first_token_s) / gaps,
        "end_to_end": served.last_token_s - served.arrival_s,
        "queued": served.queued_s,
    }


def _objectives(
    values: Mapping[str, Floats], spreads: Mapping[str, Spread], slo: Slo
) -> tuple[tuple[Objective, ...], Flags]:
    """Return what came of each limit, and which requests keep all of them."""
    good = np.ones(len(values["ttft"]), dtype=bool)
    objectives = []
    for metric in SLO_METRICS:
        limit_s, percentile = getattr(slo, f"{metric}_s"), getattr(slo, f"{metric}_percentile")
        if limit_s is None:
            continue
        good &= values[metric] <= limit_s
        spread = spreads[metric]
        kept = float((spread.values_s <= limit_s).mean()) if len(spread.values_s) else 1.0
        reached_s = spread.at_s(percentile) if len(spread.values_s) else 0.0
        objectives.append(
            Objective(
                metric=metric, percentile=percentile, limit_s=limit_s, reached_s=reached_s, kept_share=kept
            )
        )
    return tuple(objectives), good


def _inside(table: Iterations, amounts: Counts, begin_s: float, end_s: float) -> float:
    """Return how much of an amount of each row falls into an interval."""
    inside_s = _overlap_s(table, begin_s, end_s)
    part = np.divide(inside_s, table.elapsed_s, out=np.zeros_like(inside_s), where=table.elapsed_s > 0)
    return float((amounts * part).sum())


def _prompt_tokens(table: Iterations, limits: Limits) -> Counts:
    """Return the tokens of prompts that the iterations of each row compute."""
    tokens: Counts = (table.new_tokens - table.decoding * limits.computed_tokens) * table.passes
    return tokens


def _overlap_s(table: Iterations, begin_s: float, end_s: float) -> Floats:
    """Return the time that each row spends in an interval, shape (rows,)."""
    until_s = np.minimum(table.start_s + table.elapsed_s, end_s)
    overlap_s: Floats = np.maximum(until_s - np.maximum(table.start_s, begin_s), 0.0)
    return overlap_s


def _inter_token(table: Iterations, limits: Limits, inside: Flags) -> Spread:
    """Return the times between outputs of a sequence, weighted by the sequences that decode.

    Where prompts run in iterations of their own, sequences that decode wait for them: the first time of a
    row then includes the iterations before it. All iterations of one row count as equally long.
    """
    decodes = np.flatnonzero(table.decoding > 0)
    if not len(decodes):
        return spread_of(np.zeros(0))
    each_s = table.elapsed_s[decodes] / table.passes[decodes]
    ends_s = table.start_s + table.elapsed_s
    stall_s, stalled = np.zeros_like(each_s), np.zeros_like(each_s)
    if limits.prefill_first:
        between = np.flatnonzero(np.diff(decodes) > 1)
        row = decodes[between]
        still = table.start_s[row + 1] <= ends_s[row] + 1e-9  # the engine did not stand still
        stall_s[between + 1] = np.where(still, table.start_s[decodes[between + 1]] - ends_s[row], 0.0)
        stalled[between + 1] = np.minimum(table.running[row + 1], table.decoding[decodes[between + 1]])
        stalled[stall_s == 0] = 0.0
    kept = inside[decodes]
    values_s = np.stack([each_s + stall_s, each_s], axis=1)[kept].ravel()
    number = table.decoding[decodes] * table.passes[decodes]
    weights = np.stack([stalled, number - stalled], axis=1)[kept].ravel()
    return Spread(values_s=values_s, weights=weights)
