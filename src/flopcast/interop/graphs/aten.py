"""Operators of PyTorch's ATen library by the canonical names of flopcast.

Answers: which canonical operator is `aten.native_layer_norm`, and which of its arguments does it read?
Elsewhere: the canonical operators (graph/canonical.py), the archive that holds the calls (archive.py). An
operator that this table lacks is unknown and is priced by its bytes.
"""

from collections.abc import Callable, Mapping

from flopcast.graph.operator_graph import Attribute, GraphTensor
from flopcast.interop.graphs.axes import along, of_view
from flopcast.records import dataclass, field, replace

VIEWS = (
    *("view", "expand", "expand_as", "permute", "transpose", "t", "squeeze", "unsqueeze", "slice"),
    *("select", "split", "split_with_sizes", "chunk", "unbind", "narrow", "detach", "alias", "unflatten"),
    *("movedim", "swapaxes", "diagonal", "as_strided", "view_as", "lift_fresh_copy", "view_as_real"),
    *("view_as_complex", "real", "imag", "numpy_T", "mT", "tensor_split", "unsafe_split", "broadcast_to"),
    *("_unsafe_view", "lift_fresh", "requires_grad", "resolve_conj", "resolve_neg", "unsafe_chunk"),
    *("conj", "_conj", "vsplit", "hsplit", "detach_", "swapdims", "adjoint", "atleast_2d", "squeeze_copy"),
)
MAY_COPY = ("reshape", "flatten", "contiguous", "reshape_as", "ravel")  # a view if strides allow it
CALLS: dict[str, tuple[str, ...]] = {  # canonical operator → names in ATen
    "linear": ("linear",),
    "matmul": ("matmul", "mm", "bmm", "mv", "dot", "inner", "linalg_vecdot"),
    "einsum": ("einsum",),
    "grouped_matmul": ("_grouped_mm", "_scaled_grouped_mm", "grouped_mm_fallback"),
    "recurrent": ("lstm", "gru", "rnn_tanh", "rnn_relu"),
    "attention": (
        "scaled_dot_product_attention",
        *("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"),
        *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_cudnn_attention"),
    ),
    "add": ("add", "__iadd__"),
    "subtract": ("sub", "rsub", "subtract", "diff"),
    "negate": ("neg", "negative"),
    "multiply": ("mul", "__imul__", "multiply", "outer", "ger"),
    "divide": ("div", "divide", "true_divide", "floor_divide", "remainder", "fmod"),
    "maximum": ("maximum",),
    "minimum": ("minimum",),
    "multiply_add": ("addcmul", "addcdiv"),
    "lerp": ("lerp",),
    "round": ("round", "floor", "ceil", "trunc", "sign", "frac"),
    "comparison": (
        *("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "logical_not", "isin"),
        *("not_equal", "greater", "greater_equal", "less", "less_equal", "equal", "isneginf", "isposinf"),
        "signbit",
        *("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_not"),
        *("bitwise_xor", "__and__", "__or__", "__lshift__", "__rshift__", "any", "all", "allclose"),
    ),
    "relu": ("relu", "threshold"),
    "sigmoid": ("sigmoid",),
    "tanh": ("tanh",),
    "exp": ("exp", "expm1", "exp2"),
    "sqrt": ("sqrt",),
    "rsqrt": ("rsqrt",),
    "reciprocal": ("reciprocal",),
    "gelu": ("gelu",),
    "silu": ("silu",),
    "mish": ("mish",),
    "elu": ("elu", "selu", "celu"),
    "softplus": ("softplus",),
    "softsign": ("softsign",),
    "logsigmoid": ("log_sigmoid", "log_sigmoid_forward"),
    "hardswish": ("hardswish",),
    "hardsigmoid": ("hardsigmoid",),
    "leaky_relu": ("leaky_relu",),
    "prelu": ("prelu", "_prelu_kernel"),
    "glu": ("glu",),
    "clamp": ("clamp", "clamp_min", "clamp_max", "clip", "hardtanh", "relu6"),
    "abs": ("abs", "absolute"),
    "log": ("log", "log2", "log1p", "log10"),
    "sin": ("sin", "sinh", "asin", "tan"),
    "cos": ("cos", "cosh", "acos", "atan"),
    "atan2": ("atan2",),
    "erf": ("erf", "erfc", "erfinv"),
    "power": ("pow", "float_power"),
    "square": ("square",),
    "dropout": ("dropout", "native_dropout", "feature_dropout", "alpha_dropout"),
    "where": ("where",),
    "masked_fill": ("masked_fill",),
    "cast": ("_to_copy", "to", "type_as", "float", "half", "bfloat16"),
    "softmax": ("softmax", "_softmax", "_safe_softmax"),
    "log_softmax": ("log_softmax", "_log_softmax"),
    "layer_norm": ("layer_norm", "native_layer_norm"),
    "rms_norm": ("rms_norm", "_fused_rms_norm"),
    "group_norm": ("group_norm", "native_group_norm"),
    "instance_norm": ("instance_norm",),
    "sum": ("sum", "nansum", "count_nonzero"),
    "mean": ("mean",),
    "norm": ("norm", "linalg_vector_norm", "frobenius_norm", "cosine_similarity"),
    "variance": ("var", "std", "var_mean", "std_mean"),
    "amax": ("amax", "amin", "max", "min", "median"),
    "logsumexp": ("logsumexp",),
    "product_of_elements": ("prod",),
    "argmax": ("argmax", "argmin"),
    "max_pool": (
        *("max_pool1d", "max_pool2d", "max_pool3d", "max_pool2d_with_indices", "adaptive_max_pool2d"),
        *("max_pool3d_with_indices", "max_pool1d_with_indices"),
    ),
    "average_pool": ("avg_pool1d", "avg_pool2d", "avg_pool3d"),
    "adaptive_average_pool": (
        *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
        *("_adaptive_avg_pool2d", "_adaptive_avg_pool3d"),
    ),
    "interpolate": (
        *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_bicubic2d_aa"),
        *("upsample_bilinear2d", "upsample_bicubic2d", "upsample_linear1d", "upsample_trilinear3d"),
        *("_upsample_bilinear2d_aa", "upsample_nearest_exact2d", "_upsample_nearest_exact2d"),
    ),
    "grid_sample": ("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"),
    "region_pool": ("roi_align", "roi_pool"),
    "concatenate": ("cat", "concat", "concatenate", "stack", "hstack", "vstack"),
    "copy": (
        *("clone", "copy", "slice_scatter", "select_scatter", "flip", "pixel_shuffle", "channel_shuffle"),
        *("pixel_unshuffle", "rot90"),
    ),
    "pad": ("pad", "constant_pad_nd", "reflection_pad2d", "replication_pad2d", "reflection_pad1d"),
    "roll": ("roll",),
    "repeat": ("repeat", "repeat_interleave", "tile"),
    "triangle": ("tril", "triu"),
    "unfold": ("im2col", "col2im", "unfold"),
    "constant": (
        *("zeros", "ones", "full", "empty", "arange", "zeros_like", "ones_like", "full_like", "empty_like"),
        *("linspace", "eye", "scalar_tensor", "new_zeros", "new_ones", "new_full", "new_empty", "meshgrid"),
        *("fill", "zero", "one_hot", "cartesian_prod", "tensor", "empty_strided", "logspace"),
    ),
    "random": (
        *("rand", "randn", "randint", "rand_like", "randn_like", "bernoulli", "normal", "uniform"),
        "exponential",
    ),
    "gather": ("gather", "index_select", "index", "take_along_dim", "masked_select", "take"),
    "embedding": ("embedding",),
    "embedding_bag": ("embedding_bag", "_embedding_bag"),
    "scatter": (
        *("scatter", "scatter_add", "index_put", "index_add", "index_copy", "masked_scatter"),
        *("_index_put_impl", "index_fill"),
    ),
    "segment_reduce": ("scatter_reduce", "segment_reduce", "index_reduce"),
    "nonzero": ("nonzero", "unique", "_unique2", "bincount", "histc", "searchsorted", "bucketize"),
    "top_k": ("topk", "kthvalue"),
    "sort": ("sort", "argsort", "msort"),
    "suppress_overlaps": ("nms",),
    "cumulative_sum": ("cumsum", "cumprod", "logcumsumexp", "cummax"),
    "selective_scan": ("selective_scan_fwd", "mamba_chunk_scan_combined_fwd", "mamba_split_conv1d_scan"),
    "linear_attention": ("chunk_gated_delta_rule", "fused_recurrent_gla", "chunk_gla", "wkv"),
    "fourier": ("_fft_r2c", "_fft_c2r", "_fft_c2c", "fft_rfft2", "fft_irfft2", "fft_fft", "fft_ifft",
                "fft_rfft", "fft_irfft", "fft_fftn", "fft_ifftn", "fft_fft2", "fft_ifft2", "fft_rfftn",
                "fft_irfftn", "stft", "istft"),
}  # fmt: skip
CANONICAL_NAMES = {name: canonical for canonical, names in CALLS.items() for name in names}
WITHOUT_DATA = frozenset(
    (
        *("_assert_async", "_assert_scalar", "_assert_tensor_metadata", "sym_size", "sym_numel", "item"),
        *("sym_constrain_range_for_size", "sym_constrain_range", "_local_scalar_dense", "_print"),
        *(
            "_set_grad_enabled",
            "manual_seed",
            "sym_stride",
            "sym_storage_offset",
            "_functional_assert_async",
        ),
    )
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A call of an operator of ATen.

    Attributes
    ----------
    name : str
        Library and operator, without overload: "aten.add_".
    tensors, results : tuple of GraphTensor
        The tensors that it reads and writes, in order.
    arguments : mapping
        Its other arguments by name.
    is_view_by_strides : bool
        Whether its result may share the memory of its first tensor.
    """

    name: str
    tensors: tuple[GraphTensor, ...]
    results: tuple[GraphTensor, ...]
    arguments: Mapping[str, object] = field(default_factory=dict)
    is_view_by_strides: bool = True

    @property
    def is_in_place(self) -> bool:
        """Return whether it writes into its first tensor."""
        return self.name.endswith("_") and not self.name.endswith("__")

    @property
    def base(self) -> str:
        """Return the operator without its library and without the mark of writing in place."""
        word = self.name.rpartition(".")[2]
        return word.removesuffix("_") if self.is_in_place else word

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the names of the tensors that it reads."""
        return tuple(tensor.name for tensor in self.tensors)


@dataclass(frozen=True, kw_only=True, slots=True)
class Translated:
    """A canonical operator, and the names of the tensors that it reads."""

    operator: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


def translate(call: Call) -> Translated:
    """Return the canonical operator of a call.

    Examples
    --------
    >>> x, y = GraphTensor(name="x", shape=(2, 8)), GraphTensor(name="y", shape=(2, 8))
    >>> translate(Call(name="aten.relu_", tensors=(x,), results=(y,))).operator
    'relu'
    """
    base, shape = call.base, call.tensors[0].shape if call.tensors else ()
    if base in SPECIAL:
        made = SPECIAL[base](call)
    elif base in VIEWS or (base in MAY_COPY and call.is_view_by_strides):
        made = Translated(
            operator="view", inputs=call.inputs[:1], attributes=of_view(base, shape, call.arguments)
        )
    elif base in MAY_COPY:
        made = Translated(operator="copy", inputs=call.inputs[:1])
    else:
        unknown = f"{call.name.rpartition('.')[0]}.{base}".strip(".")
        operator = CANONICAL_NAMES.get(base, unknown)
        made = Translated(operator=operator, inputs=call.inputs, attributes=along(base, call.arguments))
    return replace(made, attributes={**made.attributes, "in_place": True}) if call.is_in_place else made


def _convolution(call: Call) -> Translated:
    """Return a convolution; an argument of `aten.convolution` states whether it is transposed."""
    transposed = call.base.startswith("conv_transpose") or bool(call.arguments.get("transposed"))
    groups = call.arguments.get("groups", 1)
    operator = "transposed_convolution" if transposed else "convolution"
    attributes: dict[str, Attribute] = {"groups": groups if isinstance(groups, int) else 1}
    return Translated(operator=operator, inputs=call.inputs, attributes=attributes)


def _added_product(call: Call) -> Translated:
    """Return the product of `bias + a @ b`, whose bias is the first argument."""
    bias, *factors = call.inputs
    return Translated(operator="matmul", inputs=(*factors, bias))


def _attention(call: Call) -> Translated:
    """Return attention as one kernel."""
    causal = bool(call.arguments.get("is_causal"))
    return Translated(operator="attention", inputs=call.inputs, attributes={"causal": causal})


def _batch_norm(call: Call) -> Translated:
    """Return batch norm, with the statistics of the batch in training and with stored ones otherwise."""
    training = bool(call.arguments.get("training", call.base in TRAINING_NORMS))
    operator = "batch_norm" if training else "batch_norm_inference"
    return Translated(operator=operator, inputs=call.inputs)


def _dropout(call: Call) -> Translated:
    """Return dropout, or a view if it drops nothing."""
    drops = call.arguments.get("p") and call.arguments.get("train", call.arguments.get("training", True))
    return Translated(operator="dropout" if drops else "view", inputs=call.inputs[:1])


def _cast(call: Call) -> Translated:
    """Return a cast, or a view if the dtype does not change."""
    before, after = call.tensors[:1], call.results[:1]
    if not before:
        return Translated(operator="constant", inputs=())
    changes = bool(after) and before[0].dtype != after[0].dtype
    return Translated(operator="cast" if changes else "view", inputs=call.inputs[:1])


def _einsum(call: Call) -> Translated:
    """Return an einsum with its equation."""
    equation = str(call.arguments.get("equation", ""))
    return Translated(operator="einsum", inputs=call.inputs, attributes={"equation": equation})


def _extreme(call: Call) -> Translated:
    """Return the larger of two tensors element by element, or the largest element along an axis."""
    return Translated(operator=f"{call.base}imum" if len(call.tensors) > 1 else "amax", inputs=call.inputs)


TRAINING_NORMS = ("_native_batch_norm_legit_functional", "_batch_norm_with_update")
SPECIAL: dict[str, Callable[[Call], Translated]] = {
    **dict.fromkeys(
        (
            *("conv1d", "conv2d", "conv3d", "convolution", "_convolution", "cudnn_convolution"),
            *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        ),
        _convolution,
    ),
    **dict.fromkeys(("addmm", "baddbmm", "addbmm", "addmv"), _added_product),
    **dict.fromkeys(CALLS["attention"], _attention),
    **dict.fromkeys(
        (
            *("batch_norm", "native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm"),
            *("_native_batch_norm_legit_no_training", "_batch_norm_no_update", *TRAINING_NORMS),
        ),
        _batch_norm,
    ),
    **dict.fromkeys(CALLS["dropout"], _dropout),
    **dict.fromkeys(CALLS["cast"], _cast),
    **dict.fromkeys(("max", "min"), _extreme),
    "einsum": _einsum,
}
