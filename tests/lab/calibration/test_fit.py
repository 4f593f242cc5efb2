"""Curves fitted to measurements that were made up from a known truth."""

from functools import cache

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.cli.measurement_folder import SYSTEMS
from flopcast.cost.kernels.curve import log_efficiency
from flopcast.lab.calibration import curve_fit
from flopcast.lab.calibration.broken_operators import REPLACEMENTS, replacements
from flopcast.lab.calibration.collective_files import FabricFile
from flopcast.lab.calibration.operator_files import BROKEN, FILES, kept_rows
from flopcast.lab.calibration.samples import Samples
from flopcast.library import catalog
from flopcast.library.curves import load_owner
from flopcast.spec.tier import Tier

A100 = catalog.device("a100-sxm4-80gb")
LINEAR = ("linear_mlp_up", "linear_mlp_down", "linear_attn_out")
TIER = Tier(name="made up", devices=0, bytes_per_s=25e9, latency_s=10e-6, fabric="made-up")
LAUNCH_S = A100.kernel_launch_s


def grid(rows=150, seed=0):
    """Shapes of the operators' files, from a part of their grid."""
    draw = np.random.default_rng(seed)
    return {
        "tp": draw.choice([1.0, 2.0], rows),
        "micro_batch": np.full(rows, 2.0),
        "seq_len": np.full(rows, 1024.0),
        "hidden": draw.choice([2048.0, 4096.0], rows),
    }


def bound_of(operator):
    """Roofline seconds on an A100: 312 TFLOP/s, 2.039 TB/s."""
    need = operator.work()
    return np.maximum(need.flop / 312e12, need.moved_bytes / 2.039e12)


def measured_linear(file, efficiency, gradient_ratio):
    """A file of a device that has one efficiency forward, and takes `gradient_ratio` of it backward."""
    columns = grid()
    operator = FILES[file].forward(curve_fit.as_plans(columns))
    seconds = LAUNCH_S + bound_of(operator) / efficiency
    gradients_s = sum(LAUNCH_S + bound_of(part) / efficiency for _, part in operator.gradients())
    return columns | {"fwd_us": seconds.ravel() * 1e6, "bwd_us": gradient_ratio * gradients_s.ravel() * 1e6}


@cache
def fitted(ratio):
    """Curves of a device whose products reach 0.7 of their bound."""
    files = {name: measured_linear(name, 0.7, ratio) for name in LINEAR}
    return curve_fit.fit_operators("made-up", A100, files)


def streaming_samples(efficiency=0.8, launch_s=3e-6, rows=300):
    """Samples of a memory-bound class of one efficiency."""
    moved_bytes = np.logspace(7.5, 10, rows)
    bound_s = moved_bytes / 2e12
    return Samples(
        name="made_up",
        coordinates=moved_bytes[None],
        bound_s=bound_s,
        measured_s=launch_s + bound_s / efficiency,
        source="here",
        rejected=7,
    )


def ring_file(efficiency=0.6, collective="all_reduce"):
    """Messages over 2 to 16 ranks that take their hops and reach one efficiency of 25 GB/s."""
    draw = np.random.default_rng(4)
    nodes, size = draw.choice([2.0, 4.0, 8.0, 16.0], 600), np.exp2(draw.uniform(22.0, 30.0, 600))
    seconds = 2 * np.log2(nodes) * 10e-6 + 2 * (nodes - 1) / nodes * size / (25e9 * efficiency)
    file = FabricFile(
        fabric="made-up",
        cluster="none",
        tier="made up",
        collective=collective,
        path="made/up.csv",
        size_bytes=lambda r: r["bytes"],
        inside=lambda r: np.ones_like(r["nodes"]),
        nodes=lambda r: r["nodes"],
        seconds=lambda r: r["time"],
        keep=lambda r: r["nodes"] > 1,
    )
    return file, {"bytes": size, "nodes": nodes, "time": seconds}


