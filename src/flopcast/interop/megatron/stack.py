"""The training stack that a script's flags describe, as changes to an entry of the catalogue.

Answers: which release of Megatron-LM is this, and what does it fuse, overlap and reduce?
Elsewhere: the stacks themselves (catalog/stacks), model and plan (launch_script.py).

Flags show the release of a script: the newest flag decides. A flag that newer releases kept shows
nothing. A setting that a flag switches becomes a change to the stack, as in a job file: `{base:
megatron-core, gradients: {overlap: true}}`.
"""

from flopcast.interop.megatron.arguments import Arguments
from flopcast.interop.megatron.experts import expert_software
from flopcast.interop.megatron.flags import SIGNS, SWITCHED_OFF_BY, SWITCHED_ON_BY
from flopcast.interop.megatron.offload import check_script, offload_changes, optimizer_fraction
from flopcast.interop.megatron.optimizer import stack_optimizer
from flopcast.interop.megatron.precision import narrow_changes
from flopcast.library import catalog
from flopcast.spec.stack import Stack

NEWEST = "megatron-core"
LAYERS_UNDER_DEEPSPEED = "megatron-2022"
FLASH = ("--use-flash-attn", "--use-flash-attn-v1", "--use-flash-attn-v2", "--use-flash-attn-v3")

LOSS, LOSS_KERNEL = "--cross-entropy-loss-fusion", "--cross-entropy-fusion-impl"
ONE_KERNEL: dict[str, object] = {"fused_loss": "all", "memory": {"logit_bytes": "2 B"}}
SEVERAL_KERNELS: dict[str, object] = {"fused_loss": "none", "memory": {"logit_bytes": "6 B"}}
DEFAULT_BUCKET = {"bucket_elements": 40_000_000, "bucket_elements_per_rank": 1_000_000}


def given_bucket(elements: int) -> dict[str, int]:
    """Return the changes to a stack's gradients for a bucket of a given size, which does not grow."""
    return {"bucket_elements": elements, "bucket_elements_per_rank": 0}


def stack_of(arguments: Arguments) -> object:
    """Return the stack as a job file would write it.

    Parameters
    ----------
    arguments : those of the training program; assumptions are added to them

    Returns
    -------
    str or dict
        A name of the catalogue, or `base:` with changes.
    """
    check_script(arguments)
    stack = catalog.stack(_named(arguments))
    changes = switched(arguments, stack)
    parts = {"gradients": _gradients(arguments, stack), "pipeline": _pipeline(arguments, stack)}
    changes |= {name: part for name, part in parts.items() if part}
    if arguments.has("--synchronize-each-layer"):
        changes["synchronise_each_layer"] = True
    return {"base": stack.name} | changes if changes else stack.name


def switched(arguments: Arguments, stack: Stack) -> dict[str, object]:
    """Return the flags' changes to any stack; missing flags change nothing.

    They concern kernels, fusions, the loss, types of the optimizer, copies to the host, low-precision
    products, software for experts, and the overlap with tensor-parallel messages. The transfer of gradients
    and activations depends on defaults of the software (`stack_of`).
    """
    changes: dict[str, object] = {}
    kernel = _attention(arguments, stack)
    if kernel != stack.attention_kernel:
        changes["attention_kernel"] = kernel
    rewrites = _rewrites(arguments, stack, kernel)
    if rewrites != stack.rewrites:
        changes["rewrites"] = list(rewrites)
    parts = {
        "optimizer": stack_optimizer(arguments),
        "experts": expert_software(arguments, stack.experts),
        "tensor_overlap": "chunks" if arguments.has("--tp-comm-overlap") else "",
    }
    loss = _loss(arguments, stack)
    parts |= {"offload": offload_changes(arguments), "narrow": narrow_changes(arguments)}
    return changes | {name: part for name, part in parts.items() if part} | loss


def _named(arguments: Arguments) -> str:
    """Return the nearest entry of the catalogue, and note the reason as an assumption.

    DeepSpeed's engine determines how stages and gradients communicate for any model: the stack of GPT-NeoX
    has the same engine. A script without flags that show its release is assumed to run today's release.
    """
    if arguments.has("--deepspeed"):
        because = (
            "the stack of the catalogue that is most similar to Megatron-DeepSpeed with Megatron-LM's "
            "fused kernels"
        )
        arguments.assume(f"stack gpt-neox-deepspeed: {because}", "--deepspeed")
        return "gpt-neox-deepspeed"
    if arguments.has("--use-legacy-models"):
        text = "stack megatron-2022, because the script uses the models that preceded Megatron-Core"
        arguments.assume(text, "--use-legacy-models")
        return "megatron-2022"
    for name, flags in SIGNS:
        sign = next((flag for flag in flags.split() if arguments.has(flag)), None)
        if sign:
            arguments.assume(f"stack {name}, because {sign} was introduced with this release", sign)
            return name
    arguments.assume(f"stack {NEWEST}, because no flag shows which release of Megatron the script is for")
    return NEWEST


def _attention(arguments: Arguments, stack: Stack) -> str:
    """Return whether attention writes its scores: "materialised", or "flash".

    Transformer Engine selects a kernel that writes no scores wherever possible. The local layers of
    Megatron-Core, and all earlier layers, write scores unless FlashAttention is selected.
    """
    usual: str = stack.attention_kernel
    if arguments.choice("--transformer-impl", "transformer_engine") == "local":
        usual = "materialised"
    if arguments.has(*FLASH):
        usual = "flash"
    return arguments.choice("--attention-backend", usual)


