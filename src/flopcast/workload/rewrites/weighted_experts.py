"""Experts that weigh rows inside their activation function, and the cost of their biases and clamps.

Megatron-Core does this since core v0.12 (`permuted_probs` of megatron/core/transformer/moe/experts.py). The
output of experts is then not kept, because the gradients of the router's probabilities need only the input
of the activation, which is kept in any case.
"""

from flopcast.dtypes import ELEMENT_BYTES
from flopcast.operators.exchanges import OF_LIBRARIES, Dispatch
from flopcast.operators.item import Item
from flopcast.operators.matmul import GroupedMatmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace
from flopcast.workload.rewrites.base import Items, beside, change_kind, kind_of


def weighted_experts(items: Items) -> Items:
    """Replace `unpermute` by `unpermute_sum`, which adds rows that are already weighted.

    The bias of the second linear layer must therefore be weighted, too: `weighed_bias` replaces its
    `bias_add`. PyTorch operators compute it in fp32, the format of probabilities, for one expert after the
    other. In the forward pass, they move 4 bytes per element for bias times probability, 10 for the sum, 8
    to concatenate the parts and 6 for the cast. In the backward pass, they move 12 for casts, 4 for
    concatenation, and 24 for a product and a sum for each of bias and probability. Transformer Engine adds
    the first bias in its GEMM (`epilogue_bias`).

    References
    ----------
    megatron/core/transformer/moe/experts.py: `TEGroupedMLP._apply_bias`; linear_fc1 is built with
    skip_bias_add=False, linear_fc2 with True.
    """
    return _with_probabilities(_weighed(items, "epilogue_bias"))


def weighted_joined_experts(items: Items) -> Items:
    """Replace as `weighted_experts` does, and `bias_add` of the first linear by `joined_bias`, expert by
    expert.

    The first bias is not weighted. In the forward pass, it is added in parts (4 bytes per element), which
    are concatenated (4). In the backward pass, its gradient is summed over tokens (2) and concatenated (4).

    References
    ----------
    nemo_automodel/components/moe/layers.py: `GroupedExpertsDeepEP._apply_bias`, after each of its products.
    """
    return _weighed(items, "joined_bias")


def _with_probabilities(items: Items) -> Items:
    """Return items with an exchange of one probability in fp32 for each row behind every row's own.

    NCCL sends an array at a time; the kernels of DeepEP and HybridEP carry probabilities with their rows
    (megatron/core/transformer/moe/token_dispatcher.py, `MoEAlltoAllTokenDispatcher.token_dispatch`).
    """
    products = [item.work for item in items if isinstance(item.work, GroupedMatmul)]
    result: list[Item] = []
    for item in items:
        result.append(item)
        if isinstance(item.work, Dispatch) and item.work.collective not in OF_LIBRARIES and products:
            row_bytes = products[0].k * ELEMENT_BYTES[products[0].dtype]
            sent_bytes = item.work.rows_bytes / row_bytes * ELEMENT_BYTES["fp32"]
            work = replace(item.work, message_bytes=sent_bytes, rows_bytes=sent_bytes, routing=None)
            name, output = beside(item, "probabilities"), f"{item.output}.probabilities"
            result.append(replace(item, name=name, work=work, output=output))
    return tuple(result)


def _weighed(items: Items, first: str) -> Items:
    """Return rows weighted before they are returned; biases follow the products, the first as `first`."""
    made = [item.output for item in items if isinstance(item.work, GroupedMatmul)]
    biased = tuple(_bias(item, made, first) if kind_of(item) == "bias_add" else item for item in items)
    return change_kind(biased, "unpermute", "unpermute_sum")


def _bias(item: Item, made: list[str], first: str) -> Item:
    """Return the bias of a product of experts as one of its kinds; any other item unchanged."""
    if not made or item.inputs[0] not in made:
        return item
    kind = "weighed_bias" if item.inputs[0] == made[-1] else first
    return change_kind((item,), "bias_add", kind)[0]


def chunked_gate(items: Items) -> Items:
    """Replace a clamped gate by `clamp_halves` and the gate's own kernel, which does not clamp.

    PyTorch slices, clamps and concatenates both halves (8 passes over a half). In the backward pass, a
    comparison for each of three bounds writes a mask of one byte (4.5), two masks of one half are combined
    (1.5), each half is selected by its mask (5), and both are concatenated (4). For the backward pass, the
    clamp keeps its inputs, and the gate keeps the clamped halves.

    References
    ----------
    megatron/core/fusions/fused_bias_geglu.py: `weighted_bias_quick_geglu_impl`; PyTorch's derivative of
    `clamp`: torch/csrc/autograd/FunctionsManual.cpp, `clamp_backward`.
    """
    return tuple(part for item in items for part in _chunked(item))


def _chunked(item: Item) -> Items:
    """Return clamp and gate of a clamped gate; any other item unchanged."""
    gate = kind_of(item).removeprefix("clamped_")
    if not isinstance(item.work, MemoryBound) or gate == item.work.kind:
        return (item,)
    cut = f"{item.inputs[0]}_cut"
    clamp = replace(
        item, name=beside(item, "clamp"), work=replace(item.work, kind="clamp_halves"), output=cut
    )
    inputs = (cut, *item.inputs[1:])
    return clamp, replace(item, work=replace(item.work, kind=gate), inputs=inputs)
