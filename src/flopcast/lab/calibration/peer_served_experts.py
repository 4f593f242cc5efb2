"""Tables of whole expert layers of serving engines as operators, from one token on.

Answers: which rows are of which device and format, how many rows and experts of a rank do they stand for,
and which are left out?
Sources: data/serving and data/peers; on GitHub aiconfigurator (ai-dynamo/aiconfigurator, Apache-2.0), which
times kernels of vLLM on the rank with the most rows.
Elsewhere: what an entry is (peer_tables.py), products (peer_serving.py), the same rows as grouped products
of training (peer_grouped.py), fitting (peer_fit.py).

Balanced rows spread the picks of all tokens evenly over all experts. With a power law the drawn loads are
not printed, so that the expected ones stand for them (layers/expert_load.py).
"""

from collections.abc import Mapping

import numpy as np

from flopcast.dtypes import Counts, constant
from flopcast.lab.calibration import peer_tables
from flopcast.lab.calibration.peer_grouped import LAYER_FAULTS, POWER_LAWS
from flopcast.lab.calibration.peer_operators import BLACKWELL, BLOCKED, NARROW, SYSTEMS
from flopcast.layers.expert_load import fullest_rank_load
from flopcast.operators.fused_experts import FusedExperts

UNGATED = "these experts have no gate, and the table does not state which GEMMs ran"
DATA_CENTRE = {mark: name for mark, name in BLACKWELL.items() if not name.startswith("rtx")}
NEWER = {mark: name for mark, name in SYSTEMS.items() if not name.startswith("a100")}
FORMATS: dict[str, tuple[str, Mapping[str, str]]] = {  # the table's word → ours, and who measured it
    "bfloat16": ("", SYSTEMS),
    "fp8": ("fp8", NARROW),
    "fp8_block": ("fp8_block", BLOCKED),
    "nvfp4": ("nvfp4", BLACKWELL),
    "int4_wo": ("int4", NARROW),
    "w4a16_mxfp4": ("mxfp4", NEWER),
    "w4a8_mxfp4_mxfp8": ("mxfp4_mxfp8", DATA_CENTRE),
}
MANY_EXPERTS = (
    "rows with 896 experts take four times as long as others with as many bytes, so another kernel ran"
)
FAULTS: dict[str, peer_tables.Mask] = {
    UNGATED: LAYER_FAULTS[UNGATED],
    MANY_EXPERTS: lambda r: (
        (r["num_experts"] == 896) & np.any([peer_tables.is_word(mark)(r) for mark in DATA_CENTRE], axis=0)
    ),
}
Loads = tuple[Counts, Counts, Counts]  # rows, touched experts, imbalance; (rows of the table,)


def balanced_load(tokens: Counts, top_k: Counts, experts: Counts, ranks: Counts) -> Loads:
    """Return the load of the first rank if the picks are spread evenly over all experts.

    A token's picks lie a stride of experts / top_k apart; the next token's are one further. So the first
    rank always has a pick, and experts repeat only after a stride of tokens.

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


def loads_of(r: peer_tables.Columns) -> Loads:
    """Return the load that every row of the table stands for: rows, experts touched, imbalance.

    Balanced rows follow from the routing alone. For power laws the expected load of the fullest rank counts
    (`fullest_rank_load`), computed once for each combination of top-k, experts and ranks.
    """
    names = ("num_tokens", "topk", "num_experts", "moe_ep_size")
    loads = np.stack(balanced_load(*(r[name] for name in names)))
    for law, exponent in POWER_LAWS.items():
        drawn = np.stack([r[name] for name in names[1:]], axis=1)
        mine = peer_tables.is_word(law)(r)
        for top_k, experts, ranks in np.unique(drawn[mine], axis=0).astype(int).tolist():
            same = mine & (drawn == (top_k, experts, ranks)).all(axis=1)
            load = fullest_rank_load(r["num_tokens"][same], top_k, experts, ranks, skew=constant(exponent))
            loads[:, same] = load.rows, load.touched, load.imbalance
    return loads[0], loads[1], loads[2]


def _layers(word: str) -> tuple[peer_tables.PeerFile, ...]:
    """Return the two tables of layers in one format, with few tokens and with many."""
    weights, devices = FORMATS[word]

    def make(r: peer_tables.Columns) -> FusedExperts:
        """Return the experts of the fullest rank."""
        rows, touched, imbalance = loads_of(r)
        return FusedExperts(
            tokens=peer_tables.column(r["num_tokens"]),
            rows=peer_tables.column(rows),
            hidden=peer_tables.column(r["hidden_size"]),
            inner=peer_tables.column(r["inter_size"] / r["moe_tp_size"]),
            touched=peer_tables.column(touched),
            imbalance=peer_tables.column(imbalance),
            dtype="bf16",
            weights=weights,
        )

    def file(folder: str, path: str, column: str, tokens: str) -> peer_tables.PeerFile:
        """Return one of the tables; `column` names formats."""
        return peer_tables.PeerFile(
            folder=folder,
            project="aiconfigurator",
            path=path,
            name=f"fused_experts.{weights}".rstrip("."),
            devices=devices,
            belongs=peer_tables.is_word(f"{column}={word}"),
            operator=make,
            measured_s=peer_tables.seconds_in("latency_ms"),
            faults=FAULTS,
            remark=f"{word}, {tokens}",
        )

    return (
        file("serving", "kernels_moe_decode.csv.gz", "moe_dtype", "fewer than 128 tokens"),
        file("peers", "aiconfigurator/moe_fused_experts.csv.gz", "dtype", "128 tokens or more"),
    )


EXPERT_FILES: tuple[peer_tables.PeerFile, ...] = tuple(file for word in FORMATS for file in _layers(word))
