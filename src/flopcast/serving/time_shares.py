"""The parts of an iteration's time, and their uncertainty.

Answers: which fraction of a mean iteration does each component take, and on which factors does its time
depend?
Elsewhere: prices (pass_prices.py), the simulated iterations (scheduler.py).
"""

import math
from collections.abc import Mapping

import numpy as np

from flopcast.cost.factors import Factor
from flopcast.cost.item_prices import Used
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.dtypes import Counts
from flopcast.records import Record
from flopcast.serving.engine_pass import EnginePass, decoded_pairs
from flopcast.serving.instances import Instances, price_of
from flopcast.serving.pass_prices import EXPERT_MESSAGES, MESSAGES, has_prompts, ratios_of
from flopcast.serving.power import DevicePower, device_power
from flopcast.serving.requests import Requests
from flopcast.serving.served import Iterations
from flopcast.serving.streamed_bytes import copies_of
from flopcast.serving.unknown_release import release_factor
from flopcast.spec.iteration_cost import EXPERTS
from flopcast.units import Number

DECODE = "decode_attention"
STAGES = "stages"  # time in which a pass waits for a stage that is busy with another one
FETCH = "fetch"  # time in which a pass waits for weights of a peer
COPIES = "copies"  # copies from the host and from drives, and work of the host
DRAFT = "draft"  # time in which tokens are drafted
ITERATION = "iteration"  # what an iteration takes beyond its kernels in benchmarks


class Certainty(Record, eq=False, kw_only=False):
    """The uncertainty of the time of an iteration, and its causes.

    Attributes
    ----------
    log_sigma_factor, below_log_sigma_factor : float
        Sigmas of the logarithm of the time, above and below the prediction. They are the root of the sum of
        squares of the sigmas of independent factors, each times its share.
    factors : mapping of Factor
        Factors by name.
    shares : mapping of float
        Share of the time that each factor scales. Shares do not sum to 1, because a time has several
        factors.
    """

    log_sigma_factor: float
    below_log_sigma_factor: float
    factors: Mapping[str, Factor]
    shares: Mapping[str, float]

    @classmethod
    def of(cls, factors: Mapping[str, Factor], shares: Mapping[str, float]) -> "Certainty":
        """Return the certainty of a time, given the factors and the share that each scales."""
        above = math.hypot(*(share * factors[name].log_sigma_factor for name, share in shares.items()))
        below = math.hypot(*(share * factors[name].below for name, share in shares.items()))
        return cls(above, below, factors, shares)


class TimeShares(Record, eq=False):
    """The components of the mean iteration of some instances.

    Attributes
    ----------
    shares : mapping of float
        Shares by component; they sum to 1.
    certainty : Certainty
    used : tuple of Used
        The curves that priced the kernels.
    experts_s : float
        Seconds of expert kernels in iterations that only decode, at a ratio of 1, as a mean over all
        iterations.
    decode_kernels : float
        Number of kernels in iterations that only decode, as a mean over all iterations.
    power : DevicePower or None
        Watts of a device; None if its board power is not known.
    """

    shares: Mapping[str, float]
    certainty: Certainty
    used: tuple[Used, ...]
    experts_s: float
    decode_kernels: Number
    power: DevicePower | None


