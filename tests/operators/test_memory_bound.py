"""Traffic of memory-bound kernels, counted tensor by tensor.

TRAFFIC says what each kernel reads and writes, forward and backward, one word a 16-bit tensor of the
operator's elements (an fp32 tensor is two words, half a tensor starts with ½); a semicolon parts
kernels that follow each other.
Vectors as long as a row (scales, biases, sines) are too small to count.
"""

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.dtypes import constant
from flopcast.operators.memory_bound import KINDS, MemoryBound

NORM = ("x -> y", "x dy -> dx")
ACTIVATION = ("x -> y", "x dy -> dx")
FROM_OUTPUT = ("x -> y", "y dy -> dx")
GATED = ("gate value -> y", "gate value dy -> dgate dvalue")
IN_PLACE = ("x -> y", "dy -> dx")

TRAFFIC = {
    "layernorm": NORM,
    "rmsnorm": NORM,
    "fused_layernorm": NORM,
    "fused_rmsnorm": NORM,
    "softmax": FROM_OUTPUT,
    "scaled_masked_softmax": FROM_OUTPUT,
    "mask_fill": IN_PLACE,
    "alibi": ("scores -> scores", ""),
    "softcap": FROM_OUTPUT,
    "gelu": ACTIVATION,
    "silu": ACTIVATION,
    "relu": FROM_OUTPUT,
    "relu2": ACTIVATION,
    "swiglu": GATED,
    "geglu": GATED,
    "clamped_swiglu": GATED,
    "clamped_geglu": GATED,
    "dropout": IN_PLACE,
    "add_layernorm": ("x branch -> sum y", ""),
    "add_rmsnorm": ("x branch -> sum y", ""),
    "residual_add": ("x branch -> y", "dy1 dy2 -> dx"),
    "bias_add": ("x -> y", "dy ->"),
    "position_add": ("x positions -> y", "dy ->"),
    "copy": IN_PLACE,
    "cast_to_fp32": ("x -> high low", "dhigh dlow -> dx"),
    "rope": IN_PLACE,
    "causal_convolution": ACTIVATION,
    "gated_rmsnorm": GATED,
    "sigmoid_gate": GATED,
    "scaled_rope": IN_PLACE,
    "sigmoid": FROM_OUTPUT,
    "log_sigmoid": ("x -> y ; y -> decays", "ddecays -> dy ; x dy -> dx"),
    "token_shift": ("x last -> y", "x last dy -> dx dlast"),
    "learned_shift": ("x last weights -> y", "x last weights dy -> dx dlast dweights"),
    "add_adapter": ("x adapter -> y", ""),
    # of an adapter in fp32, whose products read and write 4 bytes an element instead of 2
    "widen": ("x -> high low ; low ->", "dhigh dlow -> dx ; -> dlow ; low ->"),
    "wide_dropout": ("high low -> high low", "dhigh dlow -> dhigh dlow"),
    "wide_add_adapter": (  # written by a product; scaled; added; cast
        "-> low ; high low -> high low ; x high low -> high low ; high low -> y",
        "dy -> dhigh dlow ; dhigh dlow -> dx ; dhigh dlow -> dhigh dlow ; dlow -> ; dlow ->",
    ),
    **dict.fromkeys(("autocast", "autocast_weight"), ("high low -> y", "dy -> dhigh dlow")),
    "mixed_residual_add": ("x high low -> high low", "d1 d1 d2 d2 -> d d ; d d -> dx"),
    "fp32_rmsnorm": (  # square; mean; product; scale
        "x x -> s s ; s s -> ; x x -> n n ; n n -> y y",
        "dy dy -> dn dn ; dy dy n n -> p p ; p p -> ; dn dn -> a a ; dn dn x x -> p p ; p p -> ;"
        " x x -> q q ; q q -> q q ; q q -> b b ; a a b b -> dx dx",
    ),
    "fork": ("->", "dx1 dx2 -> dx"),
    "fork_of_three": ("->", "dx1 dx2 dx3 -> dx"),
    "scale_rows": ACTIVATION,  # y = scale · x: the scale's gradient needs x
    "top_k": ("scores ->", "-> dscores"),
    "router_loss": ("scores ->", "scores -> dscores"),
    "selection_bias": ("scores -> scores", ""),
    "router_pass": ("scores -> mask", ""),
    "route_scan": ("routes ->", ""),
    "group_limit": ("scores -> ; scores -> scores", ""),  # the best of each group; the others' masked
    "permute": IN_PLACE,
    "unpermute": ACTIVATION,  # y = Σ weight · x: the weights' gradients need x
    "unpermute_sum": IN_PLACE,
    "cross_entropy": ("high low ->", "-> dhigh dlow"),
    "metric_cross_entropy": (
        "logits -> high low ; high low -> logs logs",
        "",
    ),  # cast; softmax's logarithms
    "merge_blocks": ("part high low -> high low", ""),
    "merge_gradients": ("->", "sum part -> sum"),
    "bias_gelu": ("x -> y", "x dy -> dx ; dx ->"),
    "split_heads": ("->", "dqkv -> joined"),
    "epilogue_bias": ("->", "dy ->"),
    "epilogue_gate": ("->", ""),
    "keep": ("->", ""),
    "index_keys": ("keys ->", ""),
    "index_choice": ("high low high low -> high low", ""),
    "bias_dropout_add": ("x residual -> y", "dy -> dx ; dx -> ; dy1 dy2 -> dresidual"),
    "softmax_dropout": ("scores -> softmax dropped", "softmax dy -> dscores"),
    "fused_cross_entropy": ("logits -> probabilities", "probabilities -> dlogits"),
    "bias_add_residual": ("x residual -> y", "dy -> ; dy1 dy2 -> dresidual"),
    "accumulate_gradient": ("new total -> total", ""),
    "accumulate_main_gradient": ("new high low -> high low", ""),
    "gradient_norm": ("gradient ->", ""),
    "scale_gradient": ("gradient -> gradient", ""),
    "flatten": ("gradient -> flat", ""),
    "unflatten": ("flat -> gradient", ""),
    # experts whose clamp and biases are eager PyTorch's; a mask of one byte is half a tensor
    "clamp_halves": (
        "gate -> cut ; value -> cut ; cut cut -> clamped clamped",
        "gate -> ½below ; value -> ½below ; value -> ½above ; ½below ½above -> ½both ;"
        " ½below dgate -> dleft ; ½both dvalue -> dleft ; dleft dleft -> joined joined",
    ),
    "joined_bias": ("x -> sum ; sum -> joined", "dy -> ; dy -> joined"),
}
CHAINS = {  # GPT-NeoX runs these as framework kernels; the words of their forward kernels
    "unfused_rmsnorm": "x -> ; x -> divided ; divided -> y",  # sum of squares; divide; scale
    "unfused_rope": (  # halves negated; joined; times cosine; times sine; added
        "½right -> ½negated ; ½negated ½left -> turned ; x -> cosine ; turned -> sine ; cosine sine -> y"
    ),
    "rope_join": "parts -> whole",
    # eager models of transformers, a wide tensor being two words
    "wide_rmsnorm": (  # cast; square; mean; divide; cast; scale
        "x -> wide wide ; wide wide -> square square ; square square -> ; wide wide -> normal normal ;"
        " normal normal -> low ; low -> y"
    ),
    "wide_scaled_rmsnorm": (  # cast; square; mean; divide; scale; cast
        "x -> wide wide ; wide wide -> square square ; square square -> ; wide wide -> normal normal ;"
        " normal normal -> scaled scaled ; scaled scaled -> y"
    ),
    "wide_softmax": "x -> wide wide ; wide wide -> softmax softmax ; softmax softmax -> y",
    "unfused_swiglu": "gate -> activated ; activated value -> y",
    "unfused_geglu": "gate -> activated ; activated value -> y",
    "unfused_relu2": "x -> positive ; positive -> y",
    # experts of Megatron-Core: bias times probability, added, joined, cast
    "weighed_bias": (
        "-> weighed weighed ; x weighed weighed -> sum sum ; sum sum -> joined joined ; joined joined -> y"
    ),
    "unfused_gelu": (  # half; cube; times 0.045; x added; times √(2/π); tanh; 1 added; product
        "x -> half ; x -> cube ; cube -> small ; x small -> sum ; sum -> scaled ; scaled -> tanh ;"
        " tanh -> above ; half above -> y"
    ),
}
GRADIENTS_OF_CHAINS = {  # the kernels of PyTorch's autograd, as a trace of each chain lists them
    # of the scale; of x / rms, twice; of the norm: x / norm, zeros where it is 0, times its gradient; added
    "unfused_rmsnorm": (
        "dy -> dnormal ; dy normal -> dscale ; dscale -> ; dnormal -> dx ; x -> normal ; normal -> slope ;"
        " dnormal -> negative ; negative slope -> drms ; drms -> ;"
        " x -> unit ; unit -> kept ; kept -> dnorm ; dx dnorm -> sum"
    ),
    # times sine; a half negated; halves written into zeros, and added; times cosine; added
    "unfused_rope": (
        "dy -> dturned ; ½dturned -> ½negated ; -> zeros ; ½dturned -> ½left ; -> zeros ;"
        " ½negated -> ½right ; left right -> sum ; dy -> dcosine ; sum dcosine -> dx"
    ),
    # of a power: the exponent lowered, times the exponent, times dy; of ReLU: kept where it is above 0
    "unfused_relu2": "positive -> slope ; slope -> double ; double dy -> dsquare ; dsquare positive -> dx",
}
MASKED = {"dropout", "bias_dropout_add", "softmax_dropout", "wide_dropout"}  # bytes, read backward
LINEAR = {  # derivatives that do not depend on the input: nothing is kept but a mask
    "mask_fill", "dropout", "residual_add", "bias_add", "position_add", "copy", "cast_to_fp32", "rope",
    "scaled_rope", "weighed_bias", "joined_bias",
    "split_heads", "epilogue_bias", "bias_dropout_add", "bias_add_residual", "unfused_rope", "rope_join",
    "permute", "unpermute_sum", "merge_gradients",
}  # fmt: skip
FUSIONS = {  # one kernel, and those that it stands for
    "scaled_masked_softmax": ("mask_fill", "softmax"),
    "softmax_dropout": ("mask_fill", "softmax", "dropout"),
    "fused_cross_entropy": ("cast_to_fp32", "cross_entropy"),
    "bias_gelu": ("bias_add", "gelu"),
    "bias_dropout_add": ("bias_add", "dropout", "residual_add"),
    "bias_add_residual": ("bias_add", "residual_add"),
    "epilogue_bias": ("bias_add",),
    "fused_layernorm": ("layernorm",),
    "fused_rmsnorm": ("rmsnorm",),
    "rmsnorm": ("unfused_rmsnorm",),
    "rope": ("unfused_rope",),
    "swiglu": ("unfused_swiglu",),
    "clamped_swiglu": ("clamp_halves", "swiglu"),
    "clamped_geglu": ("clamp_halves", "geglu"),
    "scaled_rope": ("unfused_rope",),
    "geglu": ("unfused_geglu",),
    "gelu": ("unfused_gelu",),
    "relu2": ("unfused_relu2",),
    "softmax": ("wide_softmax",),
}
ELEMENTS = 6.0e6


