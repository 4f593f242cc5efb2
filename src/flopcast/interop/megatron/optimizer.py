"""Megatron-LM's flags for the optimizer: its kind, and the types of its states.

Answers: what do `--optimizer` and the flags of the precision-aware optimizer select?
Elsewhere: the sharding of its states (plan.py), what each optimizer keeps and moves (spec/optimizers.py).

References
----------
megatron/core/optimizer/optimizer_config.py, cpu_offloading/hybrid_optimizer.py (`param_update_in_fp32`).
"""

from flopcast.files.unknown_keys import MANY_EDITS, edits
from flopcast.interop.megatron.arguments import Arguments

KNOWN = {"adam": "adamw", "sgd": "sgd_momentum", "lion": "lion", "muon": "muon", "dist_muon": "muon",
         "adamw": "adamw"}  # fmt: skip
PRECISION_AWARE = "--use-precision-aware-optimizer"
ON_HOST = "--optimizer-cpu-offload"
MOMENTS = {"--exp-avg-dtype": "exp_avg_dtype", "--exp-avg-sq-dtype": "exp_avg_sq_dtype"}


def plan_optimizer(arguments: Arguments) -> str:
    """Return the plan's optimizer; an unsupported one counts as Adam, with a note.

    SGD in Megatron-LM has momentum, 0.9 by default.
    """
    written = arguments.text("--optimizer").lower()
    near = [name for name in KNOWN if written and edits(written, name) < MANY_EDITS]
    if written not in KNOWN and near:
        because = "Megatron-LM has no such optimizer"
        arguments.fault("--optimizer", written, ", ".join(KNOWN), because, f"did you mean {near[0]}?")
    elif written not in ("", *KNOWN):
        text = f"flopcast predicts the optimizer step of Adam instead of {written}"
        arguments.assume(text, "--optimizer")
    plain = written == "sgd" and arguments.text("--sgd-momentum") in ("0", "0.0")
    return "sgd" if plain else KNOWN.get(written, "adamw")


def stack_optimizer(arguments: Arguments) -> dict[str, object]:
    """Return the changes of the precision-aware optimizer to a stack; without this optimizer, its types
    are ignored.

    It keeps only those 16 bits of an fp32 main weight that the model's bf16 weight lacks
    (`store_param_remainders`). With optimizer states on the host, only the type of gradients matters.
    """
    main = arguments.choice("--main-params-dtype", "fp32")
    gradient = arguments.choice("--main-grads-dtype", "fp32")
    moments = {field: arguments.choice(flag, "fp32") for flag, field in MOMENTS.items()}
    if not arguments.has(PRECISION_AWARE):
        for flag in ("--main-params-dtype", "--main-grads-dtype", *MOMENTS):
            if arguments.has(flag):
                arguments.assume(f"{flag} has no effect without {PRECISION_AWARE}", flag)
        return {}
    if arguments.has(ON_HOST):  # both parts of the optimizer keep fp32 states
        for flag in ("--main-params-dtype", *MOMENTS):
            if arguments.has(flag) and arguments.text(flag) != "fp32":
                arguments.assume(f"{flag} has no effect with {ON_HOST}", flag)
        return {"fp32_gradients": False} if gradient == "bf16" else {}
    changes: dict[str, object] = {field: dtype for field, dtype in moments.items() if dtype != "fp32"}
    if main == "fp16" or arguments.has("--bf16"):
        changes["main_parameter_bytes"] = "2 B"
    if gradient == "bf16":
        changes["fp32_gradients"] = False
    return changes
