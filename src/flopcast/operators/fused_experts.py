"""The routed experts of one layer in serving engines: one call for all experts of a rank.

Answers: how many FLOP and bytes do the experts of one layer need on one rank in one iteration of an engine?
Elsewhere: products of experts of training (matmul.py), how many experts get a row and how uneven
the rows are (layers/expert_load.py), exchanges between ranks (exchanges.py), how long it takes
(cost/kernels).

The call sorts rows by expert, multiplies by the gate and up weights, applies the activation, multiplies by
the down weights, and adds each token's results with their weights; if both operands are multiplied in a
low-precision format, it also casts the inputs. With few tokens, most of its time is needed to read the
weights of the experts that have rows.

Some engines run separate kernels instead, which need to know the number of rows before the pass runs
(`padded_rows`). DeepGEMM's grouped products compute a multiple of 128 rows for each expert that the rank
holds. vLLM 0.11 and 0.12 allocate as many rows for all of them, and every kernel runs over all these rows
(compute_aligned_M in vllm/model_executor/layers/fused_moe/deep_gemm_utils.py). flopcast assumes that rows
without an expert read as many weights as other rows. No table measures all these kernels together, so they
have no curve; a data-sheet estimate assumes 0.6 of their bound. The two products alone reach 0.57 to 0.67
of the bound on H800 with 128 rows for each of 8 to 64 experts (data/peers/infersim).
"""

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, Counts
from flopcast.operators.base import AbstractWithoutBackward, Work
from flopcast.operators.formats import SERVED_FORMATS

PADDED_ROWS = 128


class FusedExperts(AbstractWithoutBackward):
    """The experts of one layer on a rank of a serving engine.

    `tokens` is the number of tokens that enter the layer on this rank. `rows` is the number of rows for
    experts of this rank: tokens times experts per token, if the rank holds all experts. `touched` is the
    number of experts that get at least one row, so that their weights are read. `imbalance` is the rows of
    the fullest expert, divided by the mean rows of the touched experts. `inner` is the width of one expert
    on this rank; a `gated` expert has two products of that width before its activation. `weights` is that
    of `ServedMatmul`.

    Bytes count the weights of the touched experts, the tokens and their results once each. With few tokens,
    intermediate results stay in the cache, so they are not counted, and the bytes are a lower bound.
    `padded` experts run in separate kernels over many rows, so the intermediate rows also move: inputs are
    gathered and read, the results of gate and up weights are written and read, activated rows are written
    and read, and results are written.

    Examples
    --------
    Eight tokens through all 128 experts of Qwen3-30B-A3B, where 51 experts get a row:

    >>> from flopcast.dtypes import constant
    >>> experts = FusedExperts(tokens=constant(8), rows=constant(64), hidden=constant(2048),
    ...                        inner=constant(768), touched=constant(51), imbalance=constant(2),
    ...                        dtype="bf16", weights="fp8")
    >>> experts.kernel, round(experts.work().moved_bytes.item() / 1e6), experts.work().flop.item() / 1e9
    ('fused_experts.fp8', 241, 0.603979776)
    """

    tokens: Counts
    rows: Counts  # of all experts of the rank together
    hidden: Counts
    inner: Counts
    touched: Counts
    imbalance: Counts
    dtype: str
    weights: str = ""
    gated: bool = True
    padded: bool = False

    @property
    def kernel(self) -> str:
        """Return one kernel class for each format of the weights, and others for padded experts."""
        name = "padded_experts" if self.padded else "fused_experts"
        return f"{name}.{self.weights}" if self.weights else name

    def work(self) -> Work:
        """Return the work of all rows; only the weights of touched experts move."""
        served = SERVED_FORMATS[self.weights]
        read = self.touched * self.hidden * self._columns
        weights = read * served.bytes_of_weight(self.dtype)
        wide, narrow = ELEMENT_BYTES[self.dtype], served.bytes_of_input(self.dtype)
        between = (self.hidden + self.inner) * 2 * narrow
        between += ((self._columns - self.inner) * 2 + self.hidden) * wide
        return Work(
            flop=2 * self.rows * self.hidden * self._columns,
            moved_bytes=weights + 2 * self.tokens * self.hidden * wide + self.padded * self.rows * between,
            unit=served.engine_of(self.dtype),
            after_cycles=served.shared_cycles(read),
        )

    @property
    def _columns(self) -> Counts:
        """Return the columns of all weights of one expert, each `hidden` long."""
        return (3 if self.gated else 2) * self.inner

    def coordinates(self) -> tuple[Counts, ...]:
        """Return the coordinates: rows, columns and length of an expert's weights, touched experts,
        imbalance, and tokens.

        The first five coordinates are those of a single `GroupedMatmul` for all products, whose curve is
        used if the class was not measured.
        """
        return self.rows, self._columns, self.hidden, self.touched, self.imbalance, self.tokens


def padded_rows(rows: Counts, held: Counts) -> Counts:
    """Return the rows that padded kernels compute for the rows of a rank that holds `held` experts.

    >>> from flopcast.dtypes import constant
    >>> padded_rows(constant(8), constant(128)).item()
    16384.0
    """
    padded: Counts = np.ceil((rows + held * (PADDED_ROWS - 1)) / PADDED_ROWS) * PADDED_ROWS
    return padded
