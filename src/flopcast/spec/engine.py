"""The engine: the serving software and its settings.

Answers: which kernels does this engine fuse, and how large are its passes by default?
Elsewhere: the time of its host (iteration_cost.py), which entry describes a release
(library/engine_releases.py), training software (stack.py), how requests are scheduled
(serving/scheduler.py).
"""

import re
from typing import Literal

from pydantic import Field, model_validator

from flopcast.spec.deployment import CacheFormat
from flopcast.spec.iteration_cost import IterationCost
from flopcast.spec.kernel_overlap import Overlap
from flopcast.spec.published_formats import WeightFormat
from flopcast.spec.source import Sources
from flopcast.spec.streaming import Streaming
from flopcast.strict_model import NotAllowedError, StrictModel

UNKNOWN_RELEASE = "unknown"


def is_month(text: str) -> bool:
    """Return whether a text is a month, such as 2024-10."""
    return re.fullmatch(r"20\d\d-\d\d", text) is not None


class SmallDevices(StrictModel):
    """Smaller limits of passes, for an engine whose limits depend on the device.

    Attributes
    ----------
    below_bytes : float
        The limits apply to devices with less memory than this.
    devices : tuple of str
        The limits also apply to devices whose names begin with one of these texts.
    max_sequences, max_tokens : int
        The limits on these devices. They replace the limits of the engine.
    """

    below_bytes: float = Field(gt=0)
    devices: tuple[str, ...] = ()
    max_sequences: int = Field(ge=1)
    max_tokens: int = Field(ge=1)


