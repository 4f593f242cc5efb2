"""Fused attention: older kernels against what their papers print, which was measured, long sequences.

Backward passes that no table has are held against what cuDNN's authors measured of both passes.
"""

import math

import pytest
from all_cases import all_cases
from alone import price_items, seconds_of

from flopcast.api import predict
from flopcast.cost.kernels.curve import log_efficiency
from flopcast.cost.kernels.generations import GENERATIONS, MEASURED, generation_ratio
from flopcast.dtypes import constant
from flopcast.jobs import job
from flopcast.library import catalog
from flopcast.library.catalog import folder
from flopcast.library.curves import load_owner
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.item import kernel
from flopcast.records import replace

FORWARD_TRITON = (1.3, 1.5)  # the first version in Triton over version 2: arXiv:2307.08691, section 4.1
BOTH_TRITON = (1.3, 2.5)  # both passes together: section 4
FORWARD_3, BACKWARD_3 = (1.5, 2.0), (1.5, 1.75)  # of version 2 over 3: arXiv:2407.08608, section 4.1

# benchmark/sdpa_benchmark_training/results of NVIDIA/cudnn-frontend (cuDNN 9.19): ms of the backward of
# causal attention, 64 heads of 128 and 8 of keys, by tokens
CUDNN_BACKWARD_MS = {
    "dgx-h200": {4096: 1.450, 8192: 5.083, 16384: 19.002},
    "gb200-nvl72": {4096: 0.607, 8192: 2.097, 16384: 7.845},
    "gb300-nvl72": {4096: 0.575, 8192: 1.985, 16384: 7.380},
}

# The same tables of May 2026 (cuDNN 9.23): ms of the forward and of the backward of two causal sequences of
# 4096 and 8192 tokens, in bf16, MXFP8 and FP8; 128 heads of 192 and 128, and 64 heads of 128
CUDNN_MS = {
    ("gb200-nvl72", 192): (
        (0.982, 3.317, 0.688, 2.518, 0.641, 2.127),
        (3.355, 12.343, 2.407, 8.696, 2.241, 7.341),
    ),
    ("gb300-nvl72", 192): (
        (0.813, 3.115, 0.548, 2.328, 0.487, 1.787),
        (2.886, 11.062, 1.929, 7.827, 1.736, 6.114),
    ),
    ("gb200-nvl72", 128): (
        (0.407, 1.205, 0.328, 1.331, 0.310, 1.187),
        (1.429, 4.228, 1.160, 4.308, 1.095, 3.834),
    ),
    ("gb300-nvl72", 128): (
        (0.302, 1.089, 0.247, 1.216, 0.220, 0.993),
        (1.094, 3.785, 0.858, 3.949, 0.768, 3.102),
    ),
}

# op_tests/cpp/mha/README.md in ROCm/aiter: TFLOP/s of AMD's assembly kernels, forward and backward, of one
# causal sequence with 64 heads of 128 and 8 of keys, by tokens
AMD_TFLOP_PER_S = {
    "mi300x-8": {4096: (474.385, 378.155), 8192: (518.29, 433.285), 16384: (541.55, 412.04)},
    "mi355x-8": {4096: (1046.085, 941.16), 8192: (1300.105, 1064.56), 16384: (1392.485, 1162.805)},
}

# logbooks/splash-prefixlm-block-skipping.md of marin-community/marin: ms of the forward pass of causal
# attention with 8 heads of 128 in blocks of 512, by tokens; each includes the same call from the host
SPLASH_MS = {8192: 1.204, 16384: 3.297}


def attention(is_gradient=False, tokens=4096, kv_heads=64, head_size=128, *, causal=True, narrow=""):
    """Attention with 64 heads."""
    return FlashAttention(
        batch=constant(64),
        kv_batch=constant(kv_heads),
        queries=constant(tokens),
        head_size=constant(head_size),
        causal=causal,
        dtype="bf16",
        is_gradient=is_gradient,
        narrow=narrow,
    )


def seconds(cluster, stack, is_gradient=False, **shape):
    """Of one kernel on a cluster's device in a stack."""
    item = kernel("work", attention(is_gradient, **shape), component="attention")
    return price_items([item], cluster, stack=stack).seconds(item)


def between(value, ends):
    """Whether a value lies inside a printed range."""
    return ends[0] <= value <= ends[1]


