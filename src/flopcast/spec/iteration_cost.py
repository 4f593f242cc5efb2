"""The time of an iteration of a serving engine, and of a request, that no kernel of the model takes.

Answers: how much time does the host of an engine take, and how do kernel times differ from benchmarks?
Elsewhere: the engine (engine.py), the fit of these constants (lab/serving_runs/fit.py).
"""

from pydantic import Field

from flopcast.strict_model import StrictModel

EXPERTS = "experts"  # the component of their kernels
TIMED_WITH_OTHERS = ("nvfp4", "mxfp4", "mxfp4_mxfp8")
"""Formats of experts whose benchmarks contain other kernels. According to collector/vllm/collect_moe_v2.py
in https://github.com/ai-dynamo/aiconfigurator, the benchmarks of nvfp4 also quantise the inputs and pack
the choice of experts, and the benchmarks of mxfp4 also choose the experts. The benchmarks of all other
formats time only fused_experts.
"""


class IterationCost(StrictModel):
    """The time that the engine adds to the kernels of an iteration, and to each request.

    Attributes
    ----------
    overlap_s : float
        Time by which each kernel of a decoding iteration overlaps with the previous kernel. In a CUDA
        graph, a kernel starts before the previous one has ended, but benchmarks of single kernels include
        the start. A kernel keeps at least half of its time. Iterations with prompts run outside of CUDA
        graphs, without this overlap.
    expert_ratio : float
        Time of expert kernels divided by their time in benchmarks, for formats whose benchmarks also
        contain other kernels (`TIMED_WITH_OTHERS`). It has no effect on other formats and on iterations
        with prompts.
    host_s : float
        Time of an iteration in which the device waits for the host, which schedules, prepares inputs and
        processes sampled tokens.
    sequence_s : float
        Additional host time for each sequence of the iteration.
    streamed_s : float
        Additional host time for each sequence whose token is sent to the client at once.
    decode_layer_s : float
        Time that each layer with attention adds to a decoding iteration with piecewise CUDA graphs. The
        host then launches attention between the graphs of the other kernels.
    prompt_launch_s : float
        Host time to launch one kernel of an iteration with prompts, which runs without CUDA graphs. Such an
        iteration takes at least as long as its launches.
    prompt_experts_s : float
        Additional time of an iteration with prompts for each layer with routed experts. In this time, the
        host launches many small kernels that sort tokens by expert. Benchmarks of expert kernels do not
        include it.
    prompt_states_s : float
        Additional time of an iteration with prompts for each layer with linear attention. In this time, the
        host computes the grids of many Triton kernels, and waits for lengths that it copies from the
        device.
    request_s : float
        Time of a request outside of the engine, independent of its length: the connection, HTTP, JSON, and
        messages between processes.
    prompt_token_s : float
        Time outside of the engine for each token of the prompt, mostly in the tokeniser.
    handover_s : float
        Additional time of a request that moves between separate pools, without the transfer of its keys and
        values: routing, handshakes, and the intervals at which instances check for finished transfers.
    log_sigma_factor : float
        Uncertainty of the time of an iteration in addition to that of its kernels, as the standard
        deviation of the logarithm of the time.
    request_log_sigma_factor : float
        Uncertainty of the time to first token in addition to that of iterations, as the standard deviation
        of its logarithm.
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