def test_the_efficiency_of_made_up_samples_is_found_again():
    curve = curve_fit.fit_curve(streaming_samples(efficiency=0.8), A100)

    np.testing.assert_allclose(np.exp(curve.table), 0.8, rtol=0.01)
    assert curve.evidence.relative_error < 0.005


def test_a_curve_says_what_it_rests_on():
    curve = curve_fit.fit_curve(streaming_samples(rows=300), A100)

    assert (curve.name, curve.owner, curve.launch_s) == ("made_up", A100.name, 3e-6)
    assert (curve.evidence.rows, curve.evidence.rejected, curve.evidence.source) == (300, 7, "here")


def test_a_launch_longer_than_the_kernel_is_taken_for_half_of_its_time():
    """Otherwise nothing, or less than nothing, would be left for the work."""
    samples = streaming_samples(efficiency=0.5, launch_s=0.0)

    curve = curve_fit.fit_curve(samples, A100.model_copy(update={"kernel_launch_s": 1.0}))

    np.testing.assert_allclose(np.exp(curve.table), 1.0, rtol=0.01)


def test_the_efficiency_of_made_up_products_is_found_again():
    curve = fitted(0.8)["gemm"]

    operator = FILES["linear_mlp_up"].forward(curve_fit.as_plans(grid(seed=9)))
    found = np.exp(log_efficiency(curve, tuple(part.ravel() for part in operator.coordinates())))
    np.testing.assert_allclose(found, 0.7, rtol=0.01)


@pytest.mark.parametrize("ratio", [0.8, 1.3])
def test_the_ratio_of_gradients_to_forwards_is_found_again(ratio):
    curve = fitted(ratio)["gemm"]

    assert curve.layout_ratio == pytest.approx(
        {"input_gradient.fp16": ratio, "weight_gradient.fp16": ratio}, rel=0.01
    )


def test_a_bias_gradient_in_a_file_does_not_pull_the_ratio():
    """linear_qkv's backward holds the sum over the bias besides; it is left out."""
    files = {name: measured_linear(name, 0.7, 1.0) for name in LINEAR}
    biased = files | {"linear_qkv": measured_linear("linear_qkv", 0.7, 2.0)}

    curve = curve_fit.fit_operators("made-up", A100, biased)["gemm"]

    assert curve.ratio_of("input_gradient", "fp16") == pytest.approx(1.0, rel=0.01)


def test_all_products_of_a_device_give_one_curve():
    curves = fitted(0.8)

    assert set(curves) == {"gemm"}
    assert curves["gemm"].evidence.rows == 3 * 150


def test_forward_and_backward_of_one_kernel_get_a_curve_each():
    """gelu: 2 passes over 16-bit elements at 0.8 of the bandwidth, then 3 at 0.4."""
    columns = grid()
    moved_bytes = 2 * 4 * columns["micro_batch"] * 1024 * columns["hidden"] / columns["tp"]
    columns["fwd_us"] = (LAUNCH_S + 2 * moved_bytes / 2.039e12 / 0.8) * 1e6
    columns["bwd_us"] = (LAUNCH_S + 3 * moved_bytes / 2.039e12 / 0.4) * 1e6

    samples = curve_fit.file_samples("made-up", "gelu", columns, A100)

    forward, backward = (curve_fit.fit_curve(part, A100) for part in samples)
    np.testing.assert_allclose(np.exp(forward.table), 0.8, rtol=0.01)
    np.testing.assert_allclose(np.exp(backward.table), 0.4, rtol=0.01)


def test_a_file_that_is_not_known_gives_no_samples():
    assert list(curve_fit.file_samples("made-up", "mystery", grid(), A100)) == []