def test_ratios_lie_inside_the_ranges_that_the_papers_print():
    triton, third = GENERATIONS["triton"], GENERATIONS["flash-3"]
    both = (2 * triton.forward_time_ratio + 5 * triton.backward_time_ratio) / 7  # by FLOP of the passes

    assert between(triton.forward_time_ratio, FORWARD_TRITON)
    assert between(both, BOTH_TRITON)
    assert between(1 / third.forward_time_ratio, FORWARD_3)
    assert between(1 / third.backward_time_ratio, BACKWARD_3)


FLASH_2_ON_B200 = {  # TFLOP/s without a mask: tritonbench, pull request 171; flash-attention, issue 1589
    False: {2048: (128, 352.104), 4096: (128, 353.912), 8192: (128, 361.591)},
    True: {2048: (64, 301.61), 4096: (64, 314.71), 8192: (64, 329.09)},
}


@pytest.mark.parametrize("is_gradient", [False, True])
def test_flash_attention_2_on_blackwell_is_as_fast_as_measured(is_gradient):
    cluster = catalog.cluster("dgx-b200")
    for tokens, (head_size, measured) in FLASH_2_ON_B200[is_gradient].items():
        shape = {"tokens": tokens, "head_size": head_size, "causal": False}
        predicted_s = seconds(cluster, "generic", is_gradient, **shape)
        word = "flash_attention.backward" if is_gradient else "flash_attention"
        ratio, sigma = generation_ratio("flash-2", word, "b200-sxm-180gb")
        flop = attention(is_gradient, **shape).work().flop.item()

        assert abs(math.log(flop / (predicted_s * ratio) / 1e12 / measured)) <= 1.6449 * sigma


def test_blackwell_trains_equal_heads_of_more_than_128_elements_with_flash_attention_2():
    """fused_attn.cpp of Transformer Engine, issue 242 of cudnn-frontend: Hopper and MLA have a gradient."""
    slower = generation_ratio("flash-2", "flash_attention", "gb200-192gb")[0]
    for cluster, head_size, value_head_size, expected in (
        ("gb200-nvl72", 192, None, slower),
        ("gb200-nvl72", 128, None, 1.0),
        ("gb200-nvl72", 192, constant(128), 1.0),
        ("dgx-h100", 192, None, 1.0),
    ):
        forward, backward = (
            kernel("work", replace(work, value_head_size=value_head_size), component="attention")
            for work in (attention(is_gradient, head_size=head_size) for is_gradient in (False, True))
        )
        place = catalog.cluster(cluster)
        trained = price_items([forward, backward], place)

        ratio = trained.seconds(forward) / price_items([forward], place).seconds(forward)
        names = [name for name in trained.factors if name.startswith("attention_generation[flash-2: ")]

        assert ratio == pytest.approx(expected, rel=0.01), (cluster, head_size)
        assert len(names) == (2 if expected > 1 else 0), names


def test_torchtitan_on_b200_is_as_fast_as_measured_with_both_kernels():
    """Pull request 1196 of TorchTitan, which states no batch: Llama 3 8B with 8,192 tokens is assumed."""
    plan = "dp=8 mbs=1 gbs=8 zero=3 recompute=selective"
    jobs = {
        generation: job(
            model="llama-3-8b",
            cluster="dgx-b200:1",
            plan=plan,
            seq=8192,
            stack={"base": "torch-fsdp2", "attention_generation": generation},
        )
        for generation in ("flash-2", "flash-2-or-cudnn")
    }

    rates = [predict(each).metrics.device_tokens_per_s for each in jobs.values()]

    assert rates == pytest.approx([10902, 12211], rel=0.09)


@pytest.mark.parametrize("is_gradient", [False, True])
def test_a_kernel_of_another_generation_takes_its_ratio_longer(is_gradient):
    cluster = catalog.cluster("dgx-a100")
    newest = seconds(cluster, "generic", is_gradient)

    older = seconds(cluster, "composer-llm-foundry", is_gradient)

    word = "flash_attention.backward" if is_gradient else "flash_attention"
    assert older / newest == pytest.approx(generation_ratio("triton", word, "a100-sxm4-80gb")[0])


def test_a_backward_that_a_forward_lends_is_of_the_generation_of_backwards():
    newest, older = (
        seconds(catalog.cluster("dgx-h100"), s, True) for s in ("generic", "composer-llm-foundry")
    )

    expected = generation_ratio("triton", "flash_attention.backward", "h100-sxm5-80gb")[0]
    assert older / newest == pytest.approx(expected, rel=0.01)  # but for launches


