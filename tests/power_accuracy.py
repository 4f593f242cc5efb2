"""The accuracy of clocks and power, out of predictions: `python tests/power_accuracy.py` writes the page.

The page is docs/accuracy/power.md. tests/cost/test_sustained.py, tests/cost/test_clocks.py,
tests/serving/test_kernel_watts.py and tests/lab/validation/test_torchtitan_ratios.py read the same tables.
"""

import csv
import gzip
import statistics
import sys
from collections import defaultdict
from functools import cache, partial
from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np

from flopcast.accuracy import predict_unfitted
from flopcast.api import predict
from flopcast.cost.kernels import clocks
from flopcast.cost.kernels.clocks import stretch_ratio
from flopcast.cost.kernels.sustained import sustained_ratio
from flopcast.library import catalog
from flopcast.operators.decode_attention import DecodeAttention
from flopcast.operators.fused_experts import FusedExperts
from flopcast.operators.served_matmul import ServedMatmul
from flopcast.requests.job_files import job_of
from flopcast.requests.sources import Document
from flopcast.serving.power import kernel_w
from flopcast.spec.site import Site

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
PAGE = ROOT / "docs" / "accuracy" / "power.md"

DEVICES = {"h200_sxm": "h200-sxm-141gb", "b200_sxm": "b200-sxm-180gb"}  # of the tables → of the catalogue
LEAST = {"h200_sxm": (1, 1), "b200_sxm": (2048, 1024)}  # rows; columns and length of the sum

