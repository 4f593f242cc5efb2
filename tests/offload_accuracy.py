"""The accuracy of offload, out of predictions: `python tests/offload_accuracy.py` writes the page.

The page is docs/accuracy/offload.md. It takes half a minute, and names a command for each of its lines.
`python tests/offload_accuracy.py rates` fits the rates of the machines instead, and prints them. It takes
some minutes.
"""

import sys
from functools import cache, partial
from pathlib import Path

import numpy as np
import yaml

from flopcast.lab.measured_tables import OFFLOAD
from flopcast.lab.offload_runs.machines import LAYER_TIMES, machines
from flopcast.lab.offload_runs.nvme import run_of
from flopcast.lab.offload_runs.score import OF_DATA_SHEETS, Reports, part_estimates, score_runs
from flopcast.lab.run_tables import ReadOptions
from flopcast.lab.scores import statistics

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
PAGE = ROOT / "docs" / "accuracy" / "offload.md"
ON_HOST = "validation/zero3_offload_runs.csv"
ON_DRIVES = "data/offload/mlp_offload_log_phases.csv"
HEADLINE = "zero3_nvme_offload_40b_120b"
WAYS = (  # kind of score, option of the command, choice of constants
    ("fitted", "", "catalogue"),
    ("left out: model", "--leave-one-model-out", "model"),
    ("left out: folder", "--leave-one-source-out", "folder"),
    ("left out: device generation", "--leave-one-generation-out", "generation"),
    ("data sheets", "--no-constants", "none"),
)
HEADINGS = ("quantity", "score", "rows", "mean", "median", "p90", "bias", "inside 90 %")
TEXT = """# Accuracy of offload

This page compares predictions with measured runs that offload states to host memory or drives. For 162 runs
of DeepSpeed ZeRO-3 with offload to host memory, the median error of the iteration time is {model} if the
predicted model is left out of the fit, and {sheets} if nothing is fitted.

Each row of a table shows the errors of one measured quantity: the time of an iteration, of the forward pass
(`fwd`), of the backward pass (`bwd`), of the optimizer update, or of copies between drives and host
memory (`swap_in`, `swap_out`). The columns are:

- *score*: to which runs the constants were fitted. *Fitted*: all runs. *Left out*: all runs except
  those with the model, the data folder or the device generation of the predicted run. *Data sheets*:
  nothing was fitted.
- *mean*, *median*, *p90*: mean, median and 90th percentile of |predicted − measured| / measured.
- *bias*: median of predicted / measured, minus 1. It is negative if the predicted times are too short.
- *inside 90 %*: fraction of the measurements that lie in their predicted 90 % interval.

`python tests/offload_accuracy.py` writes this page. `flopcast validate --runs FILE` prints the same
numbers by machine, model and method.

{tables}
## Known properties of the errors

### How far the scores can be trusted

- No score on this page is [blind](overview.md). Even the first predictions of the 162 runs of
  `zero3_offload_runs.csv` used constants that other authors had fitted to these runs. The first mean
  errors were 17.3 % (iteration), 22.3 % (forward pass), 19.7 % (backward pass) and 40.0 % (update).
- For optimizer states on NVMe drives, the first predictions used a drive bandwidth that was fitted to the
  predicted runs. The mean errors of the update were 12 % (DeepSpeed) and 14 % (MLP-Offload).
- All scores are partly development scores, because we made these assumptions after we had seen the
  errors:
    - the kernels, the feed-forward layers, the heads and the vocabulary are those that the logs of the runs
      print, and not those of the published models;
    - in every micro-batch, DeepSpeed copies reduced gradients in 16 bits to pinned buffers on the host and
      back (`partition_grads` of DeepSpeed's ZeRO-3);
    - MLP-Offload copies gradients in 16 bits only;
    - if the device updates a part of the parameters, it does not copy the fp32 gradients of this part to
      the host;
    - DeepSpeed copies gradients to drives through pinned buffers;
    - one rank on a host updates parameters as fast as four ranks;
    - reductions of gradients do not overlap with kernels;
    - in each layer, the device waits for DeepSpeed's host code: 0.88 ms in the forward pass, and 2.9 ms in
      the backward pass.
- `python tests/offload_accuracy.py rates` prints the fitted rates of copies and updates on each machine.
  The rates are fitted to all runs except those with interleaved updates, in which host and device update
  parameters in turn. For the scores *left out*, all constants were fitted again, except the rates of the
  network and of pinned copies, and the host times for each layer and for each step.
- If a device generation is left out, flopcast multiplies the rates in the data sheets by fractions that
  were fitted to another generation: to A100 for predictions of H100, and to H100 for predictions of A100.
- For the score *data sheets*, flopcast assumes that copies reach the full bandwidth of their link, and
  that optimizer updates reach the full bandwidth of the memory.
- According to the logs of `zero3_offload_runs.csv`, all runs on several nodes and most runs on one node
  used the supercomputer Polaris. For the other runs, the logs state only how many cores and NUMA domains a
  node has. We assumed the other properties of these machines (lab/offload_runs/machines.py).

### Known causes of large errors

- With tensor parallelism on two nodes, the measured forward and backward passes take 24 to 50 % longer than
  predicted. Without overlap of all-gathers and kernels (`prefetch_units: 0` in the stack), the predicted
  times would be only 1 to 6 % too short. However, we found nothing in DeepSpeed's code or in the scripts of
  the runs that prevents this overlap, so flopcast still predicts it. Without tensor parallelism, the errors
  of the same model on two nodes are at most 7 %.
- With four tensor-parallel ranks and one replica on one node, the measured backward pass takes 80 % longer
  than predicted. We do not know why.
- For a 13B model with interleaved updates on one device of 40 GB, the measured backward pass takes up to
  80 % longer than predicted. A possible reason is that the memory of the device is nearly full: parameters
  alone need 22 GB.
- On Polaris, the measured updates take 2 to 15 % longer than predicted with one rank on a host, and 5 to
  10 % less time than predicted with four ranks. A possible reason is that flopcast assumes pinned memory,
  but DeepSpeed 0.13.3 copies new parameters from memory that is not pinned
  ([pull request 5301](https://github.com/deepspeedai/DeepSpeed/pull/5301)).
- For the runs with optimizer states on drives, the largest error of an update is 11 % (*left out*). This
  error is a development score, because we read the sizes of the feed-forward layers in the scripts of the
  runs after we had seen an error of 34 % with other sizes.
- For MLP-Offload, flopcast assumes that each rank keeps the states of 32 subgroups in host memory, because
  the scripts set 32 buffer slots. We assume that each buffer slot holds the states of one subgroup.
"""


