"""Operators whose time is limited by memory: norms, activations, softmax, sums, copies.

Answers: how many bytes does each operator move, forward and backward, and which tensors does it keep?
Elsewhere: the bandwidth that kernels reach (cost/kernels).

One operator is one line of KINDS. Numbers count tensors of the operator's `elements` that are read or
written. A kind that consists of several kernels (unfused norms, rotary embedding) counts the passes of all
kernels.
"""

from flopcast.dtypes import ELEMENT_BYTES, ONE, ZERO, Counts, Floats
from flopcast.operators.base import AbstractOperator, Saved, Work
from flopcast.records import Record, field, replace


class Kind(Record):
    """Passes over the tensor; `mask_passes` of one byte per element are added to both passes.

    `backward = 0` means that the operator has no gradient kernel. `reduces` means that rows of `width`
    elements are reduced, so that the speed depends on the width. `saves` names a role and the number of
    elements that it keeps per element; a `mask` is also kept.

    The other fields describe the kind for other modules. `passes_on_from`: from this input on, the gradient
    of an input is the gradient of the output itself; None if there is no such input. `is_loss`: the
    operator follows the logits, and keeps the `logit_bytes` of the stack. `is_view`: the output is a part
    of the inputs, or contains them. `is_gated`: of the two tensors that it reads, one gates the other.
    `has_bias`: a norm with a bias beside its scale. `follows_reduction`: a pass over gradients that have
    been reduced. `permutes`: the operator copies tokens to rows of experts, or adds up such rows.
    `between`: number of tensors between the kernels of a chain in its backward pass, besides the gradient
    (for x / rms, two tensors of the size of x). `is_one_call`: one call of the framework launches the
    operator, without a module. `in_16_bit_passes`: a pass moves 16 bits per element, even if the kernel
    writes another format.

    >>> layernorm = KINDS["layernorm"]  # reads x, writes y; backward reads x and dy, writes dx
    >>> layernorm.forward, layernorm.backward, layernorm.reduces, layernorm.saves
    (2, 3, True, (('input:0', 1),))
    """

    forward: int
    backward: int = 0
    mask_passes: int = 0
    reduces: bool = False
    saves: tuple[tuple[str, int], ...] = ()
    passes_on_from: int | None = None
    is_loss: bool = False
    is_view: bool = False
    is_gated: bool = False
    has_bias: bool = False
    follows_reduction: bool = False
    permutes: bool = False
    between: int = 0
    in_16_bit_passes: bool = False
    is_one_call: bool = False


X = (("input:0", 1),)
OUT = (("output", 1),)

