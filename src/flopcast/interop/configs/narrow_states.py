"""Weights, gradients and optimizer states in bf16, without fp32 copies, as changes of a stack of PyTorch.

Answers: what does a stack keep and send if a file asks for a model whose tensors all have 16 bits?
Elsewhere: the keys that ask for it (torchtitan.py, torchtune.py, trainers.py, verl.py).
"""

from collections.abc import Mapping

NARROW = {
    "float32": "",
    "fp32": "",
    "bfloat16": "bf16",
    "bf16": "bf16",
}  # words of files → the type, "" for fp32
STATES = {"exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16", "main_parameter_bytes": "0 B"}
SHARDS = {"keeps_low_precision": True, "gradient_dtype": "bf16"}


def narrowed(stack: object, gradients: str = "") -> dict[str, object]:
    """Return a stack, a name or a base with changes, whose states all have 16 bits.

    Gradients are reduced in the type `gradients`, or else in the one that the stack has.

    >>> narrowed({"base": "torch-fsdp2", "sharding": {"gathers": "every_pass"}})["sharding"]
    {'gathers': 'every_pass', 'keeps_low_precision': True, 'gradient_dtype': 'bf16'}
    """
    changes = dict(stack) if isinstance(stack, Mapping) else {"base": stack}
    sharding = changes.get("sharding", {})
    kept = sharding if isinstance(sharding, Mapping) else {}
    reduced = {"gradients": {"dtype": gradients}} if gradients else {}
    return changes | reduced | {"sharding": {**kept, **SHARDS}, "optimizer": STATES}