def time_shares(instances: Instances, book: CurveBook, requests: Requests, table: Iterations) -> TimeShares:
    """Return the components of the iteration time of some instances.

    Parameters
    ----------
    instances : Instances
    book : CurveBook
    requests : Requests
    table : Iterations
        The simulated iterations, which are summarised by a few mean passes with weights.

    Returns
    -------
    TimeShares
        Components that overlap with others are shortened, so that the sum is the time of the pass. The
        remaining time of a pass is the wait for launches, copies, drafts or other stages.
    """
    mean, weights = mean_passes(requests, table, instances.limits.computed_tokens)
    job = instances.job
    priced = price_of(job, book, mean)
    host = job.iteration
    layers_s = np.where(has_prompts(mean), priced.prompt_host_s(host), priced.decode_host_s(host))
    sequences_s = host.sequence_s * mean.sequences[:, 0]
    host_s = host.host_s + float((sequences_s + layers_s) @ weights)
    ratios = ratios_of(host, mean, priced)
    seconds = {name: float((ratios(name) * part) @ weights) for name, part in priced.by_component().items()}
    seconds["host"] = host_s
    beyond = DRAFT if job.plan.drafting else STAGES
    numbers = (mean.new_tokens, mean.sequences, mean.cached_tokens, mean.pairs)
    passes_s = float(instances.times(*(each[:, 0] for each in numbers)) @ weights)
    if job.overlap is not None or job.plan.expert_messages == "hidden":
        _hide(seconds, sum(seconds.values()) - passes_s)
    copies = copies_of(job, book)
    if copies is not None:
        on_device = passes_s / max(sum(seconds.values()), passes_s)  # the host computes the rest
        seconds = {name: on_device * part for name, part in seconds.items()}
    if job.engine.launch_s or host.prompt_launch_s or copies is not None:
        waits = FETCH if job.plan.peer_weight_fraction else COPIES if copies is not None else "host"
        seconds[waits] = seconds.get(waits, 0.0) + max(passes_s - sum(seconds.values()), 0.0)
    if job.plan.drafting or job.plan.pipeline_parallel > 1:
        seconds[beyond] = max(passes_s - sum(seconds.values()), 0.0)
    total_s = sum(seconds.values())
    scaled = {name: float(part @ weights) / total_s for name, part in priced.by_factor(ratios).items()}
    scaled[ITERATION] = 1.0
    factors = {**priced.factors, ITERATION: Factor(name=ITERATION, log_sigma_factor=host.log_sigma_factor)}
    if (older := release_factor(job)) is not None:
        factors[older.name], scaled[older.name] = older, 1.0
    decodes = ~has_prompts(mean)
    return TimeShares(
        shares={name: part / total_s for name, part in seconds.items()},
        certainty=Certainty.of(factors, scaled),
        used=priced.used,
        experts_s=float((decodes * priced.by_component().get(EXPERTS, 0.0)) @ weights),
        decode_kernels=float((decodes * priced.launches()) @ weights),
        power=device_power(job, priced, ratios, weights, float(table.elapsed_s.sum() / table.passes.sum())),
    )


def _hide(seconds: dict[str, float], hidden_s: float) -> None:
    """Take the time of kernels that run beside others off messages, then off decode attention."""
    for name in (EXPERT_MESSAGES, MESSAGES, DECODE):
        taken = min(max(hidden_s, 0.0), seconds.get(name, 0.0))
        hidden_s -= taken
        if name in seconds:
            seconds[name] -= taken


def mean_passes(requests: Requests, table: Iterations, computed: int) -> tuple[EnginePass, Counts]:
    """Return the mean of iterations that only decode and of those with prompts, and their shares.

    A mean over both kinds would have a few prompt tokens in every pass. A kind that never runs is left out.
    `computed` is the number of new tokens of a decoding sequence.
    """
    prompts = table.new_tokens > table.decoding * computed
    counts = np.array([float(table.passes[each].sum()) for each in (~prompts, prompts)])

    def means(values: Counts) -> Counts:
        sums = [float((values * table.passes)[each].sum()) for each in (~prompts, prompts)]
        found: Counts = (np.array(sums) / np.maximum(counts, 1.0))[:, None]
        return found

    lengths = requests.prompt_tokens.astype(np.float64)
    pairs = np.array([[0.0], [float((lengths * lengths / 2.0).sum()) / max(counts[1], 1.0)]])
    runs = counts > 0
    cached = means(table.kv_tokens)
    found = EnginePass(
        new_tokens=means(table.new_tokens)[runs],
        sequences=means(table.sequences)[runs],
        cached_tokens=cached[runs],
        pairs=(decoded_pairs(cached, means(table.sequences), computed) + pairs)[runs],
        computed_tokens=computed,
    )
    shares: Counts = counts[runs] / counts.sum()
    return found, shares
