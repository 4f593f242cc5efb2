"""DeepSpeed's JSON as a job without its model: sharding, batch, precision, buckets.

Answers: which plan and which stack does a DeepSpeed configuration describe?
Elsewhere: states outside the devices (deepspeed_offload.py), ZeRO++ (deepspeed_shards.py), the launch
script of Megatron-DeepSpeed (interop/megatron/launch_script.py), settings inside another file
(trainers.py). The file states no model, no sequence length and no number of devices: these come from the
command line. The program sets pipeline and tensor parallelism; the file sets only `tensor_parallel`.

References
----------
https://www.deepspeed.ai/docs/config-json/; deepspeed/runtime/config.py and zero/config.py: names, defaults,
and `_batch_assertion`: train_batch_size = micro-batch · accumulation · data parallel.
"""

from flopcast.fixes import set_to
from flopcast.interop.configs.config_reader import AUTO
from flopcast.interop.configs.deepspeed_offload import (
    STAGE,
    offload_changes,
    read_checkpoints,
    read_placements,
)
from flopcast.interop.configs.deepspeed_shards import read_groups
from flopcast.interop.configs.job_reader import JobReader
from flopcast.interop.configs.keys import keys_of
from flopcast.library import catalog
from flopcast.spec.divisors import nearest_multiples
from flopcast.spec.precision import scales_loss
from flopcast.units import counted

TOTAL, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
TENSOR, SEQUENCE = "tensor_parallel.autotp_size", "sequence_parallel_size"
TRAINER = "the default of the transformers Trainer"
HIDDEN_SQUARED = "DeepSpeed's default; the Trainer would set it to hidden size squared"
TRAINER_MICRO = 8  # per_device_train_batch_size of TrainingArguments
BUCKET = 500_000_000  # reduce_bucket_size
ACCUMULATION = "data_types.grad_accum_dtype"
BF16_REASON = (
    "bf16 without ZeRO is read as ZeRO-1 with fp32 gradients, because DeepSpeed's BF16_Optimizer "
    "shards optimizer states"
)
DTYPES = {"fp16": "fp16", "bf16": "bf16", "bfp16": "bf16", "fp32": "fp32"}
OPTIMIZERS = keys_of("deepspeed").words["optimizers"]


def read(reader: JobReader) -> None:
    """Read the job of a DeepSpeed file, without model, cluster and sequence length.

    Examples
    --------
    >>> from flopcast.files.yaml_text import Document
    >>> from flopcast.interop.configs.formats import ImportOptions, read_kind
    >>> read_kind(Document("ds.json", {"train_batch_size": 64, "bf16": {"enabled": True},
    ...     "zero_optimization": {"stage": 3}}, {}), "deepspeed", ImportOptions(devices=8)).data["plan"]
    {'data_parallel': 8, 'micro_batch': 8, 'global_batch': 64, 'zero': 3, 'precision': 'bf16'}
    """
    tensor, sequence = reader.count(TENSOR, least=0) or 1, reader.count(SEQUENCE)
    replicas = reader.replicas({TENSOR: tensor, SEQUENCE: sequence})
    reader.put(("plan", "data_parallel"), replicas)
    reader.put_degree("tensor_parallel", tensor, TENSOR)
    reader.put_degree("context_parallel", sequence, SEQUENCE)
    if sequence > 1:
        reader.put(("plan", "context_exchange"), "all_to_all", SEQUENCE)
    read_batch(reader, replicas)
    precision = read_precision(reader)
    stage = read_sharding(reader, precision, sequence=sequence)
    read_groups(reader, stage, sequence)
    read_checkpoints(reader)
    reader.put(("plan", "precision"), precision, "fp16.enabled", "bf16.enabled", "bfloat16.enabled")
    reader.put_optimizer(reader.choice("optimizer.type", OPTIMIZERS, "adamw"), "optimizer.type")
    reader.put(("stack",), {"base": "deepspeed-zero"} | stack_changes(reader, stage, precision))
    if reader.problems and not reader.options.model:  # which resolving the job would report
        allowed = f"one of {len(catalog.names('models'))} names (flopcast catalog models), or a description"
        fix = "add --model NAME, such as --model llama-3-8b"
        reader.fault("model", allowed, "flopcast needs a model for a prediction", fix, "is missing")


