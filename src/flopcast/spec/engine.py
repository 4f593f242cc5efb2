"""The engine: serving software, as data.

Answers: which kernels does this engine fuse, how large are its passes by default?
Elsewhere: what its host costs (iteration_cost.py), which entry describes a release
(library/engine_releases.py), training software (stack.py), how requests are scheduled
(serving/scheduler.py).
"""

import re
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le
from pydantic import Field, model_validator

from flopcast.spec.deployment import CacheFormat
from flopcast.spec.iteration_cost import IterationCost
from flopcast.spec.published_formats import WeightFormat
from flopcast.spec.source import Sources
from flopcast.spec.streaming import Streaming
from flopcast.strict_model import NotAllowedError, StrictModel

Share = Annotated[float, Gt(0), Le(1)]
UNKNOWN_RELEASE = "unknown"


def is_month(text: str) -> bool:
    """Return whether a text is a month, such as 2024-10."""
    return re.fullmatch(r"20\d\d-\d\d", text) is not None


class Overlap(StrictModel):
    """Kernels that run beside others of the same pass, and how they slow each other.

    Messages always do. Decode attention runs beside matrix products where it has speeds. The tuples have an
    entry for each share of the device that such a kernel can get.

    Attributes
    ----------
    given_fraction : tuple of float
        Share of the device that decode attention or a message gets, and products lose.
    memory_ratio : tuple of float
        Speed of decode attention with this share, over its speed alone; empty where it runs between
        products as usual.
    network_ratio : tuple of float
        Speed of messages with this share, over their speed alone.
    split_ratio : float
        Time of the products of a pass that is split into parts, over that of the whole pass.
    """

    given_fraction: tuple[Annotated[float, Ge(0), Le(1)], ...]
    memory_ratio: tuple[Share, ...] = ()
    network_ratio: tuple[Share, ...]
    split_ratio: float = Field(default=1.0, ge=1)

    @model_validator(mode="after")
    def _one_entry_for_each_share(self) -> "Overlap":
        given = (self.given_fraction, self.network_ratio, self.memory_ratio or self.network_ratio)
        sizes = {len(each) for each in given}
        if len(sizes) > 1:
            because = (
                "the i-th entries of the three lists belong together: they describe the same share of "
                "the multiprocessors"
            )
            raise NotAllowedError(
                "three lists of the same length", because, "write lists of the same length"
            )
        return self


LADDER = Overlap(given_fraction=(0.0,), network_ratio=(1.0,))
"""Messages of blocks with a ladder residual: they are small, so their time is latency."""


class SmallDevices(StrictModel):
    """The limits of passes on some devices, for an engine that chooses them by the device.

    Attributes
    ----------
    below_bytes : float
        Devices with less memory have these limits.
    devices : tuple of str
        Other devices that have them: the beginnings of their names.
    max_sequences, max_tokens : int
        The limits, instead of those of the engine.
    """

    below_bytes: float = Field(gt=0)
    devices: tuple[str, ...] = ()
    max_sequences: int = Field(ge=1)
    max_tokens: int = Field(ge=1)


