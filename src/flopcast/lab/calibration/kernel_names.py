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

from flopcast.files.package_table import meanings, read_table

UNKNOWN = ""
GEMM, ATTENTION, MEMORY, COMMUNICATION, COPY = "gemm", "attention", "memory_bound", "communication", "copy"

_TABLE = read_table(__package__, "kernel_names.yaml")
COLLECTIVES = meanings(_TABLE["collectives"])
KERNELS, OPERATORS = _TABLE["kernels"], _TABLE["operators"]  # pattern and class, the first that fits counts
DTYPES: dict[str, str] = {name: dtype for dtype, names in _TABLE["dtypes"].items() for name in names}
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
