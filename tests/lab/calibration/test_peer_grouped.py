"""Tables of grouped products: what their rows mean, which are left out, and what imbalance costs."""

from dataclasses import replace

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.cost.kernels.curve import log_efficiency
from flopcast.lab.calibration.peer_columns import expected_imbalance
from flopcast.lab.calibration.peer_fit import SKEW, device_samples, fit_peer_curve, fit_peers
from flopcast.lab.calibration.peer_tables import faults_of, peer_files
from flopcast.lab.calibration.samples import Samples
from flopcast.library import catalog

GROUPED_FILES = [file for file in peer_files("training") if file.name.startswith("grouped")]
LAYERS = "aiconfigurator/moe_fused_experts.csv.gz"
TRAINING = "simumax/grouped_gemm_efficiency.csv"
SERVING = "infersim/grouped_gemm_prefill.csv"
WORDS = ("bfloat16", "fp8", "fp8_block", "nvfp4")
LAYER = next(file for file in GROUPED_FILES if (file.path, file.name) == (LAYERS, "grouped_gemm"))


def samples_on(device, name, path, table):
    """The samples of one class in one table on one device, from its one source."""
    (samples,) = device_samples(catalog.device(device), {path: table})[name].values()
    return samples


def columns(**values):
    return {name: np.array(value, dtype=float) for name, value in values.items()}


def layers(count, **changes):
    """Balanced bf16 layers of eight experts on an H100, one rank, 4096 tokens, two experts each."""
    plain = {"num_tokens": 4096, "hidden_size": 4096, "inter_size": 14336, "topk": 2, "num_experts": 8}
    plain |= {"moe_tp_size": 1, "moe_ep_size": 1, "latency_ms": 20.0}
    table = columns(**{name: [value] * count for name, value in plain.items()})
    words = {"system=h100_sxm": 1, "distribution=balanced": 1, "distribution=power_law_1.2": 0}
    words |= {f"dtype={word}": float(word == "bfloat16") for word in WORDS}
    return {**table, **columns(**{name: [value] * count for name, value in words.items()}), **changes}


def training(stage, efficiency):
    """Rows of simumax's table on a B200: 40 groups of 616 rows."""
    table = columns(ng=[40], M=[616], N=[3072], K=[5120], peak_tflops=[2250], efficiency=[efficiency])
    stages = {f"stage={name}": np.array([float(name == stage)]) for name in STAGES}
    return {**table, **stages, "system=b200_bf16_ceperm": np.ones(1), "system=a100_pcie": np.zeros(1)}


STAGES = ("fwd", "bwd_grad_act", "bwd_grad_w")


@all_cases("law", [1.01, 1.2])
@all_cases(("experts", "top_k"), [(64, 2), (128, 8), (256, 8)])
def test_the_expected_imbalance_is_the_median_of_drawn_loads(law, experts, top_k):
    tokens = 4096
    low, high = 1.0, (0.8 * tokens) ** (1 - law)
    draws = np.random.default_rng(0).random((4000, experts))
    loads = (low + (high - low) * draws) ** (1 / (1 - law))
    ratio = np.median(loads.max(axis=1) / loads.mean(axis=1))

    one = np.ones(1)
    expected = expected_imbalance(experts * one, top_k * one, tokens * one, law * one)

    assert expected.item() == pytest.approx(min(ratio, experts / top_k), rel=0.1)


def test_no_expert_can_have_more_rows_than_there_are_tokens():
    one = np.ones(1)

    imbalance = expected_imbalance(8 * one, 4 * one, 65536 * one, 1.01 * one)

    assert imbalance.item() == 2.0  # one row a token: 8 experts share 4 rows a token


def test_a_training_row_has_the_rows_of_all_groups_and_the_time_of_its_efficiency():
    samples = samples_on("b200-sxm-180gb", "grouped_gemm", TRAINING, training("fwd", 0.5))

    assert samples.coordinates[:, 0].tolist() == [24640, 3072, 5120, 40, 1]
    assert samples.measured_s.item() == pytest.approx(2 * 24640 * 3072 * 5120 / (0.5 * 2250e12))
    assert samples.bound_s.item() / samples.measured_s.item() == pytest.approx(0.5)


def test_an_fp8_row_has_the_rows_that_its_fraction_of_peak_says():
    """Up projection, 16 groups of 1000 rows: 2 · 16000 · 4096 · 4096 FLOP at half of 1979 TFLOP/s."""
    seconds = 2 * 16000 * 4096 * 4096 / (0.5 * 1979e12)
    table = columns(intermediate_size=[2048], hidden_size=[4096], num_local_experts=[16], topk=[8])
    table |= columns(tokens_per_expert=[1000], up_mfu=[0.5], up_proj_us=[seconds * 1e6])
    table |= columns(down_mfu=[0.01], down_proj_us=[100.0])
    table |= {"gpu=h800": np.ones(1), "gpu=h20": np.zeros(1)}

    samples = samples_on("h800-sxm-80gb", "grouped_gemm.fp8", SERVING, table)

    assert samples.coordinates[:, 0].tolist() == pytest.approx([16000, 4096, 4096, 16, 1])
    assert samples.rejected == 1  # the down projection, at a fraction of too few digits


def test_an_expert_layer_needs_the_flop_of_its_three_projections():
    """Mixtral on one H100: 8192 rows, three products of 4096 by 14336 (arXiv:2401.04088)."""
    samples = samples_on("h100-sxm5-80gb", "grouped_gemm", LAYERS, layers(1))

    assert samples.bound_s.item() == pytest.approx(2 * 8192 * 3 * 4096 * 14336 / 989e12)