def _loss(arguments: Arguments, stack: Stack) -> dict[str, object]:
    """Return how the loss is computed if a flag fuses it: in one kernel, or in several compiled functions.

    Transformer Engine has one kernel, which writes the gradient over the 16-bit logits. Megatron-Core's own
    functions read and write fp32 logits.

    References
    ----------
    Megatron-LM: megatron/core/fusions/fused_cross_entropy.py (native, the default);
    transformer_engine/common/triton/cross_entropy.py.
    """
    usual = "te" if stack.fused_loss == "all" else "native"
    kernel = arguments.choice(LOSS_KERNEL, usual)
    if not arguments.has(LOSS):
        return {}
    if kernel == "te":
        return {} if stack.fused_loss == "all" else ONE_KERNEL
    arguments.assume(f"{LOSS} is not supported yet: flopcast predicts the loss as separate kernels", LOSS)
    return SEVERAL_KERNELS if stack.fused_loss == "all" else {}


def _rewrites(arguments: Arguments, stack: Stack, kernel: str) -> tuple[str, ...]:
    """Return the names of rewrites in the order of their application: those of the stack, except those
    that flags switch off.

    If scores are written, the mask and the softmax are one kernel in any stack. Under DeepSpeed's engine,
    the layers are still those of Megatron-LM with their fused kernels (arXiv:2211.05100, section 3.4);
    only rotary positions are a chain of kernels there.
    """
    rewrites = list(stack.rewrites)
    if arguments.has("--deepspeed"):
        rewrites = [*catalog.stack(LAYERS_UNDER_DEEPSPEED).rewrites, "unfused_rope"]
    if kernel == "materialised" and "fused_softmax" not in rewrites:
        rewrites.insert(0, "fused_softmax")
    asked = [name for name, flag in SWITCHED_ON_BY.items() if arguments.has(flag)]
    rewrites += [name for name in asked if name not in rewrites]
    return tuple(name for name in rewrites if not arguments.has(SWITCHED_OFF_BY.get(name, "")))


def _gradients(arguments: Arguments, stack: Stack) -> dict[str, object]:
    """Return the changes to the stack's gradients: dtype, overlap, buckets and accumulation.

    Gradients of bf16 weights are reduced in fp32 unless `--grad-reduce-in-bf16` is set. Those of fp16
    weights are reduced in 16 bits unless `--accumulate-allreduce-grads-in-fp32` is set. In Megatron-Core,
    weight-gradient GEMMs accumulate into gradients of any dtype (`wgrad_gemm_accum_fp32`,
    `wgrad_gemm_accum_fp16`); in earlier releases, into fp32 gradients only. DeepSpeed's engine reduces in
    the dtype of the weights, except that its BF16_Optimizer reduces in fp32 (configs/deepspeed.py,
    `accumulates_in_fp32`).

    References
    ----------
    Megatron-LM, megatron/core/tensor_parallel/layers.py: fused accumulation by the type of `main_grad`.
    """
    has, core = arguments.has, stack.name == NEWEST
    changes: dict[str, object] = {}
    dtype = "fp32" if has("--bf16") or has("--accumulate-allreduce-grads-in-fp32") else "fp16"
    dtype = "bf16" if has("--grad-reduce-in-bf16") else dtype
    if has("--deepspeed"):
        stage = arguments.count("--zero-stage", 1, least=0)
        wide = arguments.wide_gradients and not optimizer_fraction(arguments)
        whole = stage == 0 or (stage == 1 and wide)
        dtype = ("fp32" if whole else "bf16") if has("--bf16") else "fp16"
    if dtype != stack.gradients.dtype:
        changes["dtype"] = dtype
    fused = stack.gradients.accumulate_passes == 0
    if fused and (has("--no-gradient-accumulation-fusion") or (dtype == "fp16" and not core)):
        changes["accumulate_passes"] = 1
    if has("--overlap-grad-reduce"):
        changes["overlap"] = True
    if has("--overlap-param-gather"):
        changes["overlap_gather"] = True
    if has("--ddp-bucket-size"):
        changes |= given_bucket(arguments.count("--ddp-bucket-size"))
    if has("--ddp-average-in-collective"):
        changes["copies"] = []
    if has("--bf16") and (has("--no-check-for-nan-in-loss-and-grad") or not core):
        changes["overflow_checks"] = 0
    return changes


def _pipeline(arguments: Arguments, stack: Stack) -> dict[str, object]:
    """Return how stages send activations.

    Interleaved stages of Megatron-Core do not wait for a transfer (`overlap_p2p_comm`), but plain 1F1B
    does. In earlier releases, each rank sent its share of an activation, which the receiver gathered,
    unless `--no-scatter-gather-tensors-in-pipeline` was set (arXiv:2104.04473, section 4.1).
    """
    changes: dict[str, object] = {}
    waits = arguments.has("--no-overlap-p2p-communication")
    if waits and stack.pipeline.transfers == "overlapped_chunks":
        changes["transfers"] = "batched"
    scatters = stack.pipeline.payload == "scattered"
    if scatters and arguments.has("--no-scatter-gather-tensors-in-pipeline"):
        changes["payload"] = "full"
    return changes
