"""Watts of single kernels, against kernels of 0.2 ms and more whose power was read for a second."""

import csv
import gzip

import numpy as np
import pytest

from flopcast.library import catalog
from flopcast.operators.decode_attention import DecodeAttention
from flopcast.operators.fused_experts import FusedExperts
from flopcast.operators.served_matmul import ServedMatmul
from flopcast.serving.power import kernel_w
from flopcast.spec.site import Site

DEVICES = {"h200_sxm": "h200-sxm-141gb", "b200_sxm": "b200-sxm-180gb"}
FORMATS = {"bfloat16": "", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
LONG_MS = 0.2  # shorter kernels are not read for long enough
ROWS = 8, 1024  # of passes that mostly decode


def product(column):
    return ServedMatmul(
        m=column("m"), n=column("n"), k=column("k"), dtype="bf16", weights=column.weights
    )  # fmt: skip


def experts(column):
    tokens, chosen, number = column("num_tokens"), column("topk"), column("num_experts")
    held = number / column("moe_ep_size")
    rows = tokens * chosen / column("moe_ep_size")
    return FusedExperts(
        tokens=tokens, rows=rows, hidden=column("hidden_size"), imbalance=np.ones_like(rows),
        inner=column("inter_size") / column("moe_tp_size"), dtype="bf16", weights=column.weights,
        touched=held * (1 - (1 - 1 / number) ** (tokens * chosen)),
    )  # fmt: skip


def attention(column):
    batch, heads = column("batch_size"), column("num_heads")
    kept = column("num_key_value_heads")
    return DecodeAttention(
        sequences=batch, keys=batch * (column("isl") + column("step")), heads=heads,
        kv_heads=np.where(kept > 0, kept, heads), head_size=column("head_dim"), dtype="bf16",
    )  # fmt: skip


class Columns:
    """Numbers of the rows of one format, (rows, 1)."""

    def __init__(self, rows, weights):
        self.rows, self.weights = rows, weights

    def __call__(self, name):
        return np.array([[float(row[name])] for row in self.rows])


def errors(shared, device, file, kind_of, make, size):
    """Predicted over measured watts, minus 1, of all kernels of one file."""
    path = shared / "data" / "power" / f"kernel_power_{device}_{file}.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as opened:
        rows = [row for row in csv.DictReader(opened) if float(row["latency_ms"]) >= LONG_MS]
    found = []
    for dtype, weights in FORMATS.items():
        fitting = [
            row
            for row in rows
            if row[kind_of] == dtype and (not size or ROWS[0] <= int(row[size]) <= ROWS[1])
        ]
        fitting = [row for row in fitting if row.get("window_size", "0") == "0"]
        if fitting:
            column = Columns(fitting, weights)
            seconds = column("latency_ms") / 1e3
            watts = kernel_w(make(column), seconds, catalog.device(DEVICES[device]), Site())
            found.append(watts / column("power_w") - 1)
    return np.concatenate(found)


@pytest.mark.parametrize("device", DEVICES)
def test_watts_of_kernels_are_those_that_boards_report(shared, device):
    for file, kind_of, make, size, most in (
        ("gemm", "gemm_dtype", product, "m", 0.12),
        ("moe", "moe_dtype", experts, "num_tokens", 0.04),
        ("generation_attention", "kv_cache_dtype", attention, "", 0.2),
    ):
        off = errors(shared, device, file, kind_of, make, size)

        assert len(off) >= 40, file
        assert np.median(np.abs(off)) <= most, file
