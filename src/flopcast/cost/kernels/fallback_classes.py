"""Fallback classes: which measured curve prices a kernel class that was never measured.

Answers: which measured class moves its tensors in the same manner?
A relative is borrowed for its efficiency only: the bound (FLOP, bytes) is always the kernel's own. The
sigma is the log-spread of efficiency between the pair where both were measured (A100 and GH200
memory-bound kernels of data/operators: 0.60 to 0.87 of bandwidth; attention with heads of 192 and 128
beside as many of 128, over 4096 tokens, of data/peers/simumax: 11 rows a pass; their backward takes 1.2
times as long, beyond its bound), or a stated guess.

A new kernel class is one line here until it is measured. Coordinates must agree: a relative's curve
may have fewer axes than the class has coordinates, never more.
"""

from collections.abc import Mapping

from flopcast.operators.formats import SPARSE_FRACTIONS
from flopcast.records import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class FallbackClass:
    """The class to borrow from, and the log-sigma that borrowing adds.

    If the class is also borrowed from another device, both log-sigmas are added in quadrature. `time_ratio`
    is the time of the class, divided by its bound at the efficiency of the related class; `of_devices`
    states it for devices on which both were measured, by the start of their names. `speed_up_ratio` instead
    states how many times as fast as the related class it is, whatever the peak of its engine. A class is
    `tested` if a measurement, of the kernel or of a whole run that depends on it, was compared with a
    prediction; an untested class may have a sigma above 0.3.
    """

    name: str
    log_sigma_factor: float
    time_ratio: float = 1.0
    of_devices: Mapping[str, float] = field(default_factory=dict)
    speed_up_ratio: float | None = None
    tested: bool = True

    def time_ratio_on(self, device: str) -> float:
        """Return the time ratio on a device: the measured one, or that of all devices."""
        measured = (ratio for name, ratio in self.of_devices.items() if device.startswith(name))
        return next(measured, self.time_ratio)

    def time_ratio_of(self, engine_ratio: float) -> float:
        """Return the ratio of the class's time to its time at the efficiency of the fallback class.

        `engine_ratio` is its own engine's peak over that of 16 bits.

        >>> FallbackClass(name="gemm", log_sigma_factor=0.1, speed_up_ratio=1.6).time_ratio_of(2.0)
        1.25
        """
        return self.time_ratio if self.speed_up_ratio is None else engine_ratio / self.speed_up_ratio


GELU_LIKE = (  # an elementwise function
    *("silu", "relu", "relu2", "softcap", "sigmoid"),
    *("swiglu", "geglu", "clamped_swiglu", "clamped_geglu"),
)
STREAMING = FallbackClass(name="residual_add", log_sigma_factor=0.08)
CHAINS = (
    "wide_rmsnorm",
    "wide_scaled_rmsnorm",
    "wide_softmax",
    "unfused_swiglu",
    "unfused_geglu",
    "unfused_gelu",
    "unfused_relu2",
    "wide_add_adapter",
    "fp32_rmsnorm",
)
CHAIN = FallbackClass(name="residual_add", log_sigma_factor=0.2)

# Narrow products of training: no table has them (public ones are of serving kernels, slower than training
# sustains), so they are as many times as fast as 16-bit products of the same shape as those of Transformer
# Engine on operands that were cast before: docs/examples/gemm_profiling/gemm_profiling.rst of
# NVIDIA/TransformerEngine, the three products of all linear layers of a model of 5B. Peaks of engines do
# not say it: the one of 4 bits is 6 times that of 16 bits on B300, 4 times on B200, and tables of serving
# kernels are no more apart than those of 8 bits. What else is known of them: docs/accuracy/narrow.md.
LOW_PRECISION_SPEED_UP = {  # format → how many times as fast as 16 bits, and its log-sigma
    "fp8": (1.91, 0.04),  # 13.102 ms / 6.812 ms on B300 SXM, 31.968 / 16.785 on H200 NVL
    "fp8_block": (1.7, 0.12),  # estimate: H200's with casts, 22.9 ms against 20.3, and MXFP8 on Blackwell
    "mxfp8": (1.83, 0.05),  # 13.102 ms / 7.161 ms on B300
    "nvfp4": (3.48, 0.08),  # 13.102 ms / 3.764 ms on B300; serving tables let expect 3.1 to 3.35 on B200
}

