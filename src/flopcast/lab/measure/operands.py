"""The device's memory, in which torch allocates and fills operands.

Answers: how does a kernel get random operands, outputs and ids of a dtype?
Elsewhere: what is done with them (kernels.py, memory_bound_kernels.py).
"""

from dataclasses import dataclass
from typing import Any

Torch = Any  # the module: it is imported when a run starts, so its types are not known here
Tensor = Any
TORCH_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn"}


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Place:
    """The place of operands: torch, and the device's name in torch."""

    torch: Torch
    device: str

    def random(self, *sizes: int, dtype: str, grad: bool = False) -> Tensor:
        """Return normal random numbers; 8-bit ones are cast from 16 bits."""
        first = "bf16" if dtype == "fp8" else dtype
        values = self.torch.randn(*sizes, device=self.device, dtype=self.dtype(first))
        values = values if first == dtype else values.to(self.dtype(dtype))
        return values.requires_grad_() if grad else values

    def empty(self, *sizes: int, dtype: str) -> Tensor:
        """Return memory for an output."""
        return self.torch.empty(*sizes, device=self.device, dtype=self.dtype(dtype))

    def ids(self, count: int, below: int) -> Tensor:
        """Return random token ids."""
        return self.torch.randint(0, below, (count,), device=self.device)

    def dtype(self, name: str) -> Torch:
        """Return torch's own name; raise AttributeError if this torch has no such type."""
        return getattr(self.torch, TORCH_DTYPES[name])