@all_cases("cluster", sorted(CUDNN_BACKWARD_MS))
def test_backwards_without_a_table_take_as_long_as_cudnn_measured_beside_forwards_of_serving(cluster):
    """Forwards of the tables are up to 1.4 times as slow as cuDNN's own, and lend that to the backward."""
    place = catalog.cluster(cluster)
    found = {
        tokens: seconds(place, "generic", True, tokens=tokens, kv_heads=8) * 1e3 / measured_ms
        for tokens, measured_ms in CUDNN_BACKWARD_MS[cluster].items()
    }

    assert all(1.0 <= ratio <= 1.6 for ratio in found.values()), found
    assert math.prod(found.values()) ** (1 / len(found)) <= 1.45


def test_attention_in_8_bits_gains_what_its_library_measured():
    for (cluster, head_size), rows in CUDNN_MS.items():
        place = catalog.cluster(cluster)
        sizes = {"head_size": constant(head_size), "value_head_size": None}
        if head_size == 192:
            sizes |= {"batch": constant(256), "kv_batch": constant(256), "value_head_size": constant(128)}
        for tokens, measured_ms in zip((4096, 8192), rows, strict=True):
            found_s = [
                seconds_of(replace(attention(back, tokens, narrow=narrow), **sizes), place)
                for narrow in ("", "mxfp8", "fp8")
                for back in (False, True)
            ]
            for place_in_row in range(2, 6):
                plain = place_in_row % 2
                gain = measured_ms[place_in_row] / measured_ms[plain]
                told = found_s[place_in_row] / found_s[plain]
                assert told == pytest.approx(gain, rel=0.12), (cluster, head_size, tokens, place_in_row)


@all_cases("cluster", sorted(AMD_TFLOP_PER_S))
def test_attention_of_amd_takes_what_its_library_states(cluster):
    place = catalog.cluster(cluster)
    for tokens, both in AMD_TFLOP_PER_S[cluster].items():
        for is_gradient, tflop_per_s in enumerate(both):
            flop = attention(is_gradient, tokens=tokens, kv_heads=8).work().flop.item()
            found_s = seconds(place, "generic", bool(is_gradient), tokens=tokens, kv_heads=8)
            assert flop / found_s / 1e12 == pytest.approx(tflop_per_s, rel=0.12), (tokens, is_gradient)


def test_what_was_measured_runs_at_its_own_speed():
    cluster = catalog.cluster("dgx-a100")

    assert seconds(cluster, "torch-fsdp2") == seconds(cluster, "generic")


def test_version_2_is_slower_than_the_curve_on_hopper():
    ratio, sigma = generation_ratio("flash-2", "flash_attention", "h100-sxm5-80gb")

    assert between(ratio, FORWARD_3)
    assert sigma > 0


def test_every_curve_of_attention_says_which_kernel_was_measured():
    owners = [path.stem for path in sorted(folder("curves").glob("*.json"))]
    with_attention = {
        owner for owner in owners if any("flash_attention" in name for _, name in load_owner(owner))
    }

    assert with_attention - MEASURED.keys() == set()
    assert set(MEASURED.values()) <= GENERATIONS.keys()


@pytest.mark.parametrize("backward", ["", ".backward"])
def test_beyond_the_measured_lengths_few_heads_of_long_sequences_fill_waves_as_many_of_short_ones_do(
    backward,
):
    curve = load_owner("gh200-96gb")["gh200-96gb", f"flash_attention{backward}"]
    longest = 2.0 ** curve.axes[0][-1]

    few, many = (
        log_efficiency(curve, (constant(longest * times), constant(128), constant(32 / times)), 132).item()
        for times in (8, 1)
    )

    assert few >= many - 0.05  # the wave terms of both differ by as much


def test_splash_attention_on_tpu_v5p_takes_the_measured_time_whatever_the_size_of_a_head():
    """The difference of two lengths has no call from the host; 64 heads take 8 times as long as 8."""
    place = catalog.cluster("gcp-v5p")
    (short, short_ms), (long, long_ms) = SPLASH_MS.items()

    for size in (128, 256):
        short_s, long_s = (seconds(place, "maxtext", tokens=n, head_size=size) for n in (short, long))
        # blocks on the diagonal are computed whole, which is half a block more for each token
        computed = 1 + 512 / (short + long)
        assert (long_s - short_s) * computed == pytest.approx(8 * (long_ms - short_ms) / 1e3, rel=0.01)