@cache
def headline_runs(fitted=True):
    """Return the published runs with the optimizer on drives."""
    entries = yaml.safe_load((SHARED / "validation/headlines.yaml").read_text(encoding="utf-8"))
    if not isinstance(entries, list):
        entries = next(value for value in entries.values() if isinstance(value, list))
    block = next(entry for entry in entries if entry["id"] == HEADLINE)
    common = {"dp": "4", "tp": "1", "seq": "2048", "micro_batch": "1", "global_batch": "4"}
    runs = []
    for cells in block["rows"]:
        row = dict(zip(block["columns"], map(str, cells), strict=True)) | common
        shape = block["shapes"][int(row["model_b"])]
        row |= dict(zip(("layers", "hidden", "heads"), map(str, shape), strict=True))
        runs.append(run_of(row, fitted))
    return runs


def table_of(name, runs_of):
    """Return the Markdown table of one source; `runs_of(fitted)` are its runs."""
    rows = [f"## {name}\n", "| " + " | ".join(HEADINGS) + " |", "|---|---|" + "--:|" * (len(HEADINGS) - 2)]
    for kind, option, constants in WAYS:
        runs = runs_of(constants not in OF_DATA_SHEETS)
        if constants == "folder" and len({run.groups["folder"] for run in runs}) == 1:
            continue
        if constants == "generation" and len({run.groups["machine"] for run in runs}) == 1:
            continue
        scores = score_runs(runs, constants)
        for quantity, rows_of in by_quantity(scores.rows, name).items():
            line = line_of(quantity, f"{kind} (`{option}`)" if option else kind, statistics(rows_of))
            rows.append(line)
    return "\n".join(rows) + "\n"


def by_quantity(rows, name):
    """Return rows by measured quantity; by method as well on drives, whose methods differ in kind."""
    found = {}
    for row in rows:
        method = f", {row.run.groups['method']}" if HEADLINE in name else ""
        found.setdefault(f"`{row.measured.quantity}`{method}", []).append(row)
    return found


def line_of(quantity, kind, found):
    """Return a line of a table."""
    cells = [quantity, kind, f"{found['rows']:.0f}"]
    cells += [f"{found[name]:.1%}".replace("%", " %") for name in ("mean", "median", "p90")]
    cells += [f"{found['bias']:+.1%}".replace("%", " %"), f"{found['inside']:.0%}".replace("%", " %")]
    return "| " + " | ".join(cells) + " |"


TABLES = {
    "`zero3_offload_runs.csv`": lambda fitted: OFFLOAD.read(SHARED / ON_HOST, ReadOptions(fitted=fitted)),
    "`mlp_offload_log_phases.csv`": lambda fitted: OFFLOAD.read(
        SHARED / ON_DRIVES, ReadOptions(fitted=fitted)
    ),
    f"`{HEADLINE}`": headline_runs,
}