def operator(kind, dtype="bf16"):
    return MemoryBound(kind=kind, elements=constant(ELEMENTS), width=constant(1000), dtype=dtype)


def words(traffic):
    return sum(0.5 if word[0] == "½" else 1.0 for word in traffic.split() if word not in ("->", ";"))


def forward_bytes(kind):
    return operator(kind).work().moved_bytes.item()


def backward_bytes(kind):
    return sum(g.work().moved_bytes.item() for _, g in operator(kind).gradients())


def kept_bytes(kind):
    return sum(tensor.size_bytes.item() for tensor in operator(kind).saves())


def test_every_kind_has_its_traffic_written_down():
    assert set(TRAFFIC) | set(CHAINS) == set(KINDS)


@all_cases("kind", sorted(KINDS.keys() - CHAINS.keys()))
def test_the_forward_pass_moves_the_tensors_that_it_reads_and_writes(kind):
    mask_bytes = ELEMENTS if kind in MASKED else 0

    assert forward_bytes(kind) == 2 * ELEMENTS * words(TRAFFIC[kind][0]) + mask_bytes


@all_cases("kind", sorted(KINDS.keys() - CHAINS.keys()))
def test_the_backward_pass_moves_the_tensors_that_it_reads_and_writes(kind):
    mask_bytes = ELEMENTS if kind in MASKED else 0

    assert backward_bytes(kind) == 2 * ELEMENTS * words(TRAFFIC[kind][1]) + mask_bytes


