"""The device under test, accessed through torch: a GPU with its events, or a processor with its clock.

Answers: is torch installed, which device is this, how are times recorded, and how are operands placed in
its memory?
Elsewhere: the definition of a repetition (timing.py), the kernels that run (kernels.py). torch is imported
only when a measurement starts; planning and reading need no torch.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from flopcast.errors import spec_error
from flopcast.lab.measure.timing import AbstractBench, Mark
from flopcast.records import Record, dataclass

Torch = Any  # the module: it is imported when a run starts, so its types are not known here
Tensor = Any
TORCH_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn"}
LIBRARIES = ("triton", "flash_attn", "transformer_engine")
FLUSHES = 6  # of LEAST_FLUSH_BYTES or more each: 0.1 to 0.7 ms, in which a backward pass is queued
USUAL_CACHE_BYTES = 50e6  # of an H100 (its architecture white paper): where torch does not say it
LEAST_FLUSH_BYTES = 2 * USUAL_CACHE_BYTES  # a small cache is overwritten too soon for the host


class Identity(Record):
    """The device as torch describes it.

    `cache_bytes` is the last-level cache; `memory_bytes` is the memory that is free now. `uuid` identifies
    the device among the devices of its node. Values that torch does not provide are None or "": torch
    states no sizes of CPUs.
    """

    name: str
    torch: str
    memory_bytes: float | None = None
    cache_bytes: float | None = None
    capability: str = ""
    toolkit: str = ""
    uuid: str = ""


class Place(Record, eq=False):
    """The place of operands: the torch package, and torch's name of the device."""

    torch: Torch
    device: str

    def random(self, *sizes: int, dtype: str, grad: bool = False) -> Tensor:
        """Return normal random numbers; 8-bit numbers are cast from 16 bits."""
        first = "bf16" if dtype == "fp8" else dtype
        values = self.torch.randn(*sizes, device=self.device, dtype=self.dtype(first))
        values = values if first == dtype else values.to(self.dtype(dtype))
        return values.requires_grad_() if grad else values

    def empty(self, *sizes: int, dtype: str) -> Tensor:
        """Return uninitialised memory for an output."""
        return self.torch.empty(*sizes, device=self.device, dtype=self.dtype(dtype))

    def ids(self, count: int, below: int) -> Tensor:
        """Return random token ids."""
        return self.torch.randint(0, below, (count,), device=self.device)

    def dtype(self, name: str) -> Torch:
        """Return torch's dtype of this name; raise AttributeError if this torch lacks it."""
        return getattr(self.torch, TORCH_DTYPES[name])


def load_torch(device: str) -> Torch:
    """Return the torch package, which must be able to use `device`.

    Raises
    ------
    SpecError
        torch is not installed, or sees no GPU; the message states how to fix either.
    """
    try:
        torch: Torch = import_module("torch")
    except ImportError:
        raise spec_error(
            field="torch",
            value=None,
            fault="is not installed",
            allowed="torch 2.1 or newer, built for this machine's GPUs",
            because="flopcast runs kernels through torch; --plan-only and reading packs do not need it",
            fix="pip install torch   (or: flopcast measure --plan-only)",
        ) from None
    if device != "cpu" and not torch.cuda.is_available():
        allowed = "a GPU that torch can use, or cpu"
        fix = "install torch for this driver, check CUDA_VISIBLE_DEVICES, or use --device cpu"
        raise spec_error("--device", "cuda", allowed, f"torch {torch.__version__!s} finds no GPU", fix)
    return torch


def libraries(device: str) -> frozenset[str]:
    """Return the optional packages that can be measured, and "cuda" on a GPU; none of them on a CPU."""
    if device == "cpu":
        return frozenset()
    return frozenset(name for name in LIBRARIES if find_spec(name) is not None) | {"cuda"}


def identity(torch: Torch, device: str) -> Identity:
    """Return the device as torch describes it.

    A processor has no name of its own, so packs of two machines are distinguished only by their facts.
    """
    if device == "cpu":
        return Identity(name="cpu", torch=str(torch.__version__))
    facts = torch.cuda.get_device_properties(torch.cuda.current_device())
    free_bytes, _ = torch.cuda.mem_get_info()
    uuid = getattr(facts, "uuid", None)
    return Identity(
        name=str(facts.name),
        torch=str(torch.__version__),
        memory_bytes=float(free_bytes),
        cache_bytes=float(getattr(facts, "L2_cache_size", 0)) or None,
        capability=f"{facts.major}.{facts.minor}",
        toolkit=str(torch.version.cuda or torch.version.hip or ""),
        uuid=f"GPU-{str(uuid).removeprefix('GPU-')}" if uuid is not None else "",
    )


def cache_bytes(who: Identity) -> float:
    """Return the cache size that a measurement assumes: the size that torch reports, or that of an H100."""
    return who.cache_bytes or USUAL_CACHE_BYTES


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class _HostBench(AbstractBench):
    """The host's part of a bench: its clock, and the wait while no work is queued."""

    clock: Callable[[], float]
    sleep: Callable[[float], None]

    def idle(self, seconds_s: float) -> None:
        """Sleep."""
        self.sleep(seconds_s)

    def clock_s(self) -> float:
        """Return the time of the host's clock."""
        return self.clock()


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class GpuBench(_HostBench):
    """A GPU: marks are events on the current stream, with a resolution of about half a microsecond."""

    torch: Torch
    flushed: Tensor  # twice as large as the cache, and LEAST_FLUSH_BYTES at least

    def mark(self) -> Mark:
        """Return a recorded event."""
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self, mark: Mark) -> None:
        """Block the host until an event."""
        mark.synchronize()

    def between_s(self, first: Mark, second: Mark) -> float:
        """Return seconds between two events; torch returns milliseconds."""
        return float(first.elapsed_time(second)) * 1e-3

    def flush(self) -> None:
        """Overwrite the cache. This takes so long that the host can queue the timed work meanwhile."""
        for _ in range(FLUSHES):
            self.flushed.zero_()


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ProcessorBench(_HostBench):
    """A processor: runs end before their calls return, so a mark is the clock's time."""

    write: Callable[[], object] = lambda: None

    def mark(self) -> Mark:
        """Return the current time."""
        return self.clock()

    def wait(self, mark: Mark) -> None:
        """Do nothing: the event has already been reached."""

    def between_s(self, first: Mark, second: Mark) -> float:
        """Return the difference of two times, but at least the resolution of the clock."""
        return max(float(second) - float(first), 1e-9)

    def flush(self) -> None:
        """Call `write`."""
        self.write()


def open_bench(
    torch: Torch, who: Identity, device: str, clock: Callable[[], float], sleep: Callable[[float], None]
) -> AbstractBench:
    """Return the bench of a device, whose tensor of twice the cache size overwrites the cache."""
    flush_bytes = max(LEAST_FLUSH_BYTES, 2 * cache_bytes(who))
    flushed = torch.empty(int(flush_bytes / 4), dtype=torch.int32, device=device)
    if device == "cpu":
        return ProcessorBench(clock=clock, sleep=sleep, write=flushed.zero_)
    return GpuBench(torch=torch, flushed=flushed, clock=clock, sleep=sleep)
