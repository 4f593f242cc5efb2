"""The accuracy of models that are not decoders: `python tests/graph_accuracy.py [--fit]` writes the page.

The page is docs/accuracy/graphs.md. It takes five minutes, and names a command for each of its lines. With
--fit, the efficiencies of the catalogue are fitted before, which takes three minutes more.
"""

import json
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from flopcast.cost.graph_kernels.efficiencies import Efficiencies
from flopcast.cost.graph_kernels.efficiency import number_names, prior_numbers
from flopcast.dtypes import Floats
from flopcast.files.atomic_write import write_whole
from flopcast.lab.graph_runs.fit import fit, prepared
from flopcast.lab.graph_runs.measured import GraphRun
from flopcast.lab.graph_runs.score import (
    PRIOR_KINDS,
    devices_of,
    left_out_seconds,
    observed,
    score_runs,
    without_calls,
)
from flopcast.lab.measured_tables import GRAPHS
from flopcast.lab.scores import statistics
from flopcast.library.graph_efficiencies import NAME, shipped_efficiencies
from flopcast.units import Number

ROOT = Path(__file__).resolve().parents[1]
TABLES = ROOT.parent / "shared" / "data" / "graphs"
XEON = ROOT / "tests" / "graph" / "timm_benchmark-infer-fp32-nchw-pt200-cpu-xeon_8375c-dynamo.csv"
PAGE = ROOT / "docs" / "accuracy" / "graphs.md"
FORMAT_VERSION = 1
SMALLEST = 0.0005  # of a logarithm: smaller differences from the prior are not written
CATALOGUE = ROOT / "src/flopcast/catalog/graphs" / NAME
NINETY_PERCENT = 1.6449  # of a normal distribution, in sigmas
KINDS = ("eager", "compiled", "training", "cpu", "operators", "diffusion")
WAYS = (  # kind of score, option of the command, choice of constants
    ("fitted", "", "catalogue"),
    ("left out: model families", "--leave-one-model-out", "family"),
    ("left out: device", "--leave-one-generation-out", "device"),
    ("benchmarks of single kernels", "--no-constants", "none"),
)
LEFT_OUT = {"family": "model families", "device": "device"}  # names in TEXT
HEADINGS = ("table", "score", "rows", "median", "mean", "p90", "bias", "inside 90 %")
TEXT = """# Accuracy of models that are not decoders

This page compares predicted and measured step times of CNNs, vision transformers, diffusion transformers,
detection models, recommendation models and a graph network. If the predicted model family is left out of
the fit, the median errors of the tables are {family}. If the predicted device is left out, the median
errors are {device}.

The first table has five rows for each table of measurements in data/graphs, one for each way to choose the
efficiencies of kernels:

- *fitted*: the efficiencies were fitted to all step times, including the predicted ones.
- *left out: device*: the efficiencies were fitted without the measurements on the predicted device.
- *left out: model families*: the model families were divided into five parts, and the efficiencies were
  fitted without the part that contains the predicted family.
- *benchmarks of single kernels*: no efficiency was fitted to step times.
- *baseline*: a simple model that multiplies the multiply-adds of a network by the median ratio of step time
  to multiply-adds in the same table.

The other columns are:

- *median*, *mean*, *p90*: median, mean and 90th percentile of |predicted − measured| / measured.
- *bias*: median of predicted / measured, minus 1. It is negative if the predicted times are too short.
- *inside 90 %*: fraction of the measurements that lie in their predicted 90 % interval.

`python tests/graph_accuracy.py` writes this page. `flopcast validate --runs FILE` prints the same
numbers by device, table and family.

{tables}
## Constants

The efficiencies of kernels in exported graphs (`catalog/graphs/efficiencies.json`) were fitted to the
step times of the tables above. With `--no-constants`, flopcast uses data sheets and benchmarks of single
kernels instead. `cost/graph_kernels/priors.py` names the source of each number. Predictions of MLPerf's
rows use no fitted constants.

For each device, we fitted one factor for the compute rate and one factor for the memory bandwidth. The
column *sigma* shows the standard deviation of the logarithm of a predicted step time. We estimated sigma
from the errors with model families left out.

{constants}
## Known properties of the errors

{remarks}"""
REMARKS = """\
### How far the scores can be trusted

- No score on this page is blind, because we had seen the errors of these tables when we chose the kinds
  of kernels and the effects that flopcast predicts.
- Before any fit to these tables, the first predictions had median errors of 22 % (NeuSight), 56 %
  (diffusion transformers) and 60 % (MLPerf).
- The tables contain only one device for training, and one for compiled models. If this device is left out
  of the fit, flopcast predicts its times from benchmarks of single kernels.
- The tables contain two CPUs. Each is predicted with constants that were fitted to the other. The table of
  the Xeon (24 rows with batches of 4 to 128 samples; `tests/graph`) comes from PyTorch's dashboard for
  TorchInductor on CPUs (issue 93531). The other tables have batches of one sample.
- We chose four times and counts after we had seen the errors: the host time of diffusion transformers
  (40 us for each kernel, `host_s`), their time for each all-to-all and each step of ring attention
  (0.1 ms, `hop_s`), the time of each kernel on a CPU (10 us, `call_s`), and the numbers of instructions of
  eager kernels.
- The descriptions of models come from timm 1.0.31, which does not contain the models of {changed} rows.
  For these rows, flopcast uses the published multiply-adds and activations.

### What the predictions contain

The table lists effects that flopcast predicts for graphs, and the median errors with and without the
effect. These errors were computed with the device left out of the fit:

| effect | median error, with the effect | without |
|---|--:|--:|
| In training, cuDNN's batch norm reaches about half as many bytes per second in NCHW layout as in NHWC \
layout (benchmark on an RTX 2070 SUPER, an A100 and a V100). | 13 % (training in NCHW) | 22 % |
| If a model multiplies a tensor by a gate or a scale, the backward pass runs several kernels for the \
gradient of this tensor. In training, activations such as SiLU copy their input if they run in place. | \
12 % (training in NHWC) | 15 % |
| In NeuSight's tables, the accumulation of gradients (`sum_acc_ms`) runs one kernel for each parameter, \
as in PyTorch. | 14 % | 16 % |
| On a CPU, PyTorch reorders the weights of convolutions in each call, and each kernel waits for its host \
time (10 us). | 34 % (CPU, PyTorch 2.4) | 57 % |
| In eager PyTorch, kernels that broadcast or transpose a tensor execute about 36 instructions for each \
element, and kernels of rotary embeddings and RMS norms about 51, instead of 6. | 14 % (images) | 21 % |

Further assumptions:

- The clock of a busy device is proportional to the fifth root of (board power / peak FLOP/s).
- The time of a memory-bound kernel is the sum of the time to move its bytes and the time to execute its
  instructions.
- A 16-bit convolution in NCHW layout also transposes its input and its output.
- PyTorch before 2.0 runs attention as two GEMMs and a softmax.
- The measured diffusion transformers ran in xDiT with FlashAttention-2, whose kernels use only
  instructions of Ampere. The multiprocessors of a B200 and an H100 execute these instructions equally fast
  at the same clock. FlashAttention-2 pads the width of a head to a multiple of 32, as in PixArt (72) and
  HunyuanDiT (88).
- In diffusion transformers, rotary embeddings, norms and SANA's linear attention run in fp32.

### Known causes of large errors

- If the predicted device is left out of the fit, the predicted times are 18 % too long on the RTX 4090
  and 15 % too short on the RTX Pro 6000 Max-Q. We do not know why.
- In training on the RTX 3090, kernels move bytes at 0.84 of the rate that they reach in inference. If
  this device is left out of the fit, the predicted training times are therefore 5 to 8 % too short for
  vision transformers (ViT, DeiT), and 15 % too short for EfficientNet. For RegNet and NFNet in NHWC
  layout, the times are 71 % too short, because the gradients of grouped convolutions were measured on no
  other device.
- Without fitted constants, the predicted times on the i9 are 34 to 37 % too short (median), because we
  have no benchmarks of single kernels on a CPU. They were 57 to 60 % too short before flopcast predicted
  two effects: PyTorch reorders the weights of each convolution in each call (without freezing), and the
  CPU runs a kernel only after its host time, for which flopcast uses that of compiled PyTorch with GPUs
  (10 us). The fit to CPUs adds another 10 us per kernel.
- Submissions of DLRM state the throughput of the whole run, including the time of 20 evaluations per epoch.
  On two nodes, the predicted times of DLRM are 15 % too short.
- In five submissions of RetinaNet, something other than the devices limits the speed. For example, a step
  with the same batch on 8 H200 takes 0.104 s in one submission and 0.832 s in another.
- If the H100 or the B200 is left out of the fit, the predicted times to generate images are 14 % too long
  on the H100 and 11 % too short on the B200 (median). The measured B200 is only 1.31 to 1.48 times as fast
  as the H100, although its GEMMs are 2.05 times as fast and its memory bandwidth is 2.3 times as high. The
  instructions of eager kernels explain a part of this difference.
- Submissions of R-GAT also state the throughput of the whole run, including the time of an evaluation
  after every 5 % of an epoch. They do not state how many different nodes a batch contains. flopcast
  computes this number from the numbers of nodes and edges of the graph
  ([guide](../howto/graphs.md#graph-networks-that-sample-neighbours)). Before the first prediction, we had
  seen the throughputs, so no score of R-GAT is blind. The first prediction had a median error of 25.4 %.
  We then read in the [logs](https://github.com/mlcommons/training_results_v5.1/tree/main/Dell/results)
  that gradients of attention have 16 bits instead of 32, and corrected the mean number of edges that a
  reached node samples.
- According to the log of a submission on eight H200, a training step of R-GAT takes 72 ms, and a step of
  the evaluation takes 37 ms. The predicted times are 89 ms and 44 ms. The peak memory of the submissions
  (20 to 35 GB) also suggests that a batch contains fewer nodes than predicted. A possible reason is that
  the neighbours of a paper often cite each other. On 64 B200, the predicted throughput is 2.4 times the
  measured one. We do not know why.
"""


