"""Torch programs of kernel classes: products, attention, embeddings, the optimizer, launches.

Answers: which call, on which operands, is one execution of a shape?
Elsewhere: classes bound by memory (memory_bound_kernels.py), timing (timing.py). Each class is one line of
MAKERS: a function that allocates operands and returns a closure that queues one execution.

Operands of products are random, because zeros let a matrix engine draw less power and run at a higher
clock. Outputs are allocated in advance if torch allows it. The operand layouts are those of a linear
layer that stores its weights as [outputs, inputs].
"""

from collections.abc import Callable
from importlib import import_module

from flopcast.lab.measure.device import Place, Tensor, Torch
from flopcast.lab.measure.memory_bound_kernels import STREAMS, backward_of
from flopcast.lab.measure.shapes import Shape
from flopcast.lab.measure.timing import Run

ADAM_CHUNK = 2**24  # elements of one tensor: an update of many tensors, as of a model


Maker = Callable[[Shape, Place], Run]
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def make(shape: Shape, place: Place) -> Run:
    """Return one execution of a shape, ready to be queued.

    Raises
    ------
    KeyError, RuntimeError, AttributeError, TypeError, ImportError, NotImplementedError
        This device, or this release of torch, cannot run it; torch then raises its own errors.
    """
    if shape.kernel in STREAMS:
        return STREAMS[shape.kernel](shape, place)
    return MAKERS[shape.kernel](shape, place)


def _gemm(shape: Shape, place: Place) -> Run:
    """Return out[m, n] in the three layouts of a linear layer, in 8 bits, or added to an fp32 buffer."""
    m, n, k = (shape.size(name) for name in "mnk")
    torch, dtype = place.torch, shape.dtype
    if dtype == "fp8":
        return _scaled_gemm(m, n, k, place)
    if shape.layout == "forward":
        left, right = place.random(m, k, dtype=dtype), place.random(n, k, dtype=dtype).t()
    elif shape.layout == "input_gradient":
        left, right = place.random(m, k, dtype=dtype), place.random(k, n, dtype=dtype)
    else:
        left, right = place.random(k, m, dtype=dtype).t(), place.random(k, n, dtype=dtype)
    if "fp32_accumulate" in shape.flags:
        main = place.random(m, n, dtype="fp32")
        return lambda: torch.addmm(main, left, right, out_dtype=torch.float32)
    out = place.empty(m, n, dtype=dtype)
    return lambda: torch.mm(left, right, out=out)


def _scaled_gemm(m: int, n: int, k: int, place: Place) -> Run:
    """Return a product of 8-bit operands with one scale each and a bf16 output.

    Both operands are contiguous along k, the only layout that this call accepts. Gradient products use
    the same kernel after a transpose, which is a separate copy.
    """
    torch = place.torch
    left, right = place.random(m, k, dtype="fp8"), place.random(n, k, dtype="fp8").t()
    one = torch.ones((), device=place.device)
    return lambda: torch._scaled_mm(
        left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
    )


def _scores(shape: Shape, place: Place) -> Run:
    batch, length, width = (shape.size(name) for name in ("batch", "queries", "head_size"))
    query = place.random(batch, length, width, dtype=shape.dtype)
    key = place.random(batch, length, width, dtype=shape.dtype).transpose(1, 2)
    out = place.empty(batch, length, length, dtype=shape.dtype)
    return lambda: place.torch.bmm(query, key, out=out)


def _context(shape: Shape, place: Place) -> Run:
    batch, length, width = (shape.size(name) for name in ("batch", "queries", "head_size"))
    weights = place.random(batch, length, length, dtype=shape.dtype)
    value = place.random(batch, length, width, dtype=shape.dtype)
    out = place.empty(batch, length, width, dtype=shape.dtype)
    return lambda: place.torch.bmm(weights, value, out=out)


