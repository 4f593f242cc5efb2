"""Efficiencies of graphs without constants are those of kernels that were measured alone."""

import numpy as np

from flopcast.cost.graph_kernels.efficiency import number_names, prior_numbers
from flopcast.cost.graph_kernels.kernel_classes import GRAPH_KERNELS
from flopcast.cost.graph_kernels.priors import (
    ATTENTION,
    BROADCAST,
    CHAIN,
    DATA_SHEET,
    FLOP_OF_ELEMENT,
    FLOP_OF_INSTRUCTION,
    LEVELS,
    PRODUCT,
    SUM,
    TABLES,
)
from flopcast.cost.graph_kernels.rates import CLOCK_EXPONENT, clock_ratio
from flopcast.cost.kernels.unscaled import kernel_log_efficiency
from flopcast.library import catalog
from flopcast.library.curves import load_owner

LARGE = (8192, 4096, 4096)
PASS_BYTES = 2.0**28
TEN = """a100-sxm4-80gb a40-48gb h100-sxm5-80gb h200-sxm-141gb b200-sxm-180gb b300-sxm-288gb l40s-48gb
    rtx-pro-6000-96gb v100-pcie-16gb gh200-96gb""".split()  # noqa: SIM905  names in a row are read more easily
SEVEN = [name for name in TEN if name not in ("a40-48gb", "b300-sxm-288gb", "v100-pcie-16gb")]
MEASURED_ALONE = ("a100-sxm4-80gb", "gh200-96gb")


def efficiency(name, kernel, *sizes):
    """What a curve of the catalogue says of one kernel on a device."""
    curve, device = load_owner(name)[name, kernel], catalog.device(name)
    coordinates = tuple(np.array([float(size)]) for size in sizes)
    return float(np.exp(kernel_log_efficiency(curve, coordinates, device, kernel))[0])


def attained(name):
    """What a large product attains on a busy device."""
    return efficiency(name, "gemm", *LARGE) / catalog.device(name).sustained.ratio


def test_products_follow_the_power_of_boards():
    names = [
        name.removesuffix(".yaml")
        for name in catalog.names("devices")
        if (name.removesuffix(".yaml"), "gemm") in load_owner(name.removesuffix(".yaml"))
    ]
    tables = [name for name in names if load_owner(name)[name, "gemm"].axes]  # not one number for all sizes
    boards = [name for name in tables if catalog.device(name).board_power_w is not None]
    logs = np.log([attained(name) for name in boards])
    ratios = np.log([clock_ratio(catalog.device(name)) for name in boards])
    slope, level = np.polyfit(ratios / CLOCK_EXPONENT, logs, 1)

    assert len(boards) >= 15
    assert abs(slope - CLOCK_EXPONENT) < 0.02
    assert abs(np.exp(level) / PRODUCT - 1) < 0.02


def test_tables_are_medians_of_devices():
    nodes = {table.coordinate: table.nodes for table in GRAPH_KERNELS["product"].compute}
    shapes = {
        "depth": lambda size: (8192, 4096, size),
        "width": lambda size: (8192, size, 4096),
        "rows": lambda size: (size, 4096, 4096),
    }
    for coordinate, shape in shapes.items():
        found = np.median(
            [
                [
                    np.log(efficiency(name, "gemm", *shape(2.0**node)) / efficiency(name, "gemm", *LARGE))
                    for node in nodes[coordinate]
                ]
                for name in TEN
            ],
            axis=0,
        )

        assert np.allclose(found, TABLES[f"product/compute/{coordinate}"], atol=0.011), coordinate