class Engine(StrictModel):
    """A serving engine in certain releases: how it runs passes, its defaults, and the time of its host.

    Attributes
    ----------
    name : str
        Name of the entry in the catalogue.
    base : str
        Entry of the newest releases of this software. An entry of older releases takes all fields that it
        does not state from this entry. "" in entries without a base.
    era : str
        Month of the release whose defaults the entry contains.
    release : str
        The release that runs, such as 0.6.3, or its month, such as 2024-10. It selects the entry that
        describes this release. With "", the entry states which releases run. "unknown" widens the
        intervals.
    first_release, first_month : str
        Oldest release that the entry describes, and its month; "" in the only entry of the software.
    fitted_from : str
        Month of the oldest measurements to which constants of this software were fitted, or "".
    prefill : str
        How prompts and decoding sequences share passes. "chunked": a pass can contain decoding sequences
        and parts of prompts. "whole": a pass can contain decoding sequences and whole prompts. "apart":
        prompts are computed in separate passes.
    batching : str
        When requests join the batch. "continuous": between any two passes. "static": only after all
        requests of the previous batch have ended. A static batch continues to compute requests that have
        ended, keeps their KV blocks, and returns all answers when its last request has ended.
    separate_pools : bool
        Whether some instances can compute only prompts, and send the KV cache to other instances, which
        decode.
    padding : bool
        Whether the prompts of a static batch are padded to the longest prompt. Padded tokens are computed
        and cached like all others.
    launch_s : float
        Host time to launch one kernel; 0 if passes run as CUDA graphs. A pass takes at least as long as its
        launches.
    graph_sequences : int
        Largest number of sequences for which the engine has CUDA graphs of decoding passes. The host
        launches the kernels of all other passes. If `launch_s` is 0, all decoding passes run as CUDA
        graphs.
    sent_formats : tuple of str
        Formats of expert weights with which the engine quantises tokens before it sends them to experts on
        other ranks, to the same format. With all other formats, it sends tokens in 16 bits.
    padded_experts : tuple of str
        Formats of experts whose kernels compute a multiple of 128 rows for each expert that a rank holds,
        as DeepGEMM does in vLLM 0.11 and 0.12 for experts in fp8_block.
    own_all_reduce : bool
        Whether the engine has its own all-reduce kernel, which is faster than NCCL for small messages.
    joined_attention : tuple of str
        Beginnings of the names of devices on which one kernel computes the attention of both the prompts
        and the decoding sequences of a pass.
    fused_all_reduce : bool
        Whether the all-reduce kernel also computes the next norm, as those of TensorRT-LLM and FlashInfer
        do. These kernels are the fastest. Otherwise, small messages take as long as with vLLM's custom
        all-reduce.
    max_sequences : int
        Largest number of sequences in one pass.
    max_tokens : int
        Largest number of new tokens in one pass.
    small_devices : SmallDevices or None
        Devices on which `max_sequences` and `max_tokens` are smaller by default.
    block_tokens : int
        Number of tokens in one block of the KV cache.
    memory_fraction : float
        Fraction of the memory named by `memory_fraction_of` that the engine uses.
    memory_fraction_of : str
        Memory that `memory_fraction` refers to. "device": weights, activations, the runtime and the KV
        cache together use this fraction of the device's memory. "weights_and_cache": weights and KV cache
        use this fraction, and activations and the runtime use the rest. "free_memory": the KV cache uses
        this fraction of the memory that weights, activations and the runtime leave free.
    reserved_bytes : float
        Memory for CUDA graphs, communication and the runtime, on each device.
    preemption : str
        What happens to a preempted sequence. "recompute": its KV cache is computed again. "none": no
        sequence is preempted, because a request is admitted only if the blocks of its whole output are
        free.
    prefix_cache : bool
        Whether requests with equal beginnings of their prompts share KV blocks by default.
    sampling : str
        How the next token is chosen. "greedy": the most likely token, or a sampling kernel that does not
        sort. "sorted": by sorting the vocabulary for each sequence, as PyTorch's sampler does for top-p and
        top-k.
    receive_interval : int
        Number of decoding passes after which the engine accepts new requests. It also accepts them after
        each pass with prompts. With 1, new requests can be part of the next pass.
    passes_ahead : int
        Number of passes that the engine launches before it knows the result of the current pass: 1 if it
        schedules a pass while another one runs, otherwise 0. A new request waits for these passes.
    stream_interval : int
        Number of output tokens that the server sends together. With 1, it sends each token separately.
    wait_passes : int
        Largest number of decoding passes for which prompts wait for further prompts, so that they are
        computed together. With 0, they join the next pass.
    wait_fraction : float
        Fraction of `max_tokens` that waiting prompts must reach to be computed at once.
    max_prompt_tokens : int
        Largest number of tokens in a prompt; 0 if only the context length of the model limits it.
    holds_context : bool
        Whether the engine starts only if its KV cache holds a request of the context length of the model,
        as vLLM does with `--max-model-len`.
    adapter_slots : int
        Default number of low-rank adapters that fit into memory at the same time.
    fused_norms : bool
        Whether one kernel adds the residual and computes the next norm.
    fused_casts : tuple of str
        Formats of weights for which the kernel before a GEMM writes the GEMM's input in this format. With
        all other formats, a separate kernel casts the input.
    fused_latents : bool
        Whether one GEMM computes the latents of queries and those of keys and values (latent attention).
        Otherwise, two GEMMs do.
    fused_rotation : bool
        Whether the kernel that rotates queries and keys also writes keys and values to the cache.
        Otherwise, a second kernel writes them.
    fused_epilogues : bool
        Whether GEMMs add the residual and apply the activation function, so that neither needs a separate
        kernel or is part of the norm. The predicted GEMMs take no longer. A norm after a half of a block
        prevents this fusion.
    overlap : Overlap or None
        How decode attention and messages overlap with GEMMs. None if kernels run one after another.
    streaming : Streaming or None
        How host memory or drives store weights, KV cache and activations. None if all stay on devices.
    narrow_tables : bool
        Whether the embedding and the head are stored in the format of the other weights, as in llama.cpp.
        By default, both have 16 bits.
    whole_vocabulary : bool
        Whether one device stores and computes the whole embedding and head. By default, ranks divide them.
    star_all_reduce : bool
        Whether in an all-reduce, all devices send to one device, which sends the sum back to them.
    iteration : IterationCost
        Host time of an iteration.
    weights : tuple of str
        Weight formats that the engine supports.
    caches : tuple of str
        Formats of the KV cache that the engine supports.
    weights_with_fp8_cache : tuple of str
        Weight formats with which the KV cache is in fp8 by default, because the checkpoints that are
        published for the engine state this. With all other formats, it has 16 bits by default.
    source : list
        Sources of these numbers.
    """

    name: str = ""
    base: str = ""
    era: str = ""
    release: str = ""
    first_release: str = ""
    first_month: str = ""
    fitted_from: str = ""
    prefill: Literal["chunked", "whole", "apart"] = "chunked"
    batching: Literal["continuous", "static"] = "continuous"
    separate_pools: bool = False
    padding: bool = False
    launch_s: float = Field(default=0.0, ge=0)
    graph_sequences: int = Field(default=0, ge=0)
    sent_formats: tuple[WeightFormat, ...] = ()
    padded_experts: tuple[WeightFormat, ...] = ()
    own_all_reduce: bool = True
    joined_attention: tuple[str, ...] = ()
    fused_all_reduce: bool = True
    max_sequences: int = Field(default=256, ge=1)
    max_tokens: int = Field(default=8192, ge=1)
    small_devices: SmallDevices | None = None
    block_tokens: int = Field(default=16, ge=1)
    memory_fraction: float = Field(default=0.9, gt=0, le=1)
    memory_fraction_of: Literal["device", "weights_and_cache", "free_memory"] = "device"
    reserved_bytes: float = Field(default=3e9, ge=0)
    preemption: Literal["recompute", "none"] = "recompute"
    prefix_cache: bool = False
    sampling: Literal["greedy", "sorted"] = "greedy"
    receive_interval: int = Field(default=1, ge=1)
    passes_ahead: int = Field(default=0, ge=0)
    stream_interval: int = Field(default=1, ge=1)
    wait_passes: int = Field(default=0, ge=0)
    wait_fraction: float = Field(default=1.0, gt=0, le=1)
    max_prompt_tokens: int = Field(default=0, ge=0)
    holds_context: bool = False
    adapter_slots: int = Field(default=1, ge=1)
    fused_norms: bool = True
    fused_casts: tuple[WeightFormat, ...] = ()
    fused_latents: bool = False
    fused_rotation: bool = False
    fused_epilogues: bool = False
    overlap: Overlap | None = None
    streaming: Streaming | None = None
    narrow_tables: bool = False
    whole_vocabulary: bool = False
    star_all_reduce: bool = False
    iteration: IterationCost = IterationCost()
    weights: tuple[WeightFormat, ...] = ("bf16",)
    caches: tuple[CacheFormat, ...] = ("bf16",)
    weights_with_fp8_cache: tuple[WeightFormat, ...] = ()
    source: Sources = ()

    @model_validator(mode="after")
    def _settings_agree(self) -> "Engine":
        if self.batching == "static" and self.preemption != "none":
            because = "an engine with static batching never preempts a request"
            raise NotAllowedError("preemption: none", because, {"engine.preemption": "none"})
        if self.padding and self.batching != "static":
            because = "only an engine with static batching pads prompts to the same length"
            raise NotAllowedError("padding: false", because, {"engine.batching": "static"})
        if self.fused_epilogues and self.fused_norms:
            because = "with fused_epilogues, GEMMs already add the residual"
            raise NotAllowedError("fused_norms: false", because, {"engine.fused_norms": False})
        return self

    @property
    def label(self) -> str:
        """Return name, release and month, as reports write them.

        >>> Engine(name="vllm-0.6", release="0.6.3", era="2024-12").label, Engine(name="mine").label
        ('vllm-0.6 (0.6.3, 2024-12)', 'mine')
        """
        words = [self.month] if is_month(self.release) else [self.release, self.era]
        words = [word for word in words if word]
        return f"{self.name} ({', '.join(words)})" if words else self.name

    @property
    def option(self) -> str:
        """Return the arguments that select this engine and its release on the command line.

        >>> Engine(name="vllm-0.6", release="0.6.3").option, Engine(name="vllm").option
        ('--engine vllm-0.6 engine.release=0.6.3', '--engine vllm')
        """
        return f"--engine {self.name}" + (f" engine.release={self.release}" if self.release else "")

    @property
    def month(self) -> str:
        """Return the month of the release that runs: the stated month, or the month of the entry."""
        return self.release if is_month(self.release) else self.era

    def on_device(self, name: str, memory_bytes: float) -> "Engine":
        """Return the engine with the limits of passes that apply on a device.

        >>> small = SmallDevices(below_bytes=70e9, devices=("a100",), max_sequences=256, max_tokens=2048)
        >>> engine = Engine(max_sequences=1024, small_devices=small)
        >>> [engine.on_device(name, 80e9).max_sequences for name in ("a100-sxm4-80gb", "h100-sxm5-80gb")]
        [256, 1024]
        """
        small = self.small_devices
        if small is None or (memory_bytes >= small.below_bytes and not name.startswith(small.devices)):
            return self
        return self.model_copy(
            update={"max_sequences": small.max_sequences, "max_tokens": small.max_tokens}
        )

    def usable_bytes(self, capacity_bytes: float, weight_bytes: float, other_bytes: float) -> float:
        """Return the memory of a device that the engine uses, weights included.

        Parameters
        ----------
        capacity_bytes : float
            The memory of the device.
        weight_bytes : float
            Weights and adapters on the device.
        other_bytes : float
            Activations and the runtime.

        Examples
        --------
        >>> [Engine(memory_fraction_of=of).usable_bytes(100.0, 40.0, 10.0)
        ...  for of in ("device", "weights_and_cache", "free_memory")]
        [90.0, 100.0, 95.0]
        """
        share_bytes = capacity_bytes * self.memory_fraction
        if self.memory_fraction_of == "weights_and_cache":
            return min(share_bytes + other_bytes, capacity_bytes)
        if self.memory_fraction_of == "free_memory":
            free_bytes = max(capacity_bytes - weight_bytes - other_bytes, 0.0)
            return capacity_bytes - (1.0 - self.memory_fraction) * free_bytes
        return share_bytes
