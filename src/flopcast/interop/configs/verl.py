"""veRL's YAML of supervised tuning as a job.

Answers: which model, plan and stack does a file of `verl.trainer.fsdp_sft_trainer` ask for?
Elsewhere: its keys (tables/verl.yaml), what it has in common with other trainers (trainers.py).

References
----------
volcengine/verl: verl/trainer/config/sft_trainer.yaml (names, defaults), verl/trainer/fsdp_sft_trainer.py:
FSDP shards parameters over all ranks and multiplies in bf16; the batch is that of all replicas; the ranks
of Ulysses share sequences by heads.
"""

from flopcast.files.yaml_text import Document
from flopcast.interop.configs.config_reader import ConfigReader, ImportOptions
from flopcast.interop.configs.keys import keys_of
from flopcast.interop.configs.model_names import read_model
from flopcast.interop.configs.placements import SHARDED_STATES, place
from flopcast.interop.configs.trainers import (
    names_all_linears,
    note_lengths,
    put_whole_batch,
    read_adapters,
)

MODEL, LENGTH, PACKED = "model.partial_pretrain", "data.max_length", "use_remove_padding"
MICRO, OLDER_MICRO, BATCH = (
    "data.micro_batch_size_per_gpu",
    "data.micro_batch_size",
    "data.train_batch_size",
)
RANK, TARGETS = "model.lora_rank", "model.target_modules"
CONTEXT, NODES, DEVICES = "ulysses_sequence_parallel_size", "trainer.nnodes", "trainer.n_gpus_per_node"
RANKS = "launcher.ranks"  # which torchrun starts
STRATEGIES = {"fsdp": "fsdp", "fsdp2": "fsdp"}


def read(document: Document, options: ImportOptions) -> Document:
    """Return the job of a file of veRL's SFT trainer.

    Examples
    --------
    >>> job = read(Document("sft.yaml", {
    ...     "data": {"train_batch_size": 64, "micro_batch_size_per_gpu": 4, "max_length": 2048},
    ...     "model": {"partial_pretrain": "Qwen/Qwen2.5-7B"}}, {}), ImportOptions(devices=8))
    >>> job.data["plan"]["global_batch"], job.data["plan"]["zero"], job.data["stack"]
    (64, 3, 'torch-fsdp2')
    """
    reader = ConfigReader(document, keys_of("verl"), options)
    read_model(reader, MODEL)
    reader.put(("batch", "sequence_length"), reader.count(LENGTH, 1024), LENGTH)
    note_lengths(reader, LENGTH, packed=False)
    micro = reader.first(MICRO, OLDER_MICRO)
    put_whole_batch(reader, (micro, 4), (BATCH, 256), _degrees(reader), "sequences")
    reader.put(("plan", "zero"), 3)
    reader.put(("plan", "precision"), "bf16")
    reader.choice("model.strategy", STRATEGIES, "fsdp")
    offload = "model.fsdp_config.cpu_offload"
    if reader.flag(offload) and reader.flag("model.fsdp_config.offload_params"):
        place(reader, SHARDED_STATES, offload)
    checkpointing = "model.enable_gradient_checkpointing"
    if reader.flag(checkpointing):
        reader.put(("plan", "recompute"), "full", checkpointing)
    if reader.count(RANK, 0, least=0):
        read_adapters(reader, RANK, TARGETS, names_all_linears(reader, TARGETS), "")
    reader.put(("stack",), "torch-fsdp2")
    return reader.made()


def _degrees(reader: ConfigReader) -> int:
    """Return the number of replicas; ranks that share sequences send heads to each other."""
    context = reader.count(CONTEXT, 1)
    stated = reader.count(NODES, 1) * reader.count(DEVICES, 8) if reader.has(NODES, DEVICES) else None
    stated = reader.count(RANKS) if reader.has(RANKS) else stated
    packed = reader.flag(PACKED)
    replicas = max(reader.ranks(stated, share=context, shared=CONTEXT) // context, 1)
    reader.put(("plan", "data_parallel"), replicas, NODES, DEVICES)
    reader.put_degree("context_parallel", context, CONTEXT)
    if context > 1:
        reader.put(("plan", "context_exchange"), "all_to_all", CONTEXT)
        if not packed:
            because = "ranks share sequences only where padding is removed"
            reader.fault(
                PACKED if reader.has(PACKED) else CONTEXT, "true", because, f"write {PACKED}: true"
            )
    return replicas
