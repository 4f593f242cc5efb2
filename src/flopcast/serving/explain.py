"""Explanations of the numbers of a serving report: formulas, inputs, and their parts.

Answers: how are a latency, a component and the memory computed?
Elsewhere: what an explanation holds (report/explain/explanation.py), explanations of training
(report/explain/registry.py), the numbers themselves (serve.py).
"""

import difflib
from collections.abc import Callable, Mapping

import numpy as np

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.dtypes import Floats
from flopcast.errors import Problem, SpecError
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import Item
from flopcast.report.explain.explanation import Explanation, Input
from flopcast.serving.engine_pass import EnginePass
from flopcast.serving.instances import price_of
from flopcast.serving.pass_prices import PricedPasses, component_of, ratios_of
from flopcast.serving.serving_report import ServingReport
from flopcast.serving.time_shares import FETCH, STAGES, mean_passes
from flopcast.units import show, show_memory, show_seconds

Thunk = Callable[[], Explanation]
OTHERS = ("host", STAGES, FETCH)  # components of an iteration that are no kernels and no messages
OF_ENGINE = "the engine's constants, fitted to measured runs (flopcast catalog engines NAME)"


def explain_serving(report: ServingReport, book: CurveBook, what: str) -> Explanation:
    """Return the explanation of one number of a report: formula, inputs, sources, and parts.

    Parameters
    ----------
    book : the curves that the report was made with
    what : "ttft", "tpot", "iteration", "memory", "cost", "goodput", a component of the iteration, or one of
        its operators

    Raises
    ------
    SpecError
        There is no such name (the error lists all names), or the job lacks a price or limits.
    """
    means = _Means(report, book)
    names: dict[str, Thunk] = {
        "ttft": lambda: _ttft(report),
        "tpot": lambda: _tpot(report),
        "iteration": lambda: _iteration(report),
        "memory": lambda: _memory(report),
        "cost": lambda: _cost(report),
        "goodput": lambda: _goodput(report),
    }
    components = {name: (lambda name=name: means.component(name)) for name in report.shares}
    operators = {
        item.name: (lambda name=item.name: means.operator(name))
        for item, _ in means.priced.seconds()
        if item.name not in components
    }
    names = {**operators, **components, **names}
    if what not in names:
        nearest = difflib.get_close_matches(what, names, 1, 0.5)
        fix = f"did you mean {nearest[0]}?" if nearest else f"write tpot in place of {what}"
        known = f"ttft, tpot, iteration, memory, cost, goodput; components: {', '.join(components)};"
        known += f" operators: {', '.join(operators)}"
        raise SpecError([Problem("WHAT", what, known, "a serving report contains only these numbers", fix)])
    return names[what]()


def _ttft(report: ServingReport) -> Explanation:
    """Return the mean time to first token as waiting and computing."""
    value, queued_s = report.latencies["ttft"]["mean"].value, report.summary.queued.mean_s
    transfer_s = 0.0 if report.pools is None else report.pools.mean_transfer_s
    parts = [
        Explanation(
            name="queue", amount=queued_s, formula="", note="from arrival until the first iteration"
        ),
        Explanation(
            name="passes with the prompt",
            amount=value - queued_s - transfer_s,
            formula="",
            note="an iteration processes prompt tokens together with decoding sequences",
        ),
    ]
    if transfer_s:
        parts.append(Explanation(name="transfer of the KV cache", amount=transfer_s, formula=""))
    formula = "mean over all requests of (time of the first token − arrival time)"
    inputs = (_limit(report), Input(name="traffic", text=report.job.traffic.text()))
    return Explanation(name="ttft", amount=value, formula=formula, inputs=inputs, parts=tuple(parts))


def _tpot(report: ServingReport) -> Explanation:
    """Return the mean time per output token, with the iteration that it consists of."""
    inputs = (
        Input(name="decoding", text=f"{report.decoding:.4g} sequences", number=report.decoding),
        _limit(report),
    )
    return Explanation(
        name="tpot",
        amount=report.latencies["tpot"]["mean"].value,
        formula=(
            "mean over all requests of (time of the last token − time of the first token) / (output "
            "tokens − 1)"
        ),
        inputs=inputs,
        parts=(_iteration(report),),
    )


def _limit(report: ServingReport) -> Input:
    return Input(name="limited by", text=report.limited_by)


