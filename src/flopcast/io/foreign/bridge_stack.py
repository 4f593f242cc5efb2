"""The stack of Megatron-Bridge: gradients, activations and overlaps that a dump changes.

Answers: in which type, when and in buckets of which size are gradients reduced; what do stages wait for?
Elsewhere: kernels, fusions, narrow products (megatron_words.py); model and plan (megatron_bridge.py).

The stack stands for the recipes that Megatron-Bridge publishes measurements of (scripts/performance): they
reduce in 16 bits and keep no blocks at the ends wide. A plain recipe of bf16 reduces in fp32.

References
----------
NVIDIA-NeMo/Megatron-Bridge: training/mixed_precision.py (`grad_reduce_in_fp32` is laid over that of DDP),
training/comm_overlap.py (`setup` does the same with overlap and buckets, where the optimizer is shared);
NVIDIA/Megatron-LM: core/distributed/distributed_data_parallel.py (size of a bucket).
"""

from flopcast.io.foreign.sheet import Sheet
from flopcast.io.megatron.stack import DEFAULT_BUCKET, given_bucket
from flopcast.spec.precision import RECIPES

BASE = "megatron-bridge"
DDP, OVERLAP, MIXED = "ddp", "comm_overlap", "mixed_precision"
OVERLAPPED_BUCKET = 128 * 1024 * 1024  # elements, where comm_overlap is given
WAITS = {True: "overlapped", False: "batched"}


def stack_of(sheet: Sheet, switched: dict[str, object]) -> object:
    """Return the stack by its name, or with what the file changes of it.

    Parameters
    ----------
    sheet : Sheet
        With the plan in its data.
    switched : dict
        What Megatron-Core's flags switch of it.
    """
    changes = dict(switched)
    gradients = _gradients(sheet)
    if gradients:
        changes["gradients"] = gradients
    if _plan(sheet, "pipeline_parallel") > 1 and (transfers := _transfers(sheet)):
        changes["pipeline"] = {"transfers": transfers}
    if _precision(sheet) in RECIPES:  # the stack's own are those of recipes that keep narrow weights
        kept = changes.get("narrow", {})
        changes["narrow"] = {"narrow_parameters": False} | (kept if isinstance(kept, dict) else {})
    if _cuts_messages(sheet):
        changes["tensor_overlap"] = "chunks"
    return {"base": BASE} | changes if changes else BASE


def _precision(sheet: Sheet) -> str:
    """Return the plan's precision."""
    plan = sheet.data["plan"]
    return str(plan.get("precision")) if isinstance(plan, dict) else ""


def _plan(sheet: Sheet, field: str) -> int:
    """Return a degree of the plan."""
    plan = sheet.data["plan"]
    return int(plan.get(field, 1)) if isinstance(plan, dict) else 1


def _gradients(sheet: Sheet) -> dict[str, object]:
    """Return what the file says of gradients."""
    found: dict[str, object] = {}
    for field, name in (("overlap_grad_reduce", "overlap"), ("overlap_param_gather", "overlap_gather")):
        if sheet.has(f"{DDP}.{field}"):
            found[name] = sheet.flag(f"{DDP}.{field}")
    if dtype := _dtype(sheet):
        found["dtype"] = dtype
    if sheet.has(f"{DDP}.average_in_collective"):
        found["copies"] = [] if sheet.flag(f"{DDP}.average_in_collective") else ["scale_gradient"]
    if sheet.has(f"{DDP}.check_for_nan_in_grad"):
        found["overflow_checks"] = int(sheet.flag(f"{DDP}.check_for_nan_in_grad"))
    fused = "model.gradient_accumulation_fusion"
    if sheet.has(fused):
        found["accumulate_passes"] = int(not sheet.flag(fused))
    if _is_half(sheet):  # the scale of the loss asks whether any gradient overflowed
        found["overflow_checks"] = 1
    return found | _buckets(sheet) | _overlapped(sheet)


def _is_half(sheet: Sheet) -> bool:
    """Return whether the other 16-bit type is fp16."""
    recipe = sheet.raw(MIXED)
    section = MIXED if sheet.below(MIXED) else "model"
    return recipe.startswith("fp16") if isinstance(recipe, str) else sheet.flag(f"{section}.fp16")


def _dtype(sheet: Sheet) -> str:
    """Return the type in which gradients are sent, "" if the file does not say; the recipe decides."""
    recipe, narrow = sheet.raw(MIXED), "fp16" if _is_half(sheet) else "bf16"
    if isinstance(recipe, str):
        return narrow if narrow == "fp16" else "fp32"
    for section in (MIXED, DDP):
        key = f"{section}.grad_reduce_in_fp32"
        if sheet.has(key):
            return "fp32" if sheet.flag(key) else narrow
    return ""


def _buckets(sheet: Sheet) -> dict[str, object]:
    """Return the size of a bucket: the file's, or Megatron-Core's default where it configures DDP."""
    key = f"{DDP}.bucket_size"
    if sheet.has(key):
        return dict(given_bucket(sheet.count(key)))
    return dict(DEFAULT_BUCKET) if sheet.below(DDP) else {}


def _overlapped(sheet: Sheet) -> dict[str, object]:
    """Return the overlap settings that override DDP's, if replicas share the optimizer's states."""
    if not sheet.below(OVERLAP) or not sheet.flag(f"{DDP}.use_distributed_optimizer"):
        return {}
    if _plan(sheet, "data_parallel") == 1:
        return {}
    return {
        "overlap": sheet.flag(f"{OVERLAP}.overlap_grad_reduce", True),
        "overlap_gather": sheet.flag(f"{OVERLAP}.overlap_param_gather", True),
        **given_bucket(sheet.count(f"{OVERLAP}.bucket_size", OVERLAPPED_BUCKET)),
    }


def _transfers(sheet: Sheet) -> str:
    """Return whether stages wait for a transfer, "" if the file does not say.

    Only interleaved stages may not wait (megatron/core/pipeline_parallel/schedules.py); with overlaps they
    do not unless it is told.
    """
    key = f"{OVERLAP}.overlap_p2p_comm" if sheet.below(OVERLAP) else "model.overlap_p2p_comm"
    if _plan(sheet, "virtual_stages") == 1:
        if sheet.flag(key):
            because = "Megatron-Core overlaps transfers of interleaved stages alone"
            sheet.fault(key, "false where a stage has one chunk", because, f"write {key}: false")
        return WAITS[False]
    return WAITS[sheet.flag(key, True)] if sheet.below(OVERLAP) or sheet.has(key) else ""


def _cuts_messages(sheet: Sheet) -> bool:
    """Return whether products overlap with tensor-parallel messages, which needs sequence parallelism."""
    key = f"{'comm_overlap' if sheet.below(OVERLAP) else 'model'}.tp_comm_overlap"
    if not sheet.flag(key):
        return False
    plan = sheet.data["plan"]
    if not isinstance(plan, dict) or not plan.get("sequence_parallel"):
        sheet.assume(f"{key} has no effect, as sequences are not cut", key)
        return False
    return True
