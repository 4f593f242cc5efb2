"""Flux (arXiv:2406.06858): products that are fused with gathers and scatters, and their file."""

import json

import pytest
import yaml
from all_cases import all_cases
from command_line import flopcast

from flopcast.lab.fused_products import score_fused_products
from flopcast.lab.measured_tables import FUSED_PRODUCTS

BLOCKS = {  # two dense rows and two of experts, as in the measured file
    "dense": {
        "columns": ["op", "flux_total"],
        "rows": [["all_gather+gemm", 5.903], ["gemm+reduce_scatter", 5.730]],
    },
    "moe": {
        "columns": ["experts", "topk", "tp", "ep", "layer", "gpu", "flux"],
        "rows": [[32, 4, 8, 1, 0, "L20", 7.813], [32, 4, 4, 2, 1, "H800", 1.685]],
    },
}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("flux") / "flux.yaml"
    path.write_text(yaml.safe_dump(BLOCKS), encoding="utf-8")
    return path


def test_a_row_is_a_product_of_a_rank_and_a_message_of_all_rows(table):
    first, second, gathered, scattered = FUSED_PRODUCTS.read(table)

    assert [run.product.work().flop.item() for run in (first, second)] == [2 * 4096 * 12288 * 49152 / 8] * 2
    assert [run.message.collective for run in (first, second)] == ["all_gather", "reduce_scatter"]
    assert first.message.message_bytes.item() == 2 * 4096 * 12288
    # each token goes to four experts, whose columns are on `tp` ranks, whose weights on `ep` groups
    assert gathered.product.work().flop.item() == 2 * 8192 * 4 * 8192 * 8192 / 8
    assert scattered.product.groups.item() == 16
    assert scattered.product.work().flop.item() == gathered.product.work().flop.item()


def test_the_command_prints_dense_products_within_12_percent(table):
    ended = flopcast("validate", "--runs", table, "--json")

    rows = json.loads(ended.out)["published"]["rows"]
    assert ended.code == 0
    assert len(rows) == 4
    assert {"id", "source", "quantity", "unit", "measured", "predicted", "low", "high"} == rows[0].keys()
    for row in rows[:2]:
        assert row["predicted"] == pytest.approx(row["measured"], rel=0.12)
    assert all(row["low"] < row["measured"] < row["high"] for row in rows)


def test_all_measured_rows_but_one_are_inside_their_intervals(shared):
    """Products of experts are left as they are: their kernels, not the overlap, differ by up to 80 %."""
    scores = score_fused_products(FUSED_PRODUCTS.read(shared / "data/overlap/flux_gemm_comm.yaml"))

    dense = [row for row in scores.rows if row.run.groups["product"] == "dense"]
    assert len(scores.rows) == 10
    assert all(abs(row.relative_error) < 0.12 for row in dense)
    assert sum(row.is_inside for row in scores.rows) >= 9


@all_cases("left_out", ["dense", "moe"])
def test_other_files_are_other_tables(left_out, tmp_path):
    path = tmp_path / "other.yaml"
    path.write_text(yaml.safe_dump({k: v for k, v in BLOCKS.items() if k != left_out}), encoding="utf-8")

    assert not FUSED_PRODUCTS.holds(path)
    assert FUSED_PRODUCTS.read(path) == ()


def test_rows_are_not_left_out_of_fits_that_there_are_not(table):
    ended = flopcast("validate", "--runs", table, "--leave-one-model-out")

    assert ended.code == 1
    assert "nothing is fitted to these rows" in ended.err