def write(found):
    """Write all numbers that differ from their prior, with one line for each kind of software.

    Numbers are rounded to three decimals, which is 0.1 % of a time.
    """
    prior = prior_numbers()
    kinds = []
    for kind, each in found.items():
        differs = np.abs(each.numbers - prior) > SMALLEST
        names = [name for name, chosen in zip(number_names(), differs, strict=True) if chosen]
        entry = {
            "numbers": dict(zip(names, np.round(each.numbers[differs], 3).tolist(), strict=True)),
            "levels": {name: [round(value, 3) for value in pair] for name, pair in each.levels.items()},
            "log_sigma_factor": each.log_sigma_factor,
            "other_device_log_sigma_factor": each.other_device_log_sigma_factor,
            "sources": list(each.sources),
            "rows": each.rows,
        }
        by_hand = {"host_s": each.host_s, "hop_s": each.hop_s, "call_s": each.call_s}
        entry |= {name: value for name, value in by_hand.items() if value}
        kinds.append(f"{json.dumps(kind)}: {json.dumps(entry)}")
    lines = ",\n  ".join(kinds)
    write_whole(CATALOGUE, f'{{"format_version": {FORMAT_VERSION}, "efficiencies": {{\n  {lines}\n}}}}\n')


def rows_by_table(runs, constants):
    """Return the compared step times of each table, in the order of the tables."""
    rows = [row for row in score_runs(runs, constants).rows if row.measured is row.run.measured[0]]
    rows.sort(key=name_of)
    return {name: list(own) for name, own in groupby(rows, key=name_of)}


