"""Whose curve prices a kernel class that was never measured, and how sure that is.

Answers: which measured class moves its tensors in the same manner?
A relative is borrowed for its efficiency only: the bound (FLOP, bytes) is always the kernel's own. The
sigma is the log-spread of efficiency between the pair where both were measured (A100 and GH200
memory-bound kernels of data/operators: 0.60 to 0.87 of bandwidth; attention with heads of 192 and 128
beside as many of 128, over 4096 tokens, of data/peers/simumax: 11 rows a pass; their backward takes 1.2
times as long, beyond its bound), or a stated guess.

A new kernel class is one line here until it is measured. Coordinates must agree: a relative's curve
may have fewer axes than the class has coordinates, never more.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Relative:
    """The class to borrow from, and the log-sigma that borrowing adds.

    It is added in quadrature to that of another device, where the relative is borrowed from there too.
    `time_ratio` is how much longer the class takes at the relative's efficiency: beyond its own bound.
    """

    name: str
    log_sigma_factor: float
    time_ratio: float = 1.0


GELU_LIKE = ("silu", "relu", "relu2", "swiglu", "geglu", "softcap", "sigmoid")  # an elementwise function
STREAMING = Relative(name="residual_add", log_sigma_factor=0.08)
CHAINS = (
    "wide_rmsnorm",
    "wide_scaled_rmsnorm",
    "wide_softmax",
    "unfused_swiglu",
    "unfused_geglu",
    "unfused_gelu",
)
CHAIN = Relative(name="residual_add", log_sigma_factor=0.2)

# Narrow products of training: no table has them (public ones are of serving kernels, slower than training
# sustains), so they are as efficient as 16-bit products of the same shape, at the peak of their own engine,
# times these. What each was fitted on and judged on: docs/accuracy/narrow.md.
NARROW_RATIO = {  # format → time, and its log-sigma
    "fp8": (1.12, 0.05),  # prior: a model of other structure, fitted on published runs of H100
    "fp8_block": (1.2, 0.15),  # estimate: as MXFP8, whose blocks also run along the sum
    "mxfp8": (1.2, 0.05),  # fitted on five pairs of published runs of B200 and GB200
    "nvfp4": (1.6, 0.08),  # fitted on four pairs of published runs of GB200
}

RELATIVES: dict[str, Relative] = {
    **{
        f"narrow_{base}.{name}": Relative(name=base, log_sigma_factor=sigma, time_ratio=ratio)
        for name, (ratio, sigma) in NARROW_RATIO.items()
        for base in ("gemm", "expert_gemm", "grouped_gemm")
    },
    "quantise": Relative(name="residual_add", log_sigma_factor=0.2),
    # one pass over plain tensors, as a sum
    **dict.fromkeys(
        (
            "copy",
            "bias_add",
            "position_add",
            "dropout",
            "cast_to_fp32",
            "scale_gradient",
            "flatten",
            "unflatten",
            "accumulate_gradient",
            "accumulate_main_gradient",
            "bias_dropout_add",
            "bias_add_residual",
            "fused_layernorm",
            "rope",
            "alibi",
            "add_adapter",
            "fork",
            "fork.backward",
            "rope_join",
            "scale_rows",
            "split_heads",
            "residual_add.backward",
            "copy.backward",
            "position_add.backward",
            "dropout.backward",
            "cast_to_fp32.backward",
            "bias_dropout_add.backward",
            "bias_add_residual.backward",
            "fused_layernorm.backward",
            "rope.backward",
            "rope_join.backward",
            "scale_rows.backward",
            "split_heads.backward",
            "merge_blocks",
            "merge_gradients.backward",
            "adam",
        ),
        STREAMING,
    ),
    # chains of such passes, of eager PyTorch: an estimate, as no row was measured
    **dict.fromkeys((name for chain in CHAINS for name in (chain, f"{chain}.backward")), CHAIN),
    # a traced run of passes in one kernel, of any shapes: an estimate, as no row was measured
    **dict.fromkeys(("fused_pass", "fused_pass.backward"), CHAIN),
    # logits cast, and the logarithms of their softmax: an estimate, as no row was measured
    "metric_cross_entropy": Relative(name="residual_add", log_sigma_factor=0.2),
    # rows gathered from, or scattered to, places all over a tensor: an estimate, as no row was measured
    **dict.fromkeys(
        (
            *("permute", "permute.backward", "unpermute", "unpermute.backward"),
            *("unpermute_sum", "unpermute_sum.backward"),
        ),
        Relative(name="residual_add", log_sigma_factor=0.25),
    ),
    # codes of 4 bits looked up, and scaled twice: an estimate, as no row was measured
    "dequantise": Relative(name="residual_add", log_sigma_factor=0.25),
    # short rows of a router's scores: an estimate, as no row was measured
    **dict.fromkeys(
        (
            *("top_k", "top_k.backward", "router_loss", "router_loss.backward"),
            *("selection_bias", "group_limit"),
        ),
        Relative(name="residual_add", log_sigma_factor=0.3),
    ),
    # experts' products as one product of all rows: the sigma is what stands between two devices
    "grouped_gemm": Relative(name="gemm", log_sigma_factor=0.19),
    # dense products of experts side by side: in the three passes 0.92, 0.95 and 1.52 times as long as dense
    # products of the same node (data/peers/simumax, B200)
    "expert_gemm": Relative(name="gemm", log_sigma_factor=0.12),
    # reductions over tokens
    **dict.fromkeys(
        ("bias_add.backward", "epilogue_bias.backward", "gradient_norm"),
        Relative(name="residual_add", log_sigma_factor=0.2),
    ),
    **dict.fromkeys(("epilogue_bias", "epilogue_gate", "merge_gradients"), STREAMING),  # move nothing
    "softmax_dropout": Relative(name="scaled_masked_softmax", log_sigma_factor=0.1),
    "softmax_dropout.backward": Relative(name="scaled_masked_softmax.backward", log_sigma_factor=0.1),
    # a softmax over rows too wide to stay on chip, and one pass: estimates, as no row was measured
    "fused_cross_entropy": Relative(name="softmax", log_sigma_factor=0.2),
    "fused_cross_entropy.backward": Relative(name="residual_add", log_sigma_factor=0.2),
    "bias_gelu": Relative(name="gelu", log_sigma_factor=0.08),
    "bias_gelu.backward": Relative(name="gelu.backward", log_sigma_factor=0.1),
    **{name: Relative(name="gelu", log_sigma_factor=0.1) for name in GELU_LIKE},
    **{f"{name}.backward": Relative(name="gelu.backward", log_sigma_factor=0.1) for name in GELU_LIKE},
    "flash_attention.latent": Relative(name="flash_attention", log_sigma_factor=0.1),
    "flash_attention.latent.backward": Relative(
        name="flash_attention.backward", log_sigma_factor=0.08, time_ratio=1.2
    ),
    # a window's second ragged edge, and how its tiles are dealt out: an estimate, as no row was measured
    "flash_attention.window": Relative(name="flash_attention", log_sigma_factor=0.1),
    "flash_attention.window.backward": Relative(name="flash_attention.backward", log_sigma_factor=0.1),
    "rmsnorm": Relative(name="layernorm", log_sigma_factor=0.15),
    "rmsnorm.backward": Relative(name="layernorm.backward", log_sigma_factor=0.2),
}