@all_cases("kind", CHAINS)
def test_a_chain_of_framework_kernels_moves_what_its_kernels_move(kind):
    assert forward_bytes(kind) == 2 * ELEMENTS * words(CHAINS[kind])


@all_cases("kind", GRADIENTS_OF_CHAINS)
def test_the_gradient_of_a_chain_moves_what_its_kernels_move(kind):
    assert backward_bytes(kind) == 2 * ELEMENTS * words(GRADIENTS_OF_CHAINS[kind])


@all_cases("fused", FUSIONS)
def test_fusing_never_moves_more_than_the_kernels_that_it_replaces(fused):
    parts = FUSIONS[fused]

    assert forward_bytes(fused) <= sum(map(forward_bytes, parts))
    assert backward_bytes(fused) <= sum(map(backward_bytes, parts))


@all_cases("fused", FUSIONS)
def test_fusing_keeps_no_more_than_the_kernels_that_it_replaces(fused):
    assert kept_bytes(fused) <= sum(map(kept_bytes, FUSIONS[fused]))


@all_cases("kind", sorted(LINEAR))
def test_a_linear_operator_keeps_nothing_but_a_mask(kind):
    kept = {tensor.role: tensor.size_bytes.item() for tensor in operator(kind).saves()}

    assert kept == ({"mask": ELEMENTS} if kind in MASKED else {})


