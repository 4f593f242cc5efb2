"""The time of any pass of an engine, interpolated between passes whose times were computed together.

Answers: how long does an iteration with these four numbers take, including the time of the host?
Elsewhere: the prices (pass_prices.py), the four numbers (engine_pass.py), the loop over iterations
(scheduler.py).

Every item of a pass depends on one of four things: the new tokens, the number of sequences (head and
sampling), the caches of decoding sequences, or the pairs of prompts. The seconds of a pass are the sum of
one table for each of these, and one for experts, whose kernels have a separate ratio. Tables have one or
two dimensions and are interpolated linearly in the logarithms of their coordinates.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np

from flopcast.dtypes import Counts, Floats
from flopcast.records import Record, replace
from flopcast.serving.decode_times import Amount
from flopcast.serving.engine_pass import EnginePass, decoded_pairs
from flopcast.serving.lower import VISION
from flopcast.serving.overlapped_kernels import overlapping_s, together_s
from flopcast.serving.pass_copies import PassCopies
from flopcast.serving.pass_prices import EXPERT_MESSAGES, MESSAGES, ROUNDING, PricedPasses
from flopcast.spec.engine import Engine
from flopcast.spec.iteration_cost import EXPERTS
from flopcast.spec.kernel_overlap import Overlap
from flopcast.units import Number

PriceBatch = Callable[[EnginePass], tuple[PricedPasses, ...]]  # of each pipeline stage
PARTS = (
    "prompt_attention",
    "decode_attention",
    "head",
    EXPERTS,
    VISION,
)  # components with coordinates of their own
STEPS = (1.0, 1.125, 1.25, 1.375, 1.5, 1.625, 1.75, 1.875)  # nodes of an octave
FEWEST = 1.0


def nodes(largest: Number, steps: tuple[float, ...] = STEPS) -> Counts:
    """Return nodes for sizes from 1 to at least `largest`, several for each octave.

    >>> nodes(8.0, (1.0, 1.5)).tolist()
    [1.0, 2.0, 3.0, 4.0, 6.0, 8.0]
    """
    octaves = int(np.ceil(np.log2(max(largest, 2.0))))
    values = {np.ceil(2.0**octave * step) for octave in range(octaves) for step in steps} | {2.0**octaves}
    return np.array(sorted(values))


class _Table(Record, eq=False, kw_only=False, slots=False):
    """Logarithms of seconds at the nodes of two coordinates; the second has one node where it is unused."""

    first: list[float]
    second: list[float]
    logs: list[list[float]]

    @cached_property
    def arrays(self) -> tuple[Floats, Floats, Floats]:
        """Return the values of both coordinates and the logarithms of the seconds as arrays."""
        return np.array(self.first), np.array(self.second), np.array(self.logs)

    def at(self, first: Number, second: Number) -> float:
        """Return the seconds at a point; 0 below the first node of the first coordinate."""
        if first <= 0.0:
            return 0.0
        row, share = _place(self.first, math.log(max(first, FEWEST)))
        if len(self.second) == 1:
            below, above = self.logs[row][0], self.logs[row + 1][0]
            return math.exp(below + share * (above - below))
        column, part = _place(self.second, math.log(max(second, FEWEST)))
        low, high = self.logs[row], self.logs[row + 1]
        below = low[column] + part * (low[column + 1] - low[column])
        above = high[column] + part * (high[column + 1] - high[column])
        return math.exp(below + share * (above - below))

    def over(self, first: Counts, second: Counts) -> Floats:
        """Return the seconds at many points, arrays of one shape.

        The same interpolation as `at`: linear in the logarithms of coordinates and seconds, with the last
        slope beyond both ends of an axis. `at` exists because numpy costs more than the arithmetic for one
        point.
        """
        rows, columns, logs = self.arrays
        at = np.log(np.maximum(first, FEWEST))
        row = rows[1:-1].searchsorted(at, side="right")
        share = (at - rows[row]) / (rows[row + 1] - rows[row])
        if len(self.second) == 1:
            found = logs[row, 0] * (1 - share) + logs[row + 1, 0] * share
        else:
            on = np.log(np.maximum(second, FEWEST))
            column = columns[1:-1].searchsorted(on, side="right")
            part = (on - columns[column]) / (columns[column + 1] - columns[column])
            low = logs[row, column] * (1 - part) + logs[row, column + 1] * part
            high = logs[row + 1, column] * (1 - part) + logs[row + 1, column + 1] * part
            found = low * (1 - share) + high * share
        found_s: Floats = np.where(first > 0, np.exp(found), 0.0)
        return found_s


def _place(axis: list[float], value: Number) -> tuple[int, float]:
    """Return the node below a value and the weight of the node above; beyond the ends, the last slope."""
    below = bisect_right(axis, value, 1, len(axis) - 1) - 1
    return below, (value - axis[below]) / (axis[below + 1] - axis[below])


class PassTimes(Record, eq=False):
    """Seconds of passes as a function of their four numbers, which are floats or arrays."""

    linear: _Table  # new tokens
    experts: _Table  # new tokens
    head: _Table  # sequences
    decode: _Table  # sequences, mean context
    beside_prompts: _Table  # decode attention in passes with prompts: sequences, mean context
    prompt: _Table  # tokens of prompts, mean pairs of each
    engine: Engine
    network: _Table | None = None  # new tokens: messages, where they overlap with products
    overlap: Overlap | None = None
    expert_network: _Table | None = None  # new tokens: messages that run beside the kernels of experts
    least_s: float = 0.0  # of a pass that only decodes, without a CUDA graph: its launches
    least_prompt_s: float = 0.0  # of a pass with prompts
    prompt_host_s: float = 0.0  # of a pass with prompts: host time for its layers
    decode_host_s: float = 0.0  # of a pass that only decodes: host time for its layers
    overlapped_s: float = 0.0  # of a pass that only decodes: time in which its kernels overlap
    copies: PassCopies | None = None  # from other memories
    computed_tokens: int = 1  # of each decoding sequence
    stretched_ratio: float = 1.0  # by which all passes are longer

    def stretched(self, ratio: float) -> "PassTimes":
        """Return the times of passes, including the host, multiplied by a ratio."""
        return replace(self, stretched_ratio=self.stretched_ratio * ratio)

    def __call__(self, new: Amount, sequences: Amount, cached: Amount, pairs: Amount) -> Amount:
        """Return the seconds of passes; the arguments are floats, or arrays of one shape."""
        if isinstance(new, np.ndarray):
            return self._of_arrays(*np.broadcast_arrays(new, sequences, cached, pairs))
        return self._of_one(float(new), float(sequences), float(cached), float(pairs))

    def _of_arrays(self, new: Counts, sequences: Counts, cached: Counts, pairs: Counts) -> Floats:
        each = self.computed_tokens
        prompts = np.maximum(new - each * sequences, 0.0)
        queries = np.maximum(pairs - decoded_pairs(cached, sequences, each), 0.0)
        host, decodes = self.engine.iteration, prompts <= ROUNDING * new
        expert_ratio = np.where(decodes, host.expert_ratio, 1.0)
        experts_s = expert_ratio * self.experts.over(new, new)
        if self.expert_network is not None:
            experts_s = np.maximum(experts_s, self.expert_network.over(new, new))
        products_s = self.linear.over(new, new) + experts_s
        contexts = cached / np.maximum(sequences, 1.0)
        decode_s = self.decode.over(sequences, contexts)
        if self.beside_prompts is not self.decode:
            decode_s = np.where(decodes, decode_s, self.beside_prompts.over(sequences, contexts))
        if self.copies is not None:
            decode_s = decode_s * self.copies.device_attention_share
        prompt_s = self.prompt.over(prompts, queries / np.maximum(prompts, 1.0))
        if self.network is None or self.overlap is None:
            together = products_s + decode_s + prompt_s
        else:
            network_s = self.network.over(new, new)
            together = together_s(self.overlap, products_s, decode_s, network_s, prompt_s)
        head_s = self.head.over(sequences, sequences)
        in_graph = decodes & ((sequences <= self.engine.graph_sequences) | (self.engine.launch_s == 0.0))
        least_s = np.where(in_graph, 0.0, np.where(decodes, self.least_s, self.least_prompt_s))
        alone_s = together + head_s
        alone_s = np.where(decodes, overlapping_s(alone_s, self.overlapped_s), alone_s)
        kernels_s = np.maximum(alone_s, least_s)
        if self.copies is not None:
            kernels_s = self.copies.pass_s(kernels_s, kernels_s - head_s, new, cached)
        layers_s = np.where(decodes, self.decode_host_s, self.prompt_host_s)
        host_s = host.host_s + host.sequence_s * sequences + layers_s
        found_s: Floats = self.stretched_ratio * (kernels_s + host_s)
        return found_s

    def _of_one(self, new: Number, sequences: Number, cached: Number, pairs: Number) -> float:
        if any(each is not None for each in (self.network, self.expert_network, self.copies)):
            one = (np.array([float(each)]) for each in (new, sequences, cached, pairs))
            return float(self._of_arrays(*one)[0])
        each = self.computed_tokens
        prompts = max(new - each * sequences, 0.0)
        queries = max(pairs - each * cached + sequences * (each * (each - 1) / 2), 0.0)
        decode = self.decode if prompts <= ROUNDING * new else self.beside_prompts
        others_s = (
            self.linear.at(new, 1.0)
            + self.head.at(sequences, 1.0)
            + decode.at(sequences, cached / max(sequences, 1.0))
            + self.prompt.at(prompts, queries / max(prompts, 1.0))
        )
        host, experts_s = self.engine.iteration, self.experts.at(new, 1.0)
        kernels_s = max(others_s + experts_s, self.least_prompt_s) + self.prompt_host_s
        if prompts <= ROUNDING * new:
            alone_s = others_s + host.expert_ratio * experts_s
            least_s = self.least_s if sequences > self.engine.graph_sequences else 0.0
            kernels_s = max(overlapping_s(alone_s, self.overlapped_s), least_s) + self.decode_host_s
        return self.stretched_ratio * (kernels_s + host.host_s + host.sequence_s * sequences)


def pass_times(
    price: PriceBatch,
    engine: Engine,
    max_tokens: int,
    max_sequences: int,
    longest: int,
    computed_tokens: int = 1,
    overlap: Overlap | None = None,
    *,
    hides_expert_messages: bool = False,
    joins: bool = False,
) -> tuple[PassTimes, ...]:
    """Return the tables of each stage of an engine for passes up to these sizes, priced in one batch.

    The first stage, with which a pass begins, includes the time of the host. `longest` is the longest
    context of a sequence; larger contexts are extrapolated. `computed_tokens` is the number for a decoding
    sequence, and `overlap` states which kernels overlap. With `hides_expert_messages`, messages between
    groups that share experts overlap with expert kernels. With `joins`, one kernel computes the attention
    of prompts and of decoding sequences.
    """
    new = nodes(float(max(max_tokens, max_sequences)))
    sequences = nodes(float(max_sequences), (1.0, 1.5))
    contexts = nodes(float(longest), (1.0,))
    prompts = nodes(float(max_tokens), (1.0,))
    rows = {
        "linear": _rows(new),
        "experts": _rows(new),
        "head": _rows(sequences),
        "decode": _rows(sequences, contexts),
        **({"beside_prompts": _rows(sequences, contexts)} if joins else {}),
        "prompt": _rows(prompts, contexts),
    }
    batch = [_passes(part, *pair, computed_tokens) for part, pair in rows.items()]
    columns = (np.concatenate(column)[:, None] for column in zip(*batch, strict=True))
    names = ("new_tokens", "sequences", "cached_tokens", "pairs")
    run = EnginePass(**dict(zip(names, columns, strict=True)), computed_tokens=computed_tokens)
    stages = price(run)
    others = without_host(engine)
    return tuple(
        replace(
            _of_one_stage(stage, rows, engine if place == 0 else others, overlap, hides_expert_messages),
            computed_tokens=computed_tokens,
        )
        for place, stage in enumerate(stages)
    )


def without_host(engine: Engine) -> Engine:
    """Return the engine with a host time of 0 for passes."""
    cost = engine.iteration.model_copy(update={"host_s": 0.0, "sequence_s": 0.0})
    return engine.model_copy(update={"iteration": cost})


def _of_one_stage(
    priced_stage: PricedPasses,
    rows: Mapping[str, tuple[Counts, Counts]],
    engine: Engine,
    overlap: Overlap | None,
    hides_expert_messages: bool,
) -> PassTimes:
    """Return the tables of a stage from prices at their nodes."""
    priced = priced_stage.by_component()
    total = sum(priced.values())
    component = {name: priced.get(name, np.zeros_like(total)) for name in PARTS}
    component["others"] = total - np.sum(list(component.values()), axis=0)
    none = np.zeros_like(total)
    beside_experts = priced.get(EXPERT_MESSAGES, none) if hides_expert_messages else None
    network = priced.get(MESSAGES, none) if overlap is not None else None
    if network is not None and not hides_expert_messages:
        network = network + priced.get(EXPERT_MESSAGES, none)
    for taken in (beside_experts, network):
        if taken is not None:
            component["others"] = component["others"] - taken
    seconds = {
        "linear": component["others"],
        "experts": component[EXPERTS],
        "head": component["head"],
        "decode": component["decode_attention"],
        "beside_prompts": component["decode_attention"],
        "prompt": component["prompt_attention"] + component[VISION],
    }
    tables: dict[str, _Table] = {}
    first, second = rows["linear"]  # the first rows of the batch
    messages, expert_messages = (
        None if each is None else _table(first, second, each[: len(first)])
        for each in (network, beside_experts)
    )
    start = len(rows["linear"][0]) + len(rows["experts"][0]) + len(rows["head"][0])  # passes that decode
    launches = priced_stage.launches()
    prompt_launch_s = max(engine.launch_s, engine.iteration.prompt_launch_s)
    place = 0
    for part, (first, second) in rows.items():
        found = seconds[part][place : place + len(first)]
        place += len(first)
        tables[part] = _table(first, second, found)
    return PassTimes(
        linear=tables["linear"],
        experts=tables["experts"],
        head=tables["head"],
        decode=tables["decode"],
        beside_prompts=tables.get("beside_prompts", tables["decode"]),
        prompt=tables["prompt"],
        engine=engine,
        network=messages,
        overlap=overlap,
        expert_network=expert_messages,
        least_s=engine.launch_s * float(launches[start]),
        least_prompt_s=prompt_launch_s * float(launches[-1]),
        prompt_host_s=priced_stage.prompt_host_s(engine.iteration),
        decode_host_s=priced_stage.decode_host_s(engine.iteration),
        overlapped_s=engine.iteration.overlap_s * float(launches[start]),
    )


def _rows(first: Counts, second: Counts | None = None) -> tuple[Counts, Counts]:
    """Return every pair of nodes, the second coordinate fastest."""
    other = np.ones(1) if second is None else second
    return np.repeat(first, len(other)), np.tile(other, len(first))


def _passes(part: str, first: Counts, second: Counts, computed_tokens: int) -> tuple[Counts, ...]:
    """Return the four numbers of passes that show one part at its nodes."""
    zero = np.zeros_like(first)
    if part in ("linear", "experts"):
        return first, zero, zero, zero
    if part in ("head", "decode", "beside_prompts"):
        cached = first * np.maximum(second, computed_tokens)
        new = first * computed_tokens + (part == "beside_prompts")  # one token of a prompt
        return new, first, cached, decoded_pairs(cached, first, computed_tokens)
    return first, zero, zero, first * second


def _table(first: Counts, second: Counts, taken_s: Floats) -> _Table:
    rows, columns = np.unique(first), np.unique(second)
    logs = np.log(np.maximum(taken_s.reshape(len(rows), len(columns)), 1e-12))
    return _Table(np.log(rows).tolist(), np.log(columns).tolist(), logs.tolist())
