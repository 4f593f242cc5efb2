"""Attention while tokens are generated: what rows say, and what curves make of them."""

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.cost.kernels.curve_conversion import converted_times
from flopcast.cost.kernels.unscaled import kernel_seconds
from flopcast.dtypes import constant
from flopcast.lab.calibration import peer_fit, peer_tables
from flopcast.lab.calibration.curve_fit import predicted_s
from flopcast.lab.calibration.peer_columns import LEAST_S, core_s, shortest_s
from flopcast.library import catalog
from flopcast.library.curves import load_owner
from flopcast.operators.decode_attention import DecodeAttention
from flopcast.operators.latent_decode import LatentDecode

DECODE_FILES = [file for file in peer_tables.SERVED_FILES if "decode" in file.name]
DEVICES = ("a100-sxm4-80gb", "b200-sxm-180gb", "h100-sxm5-80gb")  # the others are fitted alike
CLASSES = [
    (device, name)
    for device in DEVICES
    for (_, name) in load_owner(device, serving=True)
    if name.startswith(("decode_attention", "latent_decode"))
]
LENT = {  # a device → the relative whose curves it would borrow
    "h100-sxm5-80gb": "h200-sxm-141gb",
    "h200-sxm-141gb": "h100-sxm5-80gb",
    "b200-sxm-180gb": "gb200-192gb",
    "b300-sxm-288gb": "gb300-288gb",
    "gb200-192gb": "b200-sxm-180gb",
    "gb300-288gb": "b300-sxm-288gb",
}


@pytest.fixture(scope="module")
def samples(measurements):
    """Samples of a class on a device."""
    tables, kept = measurements.served, {}

    def found(device, name):
        if device not in kept:
            kept[device] = peer_fit.device_samples(catalog.device(device), tables, DECODE_FILES)
        return peer_fit.agreed(kept[device][name])[0]

    return found


def file_of(name, mark="system=h100_sxm"):
    """The entry of a class and a system in data/serving."""
    (found,) = [f for f in DECODE_FILES if f.name == name and mark in f.devices and f.folder == "serving"]
    return found


def rows(**columns):
    """Columns of rows of the table of decode attention."""
    given = {"batch_size": 4, "isl": 1, "step": 1023, "num_heads": 16, "num_key_value_heads": 2}
    given |= {"head_dim": 64, "latency_ms": 0.05, "window_size=0": 1, "window_size=128": 0, **columns}
    given |= {"kv_cache_dtype=bfloat16": 1, "kv_cache_dtype=fp8": 0, "system=h100_sxm": 1}
    return {name: np.atleast_1d(np.array(value, dtype=float)) for name, value in given.items()}


def modules(**columns):
    """Columns of modules of latent attention with 4 and 4096 tokens in the cache."""
    given = {"batch_size": [8, 8], "isl": [1, 1], "step": [3, 4095], "num_heads": [16, 16]}
    given |= {
        "latency_ms": [0.05, 0.08],
        "gemm_type=bfloat16": [1, 1],
        "gemm_type=nvfp4": [0, 0],
        **columns,
    }
    return {name: np.array(value, dtype=float) for name, value in given.items()}


# What rows say


def test_a_row_reads_the_tokens_of_its_cache_or_those_of_its_window():
    plain = file_of("decode_attention").operator(rows())
    window = file_of("decode_attention.window").operator(rows(**{"window_size=0": 0, "window_size=128": 1}))

    assert (plain.keys / plain.sequences).item() == 1024
    assert (window.keys / window.sequences).item() == 128
    assert (plain.kernel, window.kernel) == ("decode_attention", "decode_attention.window")


@all_cases(
    ("changes", "belongs"),
    [
        ({}, ["decode_attention"]),
        ({"head_dim": 128}, []),  # in the table of data/peers
        ({"head_dim": 128, "step": 15}, ["decode_attention"]),
        ({"window_size=0": 0, "window_size=128": 1}, ["decode_attention.window"]),
    ],
)
def test_every_row_is_of_one_class(changes, belongs):
    names = ("decode_attention", "decode_attention.fp8", "decode_attention.window")

    assert [name for name in names if file_of(name).belongs(rows(**changes)).item()] == belongs


def test_the_core_takes_what_the_module_takes_longer_than_with_a_short_cache():
    device, file = catalog.device("h100-sxm5-80gb"), file_of("latent_decode")
    moving_s = 8 * 16 * (576 + 512) * 2 / device.memory_bytes_per_s

    short_s, long_s = file.on_device(modules(), core_s(modules()), device)

    assert short_s == pytest.approx(LEAST_S + moving_s)
    assert long_s - short_s == pytest.approx(0.03e-3)


