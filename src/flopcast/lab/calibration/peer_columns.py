"""Values of rows of other projects' tables that need more than arithmetic on their columns.

Answers: how many tokens does a window keep, how long does the core of a timed module take, and how many
rows and experts does a rank have in a measured layer of experts?
Elsewhere: the tables (peers.yaml), arithmetic (row_expressions.py).

Latent attention: on all devices but A100, a recorded graph of DeepSeek-V3's whole module was timed: the
products before and after, norms, rotation, the cache and the core. All parts except the core take as long
with a long cache as with a short one. The time of the core is therefore the module's additional time over a
short cache, plus the time of a core with a short cache. The latter is LEAST_S, the time of the shortest
decode attention in the same tables (6.8 to 10.6 us), plus the time to move queries and results.

Experts: the power-law rows of aiconfigurator draw each expert's load from a power law, scale the loads to
the number of tokens, and measure the fullest rank. On one rank, all rows are known, and only their spread
differs from that of the balanced rows. The coefficient of the term "skew" is fitted to both together. With
expert parallelism, the tables do not contain the rows of the fullest rank, so kernels of training leave
these measurements out, and those of serving use the expected load (layers/expert_load.py).
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from flopcast.dtypes import Counts, Floats, constant
from flopcast.lab.measure.row_expressions import Columns
from flopcast.layers.expert_load import fullest_rank_load
from flopcast.operators.base import AbstractOperator
from flopcast.spec.cluster import Device

# The share of their bandwidth that long kernels reach on devices with large caches and slow memory. Shorter
# kernels were timed again and again, so that they read keys and values from the cache: L40S, with 96 MB of
# it, at twice the bandwidth of its memory. An engine reads those of other layers between two such kernels.
SUSTAINED = {"l40s-48gb": 0.8, "rtx-pro-6000-96gb": 0.93}
LEAST_S = 9e-6
SHORT_CACHE = 66.0  # tokens: as long as the shortest on every device
RANK, ROPE_SIZE = 512.0, 64.0  # DeepSeek-V3, arXiv:2412.19437, section 4.2
POWER_LAWS = {"distribution=power_law_1.01": 1.01, "distribution=power_law_1.2": 1.2}
BALANCED = "distribution=balanced"
LARGEST_DRAW = 0.8  # of the tokens: where the power law is cut
Loads = tuple[Counts, Counts, Counts]  # rows, touched experts, imbalance; (rows of the table,)


def _window(r: Columns) -> Floats:
    """Return the tokens of a row's window, infinite without a window; (rows,)."""
    window = np.full_like(r["batch_size"], np.inf)
    for name in r:
        word, equals, value = name.partition("=")
        if word == "window_size" and equals and float(value) > 0:
            window[r[name] == 1] = float(value)
    return window


def _part_of_shape(place: int, r: Columns) -> Floats:
    """Return one of the numbers in the words of the column `shape`, such as "64-8-128"; (rows,)."""
    words = [name for name in r if name.startswith("shape=")]
    numbers = [float(name.removeprefix("shape=").split("-")[place]) for name in words]
    return np.asarray(sum(r[name] * value for name, value in zip(words, numbers, strict=True)))


def shortest_s(r: Columns) -> Floats:
    """Return the seconds of each row's module with the shortest cache, (rows,), or NaN if no cache is
    short.

    Modules are compared if they have the same heads, sequences and GEMM number format.
    """
    formats = [values for name, values in r.items() if name.startswith("gemm_type=")]
    alike = np.stack([r["num_heads"], r["batch_size"], *formats])
    _, module = np.unique(alike, axis=1, return_inverse=True)
    module = module.ravel()
    short = r["isl"] + r["step"] <= SHORT_CACHE
    sums_ms = np.bincount(module[short], r["latency_ms"][short], module.max(initial=0) + 1)
    counts = np.bincount(module[short], minlength=module.max(initial=0) + 1)
    means_ms = np.divide(sums_ms, counts, out=np.full(sums_ms.shape, np.nan), where=counts > 0)
    return np.asarray(means_ms[module] * 1e-3)


def core_s(r: Columns) -> Floats:
    """Return the seconds of the core of latent attention, (rows,), from times of whole modules."""
    return np.asarray(LEAST_S + np.maximum(r["latency_ms"] * 1e-3 - shortest_s(r), 0.0))