def read_batch(reader: JobReader, replicas: int) -> None:
    """Read micro-batch and global batch; two of the three numbers suffice, or one without accumulation.

    "auto" means a value of the Trainer, which this file does not contain.
    """
    total, micro = (
        None if reader.raw(key) in (None, AUTO) else reader.count(key) for key in (TOTAL, MICRO)
    )
    share = (micro or 1) * replicas
    whole = total // share if total and total % share == 0 else 1
    steps = None if reader.raw(STEPS) in (None, AUTO) else reader.count(STEPS, whole)
    if total is not None and micro is not None and steps is not None:
        _check_identity(reader, (total, micro, steps), replicas)
    if micro is None and total is None:
        micro = reader.count(MICRO, TRAINER_MICRO, auto=TRAINER)
        if not reader.has(MICRO) and reader.raw(TOTAL) == AUTO:
            because = "the training program replaces auto by a value that this file does not contain"
            fix = f"write the number of sequences of a step, or add {MICRO}"
            reader.fault(TOTAL, f"a whole number, or auto together with {MICRO}", because, fix, 'is "auto"')
        elif not reader.has(MICRO):
            because = "DeepSpeed needs one of these two settings"
            reader.fault(MICRO, f"a whole number, or {TOTAL}", because, f"add {MICRO}", "is missing")
    if micro is None:
        whole = reader.count(TOTAL)
        share = replicas * (steps or 1)
        micro = max(whole // share, 1)
        if whole % share and not reader.faulty(TOTAL, STEPS, "world size"):
            because = (
                f"each of the {replicas} data-parallel ranks runs {counted(steps or 1, 'micro-batch')}"
            )
            allowed = f"a multiple of {share}"
            reader.fault(TOTAL, allowed, because, f"write {nearest_multiples(whole, share)}")
        divided = f"{TOTAL} divided by {replicas} ranks and {steps or 1} accumulation steps"
        reader.assume(f"{MICRO} is {micro}: {divided}", MICRO)
    if steps is None and total is None:
        steps = reader.count(STEPS, 1, auto=TRAINER)
    if total is None:
        total = micro * (steps or 1) * replicas
        product = f"{micro} sequences · {steps or 1} accumulation steps · {replicas} ranks"
        reader.assume(f"{TOTAL} is {total}: {product}", TOTAL)
    reader.put(("plan", "micro_batch"), micro, MICRO, TOTAL)
    reader.put(("plan", "global_batch"), total, TOTAL, STEPS, MICRO)


def _check_identity(reader: JobReader, batch: tuple[int, int, int], replicas: int) -> None:
    """Report three numbers that contradict each other, because DeepSpeed does not start with them."""
    total, micro, steps = batch
    right = micro * steps * replicas
    if total != right and not reader.faulty(TOTAL, MICRO, STEPS, "world size"):
        allowed = f"{right} ({micro} · {steps} · {replicas})"
        because = f"{TOTAL} is the product of micro-batch, accumulation steps and data-parallel ranks"
        fix = f"write {right}, or use {total // (micro * steps)} data-parallel ranks"
        reader.fault(TOTAL, allowed, because, fix if total % (micro * steps) == 0 else f"write {right}")


def read_sharding(reader: JobReader, precision: str, sequence: int = 1) -> int:
    """Put the ZeRO stage, sharding groups (MiCS) and offload into the plan; return the file's stage.

    Parameters
    ----------
    precision : that of the plan; bf16 without ZeRO has its own kind of ZeRO-1 (`BF16_REASON`)
    sequence : ranks that share a sequence, which count among the ranks of a group
    """
    section, key = "zero_optimization", STAGE
    stage = reader.count(key, 0, least=0)
    if stage > 3:
        reader.fault(key, "0, 1, 2, 3", "ZeRO has only these stages", "write 3")
        stage = 3
    reader.put(("plan", "zero"), put_stage(reader, stage, precision, key), key)
    key, replicas = f"{section}.mics_shard_size", reader.degree("data_parallel")
    group = reader.count(key, -1, least=-1)
    if sequence == 1 and 0 < group < replicas:
        reader.put_shards(group, replicas, key)
    elif group > 0:
        reader.put(("plan", "data_shard"), max(group // sequence, 1), key)
    read_placements(reader, stage)
    return stage


def put_stage(reader: JobReader, stage: int, precision: str, key: str) -> int:
    """Return the effective ZeRO stage: 1, with a note, if several ranks train in bf16 without ZeRO."""
    if stage or scales_loss(precision) or reader.part("plan").get("data_parallel") == 1:
        return stage
    reader.assume(BF16_REASON, key)
    return 1


def accumulates_in_fp32(reader: JobReader, stage: int, precision: str) -> bool:
    """Return whether the engine uses its BF16_Optimizer, which keeps whole fp32 gradients.

    References
    ----------
    deepspeed/runtime/engine.py, `_do_optimizer_sanity_check`: bf16 without ZeRO, or with ZeRO-1
    and `data_types.grad_accum_dtype: fp32`, unless states are offloaded.
    """
    if scales_loss(precision):
        return False
    wide = reader.choice(ACCUMULATION, DTYPES, precision) == "fp32"
    return stage == 0 or (stage == 1 and wide and not reader.has_place("optimizer"))


def read_precision(reader: JobReader) -> str:
    """Return fp16 or bf16; training in fp32 is refused.

    "auto" means bf16, the usual choice of the Trainer, unless fp16 is enabled or is the only format in the
    file.
    """
    auto = "if the Trainer uses bf16"
    bf16 = reader.first("bf16.enabled", "bfloat16.enabled")
    only = reader.raw("fp16.enabled") == AUTO and not reader.has(bf16)
    half = reader.flag("fp16.enabled", only, auto="if the Trainer uses fp16" if only else auto)
    brain = reader.flag(bf16, reader.raw(bf16) == AUTO and not half, auto=auto)
    if half and brain:
        because = "all weights must have the same data type"
        reader.fault("fp16.enabled", "one of fp16 and bf16", because, set_to({"fp16.enabled": False}))
    if not half and not brain and not reader.faulty("fp16.enabled", bf16):
        reader.refuse(bf16, "training in fp32 with DeepSpeed", 'set "bf16": {"enabled": true}')
    return "fp16" if half else "bf16"


def stack_changes(reader: JobReader, stage: int, precision: str) -> dict[str, object]:
    """Return the changes that the file makes to the stack `deepspeed-zero`.

    By default reductions overlap with the backward pass only in stage 3. They are sent in the dtype of the
    weights unless `communication_data_type` names another. Stages 1 and 2 all-reduce a bucket with
    gradients of several ranks. If `use_multi_rank_bucket_allreduce` is off, each rank's part is reduced to
    that rank, which moves the bytes of a reduce-scatter. DeepSpeed's BF16_Optimizer reduces its accumulated
    fp32 gradients after the last backward pass.

    References
    ----------
    deepspeed/runtime/zero/stage_1_and_2.py, `average_tensor` and `allreduce_and_scatter`.
    """
    whole = accumulates_in_fp32(reader, stage, precision)
    overlap, prefetch = "zero_optimization.overlap_comm", "zero_optimization.stage3_prefetch_bucket_size"
    bucket = "zero_optimization.reduce_bucket_size"
    dtype = reader.choice("communication_data_type", DTYPES, "fp32" if whole else precision)
    if whole and dtype != "fp32":
        text = "flopcast assumes that gradients are reduced in fp32, because they are kept in fp32"
        reader.assume(text, "communication_data_type")
    gradients: dict[str, object] = {
        "dtype": "fp32" if whole else dtype,
        "bucket_elements": reader.count(bucket, BUCKET, auto=HIDDEN_SQUARED),
    }
    usual = catalog.stack("deepspeed-zero").gradients.overlaps(stage)
    overlaps = reader.flag(overlap, usual) and not whole
    if overlaps != usual:
        gradients["overlap"] = overlaps
    separate = not reader.flag("zero_optimization.use_multi_rank_bucket_allreduce", True)
    if reader.flag("zero_optimization.reduce_scatter", True) and separate and not whole:
        gradients["collective"] = "reduce_scatter"
    if scales_loss(precision):
        gradients["overflow_checks"] = 1
    changes: dict[str, object] = {"gradients": gradients}
    kept = reader.choice(ACCUMULATION, DTYPES, precision)
    sharding: dict[str, object] = {"gradient_dtype": kept} if kept != "bf16" and stage > 1 else {}
    if stage == 3 and reader.count(prefetch, 50_000_000, least=0, auto=HIDDEN_SQUARED) == 0:
        sharding["prefetch_units"] = 0
    offload = offload_changes(reader, stage)
    return changes | {name: part for name, part in (("sharding", sharding), ("offload", offload)) if part}