@all_cases("kind", ["layernorm", "rmsnorm", "fused_layernorm", "gelu", "silu", "bias_gelu", "unpermute"])
def test_a_derivative_that_depends_on_the_input_keeps_the_input(kind):
    kept = [(tensor.role, tensor.size_bytes.item()) for tensor in operator(kind).saves()]

    assert kept == [("input:0", 2 * ELEMENTS)]


@all_cases("kind", ["softmax", "scaled_masked_softmax", "relu", "sigmoid"])
def test_a_derivative_that_the_output_tells_keeps_the_output(kind):
    kept = [(tensor.role, tensor.size_bytes.item()) for tensor in operator(kind).saves()]

    assert kept == [("output", 2 * ELEMENTS)]


@all_cases("kind", ["swiglu", "geglu", "clamped_swiglu", "clamped_geglu"])
def test_a_gated_activation_keeps_gate_and_value(kind):
    kept = [(tensor.role, tensor.size_bytes.item()) for tensor in operator(kind).saves()]

    assert kept == [("input:0", 2 * 2 * ELEMENTS)]


def test_a_clamp_before_a_gate_s_kernel_keeps_both_halves_once_more():
    """What is cut, whose mask the gradient needs, and what is left, which the gate's gradient needs."""
    assert kept_bytes("clamp_halves") + kept_bytes("swiglu") == 2 * kept_bytes("clamped_swiglu")


def test_gradients_of_a_weighed_bias_are_those_of_a_sum_a_product_and_a_cast():
    """Casts to fp32 and back; parts joined; gradient times bias, times probability, and both sums."""
    wide, narrow = 4, 2
    casts, joined = 2 * (narrow + wide), 2 * narrow
    each = wide + wide + wide  # gradient read, product written, product read

    assert backward_bytes("weighed_bias") == ELEMENTS * (casts + joined + 2 * each)


@all_cases("dtype", ["fp16", "bf16", "fp32", "fp8"])
def test_a_dropout_mask_takes_one_byte_whatever_the_precision(dtype):
    (mask,) = operator("dropout", dtype).saves()

    assert mask.size_bytes.item() == ELEMENTS


@pytest.mark.parametrize("kind", ["relu", "gelu"])
def test_an_activation_in_16_bit_moves_four_bytes_an_element(kind):
    """0.25 FLOP per byte for ReLU: NVIDIA, GPU Performance Background User's Guide, table 1."""
    assert 1 / (forward_bytes(kind) / ELEMENTS) == 0.25


@all_cases("kind", KINDS)
def test_a_kind_without_a_backward_pass_has_no_gradient_kernel(kind):
    steps_of_a_whole_rank = words(TRAFFIC.get(kind, ("", "dy"))[1]) == 0

    assert (operator(kind).gradients() == ()) == steps_of_a_whole_rank


@all_cases("kind", sorted(kind for kind in KINDS if KINDS[kind].backward))
def test_each_pass_of_a_kind_has_its_own_curve(kind):
    forward = operator(kind)
    ((suffix, gradient),) = forward.gradients()

    assert (forward.kernel, gradient.kernel) == (kind, f"{kind}.backward")
    assert suffix == "dgrad"


@all_cases(
    "kind",
    ["layernorm", "rmsnorm", "softmax", "scaled_masked_softmax", "cross_entropy", "fused_cross_entropy"],
)
def test_the_speed_of_a_row_reduction_depends_on_the_width_of_the_row(kind):
    moved_bytes, width = operator(kind).coordinates()

    assert moved_bytes.item() == forward_bytes(kind)
    assert width.item() == 1000


@all_cases("kind", ["gelu", "dropout", "residual_add", "copy"])
def test_an_elementwise_kernel_is_looked_up_by_its_bytes_alone(kind):
    assert [coordinate.item() for coordinate in operator(kind).coordinates()] == [forward_bytes(kind)]


def test_the_gradient_is_looked_up_by_the_bytes_of_the_gradient():
    ((_, gradient),) = operator("gelu").gradients()

    assert gradient.coordinates()[0].item() == backward_bytes("gelu") > forward_bytes("gelu")


def test_main_gradients_in_fp32_are_read_and_written_beside_a_16_bit_gradient():
    elements = 1000
    arrays = [np.zeros(elements, dtype) for dtype in (np.float16, np.float32, np.float32)]

    work = MemoryBound(kind="accumulate_main_gradient", elements=constant(elements), dtype="bf16").work()

    assert work.moved_bytes.item() == sum(array.nbytes for array in arrays)