def _iteration(report: ServingReport) -> Explanation:
    """Return the mean iteration with its components."""
    host = report.job.kinds[-1].iteration
    parts = tuple(
        Explanation(name=name, amount=share * report.iteration_s, formula="", note=f"{share:.1%}")
        for name, share in sorted(report.shares.items(), key=lambda pair: -pair[1])
    )
    ratio = host.expert_ratio
    inputs = (
        Input(name="expert ratio", text=f"{ratio:.4g}", source=OF_ENGINE, number=ratio),
        Input(name="overlap", text=show_seconds(host.overlap_s), source=OF_ENGINE, number=host.overlap_s),
        Input(name="host", text=show_seconds(host.host_s), source=OF_ENGINE, number=host.host_s),
        Input(
            name="host per sequence",
            text=show_seconds(host.sequence_s),
            source=OF_ENGINE,
            number=host.sequence_s,
        ),
    )
    return Explanation(
        name="iteration",
        amount=report.iteration_s,
        formula="kernels + communication + expert ratio × kernels of experts − number of kernels × overlap"
        " + host + sequences × host per sequence; without ratio and overlap in iterations with prompts",
        inputs=inputs,
        parts=parts,
    )


def _memory(report: ServingReport) -> Explanation:
    """Return the memory of a device by what fills it."""
    memory, job = report.memory, report.job
    amounts: Mapping[str, float] = {
        "weights": memory.weight_bytes,
        "activations": memory.activation_bytes,
        "reserved": memory.reserved_bytes,
        "KV cache": memory.cache_bytes,
        "left free": memory.capacity_bytes - memory.usable_bytes,
    }
    inputs = (
        Input(
            name="memory fraction",
            text=f"{job.engine.memory_fraction:g} of {job.engine.memory_fraction_of.replace('_', ' ')}",
            number=job.engine.memory_fraction,
        ),
        Input(name="token", text=show_memory(memory.token_bytes), number=memory.token_bytes),
        Input(name="tokens", text=f"{memory.cache_tokens:,}", number=memory.cache_tokens),
    )
    return Explanation(
        name="memory",
        amount=memory.capacity_bytes,
        unit="B",
        formula="capacity = weights + activations + reserved + KV cache + left free",
        inputs=inputs,
        parts=tuple(
            Explanation(name=name, amount=amount, unit="B", formula="") for name, amount in amounts.items()
        ),
    )


def _cost(report: ServingReport) -> Explanation:
    """Return the dollars for a million output tokens."""
    cost, price, job = report.usd_per_million_tokens, report.job.cluster.price, report.job
    if cost is None or price is None:
        because, fix = "the job has no price, or no request ends", 'add --price "2 USD/h"'
        raise SpecError([Problem("WHAT", "cost", "a number of the prediction", because, fix)])
    tokens_per_s, device_usd_per_hour = report.output_tokens_per_s.value, price.device_usd_per_hour
    inputs = (
        Input(name="price", text=price.text(), number=device_usd_per_hour),
        Input(name="devices", text=f"{job.devices}", number=job.devices),
        Input(name="output tokens", text=f"{tokens_per_s:,.4g} per second", number=tokens_per_s),
    )
    formula = "price / 3600 s × devices / output tokens × 1,000,000"
    return Explanation(name="cost", amount=cost.value, unit="USD", formula=formula, inputs=inputs)


def _goodput(report: ServingReport) -> Explanation:
    """Return the requests per second that meet all limits, with the share of requests for each limit."""
    if report.goodput_per_s is None:
        because, fix = "the job states no limits of latencies", 'add --slo "ttft_p99=2s tpot_p99=50ms"'
        raise SpecError([Problem("WHAT", "goodput", "a number of the prediction", because, fix)])
    replicas, requests_per_s = report.job.busy_engines, report.requests_per_s.value
    inputs = (
        Input(name="requests", text=f"{requests_per_s:.4g} per second", number=requests_per_s),
        Input(name="replicas that serve", text=f"{replicas}", number=replicas),
        *(
            Input(
                name=f"{each.metric} at most {show_seconds(each.limit_s)}",
                text=f"{each.kept_share:.1%} of requests",
                number=each.kept_share,
            )
            for each in report.summary.objectives
        ),
        _limit(report),
    )
    formula = "replicas × requests of one replica that end and meet all limits / measured time"
    return Explanation(
        name="goodput", amount=report.goodput_per_s.value, unit="requests/s", formula=formula, inputs=inputs
    )