KINDS: dict[str, Kind] = {
    # one kernel each
    "layernorm": Kind(forward=2, backward=3, reduces=True, saves=X, has_bias=True),
    "rmsnorm": Kind(forward=2, backward=3, reduces=True, saves=X),
    "softmax": Kind(forward=2, backward=3, reduces=True, saves=OUT),
    "scaled_masked_softmax": Kind(forward=2, backward=3, reduces=True, saves=OUT),
    "mask_fill": Kind(forward=2, backward=2, passes_on_from=0),
    "alibi": Kind(forward=2, passes_on_from=0),  # adds one slope per head; the gradient passes unchanged
    "softcap": Kind(forward=2, backward=3, saves=OUT),  # c · tanh(x / c): its slope follows from y
    "gelu": Kind(forward=2, backward=3, saves=X),
    "silu": Kind(forward=2, backward=3, saves=X),
    "relu": Kind(forward=2, backward=3, saves=OUT),
    "relu2": Kind(forward=2, backward=3, saves=X),  # max(x, 0)²: its slope is twice the kept input
    "swiglu": Kind(forward=3, backward=5, saves=(("input:0", 2),), is_gated=True),
    "geglu": Kind(forward=3, backward=5, saves=(("input:0", 2),), is_gated=True),
    "clamped_swiglu": Kind(forward=3, backward=5, saves=(("input:0", 2),), is_gated=True),
    "clamped_geglu": Kind(forward=3, backward=5, saves=(("input:0", 2),), is_gated=True),
    "dropout": Kind(forward=2, backward=2, mask_passes=1),
    "residual_add": Kind(forward=3, backward=3, passes_on_from=0),  # backward: gradients of two uses
    "bias_add": Kind(forward=2, backward=1, passes_on_from=0),  # backward: a sum over tokens
    "position_add": Kind(forward=3, backward=1, passes_on_from=0),
    "copy": Kind(forward=2, backward=2),
    "cast_to_fp32": Kind(forward=3, backward=3, is_loss=True, in_16_bit_passes=True),
    "rope": Kind(forward=2, backward=2),
    "index_keys": Kind(forward=1),  # of sparse attention: read once, in serving alone
    "index_choice": Kind(forward=6),  # scores in fp32, written and read twice: counted in 16-bit passes
    "causal_convolution": Kind(forward=2, backward=3, saves=X),  # a few tokens wide, by channel, and SiLU
    "gated_rmsnorm": Kind(  # the result is multiplied by SiLU of a gate
        forward=3, backward=5, reduces=True, saves=(("input:0", 1), ("input:1", 1))
    ),
    "sigmoid_gate": Kind(forward=3, backward=5, saves=(("input:0", 1), ("input:1", 1))),
    "token_shift": Kind(forward=3, backward=5, saves=X),  # a weighted sum with the token before (RWKV)
    "learned_shift": Kind(forward=4, backward=7, saves=(*X, ("input:1", 1))),  # by weights of each token
    "log_sigmoid": Kind(forward=4, backward=5, saves=X),  # and a division, which is a kernel of its own
    "scaled_rope": Kind(forward=2, backward=2),  # turned, and scaled by one number
    "sigmoid": Kind(forward=2, backward=3, saves=OUT),
    "add_adapter": Kind(forward=3, passes_on_from=0),  # its gradient passes unchanged
    "keep": Kind(forward=0, saves=OUT),  # nothing runs: a result stays for layers elsewhere
    "fork": Kind(forward=0, backward=3, passes_on_from=0),  # two readers, whose gradients are added
    "fork_of_three": Kind(forward=0, backward=4, passes_on_from=0),
    "scale_rows": Kind(forward=2, backward=3, saves=X),  # by one number a row
    "top_k": Kind(forward=1, backward=1, reduces=True),  # what it picks is small beside what it reads
    "router_loss": Kind(forward=1, backward=2),
    "selection_bias": Kind(forward=2),  # steers the choice, and no gradient reaches it
    "router_pass": Kind(forward=2, is_one_call=True),  # a mask, a count or a sum; none has a gradient
    "route_scan": Kind(forward=1),  # the routes of all ranks' tokens, read to find those to this rank
    "group_limit": Kind(forward=3),  # best scores of each group, then the others' scores masked
    "permute": Kind(forward=2, backward=2, permutes=True),  # counted in rows of the permuted tensor
    "unpermute": Kind(forward=2, backward=3, saves=X, permutes=True),  # weighs rows
    "unpermute_sum": Kind(forward=2, backward=2, permutes=True),  # of rows that were weighed before
    "merge_blocks": Kind(forward=5),  # fp32 += 16-bit, scaled: counted in 16-bit passes
    "merge_gradients": Kind(forward=0, backward=3),  # of blocks that saw other keys: added up
    # logits: spec/stack.py, Memory
    "cross_entropy": Kind(forward=2, backward=2, reduces=True, is_loss=True),
    # fused by a rewrite
    "fused_layernorm": Kind(forward=2, backward=3, saves=X),
    "add_layernorm": Kind(forward=4, reduces=True),  # of serving engines: a sum, written too, and its norm
    "add_rmsnorm": Kind(forward=4, reduces=True),
    "fused_rmsnorm": Kind(forward=2, backward=3, saves=X),
    "bias_gelu": Kind(forward=2, backward=4, saves=X),
    "softmax_dropout": Kind(forward=3, backward=3, mask_passes=1, reduces=True, saves=(("softmax", 1),)),
    "fused_cross_entropy": Kind(forward=2, backward=2, reduces=True, is_loss=True),
    "split_heads": Kind(forward=0, backward=2, passes_on_from=0, is_view=True),  # joined backward
    "epilogue_bias": Kind(forward=0, backward=1, passes_on_from=0),
    "epilogue_gate": Kind(forward=0, backward=0, saves=(("input:0", 2),)),  # inside products of experts
    "bias_dropout_add": Kind(forward=3, backward=6, mask_passes=1, passes_on_from=1),
    "bias_add_residual": Kind(forward=3, backward=4, passes_on_from=0),
    # chains of kernels that a stack runs unfused
    "metric_cross_entropy": Kind(forward=7, is_loss=True),  # logarithms of a softmax in fp32
    "unfused_rmsnorm": Kind(forward=5, backward=27, saves=(*X, ("normalised", 1)), between=2),
    "unfused_rope": Kind(forward=10, backward=15),
    "wide_rmsnorm": Kind(forward=18, backward=46, saves=(("wide", 2), ("normalised", 1))),
    "wide_scaled_rmsnorm": Kind(forward=20, backward=52, saves=(("wide", 2), ("normalised", 2))),
    "wide_softmax": Kind(forward=10, backward=12, saves=(("wide", 2),)),
    "unfused_swiglu": Kind(forward=5, backward=9, saves=(("input:0", 2), ("activated", 1))),
    "unfused_geglu": Kind(forward=5, backward=9, saves=(("input:0", 2), ("activated", 1))),
    "clamp_halves": Kind(forward=8, backward=15, saves=(("input:0", 2),)),  # cut, joined; masks of 1 byte
    "joined_bias": Kind(forward=4, backward=3),  # added part by part, parts joined
    "weighed_bias": Kind(forward=14, backward=20),  # in fp32 between casts: counted in 16-bit passes
    "unfused_relu2": Kind(forward=4, backward=10, saves=X),  # power of ReLU: slope, times gradients
    "unfused_gelu": Kind(forward=18, backward=28, saves=(*X, ("half", 1), ("tanh", 1), ("sum", 1))),
    # under autocast, counted in 16-bit passes: fp32 to 16 bits, a sum of 16 bits and fp32, a chain in fp32
    "autocast": Kind(forward=3, backward=3),
    "autocast_weight": Kind(forward=3, backward=3, saves=OUT),
    "mixed_residual_add": Kind(forward=5, backward=9, passes_on_from=1),
    "fp32_rmsnorm": Kind(forward=14, backward=42, saves=(("input:0", 2), ("normalised", 2))),
    # adapters in fp32, counted in 16-bit passes; they include the bytes that the products move in addition
    "widen": Kind(forward=4, backward=5, saves=(("wide", 1),)),
    "wide_dropout": Kind(forward=4, backward=4, mask_passes=1),
    "wide_add_adapter": Kind(forward=13, backward=12, passes_on_from=0),  # scaled, added, cast
    "rope_join": Kind(forward=2, backward=7),  # turned and kept parts: joined; cut, padded, added
    # gradients and parameters of a whole rank
    "accumulate_gradient": Kind(forward=3),  # 16-bit += 16-bit
    "accumulate_main_gradient": Kind(forward=5),  # fp32 += 16-bit, counted in 16-bit passes
    "gradient_norm": Kind(forward=1),
    "scale_gradient": Kind(forward=2),
    "flatten": Kind(forward=2),
    "unflatten": Kind(forward=2, follows_reduction=True),
}


