"""The time of an iteration of a serving engine, and of a request, that no kernel of the model shows.

Answers: what does the host of an engine cost, and how far do its kernels differ from their benchmarks?
Elsewhere: the engine (engine.py), the fit of these constants (lab/serving_runs/fit.py).
"""

from pydantic import Field

from flopcast.strict_model import StrictModel

EXPERTS = "experts"  # the component of their kernels
TIMED_WITH_OTHERS = ("nvfp4", "mxfp4", "mxfp4_mxfp8")
"""Formats of experts whose benchmarks contain other kernels.

According to collector/vllm/collect_moe_v2.py in https://github.com/ai-dynamo/aiconfigurator, those of nvfp4
also quantise the inputs and pack the choice of experts, and those of mxfp4 also choose the experts. The
benchmarks of all other formats time fused_experts alone.
"""


class IterationCost(StrictModel):
    """The time of iterations and of requests that no kernel of the model shows.

    Attributes
    ----------
    overlap_s : float
        Time by which each kernel of an iteration that only decodes overlaps with the kernel before it:
        kernels of a CUDA graph start while the one before ends, and benchmarks of single kernels include
        the start. Kernels keep at least half of their time. Iterations with prompts run larger kernels
        outside of graphs, without this overlap.
    expert_ratio : float
        Time of the kernels of experts over that in benchmarks, for formats whose benchmarks contain other
        kernels as well (`TIMED_WITH_OTHERS`). It is 1 for all other formats, and in iterations with
        prompts.
    host_s : float
        Time of an iteration in which the device waits for the host: scheduling, inputs, sampled tokens.
    sequence_s : float
        Additional time of this kind for each sequence of the iteration.
    streamed_s : float
        Additional time of this kind for each sequence, if its token is sent to the client at once.
    decode_layer_s : float
        Time by which each layer with attention lengthens an iteration that only decodes, where the host
        launches attention between CUDA graphs of the other kernels (piecewise graphs).
    prompt_launch_s : float
        Time of the host for launching one kernel of an iteration with prompts, which no CUDA graph holds.
        Such an iteration takes at least as long as its launches.
    prompt_experts_s : float
        Time by which each layer with routed experts lengthens an iteration with prompts: the host sorts
        tokens by expert in many small kernels, which benchmarks of the kernels of experts leave out.
    prompt_states_s : float
        Time by which each layer with linear attention lengthens an iteration with prompts: the host
        computes the grids of its many Triton kernels and waits for lengths that it copies from the device.
    request_s : float
        Time of a request outside of the engine, whatever its length: the connection, HTTP, JSON, and
        messages between processes.
    prompt_token_s : float
        Time of this kind for each token of the prompt, most of it in the tokeniser.
    handover_s : float
        Time of a request that moves between separate pools, in addition to the transfer of its keys and
        values: routing, handshakes, and the intervals at which instances look for finished transfers.
    log_sigma_factor : float
        Uncertainty of an iteration beyond that of its kernels: the sigma of the logarithm of its time.
    request_log_sigma_factor : float
        Uncertainty of the time to first token beyond that of iterations: the sigma of its logarithm.
    """

    overlap_s: float = Field(default=0.0, ge=0)
    expert_ratio: float = Field(default=1.0, gt=0)
    host_s: float = Field(default=2e-3, ge=0)
    sequence_s: float = Field(default=0.0, ge=0)
    streamed_s: float = Field(default=0.0, ge=0)
    decode_layer_s: float = Field(default=0.0, ge=0)
    prompt_launch_s: float = Field(default=0.0, ge=0)
    prompt_experts_s: float = Field(default=0.0, ge=0)
    prompt_states_s: float = Field(default=0.0, ge=0)
    request_s: float = Field(default=0.0, ge=0)
    prompt_token_s: float = Field(default=0.0, ge=0)
    handover_s: float = Field(default=0.0, ge=0)
    log_sigma_factor: float = Field(default=0.2, ge=0)
    request_log_sigma_factor: float = Field(default=0.4, ge=0)

    def ratio_of(self, component: str, *, has_prompts: bool) -> float:
        """Return the time of the kernels of one component, divided by their time in benchmarks.

        >>> IterationCost(expert_ratio=0.8).ratio_of("experts", has_prompts=False)
        0.8
        """
        return self.expert_ratio if component == EXPERTS and not has_prompts else 1.0