def name_of(row):
    """Return the table of a row, with what tells its rows apart if they differ in kind."""
    table, family = row.run.groups["table"], row.run.groups["family"]
    kinds = {"neusight_graph_totals": row.measured.quantity, "mlperf_training_v5.1": family}
    return f"{table}, {kinds[table]}" if table in kinds else table


def line_of(cells, found):
    """Return a line of a table."""
    cells = [*cells, f"{found['rows']:.0f}"]
    cells += [f"{found[name]:.1%}".replace("%", " %") for name in ("median", "mean", "p90")]
    bias, inside = found.get("bias"), found.get("inside")
    cells += ["" if bias is None else f"{bias:+.1%}".replace("%", " %")]
    cells += ["" if inside is None else f"{inside:.0%}".replace("%", " %")]
    return "| " + " | ".join(cells) + " |"


def baseline(rows):
    """Return the errors of one number for each table: seconds for each multiply-add."""
    counted = [row for row in rows if row.run.multiply_adds]
    if not counted:
        return None
    work = np.array([row.run.multiply_adds * row.run.batch for row in counted])
    measured_s = np.array([row.measured.seconds for row in counted])
    errors = np.abs(work * np.median(measured_s / work) / measured_s - 1.0)
    found = {"median": np.median(errors), "mean": errors.mean(), "p90": np.quantile(errors, 0.9)}
    return {"rows": len(errors)} | found


