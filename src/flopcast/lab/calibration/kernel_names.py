"""Names of kernels and operators, and the kernel class of each.

Answers: to which class of flopcast does a traced kernel belong, and which part of the model's cost is that
class?
Elsewhere: reading traces (lab/traces/kineto.py, lab/traces/nsys.py), sums over kernels (trace.py).

If the name of a kernel identifies it (a GEMM of cuBLAS, CUTLASS or Tensile, flash attention, NCCL), this
name determines the class. Elementwise kernels all have similar names, so the operator that launched them
determines their class. Classes that flopcast prices have flopcast's names. "elementwise" and "reduction"
are classes that flopcast does not price. A kernel that no rule matches has the class "" and is listed by
name, never dropped. Names were taken from public traces and sources: PyTorch (aten/src/ATen/native),
cuBLAS on Hopper ("nvjet"), CUTLASS, FlashAttention, Transformer Engine, NCCL ("ncclDevKernel_"), RCCL and
hipBLASLt ("Cijk_").
"""

import re
from functools import cache

UNKNOWN = ""
GEMM, ATTENTION, MEMORY, COMMUNICATION, COPY = "gemm", "attention", "memory_bound", "communication", "copy"

COLLECTIVES = {  # as NCCL and torch.distributed spell it, letters only → operators/messages.py
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "send_receive",
    "send": "send_receive",
    "recv": "send_receive",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
KERNELS = (  # pattern in a kernel's name, in lower case → class
    (r"^memcpy", "memcpy"),
    (r"^memset", "memset"),
    (r"flash_?attn.*bwd|flash_bwd|fmha.*(bwd|backward|cutlassb)", "flash_attention.backward"),
    (r"sdpa.*bprop|attn_bwd|bwd_kernel_(dk|dq)", "flash_attention.backward"),
    (r"flash_?attn|flash_fwd|fmha|sdpa.*fprop|attn_fwd", "flash_attention"),
    (r"gemm|nvjet|cijk_|gemv|xmma|cutlass.*tensorop|splitkreduce|wgmma", "gemm"),
    (r"gammabeta|layer_?norm.*(bwd|backward|grad)|ln_bwd", "layernorm.backward"),
    (r"rms_?norm.*(bwd|backward|grad)", "rmsnorm.backward"),
    (r"rms_?norm", "rmsnorm"),
    (r"layer_?norm|ln_fwd", "layernorm"),
    (r"scaled_(upper_triang_)?masked_softmax.*backward", "scaled_masked_softmax.backward"),
    (r"scaled_(upper_triang_)?masked_softmax", "scaled_masked_softmax"),
    (r"cross_?entropy|nll_loss|log_?softmax", "cross_entropy"),
    (r"softmax.*backward", "softmax.backward"),
    (r"softmax", "softmax"),
    (r"adam|multi_tensor_apply", "adam"),
    (r"embedding", "embedding"),
    (r"dropout", "dropout"),
    (r"swiglu", "swiglu"),
    (r"gelu", "gelu"),
    (r"silu", "silu"),
    (r"rotary|rope", "rope"),
)  # fmt: skip
OPERATORS = (  # pattern at the start of an operator's name, in lower case → class
    (r"aten::(mm|addmm|_scaled_mm|matmul|linear|_addmm_activation)$", "gemm"),
    (r"aten::(bmm|baddbmm)$", "batched_gemm"),
    (r".*(flash|efficient|cudnn)_attention.*backward", "flash_attention.backward"),
    (r".*(flash.*attn|fusedattn).*backward", "flash_attention.backward"),
    (r".*(flash|efficient|cudnn)_attention|.*flash.*attn|.*fusedattn", "flash_attention"),
    (r"aten::native_layer_norm_backward", "layernorm.backward"),
    (r"aten::native_layer_norm", "layernorm"),
    (r"aten::_?fused_rms_norm_backward", "rmsnorm.backward"),
    (r"aten::_?(fused_)?rms_norm", "rmsnorm"),
    (r"aten::(_log_softmax|_log_softmax_backward_data|nll_loss)", "cross_entropy"),
    (r"aten::_softmax_backward", "softmax.backward"),
    (r"aten::_softmax", "softmax"),
    (r"aten::gelu_backward", "gelu.backward"),
    (r"aten::silu_backward", "silu.backward"),
    (r"aten::(gelu|silu|relu)", "gelu"),
    (r"aten::(native_dropout|dropout|bernoulli)", "dropout"),
    (r"aten::(embedding_dense_backward|index_put|_index_put)", "embedding.backward"),
    (r"aten::(embedding|index_select)", "embedding"),
    (r"aten::(_foreach|_fused_adam|addcmul|addcdiv|lerp)", "adam"),
    (r"aten::(copy_|_to_copy|clone|contiguous|cat|fill_|zero_|stack)", "copy"),
    (r"aten::(add|add_)$", "residual_add"),
    (r"aten::(sum|mean|norm|linalg_vector_norm|amax|max|argmax|all|any)", "reduction"),
    (r"aten::", "elementwise"),
)  # fmt: skip
_KERNELS = tuple((re.compile(pattern), name) for pattern, name in KERNELS)
_OPERATORS = tuple((re.compile(pattern), name) for pattern, name in OPERATORS)
_NCCL = re.compile(
    r"^(?:nccl|rccl)\w*?_(allreduce|allgather|reducescatter|alltoall|sendrecv|broadcast|reduce)"
)
_SUFFIX = re.compile(r"((into)?tensor)?(base|v|single)?(coalesced)?$")
_GENERIC = re.compile(r"nccl|rccl|cross_device_reduce|nvshmem|deep_?ep")


@cache
def kernel_class(kernel: str, operator: str = "", backward: bool = False) -> str:
    """Return the class of a kernel that an operator launched; "" if both names are unknown.

    `backward`: the kernel ran in the backward pass. Kernels of norms and activations with the same name in
    both passes get the class of their pass. A GEMM is a "gemm" in both passes, because the operator of the
    backward pass has its own shape.

    Examples
    --------
    >>> kernel_class("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", "aten::mm")
    'gemm'
    >>> kernel_class("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    'reduce_scatter'
    >>> kernel_class("void at::native::vectorized_elementwise_kernel<4, ...>", "aten::gelu_backward", True)
    'gelu.backward'
    """
    low = kernel.lower()
    if collective := collective_class(low):
        return collective
    by_kernel = next((name for pattern, name in _KERNELS if pattern.search(low)), UNKNOWN)
    by_operator = next((name for pattern, name in _OPERATORS if pattern.match(operator.lower())), UNKNOWN)
    name = by_operator if by_operator == "batched_gemm" else by_kernel or by_operator
    both = {"layernorm", "rmsnorm", "softmax", "gelu", "silu", "swiglu", "dropout", "embedding", "rope"}
    return f"{name}.backward" if backward and name in both else name


def collective_class(name: str) -> str:
    """Return the collective of an NCCL kernel or of a name in torch.distributed; "" for any other.

    A kernel of a communication library of unknown kind is "communication".

    >>> collective_class("_allgather_base"), collective_class("all_to_allv"), collective_class("aten::mm")
    ('all_gather', 'all_to_all', '')
    """
    low = name.lower()
    if match := _NCCL.match(low):
        return COLLECTIVES[match.group(1)]
    if _GENERIC.search(low):
        return COMMUNICATION
    letters = re.sub(r"[^a-z]", "", low)
    # recv has no suffix
    return COLLECTIVES.get(letters) or COLLECTIVES.get(_SUFFIX.sub("", letters), UNKNOWN)


def kind_of(name: str) -> str:
    """Return the kind of a class: gemm, attention, memory_bound, communication, copy; "" if unknown.

    As in the names of factors (cost/price.py), batched products belong to attention.

    >>> [kind_of(name) for name in ("gemm", "batched_gemm", "layernorm.backward", "all_gather", "")]
    ['gemm', 'attention', 'memory_bound', 'communication', '']
    """
    if name in ("", GEMM):
        return name
    if name in COLLECTIVES.values() or name == COMMUNICATION:
        return COMMUNICATION
    if name in ("memcpy", "memset"):
        return COPY
    return ATTENTION if name.startswith(("flash_attention", "batched_gemm")) else MEMORY