@all_cases(
    ("file", "names"),
    [
        ("linear_mlp_up", ["gemm"]),  # the backward is two kernels: fitted as a ratio
        ("linear_qkv", ["gemm"]),
        ("layernorm", ["layernorm", "layernorm.backward"]),
        ("residual_add", ["residual_add"]),  # its backward is a copy of the forward
    ],
)
def test_a_file_gives_a_backward_where_one_kernel_was_measured(file, names):
    columns = grid() | {"fwd_us": np.full(150, 1e6), "bwd_us": np.full(150, 1e6)}

    samples = list(curve_fit.file_samples("made-up", file, columns, A100))

    assert [part.name for part in samples] == names


def test_a_class_whose_rows_are_all_broken_gets_no_curve_of_its_own():
    """GH200's layernorm: every backward is one of two kernels (defect 0)."""
    columns = grid() | {"fwd_us": np.full(150, 1e6), "bwd_us": np.full(150, 1e6)}
    files = {name: measured_linear(name, 0.7, 1.0) for name in LINEAR} | {"layernorm": columns}

    curves = curve_fit.fit_operators("vista-gh200", catalog.device("gh200-96gb"), files)

    assert set(curves) == {"gemm", "layernorm"}


def test_a_samples_source_is_the_folder_of_its_system():
    columns = grid() | {"fwd_us": np.full(150, 1e6), "bwd_us": np.full(150, 1e6)}

    samples = next(iter(curve_fit.file_samples("vista-gh200", "gelu", columns, A100)))

    assert samples.source == "data/operators/vista-gh200 (arXiv:2509.22832)"


def test_measured_rows_stand_in_the_place_of_plans():
    columns = curve_fit.as_plans({"tp": np.arange(5.0)})

    assert columns["tp"].shape == (5, 1)


def test_tables_of_three_coordinates_stay_small():
    """A thousand numbers of five letters are 5 kB."""
    assert all(np.prod(most) <= 1100 for most in curve_fit.MOST_NODES.values())


def test_the_efficiency_of_a_made_up_fabric_is_found_again():
    file, columns = ring_file(efficiency=0.6)

    curve = curve_fit.fit_fabric([(file, columns)], TIER)["all_reduce"]

    np.testing.assert_allclose(np.exp(curve.table), 0.6, rtol=0.01)
    assert (curve.owner, curve.name, curve.launch_s) == ("made-up", "all_reduce", 0.0)


def test_messages_faster_than_their_links_are_rejected_and_counted():
    file, columns = ring_file()
    columns["time"][:50] = 1e-9

    curve = curve_fit.fit_fabric([(file, columns)], TIER)["all_reduce"]

    assert (curve.evidence.rows, curve.evidence.rejected) == (550, 50)


def test_rows_of_another_tier_are_neither_used_nor_counted():
    file, columns = ring_file()
    columns["nodes"][:100] = 1.0

    curve = curve_fit.fit_fabric([(file, columns)], TIER)["all_reduce"]

    assert (curve.evidence.rows, curve.evidence.rejected) == (500, 0)


def test_each_collective_of_a_fabric_gets_its_own_curve():
    fast, slow = ring_file(0.9), ring_file(0.3, "reduce_scatter")

    curves = curve_fit.fit_fabric([fast, slow], TIER)

    assert np.exp(curves["all_reduce"].table).mean() == pytest.approx(0.9, rel=0.01)
    assert np.exp(curves["reduce_scatter"].table).max() < 0.3  # half of the bytes in the same time


@all_cases("system", SYSTEMS)
def test_the_list_of_broken_files_of_a_system_is_that_of_its_defects(system):
    told = {f"{file} ({which})": why for (at, file, which), (_, why) in BROKEN.items() if at == system}

    assert len(told) == sum(at == system for at, _, _ in BROKEN)
    assert all(why.startswith("defect ") for why in told.values())


@all_cases(
    ("system", "entry"), [(system, entry) for system, entries in REPLACEMENTS.items() for entry in entries]
)
def test_only_classes_without_a_usable_row_are_replaced(system, entry):
    rows = {"fwd_us": np.full(3, 2.0), "bwd_us": np.ones(3)}

    assert not kept_rows(system, entry.forward, "backward", rows).any()
    assert kept_rows(system, entry.forward, "forward", rows).all()


