"""Tables of timm: what their names and rows say, and how far predictions are from them."""

import csv
import gzip
import math
from pathlib import Path

import pytest

from flopcast.errors import SpecError
from flopcast.lab.graph_runs.facts import timm_facts
from flopcast.lab.graph_runs.kernels import Software, graph_kernels
from flopcast.lab.graph_runs.score import score_runs
from flopcast.lab.measured_tables import GRAPHS
from flopcast.lab.scores import statistics
from flopcast.library.graph_efficiencies import shipped_efficiencies
from flopcast.records import replace

NAME = "timm_benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv"
RESNET = {
    "model": "resnet50",
    "infer_img_size": "224",
    "infer_samples_per_sec": "2500",
    "infer_step_time": "409.6",
    "infer_batch_size": "1024",
    "param_count": "25.56",
    "infer_gmacs": "4.11",
    "infer_macts": "11.11",
}


def table(path, *rows):
    """Write a table and return its path."""
    opened = gzip.open if path.suffix == ".gz" else Path.open
    with opened(path, "wt", encoding="utf-8", newline="") as file:
        written = csv.DictWriter(file, RESNET)
        written.writeheader()
        written.writerows(rows)
    return path


def test_a_table_is_read_plain_and_packed_and_its_name_says_the_device(tmp_path):
    for name in (NAME, NAME + ".gz"):
        path = table(tmp_path / name, RESNET)

        (run,) = GRAPHS.read(path)

        assert GRAPHS.holds(path)
        assert (run.facts, run.batch, run.setup.device) == ("resnet50@224", 1024, "rtx-3090-24gb")
        assert [(each.quantity, each.unit, each.value) for each in run.measured] == [
            ("infer_step_time", "ms", 409.6),
            ("infer_samples_per_sec", "samples/s", 2500.0),
        ]


def test_a_table_whose_name_says_nothing_asks_for_options(tmp_path):
    with pytest.raises(SpecError, match="--device"):
        GRAPHS.read(table(tmp_path / "mine.csv", RESNET))


def test_time_and_throughput_of_a_row_are_predicted_as_one_number(tmp_path):
    rows = score_runs(GRAPHS.read(table(tmp_path / NAME, RESNET))).rows

    time_s, per_s = (row.predicted for row in rows)

    assert per_s.value == pytest.approx(1024 / (time_s.value / 1e3))
    assert per_s.low < per_s.value < per_s.high


def test_models_without_facts_are_predicted_by_their_sums_or_left_out_with_a_reason(tmp_path):
    unknown = RESNET | {"model": "nosuchnet"}
    changed = RESNET | {"param_count": "12.5"}
    uncounted = unknown | {"infer_gmacs": "", "infer_macts": ""}
    scores = score_runs(GRAPHS.read(table(tmp_path / NAME, unknown, changed, uncounted, RESNET)))

    by_sums, _, exact = scores.rows[0::2]

    assert [run.reason.split(",")[0] for run in scores.left_out] == [
        "flopcast does not know the operators of this model"
    ]
    width = [math.log(row.predicted.high / row.predicted.low) for row in (by_sums, exact)]
    assert width[0] > 1.5 * width[1]
    assert 0.5 < by_sums.predicted.value / exact.predicted.value < 2.0


def test_facts_have_the_multiply_adds_that_papers_print():
    published = {  # giga-multiply-adds of one image; arXiv:1512.03385, 2010.11929, 1905.11946, 2201.03545
        "resnet50@224": 4.1,
        "vit_base_patch16_224@224": 17.6,
        "efficientnet_b0@224": 0.39,
        "convnext_tiny@224": 4.5,
        "vgg16@224": 15.5,
    }
    rows = graph_kernels(timm_facts(), list(published), [1.0] * len(published), Software(precision="half"))
    is_product = rows.coordinates[:, 0] > 0

    for place, (name, giga) in enumerate(published.items()):
        own = (rows.graph == place) & is_product
        counted = float((rows.flop * rows.calls)[own].sum()) / 2e9
        assert counted == pytest.approx(giga, rel=0.05), name


def test_kernels_are_proportional_to_the_batch_and_training_has_three_times_the_products():
    facts, names = timm_facts(), ["resnet50@224", "resnet50@224"]
    infers = graph_kernels(facts, names, [1.0, 64.0], Software())
    trains = graph_kernels(facts, names[:1], [64.0], Software(trains=True))

    def product_flop(rows, graph):
        own = (rows.graph == graph) & (rows.coordinates[:, 0] > 0)
        return float((rows.flop * rows.calls)[own].sum())

    assert product_flop(infers, 1) == pytest.approx(64 * product_flop(infers, 0), rel=1e-12)
    assert product_flop(trains, 0) == pytest.approx(3 * product_flop(infers, 1), rel=1e-12)


def test_compiled_models_move_fewer_bytes_and_run_fewer_kernels():
    facts = timm_facts()
    for name in ("resnet50@224", "vit_base_patch16_224@224", "swin_tiny_patch4_window7_224@224"):
        eager = graph_kernels(facts, [name], [64.0], Software(precision="half"))
        compiled = graph_kernels(facts, [name], [64.0], Software(precision="half", compiled=True))

        assert compiled.calls.sum() < eager.calls.sum(), name
        assert (compiled.moved_bytes * compiled.calls).sum() < (eager.moved_bytes * eager.calls).sum(), name


def test_median_errors_of_measured_tables_are_within_their_targets(shared):
    targets = {"infer-amp-nchw-pt240-cu124-rtx3090": 0.12, "train-amp-nchw-pt112-cu113-rtx3090": 0.12}
    for name, most in targets.items():
        path = shared / "data" / "graphs" / f"timm_benchmark-{name}.csv.gz"
        rows = [row for row in score_runs(GRAPHS.read(path)).rows if row.measured.unit == "ms"]

        assert len(rows) > 650
        assert statistics(rows)["median"] < most, name


def test_every_kind_of_software_states_what_it_was_fitted_on_and_how_sure_it_is():
    for kind, each in shipped_efficiencies().items():
        assert each.sources, kind
        assert each.rows > 30, kind
        assert 0.05 < each.log_sigma_factor <= each.other_device_log_sigma_factor, kind


def test_a_cpu_moves_the_weights_of_convolutions_three_times_more():
    """A kernel before each convolution reads them, loads the lines of blocks, and writes the blocks."""
    usual = Software(precision="fp32", compiled=True)
    moved = [
        rows.moved_bytes @ rows.calls
        for rows in (
            graph_kernels(timm_facts(), ["resnet50@224"], [1.0], software)
            for software in (usual, replace(usual, reorders_weights=True))
        )
    ]
    weights = timm_facts().models["resnet50@224"].parameters - 1000 * 2049 - 2 * 26560  # no head, no norms

    assert moved[1] - moved[0] == pytest.approx(3 * 4 * weights)