def expected_imbalance(experts: Counts, top_k: Counts, tokens: Counts, exponent_of_law: Counts) -> Counts:
    """Return the expected ratio of the fullest group to the mean group under the power law of the tables;
    (rows,).

    Loads are drawn with a density x^-a on [1, LARGEST_DRAW · tokens]. The imbalance is the median of the
    largest of E draws, where the distribution function is 0.5^(1/E), divided by the mean of the
    distribution. A token selects an expert at most once, so the ratio is at most E / top_k. This is an
    estimate, because the tables do not contain the drawn loads.

    Examples
    --------
    >>> one = np.ones(1)
    >>> expected_imbalance(128 * one, 8 * one, 4096 * one, 1.2 * one).round(1).tolist()
    [14.6]
    """
    a, high = exponent_of_law, LARGEST_DRAW * tokens
    share = 0.5 ** (1.0 / experts)
    fullest = ((high ** (1 - a) - 1) * share + 1) ** (1 / (1 - a))
    mean = (1 - a) / (2 - a) * (high ** (2 - a) - 1) / (high ** (1 - a) - 1)
    return np.asarray(np.clip(fullest / mean, 1.0, np.maximum(experts / top_k, 1.0)))


def _drawn_imbalance(r: Columns) -> Counts:
    """Return the expected imbalance of rows drawn from a power law, and 1 for the others; (rows,)."""

    def sum_of(names: Mapping[str, float]) -> Counts:
        return np.asarray(sum((r[name] * value for name, value in names.items() if name in r), start=0.0))

    exponent = sum_of({**POWER_LAWS, BALANCED: 2.5})  # any law for balanced rows, which use none
    drawn = expected_imbalance(r["num_experts"], r["topk"], r["num_tokens"], exponent)
    return np.where(sum_of(POWER_LAWS) > 0, drawn, 1.0)


def balanced_load(tokens: Counts, top_k: Counts, experts: Counts, ranks: Counts) -> Loads:
    """Return the load of the first rank if the selections are distributed evenly over all experts.

    A token selects experts at a distance of experts / top_k, and the next token selects the experts one
    further. The first rank therefore always has a selection, and experts repeat only after as many tokens
    as this distance.

    Examples
    --------
    >>> one = np.ones(1)
    >>> [each.tolist() for each in balanced_load(2 * one, 8 * one, 128 * one, 8 * one)]
    [[2.0], [2.0], [1.0]]
    """
    stride, held = np.ceil(experts / top_k), experts / ranks
    touched = np.minimum(held, np.ceil(held * np.minimum(tokens, stride) / stride - 1e-9))
    rows = np.maximum(tokens * top_k / ranks, touched)
    return rows, touched, np.ceil(rows / touched) * touched / rows


def loads_of(r: Columns) -> Loads:
    """Return the load of every row of the table: rows, experts with tokens, and imbalance.

    The load of balanced rows follows from the routing alone. For power laws, the expected load of the
    fullest rank is used (`fullest_rank_load`), computed once for each combination of top-k, experts and
    ranks.
    """
    names = ("num_tokens", "topk", "num_experts", "moe_ep_size")
    loads = np.stack(balanced_load(*(r[name] for name in names)))
    for law, exponent in POWER_LAWS.items():
        drawn = np.stack([r[name] for name in names[1:]], axis=1)
        mine = r[law] == 1 if law in r else np.zeros(len(r["topk"]), dtype=bool)
        each, group = np.unique(drawn[mine], axis=0, return_inverse=True)
        for number, (top_k, experts, ranks) in enumerate(each.astype(int).tolist()):
            same = np.flatnonzero(mine)[group.ravel() == number]
            load = fullest_rank_load(r["num_tokens"][same], top_k, experts, ranks, skew=constant(exponent))
            loads[:, same] = load.rows, load.touched, load.imbalance
    return loads[0], loads[1], loads[2]


def _load(place: int, r: Columns) -> Counts:
    return loads_of(r)[place]


ADDED: Mapping[str, Callable[[Columns], Floats]] = {  # by the name that expressions use
    "window": _window,
    "shape_heads": partial(_part_of_shape, 0),
    "shape_kv_heads": partial(_part_of_shape, 1),
    "shape_head_size": partial(_part_of_shape, 2),
    "shortest_s": shortest_s,
    "core_s": core_s,
    "drawn_imbalance": _drawn_imbalance,
    "rows_of_load": partial(_load, 0),
    "touched_of_load": partial(_load, 1),
    "imbalance_of_load": partial(_load, 2),
}


def _from_memory(_: Columns, operator: AbstractOperator, measured_s: Floats, device: Device) -> Floats:
    """Return the seconds of rows, but at least the seconds that memory needs."""
    sustained = SUSTAINED.get(device.name)
    if sustained is None:
        return measured_s
    moving_s = operator.work().moved_bytes.ravel() / (device.memory_bytes_per_s * sustained)
    return np.maximum(measured_s, moving_s)


def _with_queries(r: Columns, _: AbstractOperator, measured_s: Floats, device: Device) -> Floats:
    """Return the seconds of cores, including the time in which queries and results move on a device."""
    moved_bytes = 2.0 * r["batch_size"] * r["num_heads"] * (2.0 * RANK + ROPE_SIZE)
    return measured_s + moved_bytes / device.memory_bytes_per_s


Correction = Callable[[Columns, AbstractOperator, Floats, Device], Floats]
CORRECTIONS: Mapping[str, Correction] = {"from_memory": _from_memory, "with_queries": _with_queries}