@all_cases(
    "changes",
    [
        {"step": [1023, 4095]},
        {"num_heads": [8, 16]},
        {"batch_size": [4, 8]},
        {"gemm_type=bfloat16": [0, 1], "gemm_type=nvfp4": [1, 0]},
    ],
)
def test_a_module_without_one_like_it_and_a_short_cache_has_no_core(changes):
    assert np.isnan(shortest_s(modules(**changes))[1])


def test_keys_that_a_benchmark_finds_in_the_cache_of_the_device_count_as_from_memory():
    """L40S, whose 96 MB hold the 34 MB of these rows."""
    file = file_of("decode_attention", "system=l40s")
    given = rows(batch_size=64, latency_ms=0.02)

    device = catalog.device("l40s-48gb")

    seconds = file.on_device(given, file.measured_s(given), device).item()

    moved = file.operator(given).work().moved_bytes.item()
    assert seconds == pytest.approx(moved / (0.8 * device.memory_bytes_per_s))
    assert file.on_device(given, np.array([1e-3]), device).item() == 1e-3
    assert file.on_device(given, np.array([1e-6]), catalog.device("h100-sxm5-80gb")).item() == 1e-6


# What curves make of them


@all_cases(("device", "name"), CLASSES)
def test_rows_kept_aside_are_predicted(samples, device, name):
    one = catalog.device(device)
    all_rows = samples(device, name)
    aside = np.arange(len(all_rows.measured_s)) % 5 == 1

    curve = peer_fit.fit_quickly(all_rows.part(~aside), one)

    left = all_rows.part(aside)
    errors = np.abs(predicted_s(curve, left, one) / left.measured_s - 1)
    assert np.median(errors) <= 0.08


@all_cases("device", LENT)
def test_a_device_left_out_is_predicted_by_the_curves_that_it_would_borrow(samples, device):
    borrower, lender = catalog.device(device), catalog.device(LENT[device])

    for (_, name), curve in load_owner(LENT[device], serving=True).items():
        if name.startswith(("decode_attention", "latent_decode")):
            lent = converted_times(curve, lender, borrower)
            measured = samples(device, name)
            errors = np.abs(predicted_s(lent, measured, borrower) / measured.measured_s - 1)
            assert np.median(errors) <= 0.12, name


def seconds_of(operator, device):
    """Seconds by the device's own curve."""
    work, curve = operator.work(), load_owner(device.name, serving=True)[device.name, operator.kernel]
    bound_s = np.maximum(work.flop / device.peak(work.unit), work.moved_bytes / device.memory_bytes_per_s)
    shape = np.broadcast_shapes(bound_s.shape, *(c.shape for c in operator.coordinates()))
    columns = tuple(np.broadcast_to(c, shape).ravel() for c in operator.coordinates())
    return kernel_seconds(np.broadcast_to(bound_s, shape).ravel(), columns, curve, device), bound_s


def made(name, sequences, keys, heads):
    """The operator of a class for sequences of `keys` tokens each; 8 query heads share a cached one."""
    cache = "fp8" if name.endswith(".fp8") else ""
    sizes = {
        "sequences": sequences,
        "keys": sequences * keys,
        "heads": heads,
        "dtype": "bf16",
        "cache": cache,
    }
    if name.startswith("latent"):
        return LatentDecode(rank=constant(512), rope_size=constant(64), **sizes)
    windowed = ".window" in name
    return DecodeAttention(kv_heads=heads / 8, head_size=constant(128), windowed=windowed, **sizes)


@all_cases(("device", "name"), CLASSES)
def test_more_tokens_sequences_or_heads_take_no_less_time_and_never_less_than_the_bound(device, name):
    one = catalog.device(device)
    many = 2.0 ** np.arange(0.0, 14.0, 0.21)[:, None]

    for sequences, keys, heads in (
        (constant(16), 8 * many, constant(16)),
        (many / 8 + 1, constant(1000), constant(16)),
        (constant(3), constant(5000), 8 * np.ceil(many / 128)),
    ):
        seconds, bound_s = seconds_of(made(name, sequences, keys, heads), one)

        assert (np.diff(seconds) >= -1e-9 * seconds[:-1]).all()
        assert (seconds >= bound_s.ravel() * (1 - 1e-9)).all()
