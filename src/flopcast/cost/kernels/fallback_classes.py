"""Fallback classes: which measured curve is used for a kernel class that was never measured.

Answers: which measured class accesses memory in a similar way? Only the efficiency comes from the related
class; the bound (FLOP, bytes) is always that of the kernel. The sigma is the log-spread of the efficiency
between both classes, where both were measured, or a stated guess. Measurements of both exist for
memory-bound kernels on A100 and GH200 (data/operators: 0.60 to 0.87 of the bandwidth), and for attention
with heads of 192 and 128 compared with heads of 128, over 4096 tokens (data/peers/simumax: 11 rows per
pass; the backward pass takes 1.2 times as long, relative to its bound).

A new kernel class has one line here until it is measured. Coordinates must agree: the curve of the related
class must not have more axes than the class has coordinates.
"""

from collections.abc import Mapping

from flopcast.operators.formats import SPARSE_FRACTIONS
from flopcast.records import Record, field


class FallbackClass(Record):
    """The class to borrow from, and the log-sigma that borrowing adds.

    If the curve also belongs to another device, both log-sigmas are added in quadrature. `time_ratio` is
    the time of the class, divided by its bound at the efficiency of the related class; `of_devices` states
    this ratio for devices on which both classes were measured, by the beginning of their names.
    `speed_up_ratio` instead states how many times as fast as the related class it is, independently of the
    peak of its engine. A class is `tested` if a measurement, of the kernel or of a whole run that depends
    on it, was compared with a prediction; an untested class may have a sigma above 0.3.
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

        `engine_ratio` is the peak of the engine of the class, divided by the peak in 16 bits.

        >>> FallbackClass(name="gemm", log_sigma_factor=0.1, speed_up_ratio=1.6).time_ratio_of(2.0)
        1.25
        """
        return self.time_ratio if self.speed_up_ratio is None else engine_ratio / self.speed_up_ratio


def _like(
    name: str, log_sigma_factor: float, classes: str, time_ratio: float = 1.0, *, tested: bool = True
) -> dict[str, FallbackClass]:
    """Return classes, separated by blanks, that borrow the same curve with the same log-sigma."""
    borrowed = FallbackClass(
        name=name, log_sigma_factor=log_sigma_factor, time_ratio=time_ratio, tested=tested
    )
    return dict.fromkeys(classes.split(), borrowed)


def _gradients(classes: str) -> str:
    """Return the gradients of classes, separated by blanks."""
    return " ".join(f"{each}.backward" for each in classes.split())


def _both_passes(
    name: str, log_sigma_factors: tuple[float, float], classes: str
) -> dict[str, FallbackClass]:
    """Return classes that borrow from a class, and their gradients, which borrow from its gradient."""
    forward, backward = log_sigma_factors
    return _like(name, forward, classes) | _like(f"{name}.backward", backward, _gradients(classes))


# an elementwise function, as GELU
GELU_LIKE = "silu relu relu2 softcap sigmoid swiglu geglu clamped_swiglu clamped_geglu"
CHAINS = (
    "wide_rmsnorm wide_scaled_rmsnorm wide_softmax unfused_swiglu unfused_geglu unfused_gelu unfused_relu2"
    " wide_add_adapter fp32_rmsnorm"
)

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

PERMUTATIONS = "permute unpermute unpermute_sum"
# over plain tensors, as a sum
SINGLE_PASSES = """
    copy bias_add position_add dropout cast_to_fp32 scale_gradient flatten unflatten accumulate_gradient
    accumulate_main_gradient bias_dropout_add bias_add_residual fused_layernorm fused_rmsnorm
    add_layernorm add_rmsnorm rope scaled_rope alibi add_adapter fork fork.backward fork_of_three
    fork_of_three.backward rope_join scale_rows split_heads residual_add.backward copy.backward
    position_add.backward dropout.backward cast_to_fp32.backward bias_dropout_add.backward
    bias_add_residual.backward fused_layernorm.backward fused_rmsnorm.backward rope.backward
    scaled_rope.backward rope_join.backward scale_rows.backward split_heads.backward merge_blocks
    merge_gradients.backward adam widen widen.backward wide_dropout wide_dropout.backward autocast
    autocast.backward autocast_weight autocast_weight.backward mixed_residual_add
    mixed_residual_add.backward
"""

