"""The rules about traced blocks: which parts of a plan and of a stack they do not support.

Answers: which conditions must a job with traced blocks satisfy, why, and which edit fixes a violation?
Elsewhere: the rules about all other parts (rules.py), what a rule is (checks.py), the layer
(layers/traced.py).

A trace marks the GEMMs that tensor parallelism divides (interop/tracing/division.py, graph/division.py). It
does not record which axis of a tensor is the sequence, or which kernels process each token separately.
"""

import numpy as np

from flopcast.layers.traced import MOST_REASONS, Traced, is_graph
from flopcast.spec.checks import Case, Rule, Ways, first
from flopcast.spec.divisors import divisors, listed


def _traced(case: Case) -> bool:
    return any(isinstance(block.mixer, Traced) for block in case.model.blocks)


def _mixers(case: Case) -> list[Traced]:
    """Return the traced blocks, one for each run of equal blocks."""
    return [block.mixer for block in case.model.blocks if isinstance(block.mixer, Traced)]


def _units(case: Case) -> int:
    """Return the number that a tensor-parallel degree must divide.

    It is 1 if a block cannot be divided. Blocks of an exported graph, which may be no more than a first
    convolution, then run whole on every rank.
    """
    units = [mixer.units or 1 for mixer in _mixers(case)]
    if is_graph(case.model.blocks):
        units = [each for each in units if each > 1]
    return 1 if 1 in units or not units else int(np.gcd.reduce(units))


def _degrees(case: Case) -> str:
    """Return the tensor-parallel degrees that a traced model supports and, if there is only one, why."""
    units = _units(case)
    if units > 1:
        return f"a divisor of {units}: {listed(divisors(units))}"
    for mixer in _mixers(case):
        if mixer.units is None:
            return (
                "1, because this trace is from an older version and does not record which GEMM uses which "
                "weight"
            )
        if mixer.units == 1 and (mixer.whole_products or not is_graph(case.model.blocks)):
            whole = [f"{product.weight}: {product.because}" for product in mixer.whole_products]
            return "1, because no GEMM of the block can be divided" + (
                f" ({'; '.join(whole[:MOST_REASONS])})" if whole else ""
            )
    return "1, because the numbers of heads and columns of the blocks have no common divisor"


def _mend(case: Case) -> Ways:
    """Return the edit that fixes a wrong tensor-parallel degree."""
    if any(mixer.units is None for mixer in _mixers(case)):
        return ({"tensor_parallel": 1}, "trace the model again (flopcast import hf-model CONFIG --trace)")
    units, wanted = _units(case), first(case.plans.tensor_parallel)
    return {"tensor_parallel": int(np.gcd(units, wanted))}


RULES: tuple[Rule, ...] = (
    Rule(
        field="plan.tensor_parallel",
        holds=lambda c: not _traced(c) or _units(c) % c.plans.tensor_parallel == 0,
        allowed=_degrees,
        because="a GEMM is divided only if the trace contains its weight and the weight's heads or columns",
        fix=_mend,
    ),
    Rule(
        field="plan.sequence_parallel",
        holds=lambda c: not _traced(c) or not c.structure.sequence_parallel or c.plans.tensor_parallel == 1,
        allowed="false, because the model is traced",
        because="a trace does not record which kernels process each token separately",
        fix={"sequence_parallel": False},
    ),
    Rule(
        field="plan.context_parallel",
        holds=lambda c: not _traced(c) or c.plans.context_parallel == 1,
        allowed="1, because the model is traced",
        because="a trace does not record which axis of a tensor is the sequence",
        fix="set context_parallel to 1, and use pipeline stages, ZeRO or recompute to save memory",
    ),
    Rule(
        field="batch.sequence_length",
        holds=lambda c: c.model.vocabulary > 0 or c.batch.sequence_length == 1,
        allowed="1, because the model is an exported graph",
        because=(
            "the batch of an exported graph consists of samples, and the file fixes the size of a sample"
        ),
        fix={"sequence_length": 1},
    ),
    Rule(
        field="model.mtp",
        holds=lambda c: not _traced(c) or c.model.mtp == 0,
        allowed="0, because the model is traced",
        because="a trace contains no multi-token prediction modules",
        fix={"mtp": 0},
    ),
)
