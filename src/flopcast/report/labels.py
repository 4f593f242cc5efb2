"""Labels of components of a step, of categories of memory, and of kinds of work.

Answers: which label do reports print for the keys `mlp`, `layer_at_work` and `products`?
Elsewhere: the keys themselves, which JSON has (layers/, memory/categories.py, spec/operations.py), and
labels of factors (spec/factor_kinds.py).

Labels distinguish components, which are whole parts of a model, from kinds of work, which are kernels: the
component `attention` has matrix products too. A key that has no label, such as one of your own layer, is
shown with blanks.
"""

from collections.abc import Mapping

COMPONENTS: Mapping[str, str] = {
    "attention": "attention with projections",
    "mlp": "MLP",
    "experts": "experts with router",
    "head": "output layer and loss",
    "embedding": "embedding",
    "frozen_forward": "reference or teacher",
    "vision": "vision tower",
    "mtp": "projections of multi-token prediction",
    "norm": "norms",
    "residual": "residual additions",
    "linears": "linear layers",
    "passes": "memory-bound kernels",
    "convolutions": "convolutions",
    "unknown_operators": "operators that flopcast does not know",
    "casts": "casts to low precision",
    "gradients": "gradient accumulation and norm",
    "parameters": "copies of gathered parameters",
    "optimizer": "optimizer",
    "host": "kernel launches and host work",
    "jitter": "variation from step to step",
    "pipeline_bubble": "pipeline bubble",
    "tp_communication": "exposed TP communication",
    "resharding": "resharding between blocks",
    "cp_communication": "exposed CP communication",
    "ep_communication": "exposed EP communication",
    "dp_communication": "exposed DP communication",
    "offload": "exposed copies to and from the host",
    "peer_copies": "exposed copies to and from peers",
    "loader": "waiting for the data loader",
    "outer_round": "exchange between peers",
    "host_update": "optimizer on the host",
    "pp_communication": "exposed PP communication",
}
MEMORY: Mapping[str, str] = {
    "secondary_parameters": "second copy of parameters",
    "narrow_weights": "weights in low precision",
    "workspace": "workspaces of libraries",
    "buffers": "buffers that are reused",
    "stage_outputs": "outputs sent to other stages",
    "weight_gradients_waiting": "inputs kept for delayed weight gradients",
    "returned_activations": "offloaded activations copied back",
    "layer_at_work": "temporary tensors of one layer",
    "main_gradients": "gradients in fp32",
    "update": "temporary tensors of the optimizer",
    "outer_states": "outer parameters and buffers",
    "pseudo_gradients": "pseudo-gradients in an exchange",
}
WORK: Mapping[str, str] = {"products": "GEMMs", "attention": "attention kernels", "memory": "other kernels"}


def component_label(key: str) -> str:
    """Return the label of a component of the step.

    >>> component_label("tp_communication"), component_label("my_layer")
    ('exposed TP communication', 'my layer')
    """
    return COMPONENTS.get(key) or key.replace("_", " ")


def memory_label(key: str) -> str:
    """Return the label of a category of memory.

    >>> memory_label("optimizer_states"), memory_label("layer_at_work")
    ('optimizer states', 'temporary tensors of one layer')
    """
    return MEMORY.get(key) or key.replace("_", " ")


def work_label(key: str) -> str:
    """Return the label of a kind of work in reports of power and energy.

    >>> work_label("products"), work_label("waiting")
    ('GEMMs', 'waiting')
    """
    return WORK.get(key) or key
