"""The accuracy of offload, out of predictions: `python tests/offload_accuracy.py` writes the page.

The page is docs/accuracy/offload.md. It takes half a minute, and names a command for each of its lines.
"""

import sys
from pathlib import Path

import yaml

from flopcast.lab.measured_tables import OFFLOAD
from flopcast.lab.offload_runs.nvme import run_of
from flopcast.lab.offload_runs.score import OF_DATA_SHEETS, score_runs
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

This page compares predictions with measured runs that offload states to host memory or drives. Each row
of a table shows the errors of one measured quantity: the time of an iteration, of the forward pass
(`fwd`), of the backward pass (`bwd`), of the optimizer update, or of copies between drives and host
memory (`swap_in`, `swap_out`). The columns are:

- *score*: the runs on which the constants were fitted. A *fitted* prediction uses constants that were
  fitted on all runs. For *left out*, the fit excluded the model, the data folder or the device generation
  of the predicted run. For *data sheets*, nothing was fitted.
- *mean*, *median*, *p90*: mean, median and 90th percentile of |predicted − measured| / measured.
- *bias*: median of predicted / measured, minus 1; negative if the predicted times are too short.
- *inside 90 %*: fraction of the measurements that lie in their predicted 90 % interval.

`python tests/offload_accuracy.py` writes this page. `flopcast validate --runs FILE` prints the same
numbers by machine, model and method.

{tables}
## Known properties of the errors

### How far the scores can be trusted

- No score on this page is blind. Even the first predictions of the 162 runs of
  `zero3_offload_runs.csv` used constants that other authors had fitted on these runs. The mean errors of
  the first predictions were 17.3 % (iteration), 22.3 % (forward pass), 19.7 % (backward pass) and
  40.0 % (update).
- For optimizer states on NVMe drives, the first predictions used a drive bandwidth that was fitted to the
  predicted runs. The mean errors of the update were 12 % (DeepSpeed) and 14 % (MLP-Offload).
- All scores are partly development scores, because we made these assumptions after we had seen the
  errors:
    - if the device updates a part of the parameters, it does not copy their gradients to the host;
    - DeepSpeed copies gradients to drives through pinned buffers;
    - one rank on a host updates parameters as fast as four ranks;
    - reductions of gradients do not overlap with kernels;
    - in each layer, the device waits for DeepSpeed's host code: 1.1 ms in the forward pass, and 4 ms in
      the backward pass.
- For the scores *left out*, we fitted all constants again, except the host times for each layer and for
  each step.
- If a device generation is left out, flopcast multiplies the rates in the data sheets by fractions that
  were fitted on another generation: on A100 for predictions of H100, and on H100 for predictions of A100.
- For the score *data sheets*, flopcast assumes that copies reach the full bandwidth of their link, and
  that optimizer updates reach the full bandwidth of the memory.
- The tables do not state the hosts, networks and drives of the measured machines, so we assumed them
  (lab/offload_runs/machines.py).

### Known causes of large errors

- If a tensor-parallel group spans two nodes and there are two or four replicas, the measured forward and
  backward passes take 20 to 50 % longer than predicted, because several rings share one network card.
- For a 13B model on one device, the measured backward pass is up to 90 % longer with interleaved updates
  than with updates on the host. flopcast does not predict this slowdown of the backward pass.
- Until 29 November 2026, we assumed that the feed-forward layers in the runs with optimizer states on
  drives were four times as wide as the hidden size. With the sizes in the scripts of the runs, the largest
  error of an update fell from 34 % to 11 % (*left out*). We had seen these errors before, so these scores
  are development scores.
- For MLP-Offload, flopcast assumes that each rank keeps the states of 32 subgroups in host memory, because
  the scripts set 32 buffer slots. We assume that a slot holds the states of one subgroup.
- The models of `zero3_offload_runs.csv` are larger in flopcast than in the logs of the runs. The logs state
  four heads of keys and values, the vocabulary of GPT-2, no FlashAttention, and on the nodes of Polaris the
  default size of the feed-forward layers. The model called 13B then has 11.2 billion parameters. The
  fitted rates of the machines hide this difference: with the smaller models and the same rates, the
  predicted iterations are 11 % too short.
"""


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

if __name__ == "__main__":
    tables = "\n".join(table_of(name, runs_of) for name, runs_of in TABLES.items())
    PAGE.write_text(TEXT.format(tables=tables), encoding="utf-8")
    sys.stdout.write("written: compare with git diff\n")
