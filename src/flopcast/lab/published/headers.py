"""Headers of run tables, and the meaning of their columns.

Answers: what kind of table has this header, and which fact does each column state?
Elsewhere: reading the cells (table.py), the facts themselves (lab/validation/run.py).

A table of another origin needs one entry in `HEADERS`. Facts that all rows share and that the table
therefore omits (device, framework) are in `common`. They come from the text that accompanies the table.
If one cell of a column holds several facts, `translate` first rewrites the row into the columns of
`PUBLISHED`.
"""

from collections.abc import Callable, Mapping

from flopcast.lab.published.mlperf import published_row
from flopcast.records import dataclass, field, replace

Place = tuple[str, str]  # part of a Run ("" is the run itself) and field
GIB = 2.0**30


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column: the field for its value, and the factor from its unit to SI."""

    to: Place
    unit_factor: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """One kind of table, identified by the columns `marks`, all of which must be present.

    `columns` are the columns that are read; a column in `derived` gives a fact only if the column of this
    fact is empty. `passive` columns cannot change the job: they state the origin of a row or follow from
    other columns; any other column with a value is listed in the assumptions of its row. `common` holds
    facts of every row. `refused` is the reason why rows of this kind cannot be scored. `translate`
    rewrites a row into the columns of `columns`; None if the table already has these columns.
    """

    marks: tuple[str, ...]
    columns: Mapping[str, Column]
    derived: Mapping[str, Column] = field(default_factory=dict)
    common: Mapping[Place, object] = field(default_factory=dict)
    passive: frozenset[str] = frozenset()
    refused: str = ""
    translate: Callable[[Mapping[str, str]], dict[str, str]] | None = None


def _part(part: str, words: str) -> dict[str, Column]:
    """Return the columns of one part of a run: each word is a field and its column, or the name of both."""
    pairs = ((word.partition("=")[0], word.rpartition("=")[2]) for word in words.split())
    return {column: Column(to=(part, field)) for field, column in pairs}


STEP = ("observed", "step_time_s")
TOKENS = ("observed", "device_tokens_per_s")
MEMORY = ("observed", "memory_bytes")
_DEGREES = _part(
    "mapping", "data_parallel=dp tensor_parallel=tp pipeline_parallel=pp micro_batch global_batch"
)

_PASSIVE = "source_title source_locator evidence params_b active_params_b mfu_pct hfu_pct full_config"
_CHECKS = "consistency consistency_detail"

PUBLISHED = Header(
    marks=("source_key", "kind", "model_name", "gpu_model", "num_gpus", "seq_len"),
    columns={
        **_part("", "id source=source_key kind model=model_name notes site"),
        "seq_len": Column(to=("", "sequence_length")),
        **_part(
            "architecture",
            "num_layers=layers hidden ffn_hidden heads kv_heads head_size=head_dim "
            "vocabulary=vocab num_experts=n_experts top_k expert_hidden=moe_ffn_hidden "
            "num_shared_experts=n_shared_experts num_dense_layers=n_dense_layers attention "
            "gated=gated_mlp tied_embeddings",
        ),
        **_part(
            "machine",
            "device=gpu_model devices_per_node=gpus_per_node num_devices=num_gpus network=inter_node_link",
        ),
        **_DEGREES,
        **_part(
            "mapping",
            "virtual_stages=vpp context_parallel=cp expert_parallel=ep "
            "expert_tensor_parallel=etp sequence_parallel zero=zero_stage fsdp precision "
            "recompute offload schedule=pp_schedule flash_attention",
        ),
        **_part("software", "framework version=software_version year"),
        "step_time_s": Column(to=STEP),
        "tokens_per_s_per_gpu": Column(to=TOKENS),
        "tflops_per_gpu": Column(to=("observed", "device_flop_per_s"), unit_factor=1e12),
        "tflops_convention": Column(to=("observed", "flop_convention")),
        "attn_flops_convention": Column(to=("observed", "attention")),
        "peak_mem_gb": Column(to=MEMORY, unit_factor=GIB),
        "peak_mem_unit": Column(to=("observed", "memory_unit")),
        "tokens_per_s_total": Column(to=("observed", "tokens_per_s")),
        "samples_per_s": Column(to=("observed", "sequences_per_s")),
    },
    derived={"step_time_s_derived": Column(to=STEP), "tokens_per_s_per_gpu_derived": Column(to=TOKENS)},
    passive=frozenset((*_PASSIVE.split(), *_CHECKS.split())),
)

_VTRAIN = {
    "num_gpus": Column(to=("machine", "num_devices")),
    "seq_len": Column(to=("", "sequence_length")),
    **_part("architecture", "num_layers=layers hidden heads"),
    **_DEGREES,
    "iteration_ms": Column(to=STEP, unit_factor=1e-3),
}
_VTRAIN_COMMON: Mapping[Place, object] = {
    ("", "source"): "vtrain-measured",
    ("", "model"): "GPT",
    ("architecture", "gated"): False,
    ("machine", "device"): "A100",
    ("machine", "network"): "800 Gb/s per node",
    ("mapping", "recompute"): "full",
    ("software", "framework"): "Megatron-DeepSpeed",
    ("software", "year"): 2024,
}

HEADERS: Mapping[str, Header] = {
    "published runs": PUBLISHED,
    "MLPerf Training": replace(
        PUBLISHED,
        marks=("org", "system", "benchmark", "accelerator", "gradient_accumulation_steps", "config_files"),
        translate=published_row,
    ),
    "vtrain (multi-node)": Header(
        marks=("params_b", "num_gpus", "heads", "layers", "seq_len", "iteration_ms"),
        columns=_VTRAIN,
        common=_VTRAIN_COMMON,
    ),
    "vtrain (single-node)": Header(
        marks=("num_gpus", "heads", "layers", "seq_len", "iteration_ms"),
        columns=_VTRAIN,
        common=_VTRAIN_COMMON,
        refused="computed, not measured: its times are affine in the number of micro-batches, to 6e-6",
    ),
    "simumax": Header(
        marks=("case", "model", "micro_batches", "measured_ms", "measured_peak_alloc_gib"),
        columns={
            **_part("", "id=case model"),
            "seq_len": Column(to=("", "sequence_length")),
            "layers": Column(to=("architecture", "num_layers")),
            **_part("machine", "device=gpu num_devices=num_gpus"),
            **_part(
                "mapping",
                "data_parallel=dp tensor_parallel=tp pipeline_parallel=pp context_parallel=cp "
                "expert_parallel=ep micro_batch=micro_batch_size",
            ),
            "micro_batches": Column(to=("mapping", "global_batch")),  # times dp · micro_batch: table.py
            "measured_ms": Column(to=STEP, unit_factor=1e-3),
            "measured_peak_alloc_gib": Column(to=MEMORY, unit_factor=GIB),
        },
        common={
            ("", "source"): "simumax-b200",
            ("mapping", "recompute"): "none",
            ("mapping", "zero"): 1,
            ("mapping", "sequence_parallel"): True,
            ("mapping", "precision"): "bf16",
            ("software", "framework"): "Megatron-LM core @23e00ed0 + TE 2.11",
            ("software", "year"): 2026,
        },
    ),
}


def header_of(columns: tuple[str, ...]) -> Header | None:
    """Return the kind of table with these columns: the first kind whose marks are all present."""
    return next((kind for kind in HEADERS.values() if set(kind.marks) <= set(columns)), None)