@pytest.mark.parametrize(
    ("kernel", "flop", "moved_bytes", "seconds"),
    [  # data/README.md, defects 1 and 0: b 4, s 4096, 16 causal heads of 128; b 4, s 2048, h 6144
        (
            "flash_attention.backward",
            5 * 2 * 64 * 4096**2 * 128 / 2,  # five products (arXiv:2307.08691), half of the square
            2 * 8 * 64 * 4096 * 128,  # q, k, v, o and their gradients
            2444e-6,
        ),
        ("layernorm.backward", 0.0, 2 * 3 * 4 * 2048 * 6144, 229.5e-6),
    ],
)
def test_the_traced_operators_are_those_of_the_readme(kernel, flop, moved_bytes, seconds):
    entry = next(entry for entry in REPLACEMENTS["vista-gh200"] if entry.name == kernel)

    need = entry.traced.work()

    assert entry.traced.kernel == kernel
    assert (need.flop.item(), need.moved_bytes.item(), need.unit) == (flop, moved_bytes, "fp16")
    assert entry.traced_s == pytest.approx(seconds)


@all_cases("system", REPLACEMENTS)
def test_replacements_go_through_the_operator_that_was_traced(system):
    device = catalog.device(SYSTEMS[system])
    own = {name: curve for (_, name), curve in load_owner(device.name).items()}
    relative = {name: curve for (_, name), curve in load_owner(device.relatives[0]).items()}

    derived = replacements(system, device, own, relative)

    assert set(derived) == {entry.name for entry in REPLACEMENTS[system]}
    for entry in REPLACEMENTS[system]:
        curve, need = derived[entry.name], entry.traced.work()
        bound_s = np.maximum(
            need.flop / device.peak_flop_per_s[need.unit], need.moved_bytes / device.memory_bytes_per_s
        )
        at = tuple(part.ravel() for part in entry.traced.coordinates())
        seconds = curve.launch_s + bound_s / np.exp(log_efficiency(curve, at, device.multiprocessors))
        assert seconds.item() == pytest.approx(entry.traced_s, rel=1e-9)


@all_cases("system", REPLACEMENTS)
def test_replacements_keep_the_relatives_ratio_of_backward_to_forward(system):
    """Up to the one shift that the trace gives, and to levelling: most nodes keep the ratio."""
    device = catalog.device(SYSTEMS[system])
    own = {name: curve for (_, name), curve in load_owner(device.name).items()}
    relative = {name: curve for (_, name), curve in load_owner(device.relatives[0]).items()}

    for entry in REPLACEMENTS[system]:
        made = replacements(system, device, own, relative)[entry.name]
        mesh = [np.exp2(part.ravel()) for part in np.meshgrid(*made.axes, indexing="ij")]
        theirs = log_efficiency(relative[entry.name], tuple(mesh))
        theirs = theirs - log_efficiency(relative[entry.forward], tuple(mesh))
        shift = made.table.ravel() - own[entry.forward].table.ravel() - theirs
        assert np.mean(np.abs(shift - np.median(shift)) < 0.02) > 0.5


@all_cases("system", REPLACEMENTS)
def test_a_replacement_says_so_in_its_evidence(system):
    device = catalog.device(SYSTEMS[system])
    own = {name: curve for (_, name), curve in load_owner(device.name).items()}
    relative = {name: curve for (_, name), curve in load_owner(device.relatives[0]).items()}

    for curve in replacements(system, device, own, relative).values():
        assert "trace" in curve.evidence.source
        assert device.relatives[0] in curve.evidence.source
        assert curve.evidence.relative_error >= 0.1


def test_a_system_without_broken_classes_needs_no_replacements():
    assert replacements("perlmutter-a100-sxm4-80gb", A100, {}, {}) == {}
