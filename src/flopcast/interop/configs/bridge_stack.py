"""The stack of Megatron-Bridge, with a dump's changes to gradients, activations and overlaps.

Answers: in which type, when, and in buckets of which size are gradients reduced, and for what do stages
wait?
Elsewhere: kernels, fusions, narrow products (megatron_settings.py); model and plan (megatron_bridge.py).

The stack describes the recipes for which Megatron-Bridge publishes measurements (scripts/performance).
They reduce in 16 bits, compute the loss in one kernel, and even their first and last blocks use low
precision. An ordinary bf16 recipe reduces in fp32.

References
----------
NVIDIA-NeMo/Megatron-Bridge: training/mixed_precision.py (`grad_reduce_in_fp32` overrides that of DDP),
training/comm_overlap.py (`setup` overrides overlap and buckets if the optimizer is sharded);
NVIDIA/Megatron-LM: core/distributed/distributed_data_parallel.py (size of a bucket).
"""

from flopcast.interop.configs.job_reader import JobReader
from flopcast.interop.megatron.stack import DEFAULT_BUCKET, SEVERAL_KERNELS, given_bucket
from flopcast.spec.precision import RECIPES

BASE = "megatron-bridge"
DDP, OVERLAP, MIXED = "ddp", "comm_overlap", "mixed_precision"
OVERLAPPED_BUCKET = 128 * 1024 * 1024  # elements, where comm_overlap is given


def stack_of(reader: JobReader, switched: dict[str, object]) -> object:
    """Return the name of the stack, or the stack with the changes of the file.

    Parameters
    ----------
    reader : a reader whose data contains the plan
    switched : the settings that Megatron-Core's flags switch
    """
    changes = dict(switched)
    gradients = _gradients(reader)
    if gradients:
        changes["gradients"] = gradients
    if reader.degree("pipeline_parallel") > 1 and (transfers := _transfers(reader)):
        changes["pipeline"] = {"transfers": transfers}
    # the stack's own are those of recipes that keep narrow weights
    if reader.part("plan").get("precision") in RECIPES:
        kept = changes.get("narrow", {})
        changes["narrow"] = {"narrow_parameters": False} | (kept if isinstance(kept, dict) else {})
    if _cuts_messages(reader):
        changes["tensor_overlap"] = "chunks"
    if not reader.flag("model.cross_entropy_loss_fusion", True):
        changes |= SEVERAL_KERNELS
    return {"base": BASE} | changes if changes else BASE


def _gradients(reader: JobReader) -> dict[str, object]:
    changes: dict[str, object] = {}
    for field, name in (("overlap_grad_reduce", "overlap"), ("overlap_param_gather", "overlap_gather")):
        if reader.has(f"{DDP}.{field}"):
            changes[name] = reader.flag(f"{DDP}.{field}")
    if dtype := _dtype(reader):
        changes["dtype"] = dtype
    if reader.has(f"{DDP}.average_in_collective"):
        changes["copies"] = [] if reader.flag(f"{DDP}.average_in_collective") else ["scale_gradient"]
    if reader.has(f"{DDP}.check_for_nan_in_grad"):
        changes["overflow_checks"] = int(reader.flag(f"{DDP}.check_for_nan_in_grad"))
    fused = "model.gradient_accumulation_fusion"
    if reader.has(fused):
        changes["accumulate_passes"] = int(not reader.flag(fused))
    if _is_half(reader):  # the scale of the loss asks whether any gradient overflowed
        changes["overflow_checks"] = 1
    return changes | _buckets(reader) | _overlapped(reader)


def _is_half(reader: JobReader) -> bool:
    """Return whether the other 16-bit type is fp16."""
    recipe = reader.raw(MIXED)
    section = MIXED if reader.below(MIXED) else "model"
    return recipe.startswith("fp16") if isinstance(recipe, str) else reader.flag(f"{section}.fp16")


def _dtype(reader: JobReader) -> str:
    """Return the type in which gradients are sent, or "" if the file omits it; the recipe then decides."""
    recipe, narrow = reader.raw(MIXED), "fp16" if _is_half(reader) else "bf16"
    if isinstance(recipe, str):
        return narrow if narrow == "fp16" else "fp32"
    for section in (MIXED, DDP):
        key = f"{section}.grad_reduce_in_fp32"
        if reader.has(key):
            return "fp32" if reader.flag(key) else narrow
    return ""


def _buckets(reader: JobReader) -> dict[str, object]:
    """Return the size of a bucket: the file's, or Megatron-Core's default if the file configures DDP."""
    key = f"{DDP}.bucket_size"
    if reader.has(key):
        return dict(given_bucket(reader.count(key)))
    return dict(DEFAULT_BUCKET) if reader.below(DDP) else {}


def _overlapped(reader: JobReader) -> dict[str, object]:
    """Return the overlap settings that override DDP's if replicas share the optimizer's states."""
    if not reader.below(OVERLAP) or not reader.flag(f"{DDP}.use_distributed_optimizer"):
        return {}
    if reader.degree("data_parallel") == 1:
        return {}
    return {
        "overlap": reader.flag(f"{OVERLAP}.overlap_grad_reduce", True),
        "overlap_gather": reader.flag(f"{OVERLAP}.overlap_param_gather", True),
        **given_bucket(reader.count(f"{OVERLAP}.bucket_size", OVERLAPPED_BUCKET)),
    }


def _transfers(reader: JobReader) -> str:
    """Return "batched" if interleaved stages wait for transfers, else "".

    Only interleaved stages can run without waiting (megatron/core/pipeline_parallel/schedules.py). In the
    stack they do so, unless the file states otherwise.
    """
    key = f"{OVERLAP}.overlap_p2p_comm" if reader.below(OVERLAP) else "model.overlap_p2p_comm"
    if reader.degree("virtual_stages") == 1:
        if reader.flag(key):
            because = "Megatron-Core overlaps only the transfers of interleaved stages"
            reader.fault(key, "false, because each stage has one chunk", because, f"write {key}: false")
        return ""
    return "" if reader.flag(key, True) else "batched"


def _cuts_messages(reader: JobReader) -> bool:
    """Return whether products overlap with tensor-parallel messages, which needs sequence parallelism."""
    key = f"{OVERLAP if reader.below(OVERLAP) else 'model'}.tp_comm_overlap"
    if not reader.flag(key):
        return False
    if not reader.part("plan").get("sequence_parallel"):
        reader.assume(f"{key} has no effect without sequence parallelism", key)
        return False
    return True
