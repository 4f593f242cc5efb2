"""The states of an optimizer on a rank, and the bytes that its update moves.

Answers: how many bytes of states does a rank of each stage class store, and how many bytes does an update
read and write?
Elsewhere: what one parameter needs (spec/optimizers.py), which parameters a rank updates
(gradient_reduction.py).

Most optimizers need a fixed number of bytes for each parameter. A factored second moment stores one number
for each row and each column instead. Its size depends on the shapes of tensors, which a layer states with
its weights.
"""

from flopcast.dtypes import ZERO, Counts, Floats
from flopcast.layers.base import Weight
from flopcast.spec.optimizers import FP32_BYTES, OPTIMIZERS, state_bytes
from flopcast.workload.gradient_reduction import copies_gradients, updated_parameters
from flopcast.workload.muon import other_elements, working_bytes
from flopcast.workload.parameters import Parameters
from flopcast.workload.program import Programs


def optimizer_state_bytes(programs: Programs) -> Floats:
    """Return bytes of master weights and moments on a rank, (plans, stage classes).

    They belong to the rank's shard of the parameters. States of experts are sharded only over ranks with
    the same experts.
    """
    name = programs.plans.structure.optimizer
    updated = updated_parameters(programs.plans, programs.trained_parameters, programs.trained_experts)
    states = updated * state_bytes(name, programs.stack.optimizer)
    if OPTIMIZERS[name].factored:
        states = states + FP32_BYTES * factored_elements(programs)
    if OPTIMIZERS[name].orthogonal:
        states = states + FP32_BYTES * other_elements(_held(programs)) / programs.plans.state_shards
    return states


def matrix_bytes(programs: Programs) -> Floats:
    """Return the temporary bytes of Muon for one matrix, (plans, stage classes); 0 for other optimizers."""
    orthogonal = OPTIMIZERS[programs.plans.structure.optimizer].orthogonal
    return working_bytes(_held(programs)) if orthogonal else ZERO


def _held(programs: Programs) -> Parameters:
    """Return the parameters of a rank of each stage class, by layer."""
    layers = tuple(layer.logical for layer in programs.layers)
    return Parameters(layers=layers, stage_counts=programs.stages.stage_counts)


def main_gradient_bytes(programs: Programs) -> Floats:
    """Return the bytes of fp32 copies of the gradients that a rank applies, (plans, stage classes).

    References
    ----------
    Megatron-LM, megatron/core/optimizer: `_copy_model_grads_to_main_grads` of both optimizers.
    """
    updated = updated_parameters(programs.plans, programs.trained_parameters, programs.trained_experts)
    return updated * (FP32_BYTES if copies_gradients(programs.stack) else 0.0)


def factored_elements(programs: Programs) -> Counts:
    """Return the elements of all factored second moments on a rank, (plans, stage classes).

    The moment of a tied table is on the stage of its owner, and possibly also on the other stage that holds
    the table.
    """
    counts = programs.stages.stage_counts
    owner_elsewhere = counts[:, :, 0] == 0
    held: Counts = ZERO
    for part, layer in enumerate(programs.layers):
        for weight in filter(lambda weight: weight.trained, layer.weights):
            here = owner_elsewhere if weight.tied else True
            held = held + counts[:, :, part] * here * moment_elements(weight)
    return held


def moment_elements(weight: Weight) -> Counts:
    """Return the elements of a factored second moment: rows plus columns, or all elements of a vector.

    In a tensor of several matrices, each matrix has its own moment. Each of the ranks that share a matrix
    factors its part.

    References
    ----------
    arXiv:1804.04235, section 3 and algorithm 4.

    Examples
    --------
    >>> from flopcast.layers.base import whole_matrix
    >>> moment_elements(whole_matrix("up", 4096, 16384)).item()
    20480.0
    """
    if weight.matrix is None:
        return weight.elements
    rows, columns = weight.matrix
    return weight.elements / columns + weight.elements / rows