def scores_table(runs):
    """Return the Markdown table of all tables and scores."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|---|---|" + "--:|" * (len(HEADINGS) - 2)]
    scored = {kind: rows_by_table(runs, constants) for kind, _, constants in WAYS}
    for name, fitted in scored["fitted"].items():
        has_numbers = any(row.run.setup.efficiencies for row in fitted)
        for kind, option, _ in WAYS if has_numbers else WAYS[-1:]:
            cells = (f"`{name}`", f"{kind} (`{option}`)" if option else kind)
            lines.append(line_of(cells, statistics(scored[kind][name])))
        if found := baseline(fitted):
            lines.append(line_of((f"`{name}`", "baseline"), found))
    return "\n".join(lines) + "\n"


def medians_of(table, score):
    """Return the lowest and the highest median error of a score in the table of all scores."""
    lines = [line.split(" | ") for line in table.splitlines()[2:]]
    found = [float(cells[3].split()[0]) for cells in lines if cells[1].startswith(score)]
    return f"{min(found):.1f} to {max(found):.1f} %"


def constants_table():
    """Return the Markdown table of fitted numbers by kind of software."""
    lines = ["| software | fitted on | rows | factors of devices (compute, memory) | sigma |"]
    lines.append("|---|---|--:|---|--:|")
    for kind, each in shipped_efficiencies().items():
        levels = "; ".join(
            f"{name} {np.exp(compute):.2f}, {np.exp(memory):.2f}"
            for name, (compute, memory) in each.levels.items()
        )
        sources = ", ".join(f"`{name}`" for name in each.sources)
        lines.append(f"| {kind} | {sources} | {each.rows} | {levels} | {each.log_sigma_factor} |")
    return "\n".join(lines) + "\n"


def fitted_efficiencies(runs: Sequence[GraphRun]) -> dict[str, Efficiencies]:
    """Return the efficiencies of each kind of software, with the sigmas of what was left out."""
    found: dict[str, Efficiencies] = {}
    for kind in KINDS:
        own = [
            run for run in runs if not run.reason and _is_described(run) and run.setup.efficiencies == kind
        ]
        if own:
            drawn_to = found.get(PRIOR_KINDS.get(kind, ""))
            found[kind] = _of_kind(own, drawn_to)
    return found


def _is_described(run: GraphRun) -> bool:
    """Return whether the kernels of a run are known, not only their sums."""
    return bool(run.facts) or run.rows is not None


def _of_kind(runs: Sequence[GraphRun], drawn_to: Efficiencies | None) -> Efficiencies:
    shipped = shipped_efficiencies().get(runs[0].setup.efficiencies)
    known = prepared(observed(runs, shipped))
    prior = None if drawn_to is None else drawn_to.numbers
    best = fit(known, prior=prior)
    alone = prepared(observed(runs, without_calls(shipped))) if shipped and shipped.call_s else known
    sigmas = [
        _log_sigma(left_out_seconds(known, runs, "family", prior), known.observed.measured_s),
        _log_sigma(left_out_seconds(alone, runs, "device", prior), alone.observed.measured_s),
    ]
    levels = {name: (pair[0], pair[1]) for name, pair in zip(devices_of(runs), best.levels, strict=True)}
    return Efficiencies(
        numbers=best.numbers,
        levels=levels,
        log_sigma_factor=sigmas[0],
        other_device_log_sigma_factor=max(sigmas),
        sources=tuple(dict.fromkeys(run.groups["table"] for run in runs)),
        rows=len(runs),
        host_s=shipped.host_s if shipped else 0.0,
        hop_s=shipped.hop_s if shipped else 0.0,
        call_s=shipped.call_s if shipped else 0.0,
    )


def _log_sigma(predicted_s: Floats, measured_s: Floats) -> Number:
    """Return the sigma whose 90 % interval holds nine of ten measurements."""
    errors = np.abs(np.log(predicted_s / measured_s))
    return round(float(np.quantile(errors, 0.9)) / NINETY_PERCENT, 3)


if __name__ == "__main__":
    paths = [path for path in (*sorted(TABLES.iterdir()), XEON) if GRAPHS.holds(path)]
    runs = [run for path in paths for run in GRAPHS.read(path)]
    if "--fit" in sys.argv[1:]:
        write(fitted_efficiencies(runs))
        shipped_efficiencies.cache_clear()
    changed = sum(1 for run in runs if not run.facts and run.rows is None and run.source == "timm")
    remarks = REMARKS.format(changed=changed)
    tables = scores_table(runs)
    medians = {name: medians_of(tables, f"left out: {score}") for name, score in LEFT_OUT.items()}
    PAGE.write_text(
        TEXT.format(tables=tables, constants=constants_table(), remarks=remarks, **medians),
        encoding="utf-8",
    )
    sys.stdout.write("written: compare with git diff\n")
