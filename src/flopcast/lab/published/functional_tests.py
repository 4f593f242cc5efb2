"""Megatron-LM's functional tests as jobs: one CSV row per test, with the memory in its log.

Answers: which job does a row describe, and how much memory stays allocated after its steps?
Elsewhere: how predicted and logged bytes are compared (lab/validation/memory.py).

The log comes from the last rank, which is in the last stage (`mem-allocated-bytes` after a step). Facts
that a row omits are Megatron-LM's defaults, or follow from the name of its case: the base vocabulary is
GPT-2's 50257, padded to a multiple of 128 · tensor-parallel degree; embeddings are tied unless the name
contains "untied"; positions are learned unless it contains "rope"; linear layers have biases unless it
contains "disable_bias_linear"; gated MLPs ("swiglu") have two thirds of the width. Gradients are fp32 in
bf16 runs. In fp16 runs they are fp16, and are copied to fp32 for the update.

cuBLAS has a workspace for each of PyTorch's two threads that launch products: 8 MiB and 128 KiB before
Hopper, and 32 MiB if runs are deterministic (CUBLAS_WORKSPACE_CONFIG=:4096:8). Transformer Engine has its
own 4 MiB; attention without it keeps one square matrix of scores.
"""

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path

from flopcast.errors import SpecError, spec_error
from flopcast.files.named_files import read_file
from flopcast.files.nearest_names import nearest
from flopcast.files.yaml_text import Document
from flopcast.interop.megatron.model import swiglu_width
from flopcast.lab.samples.columns import as_number
from flopcast.lab.validation.memory import MemoryRow
from flopcast.requests.job_files import job_of

FUNCTIONAL_TESTS = "functional tests of Megatron-LM"  # and the columns that name this kind of table
HEADER = ("family", "case", "environment", "median_mem_allocated_bytes", "transformer_impl")
COUNTS = (
    "num_layers", "hidden_size", "num_attention_heads", "seq_length", "micro_batch_size",
    "global_batch_size", "tensor_model_parallel_size", "pipeline_model_parallel_size",
    "num_layers_per_virtual_pipeline_stage",
    "context_parallel_size", "expert_model_parallel_size", "num_experts",
)  # fmt: skip
SWITCHES = ("sequence_parallel", "use_distributed_optimizer", "fp16", "deterministic_mode")
COLUMNS = (*HEADER, *COUNTS, *SWITCHES, "recompute_granularity")
TRUTH = {"true": True, "false": False, "": False}
WORDS = dict.fromkeys(SWITCHES, tuple(TRUTH)) | {"transformer_impl": ("transformer_engine", "local", "")}
MOST, MOST_LOGGED_BYTES = 1e9, 1e15  # of anything that is counted
VOCABULARY = 50257
MOST_BYTES = 10_000_000
LEFT_OUT = {  # words in the name of a case → why its row is not compared
    "uneven": "the stages are uneven, and the log does not state to which stage its rank belongs",
    "frozen": "the test continues from a checkpoint of another run",
    "multi_dist_optimizer_instances": "the states are sharded over only half of the replicas",
}
CUBLAS_BYTES = {False: 8 * 2**20 + 128 * 2**10, True: 32 * 2**20}  # whether deterministic
TRANSFORMER_ENGINE_BYTES = 4 * 2**20
LAUNCHING_THREADS = 2  # forward, and autograd's
RECEIVED_ACTIVATIONS = 2  # estimate: a chunk's input and its gradient


def read_runs(path: Path) -> str:
    """Return the text of a CSV with the columns of these tests.

    Raises
    ------
    SpecError
        The file cannot be read, or has other columns.
    """
    text = _text(path)
    missing = set(COLUMNS) - set(_names(text))
    if missing:
        allowed = f"a CSV with the columns {', '.join(COLUMNS)}"
        names = ", ".join(sorted(missing))
        because = f"the file has no column {names}, which tables of Megatron-LM's functional tests have"
        near = nearest(names, set(_names(text)) - set(COLUMNS))
        fix = f"write {names} in place of {near[0]} in line 1" if near else f"add the column {names}"
        raise spec_error("--runs", str(path), allowed, because, fix, where=f"{path}:1")
    return text


def is_of_functional_tests(path: Path) -> bool:
    """Return whether a file has the columns of these tests.

    Raises
    ------
    SpecError
        The file cannot be read.
    """
    return set(HEADER) <= set(_names(_text(path)))


def _text(path: Path) -> str:
    return (
        read_file(path, MOST_BYTES).decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
    )


def _names(text: str) -> list[str]:
    """Return the names of the columns; none if the first line is longer than any known header."""
    try:
        return next(csv.reader(text.split("\n", 1)[:1]), [])
    except csv.Error:
        return []


def functional_rows(text: str) -> tuple[list[MemoryRow], dict[str, str]]:
    """Return the rows of GPT models with a logged memory, and the reasons why others are skipped.

    The key of a reason is the row's id, "CASE ENVIRONMENT", and its number.

    Raises
    ------
    SpecError
        The text is not CSV.
    """
    rows: list[MemoryRow] = []
    left_out: dict[str, str] = {}
    for number, row in enumerate(_rows(text)):
        name = f"{row['case']} {row['environment']} {number}"
        fault = _fault(row)
        if fault:
            left_out[name] = fault
            continue
        if row["family"] != "gpt" or not row["median_mem_allocated_bytes"]:
            continue
        reason = next((why for word, why in LEFT_OUT.items() if word in row["case"]), "")
        if reason:
            left_out[name] = reason
            continue
        try:
            job = job_of(Document(name, _job(row), {}))
        except SpecError as error:
            left_out[name] = "a rule refuses " + ", ".join(problem.field for problem in error.problems)
            continue
        measured = float(row["median_mem_allocated_bytes"])
        rows.append(MemoryRow(id=name, job=job, quantity="resident", stage="last", measured_bytes=measured))
    return rows, left_out