SINGLE_PASSES = (  # over plain tensors, as a sum
    "copy", "bias_add", "position_add", "dropout", "cast_to_fp32", "scale_gradient", "flatten",
    "unflatten", "accumulate_gradient", "accumulate_main_gradient", "bias_dropout_add",
    "bias_add_residual", "fused_layernorm", "fused_rmsnorm", "add_layernorm", "add_rmsnorm", "rope",
    "scaled_rope", "alibi",
    "add_adapter", "fork", "fork.backward", "fork_of_three", "fork_of_three.backward", "rope_join",
    "scale_rows", "split_heads", "residual_add.backward", "copy.backward", "position_add.backward",
    "dropout.backward", "cast_to_fp32.backward", "bias_dropout_add.backward",
    "bias_add_residual.backward", "fused_layernorm.backward", "fused_rmsnorm.backward", "rope.backward",
    "scaled_rope.backward", "rope_join.backward", "scale_rows.backward", "split_heads.backward",
    "merge_blocks", "merge_gradients.backward", "adam",
    "widen", "widen.backward", "wide_dropout", "wide_dropout.backward",
    "autocast", "autocast.backward", "autocast_weight", "autocast_weight.backward",
    "mixed_residual_add", "mixed_residual_add.backward",
)  # fmt: skip

