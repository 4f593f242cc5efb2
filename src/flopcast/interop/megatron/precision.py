"""Megatron-LM's flags for number formats: the plan's precision, and the stack's related settings.

Answers: in which recipe do linear layers multiply, and which linear layers keep a wider format?
Elsewhere: degrees and batch (plan.py), fusions and reductions (stack.py), the recipes (spec/precision.py).

8-bit and 4-bit flags are used together with `--bf16`, which states the type of all other computation.
"""

from flopcast.interop.megatron.arguments import Arguments
from flopcast.interop.megatron.job_builder import JobBuilder

OLD_FP8 = ("--fp8-hybrid", "--fp8-e4m3")
FLAGS = ("--fp4-format", "--fp8-format", *OLD_FP8, "--fp16", "--bf16")
RECIPE = "--fp8-recipe"
KEPT = "--fp8-param-gather"
WIDE_ENDS = "--first-last-layers-bf16"
WIDE_MTP = "--keep-mtp-spec-in-bf16"
ATTENTION, OUTPUT = "--fp8-dot-product-attention", "--fp8-output-proj"
WHOLE_ATTENTION = "--fp8-multi-head-attention"  # as ATTENTION, also without the casts around it
UNCACHED = "--disable-parameter-transpose-cache"
ENDS = {
    "wide_first_blocks": "--num-layers-at-start-in-bf16",
    "wide_last_blocks": "--num-layers-at-end-in-bf16",
}


def read_precision(args: JobBuilder) -> None:
    """Read the precision of the plan. As in Megatron-LM, the name of a recipe without a format has no
    effect.

    4-bit flags take precedence over 8-bit flags. Flags of older releases (`--fp8-hybrid`) are also read.
    """
    args.clash("--fp16", "--bf16", "all weights must have the same data type")
    args.clash("--fp4-format", "--fp8-format", "all GEMMs use the same number format")
    if not args.has("--fp16", "--bf16"):
        because = "flopcast does not yet support training in fp32 with Megatron-LM"
        args.fault("--bf16", None, "--bf16 or --fp16", because, "add --bf16", "or --fp16 is missing")
    precision = "fp16" if args.has("--fp16") else "bf16"
    recipe = args.choice(RECIPE, "fp8")
    if args.has("--fp8-format", *OLD_FP8):
        args.choice("--fp8-format", "hybrid")
        precision = recipe
    elif args.has(RECIPE):
        args.assume(f"{RECIPE} has no effect without --fp8-format", RECIPE)
    if args.has("--fp4-format"):
        args.choice("--fp4-format", "e2m1")
        precision = args.choice("--fp4-recipe", "nvfp4")
    args.put(("plan", "precision"), precision, *FLAGS)


def narrow_changes(arguments: Arguments) -> dict[str, object]:
    """Return the stack's settings around 8-bit products.

    They are the number of first and last blocks that stay in bf16, one at each end by default, whether
    multi-token prediction does, weights that are kept only in 8 bits, weights that are transposed again in
    each micro-batch, and whether attention and the output layer compute in 8 bits.
    """
    changes: dict[str, object] = {"narrow_parameters": True} if arguments.has(KEPT) else {}
    if arguments.has(UNCACHED):
        changes["weight_caching"] = False
    if arguments.has(ATTENTION, WHOLE_ATTENTION):
        changes["attention"] = True
    if arguments.has(OUTPUT):
        changes["output_layer"] = True
        if arguments.choice(RECIPE, "fp8") != "mxfp8":
            because = "Megatron-LM computes the output layer in 8 bits only with this recipe"
            arguments.fault(OUTPUT, True, f"{RECIPE} mxfp8", because, f"remove {OUTPUT}")
    if arguments.has(WIDE_MTP):
        changes["wide_mtp"] = True
    if arguments.has(WIDE_ENDS):
        changes |= {name: arguments.count(flag, 1, least=0) for name, flag in ENDS.items()}
    return changes