class _Means:
    """The items of a mean iteration of a report, priced again one by one."""

    def __init__(self, report: ServingReport, book: CurveBook) -> None:
        """Price the mean pass that only decodes, and the mean pass with prompts."""
        self._report, self._kind = report, report.job.kinds[-1]
        served = report.served
        self._passes: EnginePass
        self._weights: Floats
        self._passes, self._weights = mean_passes(
            served.requests, served.iterations, served.limits.computed_tokens
        )
        self._book = book
        self.priced: PricedPasses = price_of(self._kind, book, self._passes)
        shares = sum(share for name, share in report.shares.items() if name not in OTHERS)
        self._ratios = ratios_of(self._kind.iteration, self._passes, self.priced)
        self._scale = 1.0
        kernels_s = sum(self._mean_s(item, elapsed) for item, elapsed in self.priced.seconds())
        self._scale = shares * report.iteration_s / kernels_s  # what means leave out

    def component(self, name: str) -> Explanation:
        """Return a component with its operators, the longest first.

        The time of the component is its share of the mean iteration. The times of its operators come from
        mean passes, scaled so that all kernels together have the time of the report: a pass at the mean
        sizes takes slightly less time than the mean of all passes.
        """
        rows = [
            (item, self._mean_s(item, seconds))
            for item, seconds in self.priced.seconds()
            if component_of(item) == name
        ]
        totals: dict[str, float] = {}
        for item, seconds in rows:
            totals[item.name] = totals.get(item.name, 0.0) + seconds
        parts = tuple(
            Explanation(name=each, amount=amount, formula="")
            for each, amount in sorted(totals.items(), key=lambda pair: -pair[1])
        )
        share = self._report.shares[name]
        return Explanation(
            name=name,
            amount=share * self._report.iteration_s,
            formula="sum over all layers, in a mean iteration",
            inputs=self._inputs(),
            parts=parts,
        )

    def operator(self, name: str) -> Explanation:
        """Return an operator: its time in a mean iteration, its work and the curve of its kernel.

        Layers of the same kind run an operator with equal sizes, so that the work is described once. The
        time is that of all layers.
        """
        rows = [(item, seconds) for item, seconds in self.priced.seconds() if item.name == name]
        inputs = [*self._inputs(), *(each for item, _ in rows[:1] for each in self._of_item(item))]
        return Explanation(
            name=name,
            amount=sum(self._mean_s(item, seconds) for item, seconds in rows),
            formula="correction factor of the engine × time of one execution × number of layers,"
            " averaged over passes",
            inputs=tuple(inputs),
        )

    def _mean_s(self, item: Item, elapsed_s: Floats) -> float:
        return self._scale * float((self._ratios(component_of(item)) * elapsed_s) @ self._weights)

    def _inputs(self) -> tuple[Input, ...]:
        """Return the numbers of the mean pass."""
        means = {
            "new tokens": self._passes.new_tokens,
            "sequences": self._passes.sequences,
            "KV tokens read": self._passes.cached_tokens,
        }
        found = {name: float(values[:, 0] @ self._weights) for name, values in means.items()}
        return tuple(Input(name=name, text=f"{value:,.4g}", number=value) for name, value in found.items())

    def _of_item(self, item: Item) -> tuple[Input, ...]:
        """Return the kernel of an item, its work and its time in the first mean pass."""
        one_s = self.priced.prices[item].one_s(0)
        found = [Input(name="one execution", text=show_seconds(one_s), number=one_s)]
        name = ""
        if isinstance(item.work, AbstractMessage):
            name = item.work.collective
        elif isinstance(item.work, AbstractOperator):
            need = item.work.work()
            shape = (len(self._weights), 1)
            both = (need.flop, need.moved_bytes)
            flop, size = (float(np.broadcast_to(each, shape)[0, 0]) for each in both)
            found += [
                Input(name="FLOP", text=show(flop, "FLOP"), number=flop),
                Input(name="bytes", text=show(size, "B"), number=size),
                Input(name="kernel", text=item.work.kernel),
            ]
            name = item.work.kernel
        found += [
            Input(
                name="curve",
                text=f"{used.curve.name} of {used.curve.owner}",
                source=str(used.curve.evidence.source),
            )
            for used in self.priced.used
            if used.curve.name == name
        ]
        return tuple(found)
