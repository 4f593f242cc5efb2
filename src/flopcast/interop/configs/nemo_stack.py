"""The stack of NeMo 1.x, with a configuration's changes to gradients and activations.

Answers: in which type, when, and in buckets of which size are gradients reduced, and for what do stages
wait?
Elsewhere: kernels and fusions (megatron_settings.py), model and plan (nemo.py).

The names of optimizers select one of three reductions: Apex's, which shards states; Megatron-Core's,
which also shards states and has other defaults; and NeMo's own, which reduces whole gradients.

References
----------
NVIDIA/apex: apex/contrib/optimizers/distributed_fused_adam.py (defaults of APEX); NVIDIA/NeMo 1.x, in
nemo/collections/nlp/models/language_modeling: megatron_gpt_model.py, `setup_mcore_distributed_parallel`
(of CORE: its buckets are counted in parameters, bucket_cap_mb is not read, and gradients are reduced in
fp32 only for the word "fp32"), megatron_base_model.py, `configure_optimizers` (whole gradients overlap
with the backward pass only with O2, and without pipeline, sequence parallelism and fused accumulation).
"""

from flopcast.interop.configs.job_reader import JobReader
from flopcast.interop.megatron.stack import DEFAULT_BUCKET, given_bucket

APEX, CORE = "distributed_fused_adam", "mcore_distributed_optim"
BUCKET_MIB = 100  # bucket_cap_mb of Apex
CHUNK_MIB = 125  # grad_allreduce_chunk_size_mb
MIB = 1024 * 1024
TYPES = {"fp32": "fp32", "float32": "fp32", "32": "fp32", "bf16": "bf16", "bfloat16": "bf16"}
TYPES |= {"fp16": "fp16", "float16": "fp16", "16": "fp16"}
TYPES |= {f"torch.{name}": dtype for name, dtype in TYPES.items() if name.startswith(("float", "bfloat"))}
SYNC, BUCKET = "model.optim.grad_sync_dtype", "model.optim.bucket_cap_mb"
OVERLAP, GATHER = "model.optim.overlap_grad_sync", "model.optim.overlap_param_sync"
HALF = ("16", "16-mixed")  # precisions of the trainer that are fp16
O2 = "model.megatron_amp_O2"


def stack_of(reader: JobReader, optimizer: str, switched: dict[str, object]) -> dict[str, object]:
    """Return the file's changes to NeMo's stack; only interleaved stages do not wait for a transfer.

    Parameters
    ----------
    reader : JobReader
    optimizer : `APEX`, `CORE` or another optimizer, which shards nothing
    switched : the settings of the stack that Megatron-Core's flags switch
    """
    half = str(reader.raw("trainer.precision")) in HALF
    if optimizer == APEX:
        gradients = _of_apex(reader)
    elif optimizer == CORE:
        gradients = _of_core(reader, "fp16" if half else "bf16")
    else:
        gradients = _of_whole(reader, half)
    gradients["accumulate_passes"] = 0 if reader.flag("model.gradient_accumulation_fusion") else 1
    if half:  # the scale of the loss asks whether any gradient overflowed
        gradients["overflow_checks"] = 1
    changes = switched | {"base": "nemo", "gradients": gradients}
    if reader.flag("model.ub_tp_comm_overlap"):
        changes["tensor_overlap"] = "chunks"
    interleaved = reader.count("model.virtual_pipeline_model_parallel_size") > 1
    waits = not (interleaved and reader.flag("model.overlap_p2p_comm"))
    if waits and reader.count("model.pipeline_model_parallel_size") > 1:
        changes["pipeline"] = {"transfers": "batched"}
    attention = map(reader.flag, ("model.fp8_dot_product_attention", "model.fp8_multi_head_attention"))
    narrow = {"narrow_parameters": reader.flag("model.fp8_params"), "attention": any([*attention])}
    if any(narrow.values()):
        changes["narrow"] = {name: True for name, value in narrow.items() if value}
    return changes


def _of_apex(reader: JobReader) -> dict[str, object]:
    dtype = reader.choice(SYNC, TYPES, "fp32")
    return _shared(reader, dtype, True) | {"bucket_elements": _elements(reader, BUCKET, BUCKET_MIB, dtype)}


def _of_core(reader: JobReader, narrow: str) -> dict[str, object]:
    """Return the changes for Megatron-Core's distributed optimizer; 16 bits are those of the weights."""
    reader.choice(SYNC, TYPES, "fp32")
    dtype = "fp32" if reader.raw(SYNC) in (None, "fp32") else narrow
    if reader.has(BUCKET):
        reader.assume(f"{BUCKET} has no effect under {CORE}", BUCKET)
    key = "model.optim.ddp_bucket_size"
    bucket = given_bucket(reader.count(key)) if reader.has(key) else DEFAULT_BUCKET
    averaged = reader.flag("model.optim.average_in_collective", True)
    return _shared(reader, dtype, False) | {
        **bucket,
        "single_bucket_after_backward": True,
        "copies": [] if averaged else ["scale_gradient"],
        "overflow_checks": int(reader.flag("model.optim.check_for_nan_in_grad")),
    }


def _shared(reader: JobReader, dtype: str, usual: bool) -> dict[str, object]:
    """Return the changes that both sharded optimizers share; `usual`: reductions overlap by default."""
    return {
        "dtype": dtype,
        "collective": "reduce_scatter",
        "overlap": reader.flag(OVERLAP, usual),
        "overlap_gather": reader.flag(GATHER),
    }


def _of_whole(reader: JobReader, half: bool) -> dict[str, object]:
    """Return the changes for whole fp32 gradients, which O2 accumulates; fp16 has no main gradients."""
    wide = reader.flag(O2)
    if wide and half:
        because = "NeMo accumulates gradients in fp32 only if weights are bf16"
        allowed = f"false, because weights are fp16, or true together with {APEX}"
        reader.fault(O2, allowed, because, f"write {O2}: false")
    hidden = ("model.sequence_parallel", "model.gradient_accumulation_fusion")
    alone = reader.count("model.pipeline_model_parallel_size") == 1
    beside = wide and alone and not any(reader.flag(key) for key in hidden)
    return {
        "dtype": "fp32",
        "collective": "all_reduce",
        "overlap": beside and reader.flag("model.async_grad_allreduce", True),
        "overlap_gather": False,
        "bucket_elements": _elements(reader, "model.grad_allreduce_chunk_size_mb", CHUNK_MIB, "fp32"),
    }


def _elements(reader: JobReader, key: str, usual_mib: int, dtype: str) -> int:
    """Return the number of elements in a bucket whose size is given in MiB."""
    return reader.count(key, usual_mib) * MIB // (4 if dtype == "fp32" else 2)
