"""The accuracy of models that are not decoders: `python tests/graph_accuracy.py [--fit]` writes the page.

The page is docs/accuracy/graphs.md. It takes five minutes, and names a command for each of its lines. With
--fit, the efficiencies of the catalogue are fitted before, which takes three minutes more.
"""

import sys
from itertools import groupby
from pathlib import Path

import numpy as np

from flopcast.lab.graph_runs.calibrate import fitted_efficiencies
from flopcast.lab.graph_runs.score import score_runs
from flopcast.lab.measured_tables import GRAPHS
from flopcast.lab.scores import statistics
from flopcast.library.graph_efficiencies import NAME, shipped_efficiencies, write

ROOT = Path(__file__).resolve().parents[1]
TABLES = ROOT.parent / "shared" / "data" / "graphs"
PAGE = ROOT / "docs" / "accuracy" / "graphs.md"
CATALOGUE = ROOT / "src/flopcast/catalog/graphs" / NAME
WAYS = (  # kind of score, option of the command, choice of constants
    ("fitted", "", "catalogue"),
    ("left out: model families", "--leave-one-model-out", "family"),
    ("left out: device", "--leave-one-generation-out", "device"),
    ("benchmarks of single kernels", "--no-constants", "none"),
)
HEADINGS = ("table", "score", "rows", "median", "mean", "p90", "bias", "inside 90 %")
TEXT = """# Accuracy of models that are not decoders

This page compares predicted and measured step times of CNNs, vision transformers, diffusion
transformers, detection models and recommendation models. Each row of the first table shows the errors
for one table of measurements in data/graphs. The columns are:

- *score*: the step times on which the efficiencies of kernels were fitted. *Fitted*: all step times.
  *Left out*: all step times except those of the predicted device, or except those of a fifth of the
  model families, to which the predicted family belongs. *Benchmarks of single kernels*: none; the
  efficiencies come from benchmarks of single kernels.
- *baseline*: the errors of a simple model, in which the step time is proportional to the multiply-adds
  of a model. The factor of proportionality is the median of the same table.
- *median*, *mean*, *p90*: median, mean and 90th percentile of |predicted − measured| / measured.
- *bias*: median of predicted / measured, minus 1. If it is negative, the predicted times are too short.
- *inside 90 %*: fraction of the measurements that lie in their predicted 90 % interval.

`python tests/graph_accuracy.py` writes this page. `flopcast validate --runs FILE` prints the same
numbers by device, table and family.

{tables}
## Constants

The efficiencies of all kernels of exported graphs are fitted constants, because they were fitted on
these step times (`catalog/graphs/efficiencies.json`). With `--no-constants`, flopcast instead uses data
sheets and benchmarks of single kernels (`cost/graph_kernels/priors.py` names the source of each
number). Predictions of MLPerf's rows use no fitted constants.

For each device, we fitted two factors: one multiplies the compute rate of the device, and the other
multiplies its memory bandwidth. *Sigma* is the standard deviation of the logarithm of a predicted step
time, estimated from the scores with families left out.

{constants}
## Known properties of the errors

{remarks}"""
REMARKS = """\
### How far the scores can be trusted

- No score on this page is blind: we saw the residuals of these tables when we chose the classes of
  kernels and the mechanisms below.
- Before any fit on these tables, the first predictions had median errors of 22 % (NeuSight), 56 %
  (diffusion transformers) and 60 % (MLPerf).
- The tables contain only one device for training, one for compiled models, and one CPU. If such a
  device is left out, its predictions use benchmarks of single kernels.

### What the predictions contain

- flopcast assumes that the clock of a busy device is proportional to the fifth root of its board power
  per peak FLOP/s.
- The time of a memory-bound kernel is the time of its bytes plus the time of its instructions.
- In 16 bits, convolutions in NCHW layout transpose their images before and after the convolution kernel.
- PyTorch before 2.0 runs attention as two GEMMs and a softmax.
- In training, cuDNN's batch norm over images in NCHW reaches only about half of the rate that it reaches
  in NHWC. A benchmark of batch norms on an RTX 2070 SUPER, an A100 and a V100 shows this (the source is in
  `cost/graph_kernels/priors.py`). Without this mechanism, the error of training in NCHW with the device
  left out would be 22 % instead of 13 %.
- In training, the gradient of a tensor that is multiplied by a gate or a scale takes several kernels, and
  activations such as SiLU copy their input if they run in place (tools/autograd of PyTorch). Without these
  two mechanisms, the error of training in NHWC with the device left out would be 15 % instead of 12 %.
- For diffusion transformers, we chose two times after we had seen the measurements: 40 us of host time
  for each kernel (`host_s`), and 0.1 ms for each step of a ring and for each all-to-all (`hop_s`).
  Without these times, the predicted times for images are 51 % too short.
- On a CPU, each kernel takes a constant time of 30 us in addition to its work (`call_s`), because
  PyTorch calls each kernel of a compiled graph from Python. We chose this time after we had seen the
  measurements.
- xDiT's attention is FlashAttention-2, which uses the instructions of Ampere. In the measurements, B200
  is therefore only 1.2 to 1.4 times as fast as H100.
- Some operators of diffusion transformers run in fp32 (rotary embeddings, norms, SANA's linear
  attention). flopcast predicts each of these operators in fp32.
- The descriptions of models come from timm 1.0.31. For {changed} rows of the tables, timm no longer
  contains the same model. flopcast then uses the published multiply-adds and activations.

### Known causes of large errors

- If the device is left out, the predicted times are 18 % too long on the RTX 4090 and 15 % too short on
  the RTX Pro 6000 Max-Q. We do not know the cause.
- In training on the RTX 3090, kernels move bytes at 0.84 of the rate that they reach in inference. With
  the device left out, the predicted times are 5 to 8 % too short for vision transformers (ViT, DeiT), and
  15 % too short for EfficientNet. They are 71 % too short for RegNet and NFNet in NHWC: the rate of
  the gradients of grouped convolutions could not be fitted, because we found no measurements of them on
  other devices.
- On CPUs, without fitted constants, the median error is -57 to -60 %, because there are no benchmarks
  of single kernels on a CPU.
- Submissions of DLRM state the throughput of the whole run, which includes 20 evaluations per epoch. On
  two nodes, the predicted times are 15 % too short.
- In five submissions of RetinaNet, something other than the devices limits the speed. For example, a
  step with the same batch on 8 H200 takes 0.104 s in one submission and 0.832 s in another. We do not
  know the cause.
- flopcast does not predict R-GAT, because the submissions do not state where neighbours are sampled and
  where features are stored. """


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


if __name__ == "__main__":
    paths = [path for path in sorted(TABLES.iterdir()) if GRAPHS.holds(path)]
    runs = [run for path in paths for run in GRAPHS.read(path)]
    if "--fit" in sys.argv[1:]:
        write(CATALOGUE, fitted_efficiencies(runs))
        shipped_efficiencies.cache_clear()
    changed = sum(1 for run in runs if not run.facts and run.rows is None and run.source == "timm")
    remarks = REMARKS.format(changed=changed)
    PAGE.write_text(
        TEXT.format(tables=scores_table(runs), constants=constants_table(), remarks=remarks),
        encoding="utf-8",
    )
    sys.stdout.write("written: compare with git diff\n")