FALLBACK_CLASSES: dict[str, FallbackClass] = {
    **{
        f"narrow_{base}.{name}": FallbackClass(
            name=base, log_sigma_factor=sigma, speed_up_ratio=speed_up_ratio
        )
        for name, (speed_up_ratio, sigma) in LOW_PRECISION_SPEED_UP.items()
        for base in ("gemm", "expert_gemm", "grouped_gemm")
    },
    "quantise": FallbackClass(name="residual_add", log_sigma_factor=0.2),
    # MXFP8 in both layouts: 8192 squared of bf16 in 52.3 us on B200, 0.65 of its memory's bandwidth
    # (in rows alone 34.8 us, 0.73), where a sum attains 0.93: ROCm/TransformerEngine, pull request 598
    "quantise.blocks": FallbackClass(name="residual_add", log_sigma_factor=0.12, time_ratio=1.4),
    **dict.fromkeys(SINGLE_PASSES, STREAMING),
    # On A100, Apex's kernel takes 2.5 times as long as a sum of as many bytes, as it loads elements one by
    # one (arXiv:2509.22832, optimizer). PyTorch's kernel loads vectors, like a sum: the mean of both.
    "adam.16_bits": FallbackClass(name="residual_add", log_sigma_factor=0.3, time_ratio=1.6),
    # chains of such passes, of eager PyTorch: an estimate, as no row was measured
    **dict.fromkeys((name for chain in CHAINS for name in (chain, f"{chain}.backward")), CHAIN),
    # halves cut and joined, or parts added and joined: as the chain of rotary embedding, which does both
    **dict.fromkeys(
        ("clamp_halves", "joined_bias", "joined_bias.backward", "weighed_bias"),
        FallbackClass(name="unfused_rope", log_sigma_factor=0.25),
    ),
    # masks of halves written, joined and chosen by, halves joined: as the gradient of that chain
    "clamp_halves.backward": FallbackClass(name="unfused_rope.backward", log_sigma_factor=0.25),
    # products with a number a row and with a row a token, summed over either: as an eager norm's gradient
    "weighed_bias.backward": FallbackClass(name="unfused_rmsnorm.backward", log_sigma_factor=0.3),
    # a traced run of passes in one kernel, of any shapes: an estimate, as no row was measured
    **dict.fromkeys(("fused_pass", "fused_pass.backward"), CHAIN),
    # logits cast, and the logarithms of their softmax: an estimate, as no row was measured
    "metric_cross_entropy": FallbackClass(name="residual_add", log_sigma_factor=0.2),
    # rows gathered from, or scattered to, places all over a tensor: an estimate, as no row was measured
    **dict.fromkeys(
        (
            *("permute", "permute.backward", "unpermute", "unpermute.backward"),
            *("unpermute_sum", "unpermute_sum.backward"),
        ),
        FallbackClass(name="residual_add", log_sigma_factor=0.25),
    ),
    # codes of 4 bits looked up, and scaled twice: an estimate, as no row was measured
    "dequantise": FallbackClass(name="residual_add", log_sigma_factor=0.25),
    # short rows of a router's scores: an estimate, as no row was measured
    **dict.fromkeys(
        (
            *("top_k", "top_k.backward", "router_loss", "router_loss.backward"),
            *("selection_bias", "router_pass", "route_scan", "group_limit"),
        ),
        FallbackClass(name="residual_add", log_sigma_factor=0.3),
    ),
    # experts' products as one product of all rows: the sigma is what stands between two devices
    "grouped_gemm": FallbackClass(name="gemm", log_sigma_factor=0.19),
    # products in fp32 without TF32. PyTorch's of 8192 columns and rows reach 0.88 times the fraction of the
    # peak that those in 16 bits reach, in the mean of eight devices (zzc0721/torch-performance-test-data,
    # issues 124, 78, 161, 77, 79, 95, 140 and 108)
    "wide_gemm": FallbackClass(
        name="gemm",
        log_sigma_factor=0.29,
        time_ratio=1.13,
        of_devices={
            **{"rtx-5090": 1 / 0.57, "rtx-4090": 1 / 0.67, "rtx-pro-6000": 1 / 0.76, "h20-": 1 / 0.78},
            **{"h100-sxm": 1 / 0.95, "h100-pcie": 1 / 1.11, "v100": 1 / 1.18, "a100": 1 / 1.30},
        },
    ),
    # dense products of experts side by side: in the three passes 0.92, 0.95 and 1.52 times as long as dense
    # products of the same node (data/peers/simumax, B200)
    "expert_gemm": FallbackClass(name="gemm", log_sigma_factor=0.12),
    # products of serving: on a device where no format of theirs was measured, as those of training; other
    # formats at the efficiency of the nearest that was measured. Estimates: no device has rows of all
    "served_gemm": FallbackClass(name="gemm", log_sigma_factor=0.3),
    "served_gemm.fp32": FallbackClass(name="served_gemm", log_sigma_factor=0.3),
    "served_gemm.fp8": FallbackClass(name="served_gemm", log_sigma_factor=0.2),
    # where its rows are no longer those of the host: lab/calibration/peers.yaml
    "served_gemm.fp8_block": FallbackClass(name="served_gemm.fp8", log_sigma_factor=0.15),
    "served_gemm.nvfp4": FallbackClass(name="served_gemm.fp8", log_sigma_factor=0.2),
    "served_gemm.int4": FallbackClass(name="served_gemm", log_sigma_factor=0.3),
    "served_gemm.mxfp4": FallbackClass(name="served_gemm", log_sigma_factor=0.3),
    # both operands in 4 bits, which were measured as neither: as 16-bit products of the shape
    "served_gemm.w4a4": FallbackClass(name="served_gemm", log_sigma_factor=0.3),
    "served_gemm.mxfp4_mxfp8": FallbackClass(name="served_gemm.fp8", log_sigma_factor=0.3),
    **{
        f"{kernel}.{name}": FallbackClass(name=kernel, log_sigma_factor=0.3)
        for name in SPARSE_FRACTIONS
        for kernel in ("served_gemm", "fused_experts")
    },
    "fused_experts": FallbackClass(name="grouped_gemm", log_sigma_factor=0.3),
    "fused_experts.fp32": FallbackClass(name="fused_experts", log_sigma_factor=0.3),
    "fused_experts.fp8": FallbackClass(name="fused_experts.fp8_block", log_sigma_factor=0.2),
    "fused_experts.fp8_block": FallbackClass(name="fused_experts", log_sigma_factor=0.2),
    "fused_experts.nvfp4": FallbackClass(name="fused_experts.fp8", log_sigma_factor=0.2),
    "fused_experts.int4": FallbackClass(name="fused_experts", log_sigma_factor=0.3),
    "fused_experts.mxfp4": FallbackClass(name="fused_experts.int4", log_sigma_factor=0.3),
    "fused_experts.w4a4": FallbackClass(name="fused_experts", log_sigma_factor=0.3),
    "fused_experts.mxfp4_mxfp8": FallbackClass(name="fused_experts.fp8", log_sigma_factor=0.3),
    # reductions over tokens
    **dict.fromkeys(
        ("bias_add.backward", "epilogue_bias.backward", "gradient_norm"),
        FallbackClass(name="residual_add", log_sigma_factor=0.2),
    ),
    **dict.fromkeys(
        ("epilogue_bias", "epilogue_gate", "keep", "merge_gradients"), STREAMING
    ),  # move nothing
    "softmax_dropout": FallbackClass(name="scaled_masked_softmax", log_sigma_factor=0.1),
    "softmax_dropout.backward": FallbackClass(name="scaled_masked_softmax.backward", log_sigma_factor=0.1),
    # a softmax over rows too wide to stay on chip, and one pass: estimates, as no row was measured
    "fused_cross_entropy": FallbackClass(name="softmax", log_sigma_factor=0.2),
    "fused_cross_entropy.backward": FallbackClass(name="residual_add", log_sigma_factor=0.2),
    "bias_gelu": FallbackClass(name="gelu", log_sigma_factor=0.08),
    "bias_gelu.backward": FallbackClass(name="gelu.backward", log_sigma_factor=0.1),
    **{name: FallbackClass(name="gelu", log_sigma_factor=0.1) for name in GELU_LIKE},
    **{f"{name}.backward": FallbackClass(name="gelu.backward", log_sigma_factor=0.1) for name in GELU_LIKE},
    # forward and backward of one kernel on one device: 37 pairs of cuDNN (benchmark/sdpa_benchmark_training
    # of NVIDIA/cudnn-frontend: causal, bf16, heads of 128, 2 k to 32 k tokens; H200, B200, GB200, GB300),
    # the mean over eight tables and the spread over all pairs: 1.20 on H200 and GB200, 1.36 on GB300, whose
    # exponentials are twice as fast
    "flash_attention.backward": FallbackClass(
        name="flash_attention", log_sigma_factor=0.06, time_ratio=1.27
    ),
    # caches of 8 and 4 bits, windows, latents as one cached head: guesses, beside own curves on ten
    # devices
    "decode_attention.fp8": FallbackClass(name="decode_attention", log_sigma_factor=0.25),
    "decode_attention.int4": FallbackClass(name="decode_attention", log_sigma_factor=0.3),
    "decode_attention.window.int4": FallbackClass(name="decode_attention.window", log_sigma_factor=0.3),
    "decode_attention.window": FallbackClass(name="decode_attention", log_sigma_factor=0.25),
    "decode_attention.window.fp8": FallbackClass(name="decode_attention.window", log_sigma_factor=0.25),
    "latent_decode": FallbackClass(name="decode_attention", log_sigma_factor=0.3),
    # linear attention. Its steps of decoding move states at 0.56 of the bandwidth of H20, with 128 to 1024
    # sequences (data/peers/infersim/gdn_decode.csv), where a sum attains 0.9; no other device was measured
    "delta_decode": FallbackClass(name="residual_add", log_sigma_factor=0.25, time_ratio=1.6),
    # Steps of Mamba-2 in vLLM move fp32 states at 0.78 of the bandwidth of H200, with 128 sequences of 64
    # heads (142.7 us, pull request 44251). Before May 2026, vLLM used other launch sizes, with which a step
    # took 1.03 times as long on H100, 1.15 on B300 and 1.32 on H200 (pull requests 48018 and 44251).
    "state_space_decode": FallbackClass(name="residual_add", log_sigma_factor=0.25, time_ratio=1.2),
    # in training, instructions take longer than the curve of an engine's kernel (operators/gated_delta.py)
    "state_space": FallbackClass(name="gated_delta", log_sigma_factor=0.25),
    "gated_delta.backward": FallbackClass(name="gated_delta", log_sigma_factor=0.2),
    # the two generations from which its instructions are known differ by a factor of 1.5
    "channel_delta": FallbackClass(name="gated_delta", log_sigma_factor=0.25),
    "channel_delta.backward": FallbackClass(name="gated_delta", log_sigma_factor=0.25),
    # streams of bytes, with more instructions (operators/gated_delta.py): two devices differ by 20 %
    "gated_linear_attention": FallbackClass(name="residual_add", log_sigma_factor=0.2),
    "gated_linear_attention.backward": FallbackClass(name="residual_add", log_sigma_factor=0.2),
    # the cycles of the two devices from which they are known differ by a factor of 3 (the same file)
    "selective_scan": FallbackClass(name="residual_add", log_sigma_factor=0.5, tested=False),
    "selective_scan.backward": FallbackClass(name="residual_add", log_sigma_factor=0.5, tested=False),
    # the kernels of one benchmark on H100 differ by a factor of 8 (the same file)
    "wkv": FallbackClass(name="residual_add", log_sigma_factor=0.5, tested=False),
    "wkv.backward": FallbackClass(name="residual_add", log_sigma_factor=0.5, tested=False),
    # an estimate: programs that train RWKV fuse these passes differently, and no times were published
    **dict.fromkeys(
        ("token_shift", "token_shift.backward", "learned_shift", "learned_shift.backward"),
        FallbackClass(name="residual_add", log_sigma_factor=0.4, tested=False),
    ),
    "log_sigmoid": FallbackClass(name="gelu", log_sigma_factor=0.1),
    "log_sigmoid.backward": FallbackClass(name="gelu.backward", log_sigma_factor=0.1),
    "state_space.backward": FallbackClass(name="state_space", log_sigma_factor=0.15),
    "causal_convolution": FallbackClass(name="residual_add", log_sigma_factor=0.3, time_ratio=2.0),
    "gated_rmsnorm": FallbackClass(name="layernorm", log_sigma_factor=0.2),
    "gated_rmsnorm.backward": FallbackClass(name="layernorm.backward", log_sigma_factor=0.25),
    "sigmoid_gate": FallbackClass(name="gelu", log_sigma_factor=0.1),
    "sigmoid_gate.backward": FallbackClass(name="gelu.backward", log_sigma_factor=0.1),
    "causal_convolution.backward": FallbackClass(name="residual_add", log_sigma_factor=0.3, time_ratio=2.0),
    # sparse attention: no kernel and no run with it was measured
    **dict.fromkeys(
        ("index_keys", "index_choice"),
        FallbackClass(name="residual_add", log_sigma_factor=0.5, tested=False),
    ),
    # the five times in operators/row_sort.py are 1.4 to 2.1 times those of their bytes on an H100; which
    # devices were measured is not stated
    "row_sort": FallbackClass(name="residual_add", log_sigma_factor=0.3, time_ratio=2.0),
    "latent_decode.int4": FallbackClass(name="latent_decode", log_sigma_factor=0.3),
    "latent_decode.fp8": FallbackClass(name="latent_decode", log_sigma_factor=0.25),
    "flash_attention.latent": FallbackClass(name="flash_attention", log_sigma_factor=0.1),
    "flash_attention.latent.backward": FallbackClass(
        name="flash_attention.backward", log_sigma_factor=0.08, time_ratio=1.2
    ),
    # PyTorch's memory-efficient kernel, because FlashAttention supports only 16 bits. On A100, it takes 2.3
    # to 3.8 times as long as in fp16 (facebookresearch/xformers, pull requests 389 and 467), and in 16 bits
    # 1.4 to 2.2 times as long as FlashAttention-2 (issue 924; Dao-AILab/flash-attention, issue 416). Both
    # factors together are 3 to 8. The peak rates differ by a factor of 16
    **{
        f"flash_attention.fp32{phase}": FallbackClass(name=f"flash_attention{phase}", log_sigma_factor=0.3)
        for phase in ("", ".backward")
    },
    # a window's second ragged edge, and how its tiles are dealt out: an estimate, as no row was measured
    "flash_attention.window": FallbackClass(name="flash_attention", log_sigma_factor=0.1),
    "flash_attention.window.backward": FallbackClass(name="flash_attention.backward", log_sigma_factor=0.1),
    "rmsnorm": FallbackClass(name="layernorm", log_sigma_factor=0.15),
    "rmsnorm.backward": FallbackClass(name="layernorm.backward", log_sigma_factor=0.2),
}

# Kernels that widen their weights and then multiply in the format of another class. With more rows for each
# expert than were measured (20 in mxfp4, 5 in int4), they are at most as efficient as this other class,
# which was measured with thousands: they execute its instructions on the matrix units, and the widening.
# Weights in mxfp4 are not widened for rows in mxfp8: Blackwell's matrix units read both formats.
WIDENED = {"fused_experts.int4": "fused_experts", "fused_experts.mxfp4": "fused_experts"}