def _attention(shape: Shape, place: Place) -> Run:
    """Return the forward pass, or the backward pass of a forward pass that was run before; the kernel is
    chosen by the flags.

    Torch stores heads before tokens, and the other libraries store tokens before heads. The graph of a
    backward pass is kept, so that no measured time includes its forward pass.
    """
    gradient = shape.kernel.endswith(".backward")
    sequences, heads, length, width = (
        shape.size(name) for name in ("sequences", "heads", "queries", "head_size")
    )
    key_heads = max(heads // shape.size("group"), 1)
    rows_first = "flash_attn" in shape.flags or "transformer_engine" in shape.flags
    query, key, value = (
        place.random(
            *((sequences, length, h, width) if rows_first else (sequences, h, length, width)),
            dtype=shape.dtype,
            grad=gradient,
        )
        for h in (heads, key_heads, key_heads)
    )
    forward = _attention_call(shape, place, heads, key_heads, width)
    if not gradient:
        return lambda: forward(query, key, value)
    return backward_of(forward(query, key, value), (query, key, value), place)


def _attention_call(shape: Shape, place: Place, heads: int, key_heads: int, width: int) -> Attend:
    """Return the attention of flash-attn, of Transformer Engine, or of torch with one backend."""
    causal = "causal" in shape.flags
    if "flash_attn" in shape.flags:
        flash: Torch = import_module("flash_attn").flash_attn_func
        return lambda q, k, v: flash(q, k, v, causal=causal)
    if "transformer_engine" in shape.flags:
        engine: Torch = import_module("transformer_engine.pytorch")
        module: Attend = engine.DotProductAttention(
            num_attention_heads=heads,
            kv_channels=width,
            num_gqa_groups=key_heads,
            attn_mask_type="causal" if causal else "no_mask",
            qkv_format="bshd",
        )
        return module
    return _torch_attention(place, causal, "cudnn" in shape.flags, heads != key_heads)


def _torch_attention(place: Place, causal: bool, cudnn: bool, grouped: bool) -> Attend:
    """Return torch's attention; on a GPU with exactly one backend, so that unsupported shapes fail."""
    torch = place.torch
    attend = torch.nn.functional.scaled_dot_product_attention
    options = {"is_causal": causal} | ({"enable_gqa": True} if grouped else {})
    if place.device == "cpu":
        return lambda q, k, v: attend(q, k, v, **options)
    choice = torch.nn.attention
    backend = choice.SDPBackend.CUDNN_ATTENTION if cudnn else choice.SDPBackend.FLASH_ATTENTION

    def call(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        with choice.sdpa_kernel(backend):
            return attend(query, key, value, **options)

    return call


def _embedding(shape: Shape, place: Place) -> Run:
    vocabulary, hidden = shape.size("vocabulary"), shape.size("hidden")
    table = place.random(vocabulary, hidden, dtype=shape.dtype)
    ids = place.ids(shape.size("tokens"), vocabulary)
    return lambda: place.torch.nn.functional.embedding(ids, table)


def _embedding_backward(shape: Shape, place: Place) -> Run:
    vocabulary, tokens = shape.size("vocabulary"), shape.size("tokens")
    gradient = place.random(tokens, shape.size("hidden"), dtype=shape.dtype)
    ids = place.ids(tokens, vocabulary)
    scatter = place.torch.ops.aten.embedding_dense_backward
    return lambda: scatter(gradient, ids, vocabulary, -1, False)


def _adam(shape: Shape, place: Place) -> Run:
    """Return fused AdamW over fp32 tensors of 16 million elements; its first step allocates the moments."""
    left, parts = shape.size("parameters"), []
    while left > 0:
        parts.append(place.random(min(left, ADAM_CHUNK), dtype="fp32", grad=True))
        left -= ADAM_CHUNK
    for part in parts:
        part.grad = place.torch.randn_like(part)
    run: Run = place.torch.optim.AdamW(parts, fused=True).step
    run()
    return run


def _grouped(shape: Shape, place: Place) -> Run:
    """Return equal groups of rows with separate weights: one kernel if torch has it, else a loop."""
    torch = place.torch
    groups, m, n, k = (shape.size(name) for name in ("groups", "m", "n", "k"))
    rows = place.random(groups * m, k, dtype=shape.dtype)
    weights = place.random(groups, n, k, dtype=shape.dtype).transpose(1, 2)
    if hasattr(torch, "_grouped_mm") and place.device != "cpu":
        ends = torch.arange(m, groups * m + 1, m, device=place.device, dtype=torch.int32)
        return lambda: torch._grouped_mm(rows, weights, offs=ends)
    parts = [(rows[i * m : (i + 1) * m], weights[i]) for i in range(groups)]

    def loop() -> None:
        for part, weight in parts:
            torch.mm(part, weight)

    return loop


def _smallest(shape: Shape, place: Place) -> Run:
    """Return an in-place addition to one element, the smallest possible kernel.

    Its time on the device is the shortest time of any kernel, and its time on the host is that of one
    launch.
    """
    value = place.random(1, dtype=shape.dtype)
    return lambda: value.add_(1.0)


MAKERS: dict[str, Maker] = {
    "gemm": _gemm,
    "batched_gemm.scores": _scores,
    "batched_gemm.context": _context,
    "flash_attention": _attention,
    "flash_attention.backward": _attention,
    "embedding": _embedding,
    "embedding.backward": _embedding_backward,
    "adam": _adam,
    "grouped_gemm": _grouped,
    "host.launch": _smallest,
    "host.round_trip": _smallest,
    "host.empty_kernel": _smallest,
}
