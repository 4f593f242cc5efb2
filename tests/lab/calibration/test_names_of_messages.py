"""lab/calibration/kernel_names.py: collectives and passes are known however libraries spell them."""

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.lab.calibration.kernel_names import (
    COLLECTIVES,
    KERNELS,
    OPERATORS,
    collective_class,
    kernel_class,
    kind_of,
)

FEW = settings(max_examples=30)
KINDS = ("gemm", "attention", "memory_bound", "communication", "copy", "")
SPELT = {  # as torch.distributed and c10d call them → ours
    "allreduce": "all_reduce",
    "all_reduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "_allgather_base": "all_gather",
    "all_gather": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_all": "all_to_all",
    "all_to_all_single": "all_to_all",
    "all_to_allv": "all_to_all",
    "alltoall_base": "all_to_all",
    "send": "send_receive",
    "recv": "send_receive",
    "sendrecv": "send_receive",
    "recv_": "send_receive",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
OF_NCCL = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "SendRecv": "send_receive",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
}
CLASSES = sorted({name for _, name in (*KERNELS, *OPERATORS)} | set(COLLECTIVES.values()))


@all_cases("name", SPELT)
def test_a_collective_of_torch_is_known_in_any_case_and_with_any_separator(name):
    ours = SPELT[name]

    assert collective_class(name) == ours
    assert collective_class(name.upper()) == collective_class(name.replace("_", "-")) == ours


@all_cases("name", OF_NCCL)
@all_cases("library", ["ncclDevKernel_", "ncclKernel_", "rcclDevKernel_"])
@all_cases("rest", ["", "_Sum_bf16_RING_LL", "_RING_SIMPLE_Sum_int8_t(ncclDevComm*)"])
def test_a_kernel_of_nccl_is_known_by_its_collective_whatever_follows(name, library, rest):
    kernel = f"{library}{name}{rest}"

    assert collective_class(kernel) == OF_NCCL[name]
    assert kernel_class(kernel, "aten::mm") == kernel_class(kernel, "", True) == OF_NCCL[name]
    assert kind_of(OF_NCCL[name]) == "communication"


def test_a_reduce_scatter_is_no_reduce_and_an_all_reduce_neither():
    """The longest name decides, wherever a shorter one is a part of it."""
    found = [collective_class(f"ncclDevKernel_{name}_Sum") for name in ("Reduce", "ReduceScatter")]

    assert found == ["reduce", "reduce_scatter"]


@pytest.mark.parametrize("kernel", ["ncclSymkDevKernel_new", "deep_ep::intranode::notify", "nvshmem_put"])
def test_what_a_library_of_messages_runs_besides_is_communication(kernel):
    assert collective_class(kernel) == kind_of("communication") == "communication"


@all_cases("name", CLASSES)
def test_every_class_that_a_name_may_have_is_part_of_one_cost_in_both_passes(name):
    assert kind_of(name) in KINDS
    if not name.endswith(".backward") and kind_of(name) == "memory_bound":
        assert kind_of(f"{name}.backward") == "memory_bound"


@all_cases("name", ["layernorm", "rmsnorm", "softmax", "gelu", "silu", "dropout"])
def test_a_kernel_of_one_name_in_both_passes_is_of_the_pass_in_which_it_ran(name):
    forward, backward = (kernel_class(f"fused_{name}_kernel", "", late) for late in (False, True))

    assert (forward, backward) == (name, f"{name}.backward")


@all_cases(
    ("forward", "backward"),
    [
        ("flash_fwd_splitkv_kernel", "flash_bwd_dq_dk_dv_loop_kernel"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop", "cudnn_generated_sdpa_sm90_flash_bprop"),
        ("fmha_cutlassF_bf16_aligned", "fmha_cutlassB_bf16_aligned"),
        ("attn_fwd", "attn_bwd"),
        ("ln_fwd_tuned_kernel", "ln_bwd_tuned_kernel"),
    ],
)
def test_names_that_tell_the_pass_are_believed_whenever_they_ran(forward, backward):
    both = [kernel_class(backward, "", late) for late in (False, True)]

    assert len(set(both)) == 1
    assert both[0] == f"{kernel_class(forward)}.backward"


@all_cases(
    "kernel",
    ["ampere_bf16_s16816gemm_bf16_128x128", "nvjet_hsh_256x128", "Cijk_Ailk_Bljk_BBS", "sm90_xmma_gemm"],
)
@all_cases("operator", ["", "aten::mm", "aten::linear", "autograd::engine"])
def test_a_product_is_one_in_both_passes_whoever_launched_it(kernel, operator):
    assert kernel_class(kernel, operator) == kernel_class(kernel, operator, True) == "gemm"


@pytest.mark.parametrize("operator", ["aten::bmm", "aten::baddbmm"])
def test_a_batched_product_is_told_by_its_operator_alone(operator):
    assert kernel_class("ampere_bf16_s16816gemm_bf16_128x128", operator) == "batched_gemm"
    assert kind_of("batched_gemm") == "attention"


@FEW
@given(st.text(max_size=40), st.text(max_size=40), st.booleans())
def test_no_name_whatever_breaks_the_reading_and_every_class_is_known(kernel, operator, backward):
    found = kernel_class(kernel, operator, backward)

    assert found.removesuffix(".backward") in {*(name.removesuffix(".backward") for name in CLASSES), "",
                                               "communication"}  # fmt: skip


@FEW
@given(st.sampled_from([*SPELT, "ncclDevKernel_AllReduce_Sum", "flash_fwd_kernel", "aten::mm"]))
def test_a_name_means_the_same_in_any_case(name):
    assert kernel_class(name.upper(), name.upper()) == kernel_class(name.lower(), name.lower())