def test_attention_and_passes_are_those_of_measured_kernels():
    ratios = [
        efficiency(name, "flash_attention", 4096, 64, 64 * 4096**2) / attained(name) for name in SEVEN
    ]
    gelu, plain, row = {}, {}, {}
    for name in MEASURED_ALONE:
        plain[name] = efficiency(name, "residual_add", PASS_BYTES)
        gelu[name] = efficiency(name, "gelu", PASS_BYTES)
        row[name] = efficiency(name, "layernorm", PASS_BYTES, 8192)

    assert abs(np.median(ratios) * PRODUCT / ATTENTION - 1) < 0.05
    assert abs(np.mean(list(plain.values())) / SUM - 1) < 0.03
    assert abs(np.mean(list(row.values())) / LEVELS["layer_norm"][1] - 1) < 0.03
    extra = [
        4.0 / device.memory_bytes_per_s * (1 / gelu[name] - 1 / plain[name]) * 0.7 * device.peak("fp32")
        for name in MEASURED_ALONE
        for device in (catalog.device(name),)
    ]
    assert abs(np.sqrt(np.prod(extra)) / FLOP_OF_ELEMENT - 1) < 0.35


def test_instructions_are_those_of_eager_kernels_beyond_the_time_of_their_bytes():
    """A kernel reads and writes an element of 16 bits; a multiprocessor issues 128 instructions a clock."""
    instructions = {
        kernel: [
            4.0
            / device.memory_bytes_per_s
            * (1 / efficiency(name, kernel, PASS_BYTES) - 1 / efficiency(name, "residual_add", PASS_BYTES))
            * (DATA_SHEET * 128 * device.multiprocessors * device.clock_hz)
            for name in MEASURED_ALONE
            for device in (catalog.device(name),)
        ]
        for kernel in ("mask_fill", "unfused_rope", "unfused_rmsnorm")
    }
    chain = [*instructions["unfused_rope"], *instructions["unfused_rmsnorm"]]

    assert np.allclose(instructions["mask_fill"], BROADCAST, rtol=0.07)
    assert abs(np.exp(np.mean(np.log(chain))) / CHAIN - 1) < 0.01
    for name in ("h100-sxm5-80gb", "b200-sxm-180gb"):
        device = catalog.device(name)
        issued = 128 * device.multiprocessors * device.clock_hz
        assert abs(device.peak("fp32") / issued / FLOP_OF_INSTRUCTION - 1) < 0.01


def test_every_table_of_priors_belongs_to_a_class():
    names = set(number_names())

    for name, values in TABLES.items():
        assert {f"{name}/{place}" for place in range(len(values))} <= names
        assert f"{name}/{len(values)}" not in names
    assert set(LEVELS) <= set(GRAPH_KERNELS)
    assert len(prior_numbers()) == len(names)


BATCH_NORMS = {  # GB/s, multiprocessors, ms forward and backward over planes and over pixels; 16 samples,
    # 64 channels and 64³ places in 16 bits (xwang233/code-snippet, batchnorm3d-channels-last)
    "RTX 2070 SUPER": (448, 40, (7.992, 17.151), (4.379, 10.858)),
    "V100": (900, 80, (3.470, 10.732), (2.077, 5.285)),
    "A100": (1555, 108, (2.889, 8.515), (1.244, 3.203)),
}
TENSOR_BYTES = 2.0 * 16 * 64 * 64**3
MOVED = 3, 5  # tensors, forward and backward
ADDED = 3  # tensors of the addition to earlier gradients, which the benchmark's backward pass contains


def attained_by_batch_norm(bytes_per_s, forward_ms, backward_ms):
    """The efficiencies of both passes; sums of tensors reach that of priors.py."""
    tensor_ms = 1e3 * TENSOR_BYTES / bytes_per_s
    added_ms = ADDED * tensor_ms / SUM
    return MOVED[0] * tensor_ms / forward_ms, MOVED[1] * tensor_ms / (backward_ms - added_ms)


def test_batch_norms_over_pixels_are_as_fast_as_sums_and_those_over_planes_are_not():
    levels = [LEVELS[f"planar_batch_norm.{phase}"][1] for phase in ("training", "gradients")]

    for name, (rate, multiprocessors, planes, pixels) in BATCH_NORMS.items():
        over_planes, over_pixels = (attained_by_batch_norm(1e9 * rate, *each) for each in (planes, pixels))

        np.testing.assert_allclose(over_pixels, SUM, rtol=0.07, err_msg=name)
        if multiprocessors < 64:  # fewer than channels, each of which is the work of one block
            np.testing.assert_allclose(over_planes, levels, rtol=0.03, err_msg=name)
        else:
            assert max(np.array(over_planes) / levels) < 1.14, name
