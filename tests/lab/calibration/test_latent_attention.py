"""Latent attention and products of V100 in others' tables: conventions, and the curves that they give."""

import numpy as np
import pytest

from flopcast.cost.kernels.fallback_classes import FALLBACK_CLASSES
from flopcast.lab.calibration import peer_fit
from flopcast.lab.calibration.curve_fit import as_plans, predicted_s
from flopcast.lab.calibration.peer_tables import samples_of
from flopcast.lab.calibration.source_agreement import disagreement
from flopcast.lab.samples.columns import read_columns
from flopcast.library import catalog

MLA_TABLE = "aiconfigurator/mla_prefill_bf16.csv.gz"
SIMUMAX = "simumax/attention_efficiency.csv"
INFERSIM = "infersim/mla_prefill.csv"
V100_TABLE = "apex/gemm_v100_fp16.csv.gz"
LATENT = {
    file.path + file.name.removeprefix("flash_attention.latent"): file
    for file in peer_fit.PEER_FILES
    if file.name.startswith("flash_attention.latent")
}
MEASURED = sorted(LATENT[MLA_TABLE].devices.values())
IN_RANGE = 0.09  # median error of rows kept aside
PAIR_FLOP = 2 * (192 + 128)  # of one query, key and head: two products, arXiv:2412.19437, section 4.2


@pytest.fixture(scope="module")
def tables(shared):
    """Columns of the tables with latent heads, by path."""
    return {
        path: read_columns(shared / "data" / "peers" / path).columns
        for path in (MLA_TABLE, SIMUMAX, INFERSIM)
    }


@pytest.fixture(scope="module")
def found(tables):
    """Samples by device, class and source."""
    return {
        name: peer_fit.device_samples(catalog.device(name), tables)
        for name in (*MEASURED, "a100-pcie-80gb", "h800-sxm-80gb")
    }


@pytest.fixture(scope="module")
def v100(shared):
    """Columns of the products of V100 on PCIe."""
    return read_columns(shared / "data" / "peers" / V100_TABLE).columns


def one_row(**values):
    """Columns of a table of one row."""
    return {name: np.array([float(value)]) for name, value in values.items()}


def log_errors(curve, samples, device):
    return np.log(predicted_s(curve, samples, device) / samples.measured_s)


# What rows say


def test_a_row_of_the_sweep_is_attention_over_heads_of_two_sizes():
    """16 heads, two sequences of 4096 tokens: half of 2 · 16 · 4096² pairs, 640 FLOP each."""
    row = one_row(num_heads=16, batch_size=2, seq_len=4096)

    operator = LATENT[MLA_TABLE].operator(row)

    assert operator.work().flop.item() == 2 * 16 * 4096**2 / 2 * PAIR_FLOP
    assert operator.coordinates()[1].item() == 160


def test_only_kernels_that_get_keys_and_values_ready_are_taken(tables):
    """vllm's rows make them out of the latents too; the table names the framework."""
    columns = tables[MLA_TABLE]

    rows = LATENT[MLA_TABLE].belongs(columns)

    assert columns["framework_name=trtllm"][rows].all()
    assert columns["seq_len"][rows].min() == 512


def test_what_vllm_does_besides_grows_with_tokens_and_not_with_their_square(tables):
    """H100, 128 heads, 1024 tokens: a projection as large as the attention makes 1.7 of its time."""
    columns = tables[MLA_TABLE]
    here = (columns["system=h100_sxm"] == 1) & (columns["num_heads"] == 128)
    here &= (columns["batch_size"] == 1) & (columns["seq_len"] == 1024)

    (vllm,), (trtllm,) = (
        columns["latency_ms"][here & (columns[f"framework_name={name}"] == 1)]
        for name in ("vllm", "trtllm")
    )

    assert 1.5 < vllm / trtllm < 2.0


@pytest.mark.parametrize("name", MEASURED)
def test_no_latent_kernel_beats_the_peak_of_its_device(found, name):
    """All rows are possible; over 8192 tokens and more, 16 heads and more reach 0.3 to 0.7 of it."""
    samples = found[name]["flash_attention.latent"]["aiconfigurator"]
    large = (samples.coordinates[0] >= 8192 * 0.5**0.5) & (samples.coordinates[2] >= 16)

    reached = (samples.bound_s / samples.measured_s)[large]

    assert samples.rejected == 0
    assert reached.min() > 0.3
    assert reached.max() < 0.72


@pytest.mark.parametrize(
    ("which", "elements", "efficiency"),
    [("", 2 * (192 + 128), 0.885283), (".backward", 5 * (192 + 128), 0.608577)],
)
def test_simumax_counts_both_sizes_in_every_product_and_the_whole_square(which, elements, efficiency):
    """B200, 64 heads over 4096 tokens: its benchmark divides 2 and 5 times 64 · 4096² · 320 by the time."""
    row = one_row(batch=1, seq_len=4096, head_num=64, efficiency=efficiency, peak_tflops=2250)

    seconds = LATENT[SIMUMAX + which].measured_s(row).item()

    assert seconds == pytest.approx(64 * 4096**2 * elements / (efficiency * 2250e12), rel=1e-12)