LAYERS = {  # times of a layer, and the parts on which they are fitted
    "forward_layer_s": ("forward",),
    "backward_layer_s": ("backward",),
}
RATES = {
    "network_bytes_per_s": ("forward", "backward"),
    "pinned_bytes_per_s": ("backward", "update"),
    "pageable_bytes_per_s": ("backward",),
    "optimizer_bytes_per_s": ("update",),
}
STEPS = ((0.8, 0.9, 1.1, 1.25), (0.94, 0.97, 1.03, 1.06), (0.99, 1.01))


def with_rates(job, rates, layers):
    """Return a job with these rates of its machine and times of each layer."""
    cluster, node = job.cluster, job.cluster.node
    memory = {name: rates[name] for name in ("pageable_bytes_per_s", "optimizer_bytes_per_s")}
    changed = {
        "memory": node.memory.model_copy(update=memory),
        "device": node.device.model_copy(update={"host_bytes_per_s": rates["pinned_bytes_per_s"]}),
    }
    group = cluster.groups[0].model_copy(update={"node": node.model_copy(update=changed)})
    inside, network = cluster.tiers
    network = network.model_copy(update={"bytes_per_s": rates["network_bytes_per_s"]})
    cluster = cluster.model_copy(update={"groups": (group,), "tiers": (inside, network)})
    offload = job.stack.offload.model_copy(update=layers)
    stack = job.stack.model_copy(update={"offload": offload})
    return job.model_copy(update={"cluster": cluster, "stack": stack})


def mean_error(runs, parts, rates, layers):
    """Return the mean |log(predicted / measured)| of some parts of the steps of runs."""
    reports, errors = Reports(), []
    for run in runs:
        job = with_rates(run.job, rates[run.groups["machine"]], layers)
        predicted = part_estimates(reports.of(job))
        measured = [each for each in run.measured if each.part in parts]
        errors += [abs(np.log(predicted[each.part].value / each.value)) for each in measured]
    return float(np.mean(errors))


def fitted_rates():
    """Return the rates of each machine and the times of a layer that fit best, one after the other.

    Runs with interleaved updates are left out, because constants of their own are fitted on them.
    """
    runs = OFFLOAD.read(SHARED / ON_HOST)
    found = [run for run in runs if run.groups["method"] != "interleaved"]
    by_machine = {name: [run for run in found if run.groups["machine"] == name] for name in machines()}
    rates = {
        name: {rate: getattr(machine, rate) for rate in RATES}
        for name, machine in machines().items()
        if by_machine[name]
    }
    layers = {name: float(time.removesuffix(" ms")) / 1e3 for name, time in LAYER_TIMES.items()}
    for steps in STEPS:
        for name, parts in LAYERS.items():
            improve(layers, name, steps, partial(mean_error, found, parts, rates, layers))
        for machine, mine in rates.items():
            its_runs = by_machine[machine]
            clusters = [run.job.cluster for run in its_runs]
            several = any(cluster.num_devices > cluster.node.devices for cluster in clusters)
            for name, parts in RATES.items():
                if several or name != "network_bytes_per_s":
                    improve(mine, name, steps, partial(mean_error, its_runs, parts, rates, layers))
    return rates, layers


def improve(values, name, steps, error):
    """Multiply a value by that of some factors with which the error is least, if it becomes smaller."""
    before = values[name]
    errors = {before: error()}
    for step in steps:
        values[name] = before * step
        errors[values[name]] = error()
    values[name] = min(errors, key=errors.get)


def print_rates():
    """Print what `fitted_rates` finds."""
    rates, layers = fitted_rates()
    for machine, mine in rates.items():
        values = ", ".join(f"{name} {value / 1e9:.3g} GB/s" for name, value in mine.items())
        sys.stdout.write(f"{machine}: {values}\n")
    sys.stdout.write(", ".join(f"{name} {1e3 * value:.2g} ms" for name, value in layers.items()) + "\n")


if __name__ == "__main__":
    if "rates" in sys.argv[1:]:
        print_rates()
        sys.exit()
    tables = "\n".join(table_of(name, runs_of) for name, runs_of in TABLES.items())
    medians = {
        name: next(line.split(" | ")[4] for line in tables.splitlines() if f"| {score} (" in line)
        for name, score in (("model", "left out: model"), ("sheets", "data sheets"))
    }
    PAGE.write_text(TEXT.format(tables=tables, **medians), encoding="utf-8")
    sys.stdout.write("written: compare with git diff\n")