def test_expert_and_tensor_parallelism_divide_groups_rows_and_width():
    whole = layers(2, moe_ep_size=np.array([1.0, 4.0]), moe_tp_size=np.array([1.0, 2.0]))

    samples = samples_on("h100-sxm5-80gb", "grouped_gemm", LAYERS, whole)

    ratio = samples.coordinates[:, 0] / samples.coordinates[:, 1]
    assert ratio.tolist() == [4, 2, 1, 4, 1]  # rows, columns, sum, groups, imbalance


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_tokens": 64.0}, "fewer than 32 rows"),
        ({"inter_size": 2688.0}, "have no gate"),
        (
            {"moe_ep_size": 4.0, "distribution=balanced": 0.0, "distribution=power_law_1.2": 1.0},
            "power law",
        ),
    ],
)
def test_a_row_that_cannot_be_used_is_counted_under_its_reason(changes, words):
    table = layers(2)
    for name, value in changes.items():
        table[name] = np.array([table[name][0], value])

    counts = faults_of(LAYER, table, "system=h100_sxm")

    assert [(words in reason, count) for reason, count in counts.items()] == [(True, 1)]


def test_a_row_faster_than_the_peaks_is_rejected():
    table = layers(2, latency_ms=np.array([20.0, 0.1]))

    samples = samples_on("h100-sxm5-80gb", "grouped_gemm", LAYERS, table)

    assert (samples.rejected, len(samples.measured_s)) == (1, 1)


def test_kept_and_rejected_rows_are_all_rows():
    table = layers(5, num_tokens=np.array([64.0, 4096, 8192, 32, 16384]))

    samples = samples_on("h100-sxm5-80gb", "grouped_gemm", LAYERS, table)

    assert len(samples.measured_s) + samples.rejected == 5


def made(skew, rows=200):
    """Samples of a device at half of its bound, slower by imbalance^skew; seeded."""
    draw = np.random.default_rng(1)
    shape = [2.0 ** draw.uniform(12, 17, rows), np.full(rows, 4096.0), np.full(rows, 2048.0)]
    groups, imbalance = 2.0 ** draw.integers(2, 6, rows), 2.0 ** draw.uniform(0, 3, rows)
    bound_s = np.full(rows, 1e-2)
    return Samples(
        name="grouped_gemm",
        coordinates=np.stack([*shape, groups, imbalance if skew else np.ones(rows)]),
        bound_s=bound_s,
        measured_s=2 * bound_s * imbalance**skew,
        source="made",
    )


def test_the_coefficient_of_the_skew_is_found_again():
    curve = fit_peer_curve(made(0.3), catalog.device("h100-sxm5-80gb"))

    assert curve.terms["skew"] == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize("skew", [0.0, 0.3])
def test_more_imbalance_is_never_faster_and_never_slower_than_its_fullest_group(skew):
    curve = fit_peer_curve(made(skew), catalog.device("h100-sxm5-80gb"))
    imbalance = np.linspace(1, 16, 50)
    shape = tuple(np.full(50, value) for value in (65536.0, 4096.0, 2048.0, 16.0))

    slowness = -log_efficiency(curve, (*shape, imbalance), 132)

    assert (np.diff(slowness) > 0).all()
    assert (slowness - slowness[0] <= np.log(imbalance) + 1e-12).all()


def test_the_curve_of_dense_products_reads_groups_as_one_product_of_all_their_rows():
    gemm = replace(fit_peer_curve(made(0.0), catalog.device("h100-sxm5-80gb")), name="gemm", terms={})
    dense = tuple(np.array([value]) for value in (8192.0, 4096.0, 2048.0))

    of_groups = log_efficiency(gemm, (*dense, np.array([16.0]), np.array([4.0])))

    assert of_groups == log_efficiency(gemm, dense)


def test_measured_groups_that_are_all_equal_get_the_coefficient_of_other_devices():
    curve = fit_peer_curve(made(0.0), catalog.device("h100-sxm5-80gb"))

    assert curve.terms["skew"] == SKEW


def test_a_gradients_ratio_is_its_time_over_the_forwards():
    """Thirty shapes whose weight gradients reach half of the forward's fraction of peak."""
    groups = np.repeat([8.0, 16.0, 32.0], 10)
    forward, gradient = training("fwd", 0.5), training("bwd_grad_w", 0.25)
    table = {
        name: np.concatenate([np.tile(forward[name], 30), np.tile(gradient[name], 30)]) for name in forward
    }
    table["ng"] = np.tile(groups, 2)

    found = fit_peers(catalog.device("b200-sxm-180gb"), {TRAINING: table})

    ratio = found.curves["grouped_gemm"].layout_ratio["weight_gradient.bf16"]
    assert ratio == pytest.approx(2.0, rel=1e-3)


def test_one_row_makes_no_curve_and_is_told():
    found = fit_peers(catalog.device("b200-sxm-180gb"), {TRAINING: training("fwd", 0.5)})

    assert found.curves == {}
    assert found.messages == ("b200-sxm-180gb grouped_gemm: 1 rows are too few for a curve",)


@all_cases("name", sorted({name for f in GROUPED_FILES for name in f.devices.values()}))
def test_every_device_of_the_tables_is_in_the_catalogue(name):
    assert catalog.device(name).name == name