FALLBACK_CLASSES: dict[str, FallbackClass] = {
    **{
        f"narrow_{base}.{name}": FallbackClass(
            name=base, log_sigma_factor=sigma, speed_up_ratio=speed_up_ratio
        )
        for name, (speed_up_ratio, sigma) in LOW_PRECISION_SPEED_UP.items()
        for base in ("gemm", "expert_gemm", "grouped_gemm")
    },
    **_like("residual_add", 0.2, "quantise"),
    # MXFP8 in both layouts: 8192 squared of bf16 in 52.3 us on B200, 0.65 of its memory's bandwidth
    # (in rows alone 34.8 us, 0.73), where a sum attains 0.93: ROCm/TransformerEngine, pull request 598
    **_like("residual_add", 0.12, "quantise.blocks", 1.4),
    **_like("residual_add", 0.08, SINGLE_PASSES),
    # On A100, Apex's kernel takes 2.5 times as long as a sum of as many bytes, as it loads elements one by
    # one (arXiv:2509.22832, optimizer). PyTorch's kernel loads vectors, like a sum: the mean of both.
    **_like("residual_add", 0.3, "adam.16_bits", 1.6),
    # chains of such passes, of eager PyTorch: an estimate, as no row was measured
    **_like("residual_add", 0.2, f"{CHAINS} {_gradients(CHAINS)}"),
    # halves cut and joined, or parts added and joined: as the chain of rotary embedding, which does both
    **_like("unfused_rope", 0.25, "clamp_halves joined_bias joined_bias.backward weighed_bias"),
    # masks of halves written, joined and chosen by, halves joined: as the gradient of that chain
    **_like("unfused_rope.backward", 0.25, "clamp_halves.backward"),
    # products with a number a row and with a row a token, summed over either: as an eager norm's gradient
    **_like("unfused_rmsnorm.backward", 0.3, "weighed_bias.backward"),
    # a traced run of passes in one kernel, of any shapes: an estimate, as no row was measured
    **_like("residual_add", 0.2, "fused_pass fused_pass.backward"),
    # logits cast, and the logarithms of their softmax: an estimate, as no row was measured
    **_like("residual_add", 0.2, "metric_cross_entropy"),
    # rows gathered from, or scattered to, places all over a tensor: an estimate, as no row was measured
    **_like("residual_add", 0.25, f"{PERMUTATIONS} {_gradients(PERMUTATIONS)}"),
    # codes of 4 bits looked up, and scaled twice: an estimate, as no row was measured
    **_like("residual_add", 0.25, "dequantise"),
    # short rows of a router's scores: an estimate, as no row was measured
    **_like("residual_add", 0.3, "top_k top_k.backward router_loss router_loss.backward"),
    **_like("residual_add", 0.3, "selection_bias router_pass route_scan group_limit"),
    # experts' products as one product of all rows: the sigma is what stands between two devices
    **_like("gemm", 0.19, "grouped_gemm"),
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
    **_like("gemm", 0.12, "expert_gemm"),
    # products of serving: on a device where no format of theirs was measured, as those of training; other
    # formats at the efficiency of the nearest that was measured. Estimates: no device has rows of all
    **_like("gemm", 0.3, "served_gemm"),
    **_like("served_gemm", 0.3, "served_gemm.fp32 served_gemm.int4 served_gemm.mxfp4"),
    **_like("served_gemm", 0.2, "served_gemm.fp8"),
    # where its rows are no longer those of the host: lab/calibration/peers.yaml
    **_like("served_gemm.fp8", 0.15, "served_gemm.fp8_block"),
    **_like("served_gemm.fp8", 0.2, "served_gemm.nvfp4"),
    # both operands in 4 bits, which were measured as neither: as 16-bit products of the shape
    **_like("served_gemm", 0.3, "served_gemm.w4a4"),
    **_like("served_gemm.fp8", 0.3, "served_gemm.mxfp4_mxfp8"),
    **{
        f"{kernel}.{name}": FallbackClass(name=kernel, log_sigma_factor=0.3)
        for name in SPARSE_FRACTIONS
        for kernel in ("served_gemm", "fused_experts")
    },
    **_like("grouped_gemm", 0.3, "fused_experts"),
    **_like("fused_experts", 0.3, "fused_experts.fp32 fused_experts.int4 fused_experts.w4a4"),
    **_like("fused_experts", 0.2, "fused_experts.fp8_block"),
    **_like("fused_experts.fp8_block", 0.2, "fused_experts.fp8"),
    **_like("fused_experts.fp8", 0.2, "fused_experts.nvfp4"),
    **_like("fused_experts.fp8", 0.3, "fused_experts.mxfp4_mxfp8"),
    **_like("fused_experts.int4", 0.3, "fused_experts.mxfp4"),
    # reductions over tokens
    **_like("residual_add", 0.2, "bias_add.backward epilogue_bias.backward gradient_norm"),
    **_like("residual_add", 0.08, "epilogue_bias epilogue_gate keep merge_gradients"),  # move nothing
    **_both_passes("scaled_masked_softmax", (0.1, 0.1), "softmax_dropout"),
    # a softmax over rows too wide to stay on chip, and one pass: estimates, as no row was measured
    **_like("softmax", 0.2, "fused_cross_entropy"),
    **_like("residual_add", 0.2, "fused_cross_entropy.backward"),
    **_both_passes("gelu", (0.08, 0.1), "bias_gelu"),
    **_both_passes("gelu", (0.1, 0.1), f"{GELU_LIKE} log_sigmoid sigmoid_gate"),
    # forward and backward of one kernel on one device: 37 pairs of cuDNN (benchmark/sdpa_benchmark_training
    # of NVIDIA/cudnn-frontend: causal, bf16, heads of 128, 2 k to 32 k tokens; H200, B200, GB200, GB300),
    # the mean over eight tables and the spread over all pairs: 1.20 on H200 and GB200, 1.36 on GB300, whose
    # exponentials are twice as fast
    **_like("flash_attention", 0.06, "flash_attention.backward", 1.27),
    # 8 bits over 16, from the same tables of May 2026 (cuDNN 9.23): means over 4 k and 8 k tokens on GB200
    # and GB300; heads of 128, and heads of 192 and 128
    **_like("flash_attention", 0.05, "flash_attention.mxfp8", 0.805),
    **_like("flash_attention", 0.05, "flash_attention.fp8", 0.74),
    **_like("flash_attention.backward", 0.06, "flash_attention.mxfp8.backward", 1.07),
    **_like("flash_attention.backward", 0.08, "flash_attention.fp8.backward", 0.905),
    **_like("flash_attention.latent", 0.05, "flash_attention.latent.mxfp8", 0.69),
    **_like("flash_attention.latent", 0.05, "flash_attention.latent.fp8", 0.63),
    **_like("flash_attention.latent.backward", 0.05, "flash_attention.latent.mxfp8.backward", 0.73),
    **_like("flash_attention.latent.backward", 0.06, "flash_attention.latent.fp8.backward", 0.59),
    # caches of 8 and 4 bits, windows, latents as one cached head: guesses, beside own curves on ten
    # devices
    **_like("decode_attention", 0.25, "decode_attention.fp8 decode_attention.window"),
    **_like("decode_attention", 0.3, "decode_attention.int4 latent_decode"),
    **_like("decode_attention.window", 0.25, "decode_attention.window.fp8"),
    **_like("decode_attention.window", 0.3, "decode_attention.window.int4"),
    # linear attention. Its steps of decoding move states at 0.56 of the bandwidth of H20, with 128 to 1024
    # sequences (data/peers/infersim/gdn_decode.csv), where a sum attains 0.9; no other device was measured
    **_like("residual_add", 0.25, "delta_decode", 1.6),
    # Steps of Mamba-2 in vLLM move fp32 states at 0.78 of the bandwidth of H200, with 128 sequences of 64
    # heads (142.7 us, pull request 44251). Before May 2026, vLLM used other launch sizes, with which a step
    # took 1.03 times as long on H100, 1.15 on B300 and 1.32 on H200 (pull requests 48018 and 44251).
    **_like("residual_add", 0.25, "state_space_decode", 1.2),
    # in training, instructions take longer than the curve of an engine's kernel (operators/gated_delta.py)
    **_like("gated_delta", 0.25, "state_space"),
    **_like("gated_delta", 0.2, "gated_delta.backward"),
    # the two generations from which its instructions are known differ by a factor of 1.5
    **_like("gated_delta", 0.25, "channel_delta channel_delta.backward"),
    # streams of bytes, with more instructions (operators/gated_delta.py): two devices differ by 20 %
    **_like("residual_add", 0.2, "gated_linear_attention gated_linear_attention.backward"),
    # the cycles of the two devices from which they are known differ by a factor of 3 (the same file)
    **_like("residual_add", 0.5, "selective_scan selective_scan.backward", tested=False),
    # the kernels of one benchmark on H100 differ by a factor of 8 (the same file)
    **_like("residual_add", 0.5, "wkv wkv.backward", tested=False),
    # an estimate: programs that train RWKV fuse these passes differently, and no times were published
    **_like("residual_add", 0.4, "token_shift token_shift.backward", tested=False),
    **_like("residual_add", 0.4, "learned_shift learned_shift.backward", tested=False),
    **_like("state_space", 0.15, "state_space.backward"),
    **_like("residual_add", 0.3, "causal_convolution causal_convolution.backward", 2.0),
    **_both_passes("layernorm", (0.2, 0.25), "gated_rmsnorm"),
    # sparse attention: no kernel and no run with it was measured
    **_like("residual_add", 0.5, "index_keys index_choice", tested=False),
    # the five times in operators/row_sort.py are 1.4 to 2.1 times those of their bytes on an H100; which
    # devices were measured is not stated
    **_like("residual_add", 0.3, "row_sort", 2.0),
    **_like("latent_decode", 0.3, "latent_decode.int4"),
    **_like("latent_decode", 0.25, "latent_decode.fp8"),
    **_like("flash_attention", 0.1, "flash_attention.latent"),
    **_like("flash_attention.backward", 0.08, "flash_attention.latent.backward", 1.2),
    # PyTorch's memory-efficient kernel, because FlashAttention supports only 16 bits. On A100, it takes 2.3
    # to 3.8 times as long as in fp16 (facebookresearch/xformers, pull requests 389 and 467), and in 16 bits
    # 1.4 to 2.2 times as long as FlashAttention-2 (issue 924; Dao-AILab/flash-attention, issue 416). Both
    # factors together are 3 to 8. The peak rates differ by a factor of 16
    **_both_passes("flash_attention", (0.3, 0.3), "flash_attention.fp32"),
    # a window's second ragged edge, and how its tiles are dealt out: an estimate, as no row was measured
    **_both_passes("flash_attention", (0.1, 0.1), "flash_attention.window"),
    **_both_passes("layernorm", (0.15, 0.2), "rmsnorm"),
}

# Kernels that widen their weights and then multiply in the format of another class. With more rows for each
# expert than were measured (20 in mxfp4, 5 in int4), they are at most as efficient as this other class,
# which was measured with thousands: they execute its instructions on the matrix units, and the widening.
# Weights in mxfp4 are not widened for rows in mxfp8: Blackwell's matrix units read both formats.
WIDENED = {"fused_experts.int4": "fused_experts", "fused_experts.mxfp4": "fused_experts"}