def test_a_backward_of_simumax_has_three_wide_products_and_two_narrow_ones():
    row = one_row(batch=1, seq_len=4096, head_num=64)

    flop = LATENT[SIMUMAX + ".backward"].operator(row).work().flop.item()

    assert flop == 64 * 4096**2 / 2 * 2 * (3 * 192 + 2 * 128)


def test_fractions_of_infersim_count_half_of_the_square_at_the_16_bit_peak(tables):
    """Rows of H800 say both time and fraction: 0.583 to 0.629 of 989 TFLOP/s from 4096 tokens on."""
    columns = tables[INFERSIM]
    operator = LATENT[INFERSIM].operator(columns)

    fractions = operator.work().flop.ravel() / (columns["latency_us"] * 1e-6) / 989e12

    assert fractions.tolist() == pytest.approx(columns["mfu"].tolist(), rel=0.01)


def test_each_table_gives_a_device_the_rows_that_it_holds(found):
    """Counted in the files with awk: 4 shapes of A100 on PCIe, 10 rows of B200, 5 lengths of H800."""
    counts = {
        (name, kind, source): samples.measured_s.size
        for name in ("a100-pcie-80gb", "b200-sxm-180gb", "h800-sxm-80gb")
        for kind, by_source in found[name].items()
        if "latent" in kind
        for source, samples in by_source.items()
    }

    assert counts == {
        ("a100-pcie-80gb", "flash_attention.latent", "simumax"): 4,
        ("a100-pcie-80gb", "flash_attention.latent.backward", "simumax"): 4,
        ("b200-sxm-180gb", "flash_attention.latent", "aiconfigurator"): 448,
        ("b200-sxm-180gb", "flash_attention.latent", "simumax"): 10,
        ("b200-sxm-180gb", "flash_attention.latent.backward", "simumax"): 10,
        ("h800-sxm-80gb", "flash_attention.latent", "infersim"): 5,
    }


# Curves


@pytest.fixture(scope="module")
def fits(tables):
    """Curves of the latent classes by device, and what is told."""
    return {
        name: peer_fit.fit_peers(catalog.device(name), tables)
        for name in (*MEASURED, "a100-pcie-80gb", "h800-sxm-80gb")
    }


@pytest.mark.parametrize("name", MEASURED)
def test_every_device_of_the_sweep_gets_a_curve_that_tells_its_rows_and_error(fits, name):
    evidence = fits[name].curves["flash_attention.latent"].evidence

    assert evidence.rows >= 448
    assert evidence.rejected == 0
    assert evidence.relative_error < 0.1
    assert evidence.relative_error <= evidence.log_sigma_factor


@pytest.mark.parametrize("name", MEASURED)
def test_rows_kept_aside_are_predicted(found, tables, name):
    """Every fourth row is taken out of the table before the fit."""
    device = catalog.device(name)
    table = tables[MLA_TABLE]
    aside = np.arange(len(table["seq_len"])) % 4 == 1
    kept = {word: values[~aside] for word, values in table.items()}
    left = {word: values[aside] for word, values in table.items()}
    (mark,) = [mark for mark, owner in LATENT[MLA_TABLE].devices.items() if owner == name]

    curve = peer_fit.fit_peers(device, {MLA_TABLE: kept}).curves["flash_attention.latent"]

    samples = samples_of(LATENT[MLA_TABLE], left, mark, device)
    assert samples.measured_s.size > 100
    assert np.median(np.abs(log_errors(curve, samples, device))) <= IN_RANGE


def test_training_and_serving_kernels_of_b200_agree_on_latent_heads(found):
    """MooreThreads/SimuMax beside aiconfigurator: two projects, two frameworks, one time within 5 %."""
    by_source = found["b200-sxm-180gb"]["flash_attention.latent"]

    apart = disagreement(by_source["aiconfigurator"], by_source["simumax"])

    assert apart.shared >= 8
    assert apart.agrees
    assert apart.bias_ratio == pytest.approx(1.0, abs=0.05)


def test_the_curve_of_h100_prices_what_another_project_measured_on_h800(fits, found):
    """The same die, 128 heads (alibaba/InferSim), never seen by the fit: 6 % over 8192 tokens and more.

    Shorter rows of H100 hold what its kernel does besides: it rotates, and writes a cache.
    """
    device, rows = catalog.device("h800-sxm-80gb"), found["h800-sxm-80gb"]["flash_attention.latent"]
    curve = fits["h100-sxm5-80gb"].curves["flash_attention.latent"]

    errors = log_errors(curve, rows["infersim"], device)

    assert np.abs(errors[2:]).max() < 0.06
    assert 0.0 < errors[:2].min() <= errors[:2].max() < 0.18


