"""Curves that a device lends: against rows of the other device, and against limits by hand."""

from itertools import product

import numpy as np
import pytest
from alone import seconds_of

from flopcast.cost.kernels.classes import MEMORY, class_of
from flopcast.cost.kernels.curve import Curve, CurveEvidence, log_efficiency
from flopcast.cost.kernels.curve_conversion import MOST_ATTENTION_EFFICIENCY, converted_curve, rates_of
from flopcast.cost.kernels.roofline import SUSTAINED_FRACTION, bound_seconds, cached_bytes, roofline
from flopcast.dtypes import constant
from flopcast.library import catalog
from flopcast.library.curves import load_owner
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import MemoryBound

A100, GH200 = catalog.device("a100-sxm4-80gb"), catalog.device("gh200-96gb")
BEYOND_CACHES_LOG2 = 26.3  # 83 MB
EVIDENCE = CurveEvidence(source="by hand", rows=0, rejected=0, relative_error=0.0)


def flat(efficiency, name="layernorm"):
    """A curve of one efficiency."""
    table = np.array([np.log(efficiency)])
    return Curve(
        name=name, owner="any", axes=(np.array([20.0]),), table=table, launch_s=0.0, evidence=EVIDENCE
    )


def changed(device, **fields):
    return device.model_copy(update=fields)


def share(curve, lender, borrower):
    """Of the borrower's bandwidth."""
    return float(np.exp(converted_curve(curve, rates_of(lender), rates_of(borrower)).table[0]))


def test_a_kernel_that_multiprocessors_limit_keeps_its_seconds_but_for_those_of_its_bytes():
    """1 / rate = 1 / (0.93 · bandwidth) + what multiprocessors add: A100 with half the bandwidth."""
    slow = changed(A100, memory_bytes_per_s=A100.memory_bytes_per_s / 2)
    for efficiency in (0.05, 0.3, 0.6, 0.9):
        full = A100.memory_bytes_per_s
        added_s = 1 / (efficiency * full) - 1 / (SUSTAINED_FRACTION * full)
        seconds = 1 / (SUSTAINED_FRACTION * full / 2) + added_s

        assert share(flat(efficiency), A100, slow) == pytest.approx(1 / seconds / (full / 2)), efficiency


def test_a_kernel_at_the_limit_of_memory_stays_there_whoever_borrows_it():
    for efficiency in (SUSTAINED_FRACTION, 1.0, 1.5):
        assert share(flat(efficiency), A100, GH200) == pytest.approx(efficiency)


def test_twice_the_multiprocessors_and_twice_the_memory_are_twice_as_fast():
    twice = changed(A100, memory_bytes_per_s=2 * A100.memory_bytes_per_s, multiprocessors=216)

    assert share(flat(0.4), A100, twice) == pytest.approx(0.4)


def test_more_bandwidth_never_slows_a_borrowed_kernel():
    for efficiency in (0.05, 0.5, 0.92):
        rates = [
            size * share(flat(efficiency), A100, changed(GH200, memory_bytes_per_s=size))
            for size in (1e12, 2e12, 4e12, 8e12)
        ]
        assert rates == sorted(rates), efficiency


def test_products_and_devices_of_unknown_clock_keep_their_efficiency():
    unknown = changed(GH200, clock_hz=None)

    assert share(flat(0.4), A100, unknown) == pytest.approx(0.4)
    assert share(flat(0.4, name="gemm"), A100, GH200) == pytest.approx(0.4)


def test_lending_errs_less_than_the_share_of_bandwidth_between_the_two_measured_devices():
    """Every memory-bound class that both have, beyond their caches, in both directions."""
    kept, carried = [], []
    for lender, borrower in ((A100, GH200), (GH200, A100)):
        lenders, borrowers = load_owner(lender.name), load_owner(borrower.name)
        for _, name in sorted(borrowers):
            own, other = borrowers[borrower.name, name], lenders.get((lender.name, name))
            if other is None or class_of(name).kind is not MEMORY or name.startswith("embedding"):
                continue
            nodes = [2.0**axis for axis in own.axes]
            nodes[0] = nodes[0][(own.axes[0] > BEYOND_CACHES_LOG2) & (own.axes[0] < other.axes[0][-1])]
            shapes = tuple(np.array(column) for column in zip(*product(*nodes), strict=True))
            measured = log_efficiency(own, shapes)
            kept.append(np.abs(log_efficiency(other, shapes) - measured).mean())
            carried.append(
                np.abs(
                    log_efficiency(converted_curve(other, rates_of(lender), rates_of(borrower)), shapes)
                    - measured
                ).mean()
            )

    assert len(kept) >= 30
    assert np.mean(carried) < 0.95 * np.mean(kept)
    assert np.median(carried) < np.median(kept)


