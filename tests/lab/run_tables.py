"""A made-up table of one run, in the columns of published tables."""

import csv

from flopcast.lab.published.headers import PUBLISHED as HEADER
from flopcast.lab.published.table import read_table
from flopcast.lab.validation.run import Run

PUBLISHED = [*HEADER.columns, *HEADER.derived, "intra_node_link", "evidence", "full_config"]
VTRAIN = "params_b,num_gpus,global_batch,micro_batch,hidden,heads,layers,seq_len,tp,dp,pp,iteration_ms"
ROW = {  # 22B of arXiv:2205.05198, in numbers of our own
    "id": "made-up-001",
    "source_key": "made-up",
    "kind": "train",
    "model_name": "GPT 22B",
    "layers": "48.0",
    "hidden": "6144.0",
    "ffn_hidden": "24576.0",
    "heads": "64.0",
    "kv_heads": "64.0",
    "vocab": "51200.0",
    "seq_len": "2048.0",
    "gated_mlp": "False",
    "gpu_model": "A100-80GB",
    "num_gpus": "8.0",
    "tp": "4.0",
    "pp": "2.0",
    "dp": "1.0",
    "micro_batch": "4.0",
    "global_batch": "16.0",
    "recompute": "full",
    "framework": "Megatron-LM",
    "year": "2022",
    "step_time_s": "4.0",
}


def run(**facts):
    """A run of which these facts are known."""
    return Run(id="a", source="somebody", **facts)


def row_of(**changes):
    """A row, some of its cells changed."""
    return dict.fromkeys(PUBLISHED, "") | ROW | changes


def written(folder, rows, name="runs.csv"):
    """A file of rows."""
    path = folder / name
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def run_in(folder, **changes):
    """The row with some of its cells changed, written into a folder and read back as a run."""
    return read_table(written(folder, [row_of(**changes)])).runs[0]