def test_the_curve_of_a100_prices_the_training_kernel_on_the_pcie_kind(fits, found):
    """MooreThreads/SimuMax, 16 to 128 heads: a sixth faster at most."""
    device, rows = catalog.device("a100-pcie-80gb"), found["a100-pcie-80gb"]["flash_attention.latent"]
    curve = fits["a100-sxm4-80gb"].curves["flash_attention.latent"]

    errors = log_errors(curve, rows["simumax"], device)

    assert (errors > -0.02).all()
    assert errors.max() < 0.18


@pytest.mark.parametrize("name", ["a100-pcie-80gb", "h800-sxm-80gb"])
def test_a_handful_of_shapes_makes_no_curve(fits, name):
    assert fits[name].curves == {}
    assert any("rows are too few for a curve" in line for line in fits[name].messages)


def test_the_backward_of_b200_is_too_few_rows_and_borrows_heads_of_one_size(fits):
    fit = fits["b200-sxm-180gb"]

    assert "b200-sxm-180gb flash_attention.latent.backward: 10 rows are too few for a curve" in fit.messages
    assert peer_fit.FEWEST_ROWS > 10
    assert FALLBACK_CLASSES["flash_attention.latent.backward"].name in fit.curves


@pytest.mark.parametrize(("op", "kind"), [("sdp_fwd", ""), ("sdp_bwd", ".backward")])
def test_what_borrowing_adds_is_the_spread_between_heads_of_both_kinds(tables, op, kind):
    """Of log(efficiency of 192 and 128 / of 128), as many heads and tokens, around the stated ratio.

    The backward's spread is that of one library's releases only: more is stated, up to 0.05.
    """
    columns = tables[SIMUMAX]
    rows = as_plans({word: values[columns[f"op={op}"] == 1] for word, values in columns.items()})
    counted = (3 * 192 + 2 * 128) / (5 * (192 + 128) / 2) if kind else 1.0  # FLOP over those of the table
    is_latent = rows["qk_head_dim"] > rows["v_head_dim"]
    alike = (rows["head_num"] == rows["head_num"].T) & (rows["seq_len"] == rows["seq_len"].T)
    alike &= rows["system=b200_bf16_ceperm"] == rows["system=b200_bf16_ceperm"].T
    pairs = [
        np.log(
            counted
            * rows["efficiency"][row, 0]
            / np.median(rows["efficiency"][alike[row] & ~is_latent[:, 0]])
        )
        for row in np.flatnonzero(is_latent)
        if (alike[row] & ~is_latent[:, 0]).any()
    ]

    stated = FALLBACK_CLASSES[f"flash_attention.latent{kind}"]
    left = np.array(pairs) + np.log(stated.time_ratio)
    more = 0.05 if kind else 0.006

    assert len(pairs) == 11
    assert -0.006 <= stated.log_sigma_factor - np.sqrt(np.mean(np.square(left))) <= more
    assert not kind or np.mean(left) == pytest.approx(0.0, abs=0.03)


# Products of V100 on PCIe


def test_products_of_v100_are_read_whole_and_in_microseconds(v100):
    """36 608 rows, 15 936 of them with 512 and more on every side: counted in the file with awk."""
    (file,) = [file for file in peer_fit.PEER_FILES if file.path == V100_TABLE]
    device = catalog.device("v100-pcie-16gb")

    samples = samples_of(file, v100, "gpu=V100-PCIE-16GB", device)

    assert len(v100["m"]) == 36608
    assert samples.measured_s.size == 15936
    assert samples.rejected == 0
    assert (samples.coordinates.min(axis=1) == 512).all()


def test_large_products_of_v100_reach_three_quarters_of_112_tflops(v100):
    large = (v100["m"] >= 4096) & (v100["n"] >= 4096) & (v100["k"] >= 4096)
    flop = 2 * v100["m"] * v100["n"] * v100["k"]

    reached = (flop / (v100["time_us"] * 1e-6) / 112e12)[large]

    assert np.median(reached) == pytest.approx(0.74, abs=0.02)
    assert reached.max() < 0.9


def test_products_of_v100_kept_aside_are_predicted(v100):
    aside = np.arange(len(v100["m"])) % 5 == 2
    device = catalog.device("v100-pcie-16gb")
    (file,) = [file for file in peer_fit.PEER_FILES if file.path == V100_TABLE]
    kept = {name: values[~aside] for name, values in v100.items()}
    left = {name: values[aside] for name, values in v100.items()}

    curve = peer_fit.fit_peers(device, {V100_TABLE: kept}).curves["gemm"]

    samples = samples_of(file, left, "gpu=V100-PCIE-16GB", device)
    assert np.median(np.abs(log_errors(curve, samples, device))) < 0.03


@pytest.mark.parametrize("name", ["v100-sxm2-16gb", "v100-sxm2-32gb"])
def test_a_v100_on_nvlink_borrows_from_the_one_on_pcie(name):
    assert catalog.device(name).relatives[0] == "v100-pcie-16gb"