FORMATS = {"bfloat16": "", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
LONG_MS = 0.2  # the draws of kernels were fitted to longer ones
READ_MS = 0.1 / 6  # six products of this time are repeated for a second, and shorter ones for less
LONGEST_SUM = 40000  # the weights of products with longer sums are probably zeros
AT_LIMIT_FRACTION = 0.97
ROWS = 8, 1024  # of passes that mostly decode

BOARDS_W = {"v100": 250, "p100": 250, "rtx6000": 260}
LEAST_SHARE = 0.6  # of the board power: lower limits were met less well
GRID = {  # of constants that are fitted to the epochs of the other devices
    "STATIC_FRACTION": (0.0, 0.1, 0.2),
    "EXPONENT": (0.4, 0.46, 0.54),
    "HEADROOM_RATIO": (1.0, 1.04, 1.08),
}

EAGER, COMPILED = "torch-fsdp2", "torch-fsdp2-compiled"
SMALL = {  # 8B, by devices, stack and precision: tokens per second and device
    (8, EAGER, "bf16"): 5762,
    (8, COMPILED, "bf16"): 6667,
    (8, COMPILED, "fp8_current"): 8532,
    (128, EAGER, "bf16"): 5605,
    (128, COMPILED, "bf16"): 6514,
    (128, COMPILED, "fp8_current"): 8380,
}
LARGE = {  # 70B: messages waited for, and in chunks under products
    (256, "fp8_current", "2024-12"): (829, 876),
    (128, "bf16", "2025-03"): (598, 673),
    (128, "fp8_current", "2025-03"): (820, 950),
    (256, "bf16", "2025-06"): (597.3, 652.4),
    (256, "fp8_current", "2025-06"): (809.8, 942.4),
}


# --- GEMMs of a busy device ---


def rows_of(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from csv.DictReader(file)


@cache
def cold_s(shared):
    """Seconds of products timed for milliseconds, by device and shape."""
    table = rows_of(shared / "data" / "peers" / "aiconfigurator" / "gemm_bf16.csv.gz")
    return {(row["system"], row["m"], row["n"], row["k"]): float(row["latency_ms"]) / 1e3 for row in table}


def pairs(shared, name):
    """Cold seconds of equal shapes, and their ratio when timed for a second; (shapes,) each."""
    rows, sides = LEAST[name]
    path, cold = shared / "data" / "power" / f"kernel_power_{name}_gemm.csv.gz", cold_s(shared)
    found = [
        (cold[name, row["m"], row["n"], row["k"]], float(row["latency_ms"]) / 1e3)
        for row in rows_of(path)
        if row["gemm_dtype"] == "bfloat16"
        and (name, row["m"], row["n"], row["k"]) in cold
        and int(row["m"]) >= rows
        and min(int(row["n"]), int(row["k"])) >= sides
    ]
    alone_s, busy_s = np.array(found).T
    return alone_s, busy_s / alone_s


def errors_when_busy(shared, name, of):
    """Predicted over measured seconds of busy GEMMs, minus 1, with the ratio of one of the devices."""
    alone_s, ratio = pairs(shared, name)
    return sustained_ratio(alone_s, catalog.device(DEVICES[of]).sustained) / ratio - 1


# --- watts of kernels ---


def gemms(column):
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


KERNELS = {  # file → columns of the number format and of the rows of a pass, the operator
    "gemm": ("gemm_dtype", "m", gemms),
    "moe": ("moe_dtype", "num_tokens", experts),
    "generation_attention": ("kv_cache_dtype", "", attention),
}


def power_rows(shared, name, file):
    return list(rows_of(shared / "data" / "power" / f"kernel_power_{name}_{file}.csv.gz"))


def errors_of_watts(rows, make, weights, name):
    """Predicted over measured watts of kernels of one format, minus 1, (rows,)."""
    column = Columns(rows, weights)
    seconds = column("latency_ms") / 1e3
    watts = kernel_w(make(column), seconds, catalog.device(DEVICES[name]), Site())
    return (watts / column("power_w") - 1).ravel()


def errors_of_passes(shared, name, file):
    """Errors of the watts of long kernels as they run in passes that mostly decode, in all formats."""
    kind_of, size, make = KERNELS[file]
    found = []
    for dtype, weights in FORMATS.items():
        fitting = [
            row
            for row in power_rows(shared, name, file)
            if float(row["latency_ms"]) >= LONG_MS
            and row[kind_of] == dtype
            and (not size or ROWS[0] <= int(row[size]) <= ROWS[1])
            and row.get("window_size", "0") == "0"
        ]
        found += [errors_of_watts(fitting, make, weights, name)] if fitting else []
    return np.concatenate(found)


def errors_of_gemms(shared, name, below_limit, *, every=False):
    """Errors of the watts of GEMMs in bf16: all, or those below the limit.

    Unless `every` is set, they are the GEMMs whose power was read for a second.
    """
    board_w = catalog.device(DEVICES[name]).board_power_w
    rows = [
        row
        for row in power_rows(shared, name, "gemm")
        if row["gemm_dtype"] == "bfloat16"
        and (every or (float(row["latency_ms"]) >= READ_MS and int(row["k"]) < LONGEST_SUM))
        and not (below_limit and float(row["power_w"]) >= AT_LIMIT_FRACTION * board_w)
    ]
    return errors_of_watts(rows, gemms, "", name)


# --- epochs under a power limit ---


@cache
def epochs(shared, device):
    """(limit, demand, time) of every epoch under a lower limit, as ratios to the highest limit."""
    runs = defaultdict(list)
    with (shared / "data" / "power" / f"zeus_power_limit_{device}.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = row["dataset"], row["network"], row["batch_size"], row["optimizer"]
            runs[key].append(
                [float(row[name]) for name in ("power_limit", "time_per_epoch", "average_power")]
            )
    found = []
    for measured in runs.values():
        *lower, (limit_w, plain_s, demand_w) = sorted(measured)
        if limit_w == BOARDS_W[device]:
            found += [(w / limit_w, demand_w / limit_w, epoch_s / plain_s) for w, epoch_s, _ in lower]
    return [each for each in found if each[0] >= LEAST_SHARE - 1e-9]


def errors_of_epochs(shared, device):
    return [stretch_ratio(limit, demand) / ratio - 1 for limit, demand, ratio in epochs(shared, device)]


def errors_of_epochs_left_out(shared, device):
    """Errors of a device's epochs with the constants of a coarse grid that fit the other devices best."""
    others = [other for other in BOARDS_W if other != device]

    def found(constants, devices):
        with mock.patch.multiple(clocks, **dict(zip(GRID, constants, strict=True))):
            return [errors_of_epochs(shared, each) for each in devices]

    def missed(constants):
        return sum(statistics.mean(map(abs, each)) for each in found(constants, others))

    (errors,) = found(min(product(*GRID.values()), key=missed), [device])
    return errors


# --- steps under a power limit ---


def _rate(model, devices, stack, plan, judge):
    """Tokens per second and device of TorchTitan on devices limited to 500 W."""
    parts = {
        "model": model,
        "cluster": f"grand-teton-h100:{devices // 8}",
        "stack": stack,
        "site": "grand-teton-500w",
        "batch": {"sequence_length": 8192},
        "plan": plan,
    }
    return judge(job_of(Document("test", parts, {}))).metrics.tokens_per_s / devices


@cache
def small(devices, stack, precision, judge=predict_unfitted):
    plan = f"dp={devices} zero=3 mbs=2 gbs={2 * devices} recompute=selective precision={precision}"
    return _rate("llama-3.1-8b", devices, stack, plan, judge)


@cache
def large(devices, precision, overlap, judge=predict_unfitted):
    shards = devices // 8
    plan = f"dp={shards} tp=8 sp zero=3 mbs=16 gbs={16 * shards} recompute=full precision={precision}"
    stack = {"base": COMPILED, "tensor_overlap": overlap}
    return _rate("llama-3.1-70b", devices, stack, plan, judge)


def errors_of_steps(judge):
    """Predicted over measured step times of TorchTitan, minus 1: of 8B, and of 70B."""
    of_8b = [tokens / small(*run, judge) - 1 for run, tokens in SMALL.items()]
    of_70b = [
        tokens / large(devices, precision, "none", judge) - 1
        for (devices, precision, _), (tokens, _) in LARGE.items()
    ]
    return of_8b, of_70b


# --- the page ---

HEADINGS = ("predicted", "score", "rows", "median", "p90", "bias")
TEXT = """# Accuracy of clocks and power

This page compares predictions with measured times of GEMMs on busy devices, measured power of single
kernels, and measured times under power limits. `python tests/power_accuracy.py` writes this page.

- *median*, *p90*: median and 90th percentile of |predicted − measured| / measured.
- *bias*: median of predicted / measured, minus 1. It is negative if the predicted values are too small.
- *fitted*: constants were fitted to the predicted rows. *left out*: constants were fitted to other
  devices or sources only. *never fitted*: the predictions use no constants. No score is blind, because
  we had seen these measurements when we wrote the formulas.

{table}

## How to read the table

- **GEMMs on a busy device.** Benchmarks time a GEMM for milliseconds, before the device lowers its
  clock under load. flopcast predicts the time of the same GEMM after a second of load from its time in
  the benchmark (field `sustained` of a device; tables of aiconfigurator). The fitted ratio is the same
  for H200 and B200, so the scores *left out* equal the fitted ones. The measured ratio of the two times
  differs by 5 to 8 % between GEMMs of similar size, so no smooth formula can be much closer. For B200,
  the table contains only GEMMs with at least 2,048 rows.
- **Power of GEMMs.** The rows are GEMMs in bf16 that were repeated for a second (at least 17 us each).
  The power of shorter kernels was read for 0.3 s or less. GEMMs that sum over 40,000 elements or more
  are not in the rows, because their weights were probably zeros, which need less power. The rows *with
  short readings* contain all GEMMs in bf16. *below the limit* means less than 97 % of the board power.
  The constants were fitted to GEMMs of at least 0.2 ms.
- **Power of experts and decode attention.** The rows are kernels of at least 0.2 ms in bf16, FP8 and
  NVFP4.
- **Epochs under a power limit.** The rows are epochs of smaller networks (Zeus) under limits of at
  least 60 % of the board power, relative to the same epochs without a limit.
- **Training steps at 500 W.** Meta's H100 devices for TorchTitan were limited to 500 W instead of 700
  W. flopcast derives the slowdown from the limit alone. Llama 3.1 8B runs with FSDP. The steps of Llama
  3.1 70B, which also use tensor parallelism, take longer than predicted. We do not know why.
"""


def line_of(predicted, score, errors):
    off = np.abs(errors)
    numbers = (f"{each:.1%}".replace("%", " %") for each in (np.median(off), np.quantile(off, 0.9)))
    bias = f"{np.median(errors):+.1%}".replace("%", " %").replace("-", "−")
    return f"| {' | '.join((predicted, score, str(len(off)), *numbers, bias))} |"


def lines(shared):
    """Yield the lines of the table, each with a function that computes its errors."""
    names = {"h200_sxm": "H200", "b200_sxm": "B200"}
    for name, other in zip(names, reversed(names), strict=True):
        what = f"time of a GEMM on a busy {names[name]}"
        yield what, "fitted", lambda name=name: errors_when_busy(shared, name, name)
        yield (
            what,
            f"left out: ratio of {names[other]}",
            lambda n=name, o=other: errors_when_busy(shared, n, o),
        )
    for name, shown in names.items():
        for below_limit in (False, True):
            what = f"power of GEMMs{' below the limit' * below_limit}, {shown}"
            yield what, "fitted", lambda n=name, b=below_limit: errors_of_gemms(shared, n, b)
            every = partial(errors_of_gemms, shared, name, below_limit, every=True)
            yield f"{what}, with short readings", "fitted", every
        for file, kernel in (("moe", "experts"), ("generation_attention", "decode attention")):
            what = f"power of {kernel}, {shown}"
            yield what, "fitted", lambda n=name, f=file: errors_of_passes(shared, n, f)
    for device in BOARDS_W:
        what = f"epochs under a power limit, {device.upper().replace('RTX', 'RTX ')}"
        yield what, "fitted", lambda d=device: errors_of_epochs(shared, d)
        yield what, "left out", lambda d=device: errors_of_epochs_left_out(shared, d)
    for place, model in enumerate(("8B", "70B")):
        what = f"training steps of Llama 3.1 {model} at 500 W"
        yield what, "left out", lambda p=place: errors_of_steps(predict)[p]
        yield what, "never fitted", lambda p=place: errors_of_steps(predict_unfitted)[p]


def table(shared):
    head = [f"| {' | '.join(HEADINGS)} |", "|---|---|--:|--:|--:|--:|"]
    return "\n".join(
        [*head, *(line_of(what, score, np.array(errors())) for what, score, errors in lines(shared))]
    )


if __name__ == "__main__":
    PAGE.write_text(TEXT.replace("{table}", table(SHARED)), encoding="utf-8")
    sys.stdout.write("written: compare with git diff\n")
