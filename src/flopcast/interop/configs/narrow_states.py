"""Stacks of PyTorch with weights, gradients and optimizer states in bf16, without fp32 copies.

Answers: what does a stack keep and send if all tensors of a model have 16 bits?
Elsewhere: the keys that select this (torchtitan.py, torchtune.py, trainers.py, verl.py).
"""

from collections.abc import Mapping

NARROW = {"float32": "", "fp32": "", **dict.fromkeys(("bfloat16", "bf16"), "bf16")}  # "" is fp32
STATES = {"exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16", "main_parameter_bytes": "0 B"}
SHARDS = {"keeps_low_precision": True, "gradient_dtype": "bf16"}


def narrowed(stack: object, gradients: str = "") -> dict[str, object]:
    """Return a stack, given by name or as a base with changes, with all states in 16 bits.

    Gradients are reduced in the type `gradients` or, by default, in the type of the stack.

    >>> narrowed({"base": "torch-fsdp2", "sharding": {"gathers": "every_pass"}})["sharding"]
    {'gathers': 'every_pass', 'keeps_low_precision': True, 'gradient_dtype': 'bf16'}
    """
    changes = dict(stack) if isinstance(stack, Mapping) else {"base": stack}
    sharding = changes.get("sharding", {})
    kept = sharding if isinstance(sharding, Mapping) else {}
    reduced = {"gradients": {"dtype": gradients}} if gradients else {}
    return changes | reduced | {"sharding": {**kept, **SHARDS}, "optimizer": STATES}
