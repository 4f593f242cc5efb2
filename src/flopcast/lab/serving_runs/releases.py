"""Kernels of releases of engines that differ from those in the catalogue.

Answers: for which formats of experts did a release of vLLM use DeepGEMM's kernels?
Elsewhere: the work of these kernels (operators/fused_experts.py), other facts about the engine
(catalog/engines).

vLLM 0.11 and 0.12 run experts in 8 bits with block scales in DeepGEMM, which is on by default
(vllm-project/recipes, MiniMax-M2.md). On Blackwell they use it for any number of tokens
(vllm/model_executor/layers/fused_moe/triton_deep_gemm_moe.py). On Hopper they also use it since pull
request 26197 of 3 October 2025, which makes scales that are powers of two the default on Hopper. Since
pull request 29346 of 24 November 2025, Triton runs them with eight tensor-parallel ranks. Since pull
requests 32414 and 34260 of January and February 2026, the order of the kernels depends on the device.
"""

DEEP_GEMM = ("0.11.1", "0.11.2", "0.12.0")  # releases between the first and the last of these changes
NO_DEEP_GEMM_FROM, TENSOR_PARALLEL = "0.12.0", 8


def padded_experts(engine: str, release: str, tensor_parallel: int) -> tuple[str, ...]:
    """Return the formats of experts that a release pads.

    >>> padded_experts("vllm", "0.12.0", 4), padded_experts("vllm", "0.12.0", 8)
    (('fp8_block',), ())
    """
    if engine != "vllm" or release not in DEEP_GEMM:
        return ()
    return () if (release, tensor_parallel) == (NO_DEEP_GEMM_FROM, TENSOR_PARALLEL) else ("fp8_block",)