def _rows(text: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV; cells that are missing in a short row are empty.

    Raises
    ------
    SpecError
        One of its lines is not CSV.
    """
    reader = csv.DictReader(io.StringIO(text), restval="")
    try:
        yield from reader
    except csv.Error as error:
        allowed, because = "a line of CSV", "cells are separated by commas, and quotes are closed"
        raise spec_error(
            f"line {reader.reader.line_num} of --runs", str(error), allowed, because, "correct this line"
        ) from None


def _fault(row: Mapping[str, str]) -> str:
    """Return why the cells of a row cannot be read; empty if they can."""
    if None in row:
        return "the row has more cells than the header has columns"
    faults = [
        f"{name} is {row[name]!r}, not a whole number above 0" for name in COUNTS if not _counts(row[name])
    ]
    for name, allowed in WORDS.items():
        if row[name] not in allowed:
            faults.append(f"{name} is {row[name]!r}, not {' or '.join(filter(None, allowed))}")
    logged = row["median_mem_allocated_bytes"]
    if logged and not 0 < (as_number(logged) or 0.0) < MOST_LOGGED_BYTES:
        faults.append(f"median_mem_allocated_bytes is {logged!r}, not a number above 0")
    if faults:
        return ", ".join(faults)
    each = _number(row, "num_layers_per_virtual_pipeline_stage", 0)
    stages, layers = _number(row, "pipeline_model_parallel_size"), _number(row, "num_layers", 12)
    if each and layers % (stages * each):
        return f"{layers} layers are not a multiple of {stages} stages of {each} layers each"
    return ""


def _counts(cell: str) -> bool:
    """Return whether a cell is a whole number above 0, or empty."""
    value = as_number(cell) or 0.0
    return not cell or (0 < value < MOST and value.is_integer())


def _job(row: Mapping[str, str]) -> dict[str, object]:
    return {
        "model": _model(row),
        "cluster": "dgx-a100:1",
        "stack": _stack(row),
        "batch": {"sequence_length": _number(row, "seq_length", 1024)},
        "plan": _plan(row),
    }


def _model(row: Mapping[str, str]) -> dict[str, object]:
    """Return GPT with the row's sizes; the name of the case gives the facts that its columns omit."""
    case, hidden = row["case"], _number(row, "hidden_size", 512)
    bias, gated = "disable_bias_linear" not in case, "swiglu" in case
    wide = swiglu_width(hidden) if gated else 4 * hidden
    feed_forward: dict[str, object] = {"ffn_hidden": wide, "bias": bias}
    if gated:
        feed_forward["activation"] = "swiglu"
    if row["num_experts"]:
        feed_forward = {"num_experts": _number(row, "num_experts"), "top_k": 2, "expert_hidden": wide}
        feed_forward["activation"] = "swiglu" if gated else "gelu"
    learned = "rope" not in case
    block = {
        "count": _number(row, "num_layers", 12),
        "mixer": {
            "heads": _number(row, "num_attention_heads", 8),
            "qkv_bias": bias,
            "out_bias": bias,
            "rotary_fraction": 0.0 if learned else 1.0,
        },
        "feed_forward": feed_forward,
    }
    return {
        "hidden": hidden,
        "vocabulary": VOCABULARY,
        "tied_embeddings": "untied" not in case,
        "learned_positions": _number(row, "seq_length", 1024) if learned else 0,
        "blocks": [block],
    }


def _stack(row: Mapping[str, str]) -> dict[str, object]:
    engine = row["transformer_impl"] != "local"
    workspace_bytes = LAUNCHING_THREADS * CUBLAS_BYTES[TRUTH[row["deterministic_mode"]]]
    workspace_bytes += TRANSFORMER_ENGINE_BYTES if engine else 0
    half = TRUTH[row["fp16"]]
    return {
        "base": "megatron-core",
        "attention_kernel": "flash" if engine else "materialised",
        "gradients": {"dtype": "fp16" if half else "fp32"},
        "optimizer": {"fp32_gradients": half},
        "memory": {
            "keeps_gradients": True,
            "workspace_bytes": f"{workspace_bytes} B",
            "score_buffer": not engine,
            "received_activations": RECEIVED_ACTIVATIONS,
        },
    }


def _plan(row: Mapping[str, str]) -> dict[str, object]:
    """Return the degrees on eight devices; devices that do not share a model are replicas."""
    tensor, stages = (
        _number(row, "tensor_model_parallel_size"),
        _number(row, "pipeline_model_parallel_size"),
    )
    context = _number(row, "context_parallel_size")
    each = _number(row, "num_layers_per_virtual_pipeline_stage", 0)
    chunks = _number(row, "num_layers", 12) // (stages * each) if each else 1
    plan: dict[str, object] = {
        "dp": 8 // (tensor * stages * context),
        "tp": tensor,
        "pp": stages,
        "cp": context,
        "vpp": chunks,
        "ep": _number(row, "expert_model_parallel_size"),
        "sp": TRUTH[row["sequence_parallel"]] and tensor > 1,
        "zero": 1 if TRUTH[row["use_distributed_optimizer"]] else 0,
        "mbs": _number(row, "micro_batch_size", 4),
        "gbs": _number(row, "global_batch_size", 32),
        "precision": "fp16" if TRUTH[row["fp16"]] else "bf16",
    }
    return plan | ({"recompute": row["recompute_granularity"]} if row["recompute_granularity"] else {})


def _number(row: Mapping[str, str], name: str, default: int = 1) -> int:
    return int(float(row[name])) if row[name] else default