class Engine(StrictModel):
    """A serving engine of one period: its passes, its defaults and its costs.

    Attributes
    ----------
    name : str
        Name in the catalogue.
    base : str
        Entry of the newest releases of this software, whose fields an entry of older releases has unless it
        states them; "" in entries without one.
    era : str
        Month of the release that the defaults are of.
    release : str
        Release that runs, such as 0.6.3, or its month, such as 2024-10. It selects the entry of these
        releases. If it is "", the entry itself says which releases run. "unknown" widens the intervals.
    first_release, first_month : str
        Oldest release that the entry describes, and its month; "" if the catalogue has only one entry of
        the software.
    fitted_from : str
        Month of the oldest measurements to which constants of this software were fitted; "" if there are
        none.
    prefill : str
        How prompts and decoding sequences share passes: "chunked" mixes parts of prompts into passes that
        decode, "whole" mixes whole prompts into them, and "apart" computes prompts in separate passes.
    batching : str
        When requests join: with "continuous" batching between any two passes, with "static" batching only
        once all requests of the batch before have ended. A static batch goes on computing requests that
        have ended, keeps their blocks, and returns all requests at its end.
    separate_pools : bool
        Whether some instances can compute only prompts and send their caches to others, which decode.
    padding : bool
        Whether the prompts of a static batch are padded to the longest of them: they are then computed and
        cached as if all were as long.
    launch_s : float
        Host time of launching one kernel; 0 where passes run from CUDA graphs. A pass takes at least as
        long as its launches.
    graph_sequences : int
        Largest number of sequences for which the engine has CUDA graphs of decoding passes. The host
        launches the kernels of all other passes. Without a `launch_s`, graphs hold all decoding passes.
    sent_formats : tuple of str
        Formats of experts' weights to which tokens are quantised before groups of ranks send them to their
        experts. With all other formats, tokens are sent in 16 bits.
    padded_experts : tuple of str
        Formats of experts whose kernels compute a multiple of 128 rows for each expert that a rank holds,
        as DeepGEMM does in vLLM 0.11 and 0.12 for experts in fp8_block.
    own_all_reduce : bool
        Whether all-reduces run by a kernel of the engine, which is faster than NCCL for small messages.
    joined_attention : tuple of str
        Devices on which one kernel computes the attention of the prompts and of the decoding sequences of a
        pass: the beginnings of their names.
    fused_all_reduce : bool
        Whether these kernels are the fastest of all engines, such as those of TensorRT-LLM and FlashInfer,
        which also compute the next norm. Without them, small messages take the longer times of vLLM's
        custom all-reduce.
    max_sequences : int
        Largest number of sequences in one pass.
    max_tokens : int
        Largest number of new tokens in one pass.
    small_devices : SmallDevices or None
        Devices on which both limits are smaller by default.
    block_tokens : int
        Tokens of one block of the KV cache.
    memory_fraction : float
        Part of the memory named by `memory_fraction_of` that the engine uses.
    memory_fraction_of : str
        Memory of which `memory_fraction` is a part: with "device", weights, activations, the runtime and
        the KV cache together have this part of the device's memory. With "weights_and_cache", weights and
        cache have this part, and activations and the runtime use the remainder. With "free_memory", the
        cache has this part of what weights, activations and the runtime leave free.
    reserved_bytes : float
        Memory for CUDA graphs, communication and the runtime, on each device.
    preemption : str
        What happens to a preempted sequence: with "recompute", its cache is computed again. With "none", no
        sequence is preempted: a request is admitted only if the blocks of its whole output are free.
    prefix_cache : bool
        Whether blocks of equal prompts are shared by default.
    sampling : str
        How the next token is found: as the most likely one or by a kernel that needs no order ("greedy"),
        or by sorting the vocabulary for each sequence, as PyTorch's sampler does for top-p and top-k
        ("sorted").
    receive_interval : int
        Decoding passes after which the engine looks for new requests; a pass with prompts is followed by a
        look as well. With 1, new requests can be part of the next pass.
    passes_ahead : int
        Passes that the engine launches before it knows the result of the pass that runs: 1 if it schedules
        a pass while another one runs, else 0. A new request waits for these passes.
    stream_interval : int
        Output tokens after which the server sends the next part of an answer. With 1, it sends each token
        by itself.
    wait_passes : int
        Decoding passes for which prompts wait for others, so that they are computed together. With 0, they
        join the next pass.
    wait_fraction : float
        Part of max_tokens that a pass must have for its prompts not to wait.
    adapter_slots : int
        Low-rank adapters that fit into memory at once by default.
    fused_norms : bool
        Whether the addition of the residual and the norm behind it are one kernel.
    fused_casts : tuple of str
        Formats of weights in which the norm, the activation function or the attention before a product
        writes the product's inputs. In all other formats, a separate kernel casts them.
    fused_epilogues : bool
        Whether matrix products add the residual and apply the activation function, so that neither is a
        kernel of its own or a part of a norm. The predicted products take no longer. A norm after a half of
        a block prevents this.
    overlap : Overlap or None
        Decode attention and messages that run beside products; None where kernels run one after another.
    streaming : Streaming or None
        Weights, caches and activations in the memory of the host or on drives; None where the engine keeps
        all of them on the devices.
    narrow_tables : bool
        Whether the embedding and the head are stored in the format of the other weights, as in llama.cpp.
        By default, both stay in 16 bits.
    whole_vocabulary : bool
        Whether one device has the whole embedding and the whole head, which it computes alone. By default,
        ranks divide the vocabulary.
    star_all_reduce : bool
        Whether all-reduces run over one device, to which all others send and which answers them.
    iteration : IterationCost
        Host time of an iteration.
    weights : tuple of str
        Formats of weights that the engine runs.
    caches : tuple of str
        Formats of the KV cache that the engine runs.
    weights_with_fp8_cache : tuple of str
        Formats of weights with which the KV cache is in fp8 by default, because the checkpoints that are
        published for the engine state this. With all other formats, it is in 16 bits by default.
    source : list
        Where these facts stand.
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
    adapter_slots: int = Field(default=1, ge=1)
    fused_norms: bool = True
    fused_casts: tuple[WeightFormat, ...] = ()
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
        """Return what selects this engine and its release on the command line.

        >>> Engine(name="vllm-0.6", release="0.6.3").option, Engine(name="vllm").option
        ('--engine vllm-0.6 engine.release=0.6.3', '--engine vllm')
        """
        return f"--engine {self.name}" + (f" engine.release={self.release}" if self.release else "")

    @property
    def month(self) -> str:
        """Return the month of the release that runs: the one that was stated, or that of the entry."""
        return self.release if is_month(self.release) else self.era

    def on_device(self, name: str, memory_bytes: float) -> "Engine":
        """Return the engine with the limits of passes that it chooses on a device.

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
        """Return the total memory of a device that the engine uses.

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
