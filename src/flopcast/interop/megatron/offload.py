"""Megatron-LM's flags for states outside the devices: optimizer states, activations of layers.

Answers: which states are on the host, and how are gradients copied there?
Elsewhere: the cost of placements (workload/offload.py), types of the optimizer's states (optimizer.py).

References
----------
NVIDIA/Megatron-LM: megatron/training/arguments.py (`validate_args`),
megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py, megatron/core/transformer/transformer_config.py
(`__post_init__`: CPU offloading excludes pipeline stages and recompute). Transformer Engine,
transformer_engine/pytorch/cpu_offload.py (`layer_window_map`): the copies of the first layers end at equal
intervals over all layers, as if a fraction of every layer were copied.
"""

from flopcast.interop.megatron.arguments import Arguments
from flopcast.interop.megatron.job_builder import JobBuilder
from flopcast.interop.megatron.optimizer import PRECISION_AWARE
from flopcast.spec.offload import Placement, offload_word

OPTIMIZER = "--optimizer-cpu-offload"
FRACTION = "--optimizer-offload-fraction"
UNPINNED = "--no-pin-cpu-grads"
OVERLAP = "--overlap-cpu-optimizer-d2h-h2d"
OLD_OPTIMIZER = "--cpu-optimizer"  # of Megatron-DeepSpeed
LAYERS, SWITCH = "--cpu-offloading-num-layers", "--cpu-offloading"
CHECKPOINTS = "--checkpoint-in-cpu"  # of Megatron-DeepSpeed


def optimizer_fraction(arguments: Arguments) -> float:
    """Return the fraction of optimizer states that is on the host."""
    if arguments.has(OPTIMIZER):
        return arguments.fraction(FRACTION, 1.0)
    return 1.0 if arguments.has(OLD_OPTIMIZER) else 0.0


def read_placements(args: JobBuilder) -> None:
    """Put states on the host into the plan, whose degrees and recompute are known."""
    if not args.has(OPTIMIZER) and args.fraction(FRACTION, 1.0) not in (0, 1):
        args.assume(f"{FRACTION} has no effect without {OPTIMIZER}", FRACTION)
    placed = []
    if fraction := optimizer_fraction(args):
        placed.append(Placement(kind="optimizer", tier="host", fraction=fraction))
    if fraction := _activations(args):
        placed.append(Placement(kind="activations", tier="host", fraction=fraction))
    if placed:
        keys = (OPTIMIZER, OLD_OPTIMIZER, LAYERS, CHECKPOINTS)
        args.put(("plan", "offload"), offload_word(tuple(placed)), *keys)


def _activations(args: JobBuilder) -> float:
    """Return the fraction of activations that is on the host: those of some layers, or every checkpoint."""
    plan = args.data["plan"]
    given = plan if isinstance(plan, dict) else {}
    number = args.count(LAYERS, 0, least=0)
    if args.has(SWITCH) and not number:
        args.assume(f"{SWITCH} has no effect without {LAYERS}", SWITCH)
    if number:
        if number >= args.layers:
            because = "Megatron-Core keeps the activations of at least one layer on the device"
            most = args.layers - 1
            args.fault(LAYERS, number, f"a whole number from 0 to {most}", because, f"write {most}")
            return 0.0
        for clash, field in (("pipeline stages", "pipeline_parallel"), ("recompute", "recompute")):
            if given.get(field) not in (None, 1, "none"):
                because = f"Megatron-Core does not offload activations together with {clash}"
                args.fault(LAYERS, number, f"no {LAYERS} with {clash}", because, f"remove {LAYERS}")
        return number / args.layers
    if not args.has(CHECKPOINTS):
        return 0.0
    if given.get("recompute") != "full":
        args.assume(f"{CHECKPOINTS} has no effect without recompute of whole layers", CHECKPOINTS)
        return 0.0
    return 1.0


def offload_changes(arguments: Arguments) -> dict[str, object]:
    """Return the flags' changes to `stack.offload`.

    By default, gradients are copied to pinned memory, and all copies end before the update.
    """
    if not optimizer_fraction(arguments):
        return {}
    changes: dict[str, object] = {}
    if arguments.has(UNPINNED):
        changes["gradient_copies"] = "pageable"
    if arguments.has(OVERLAP):
        changes["gradient_flush"] = "beside_update"
    return changes


def check_script(arguments: Arguments) -> None:
    """Report offload settings with which Megatron-LM's training programs do not start."""
    if arguments.has(OPTIMIZER) and not arguments.has(PRECISION_AWARE):
        because = "Megatron-LM's hybrid device optimizer needs this flag"
        allowed = f"no such flag, unless {PRECISION_AWARE} is given"
        arguments.fault(OPTIMIZER, True, allowed, because, f"add {PRECISION_AWARE}")