def test_no_factor_takes_a_kernel_below_what_memory_sustains_beyond_the_cache():
    for elements, fraction in ((1e6, 1.0), (1e9, SUSTAINED_FRACTION)):
        need = MemoryBound(kind="residual_add", elements=constant(elements), dtype="bf16").work()

        assert roofline(need, A100)[2] == pytest.approx(bound_seconds(need, A100) / fraction), elements


def test_attention_keeps_its_cycles_where_the_products_of_the_borrower_do_not_limit_it():
    """Matrix engines of half the rate: a kernel at 0.3 of the peak reaches 0.6 of the lower peak."""
    half = changed(A100, peak_flop_per_s={"bf16": A100.peak("bf16") / 2})
    for name in ("flash_attention", "flash_attention.backward"):
        assert share(flat(0.3, name), A100, half) == pytest.approx(0.6), name
        assert share(flat(0.8, name), A100, half) == pytest.approx(MOST_ATTENTION_EFFICIENCY), name
        assert share(flat(0.3, name), half, A100) == pytest.approx(0.3), "other kernels run there"


MEASURED_ATTENTION = [  # cluster, sequences and heads, tokens, head, causal, TFLOP/s of both passes
    ("rtx-4090-8", 64, 2048, 64, False, 168.9, 124.8),  # apache/tvm, tl_doc/flash_perf.md
    ("rtx-4090-8", 64, 2048, 128, False, 169.3, 124.6),
    ("rtx-4090-8", 64, 2048, 64, True, 142.2, 96.5),
    ("rtx-4090-8", 64, 2048, 128, True, 151.2, 99.2),
    ("rtx-5090-8", 8, 8192, 128, False, 190.6, None),  # gau-nernst/learn-cuda, 07_attention
    ("rtx-5090-8", 40, 2048, 128, True, 148.1, 165.2),  # 0.29 and 0.65 ms: MXFP8 attention report
]


def test_attention_on_geforce_takes_about_as_long_as_measured():
    """No curve of attention was measured on these boards; L40S and RTX PRO 6000 lend theirs."""
    one = np.ones((1, 1))
    for cluster, batch, tokens, head, causal, *rates in MEASURED_ATTENTION:
        for is_gradient, rate in zip((False, True), rates, strict=True):
            work = FlashAttention(
                batch=batch * one,
                kv_batch=batch * one,
                queries=tokens * one,
                head_size=head * one,
                causal=causal,
                dtype="bf16",
                is_gradient=is_gradient,
            )
            seconds = seconds_of(work, catalog.cluster(cluster)).item()
            predicted = work.work().flop.item() / seconds / 1e12

            assert rate is None or predicted == pytest.approx(rate, rel=0.3), (cluster, tokens, head)


def test_a_large_cache_holds_what_the_kernel_before_wrote_and_nothing_of_the_forward_pass():
    ada = catalog.device("rtx-4090-24gb")
    cache = ada.cache_bytes

    def of(kind, moved_bytes, is_gradient=False):
        passes = {"gelu": 3 if is_gradient else 2}[kind]
        elements = constant(moved_bytes / passes / 2)
        return MemoryBound(kind=kind, elements=elements, dtype="bf16", is_gradient=is_gradient).work()

    assert cached_bytes(of("gelu", cache), ada).item() == pytest.approx(cache / 2)
    assert cached_bytes(of("gelu", 2 * cache), ada).item() == 0.0
    assert cached_bytes(of("gelu", cache, is_gradient=True), ada).item() == pytest.approx(cache / 3)
    assert cached_bytes(of("gelu", cache), A100) is None
    sizes = [bound_seconds(of("gelu", share * cache), ada).item() for share in np.linspace(0.1, 3.0, 30)]
    assert sizes == sorted(sizes)
    product = Matmul(m=constant(64), n=constant(64), k=constant(64), dtype="bf16").work()
    assert cached_bytes(product, ada) is None