class MemoryBound(AbstractOperator):
    """An operator of one of KINDS over `elements` elements.

    For a gated activation, `elements` is the size of the output; the operator reads two such tensors.
    `width` is the length of a row that is reduced (hidden width of a norm, keys of a softmax); 1 if nothing
    is reduced.

    Examples
    --------
    Dropout reads and writes two bytes per element, and writes a mask of one byte:

    >>> from flopcast.dtypes import constant
    >>> drop = MemoryBound(kind="dropout", elements=constant(1e6), dtype="bf16")
    >>> drop.work().moved_bytes.item(), [s.size_bytes.item() for s in drop.saves()]
    (5000000.0, [1000000.0])
    """

    kind: str
    elements: Counts
    dtype: str
    width: Counts = field(default_factory=lambda: ONE)
    is_gradient: bool = False
    trained: bool = True  # whether its weights have gradients: a bias that has none needs no kernel
    cycles: Counts = field(default_factory=lambda: ZERO)  # of a multiprocessor, beside the bytes
    gradient_cycles: Counts = field(default_factory=lambda: ZERO)

    @property
    def kernel(self) -> str:
        """Return one curve per kind and pass."""
        return f"{self.kind}.backward" if self.is_gradient else self.kind

    def work(self) -> Work:
        """Return the work: no matrix product, only the passes of the kind."""
        kind = KINDS[self.kind]
        saved = sum(times for _, times in kind.saves) if self.is_gradient else 0
        return Work(
            flop=ZERO,
            moved_bytes=self._moved_bytes(),
            unit=self.dtype,
            cycles=self.gradient_cycles if self.is_gradient else self.cycles,
            saved_bytes=self.elements * (saved * ELEMENT_BYTES[self.dtype]),
        )

    def _moved_bytes(self) -> Floats:
        kind = KINDS[self.kind]
        passes = kind.backward if self.is_gradient else kind.forward
        return self.elements * (passes * ELEMENT_BYTES[self.dtype] + kind.mask_passes)

    def coordinates(self) -> tuple[Counts, ...]:
        """Return bytes moved, and the width of a row if rows are reduced."""
        moved_bytes = self._moved_bytes()
        return (moved_bytes, self.width) if KINDS[self.kind].reduces else (moved_bytes,)

    def saves(self) -> tuple[Saved, ...]:
        """Return the tensors that the kind keeps."""
        kind = KINDS[self.kind]
        size_bytes = self.elements * ELEMENT_BYTES[self.dtype]
        kept = [Saved(role=role, size_bytes=size_bytes * times) for role, times in kind.saves]
        if kind.mask_passes:
            kept.append(Saved(role="mask", size_bytes=self.elements))
        return tuple(kept)

    def gradients(self) -> tuple[tuple[str, AbstractOperator], ...]:
        """Return one kernel, or none if the operator computes only the gradient of a weight
        (workload/split.py).
        """
        if KINDS[self.kind].backward <= (0 if self.trained else 1):
            return ()
        return (("dgrad", replace(self, is_gradient=True)),)
