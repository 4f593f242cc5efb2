"""Commands of OpenRLHF's trainers as jobs: supervised tuning, DPO, and reward models.

Answers: which model, plan and stack does `openrlhf.cli.train_sft` (or train_dpo, train_rm) use?
Elsewhere: the arguments of a command (trainer_commands.py), keys that change no step
(tables/openrlhf.yaml), reinforcement learning, which is a separate kind of job (docs/howto/rl.md).

References
----------
OpenRLHF/OpenRLHF: openrlhf/cli/train_sft.py, train_dpo.py, train_rm.py (names, defaults; newer releases
have sections), utils/deepspeed (the DeepSpeed configuration that they create: bf16, gradients summed in
the type `grad_accum_dtype`, `overlap_comm` off, and Adam on the host with `adam_offload`).
"""

from flopcast.interop.configs import deepspeed
from flopcast.interop.configs.job_reader import PAIR, SHARDED_STATES, JobReader
from flopcast.interop.configs.keys import keys_of
from flopcast.interop.configs.trainers import read_adapters, refuse_frozen


def read(reader: JobReader) -> None:
    """Read the job of a command.

    Examples
    --------
    >>> from flopcast.files.yaml_text import Document
    >>> from flopcast.interop.configs.formats import ImportOptions, read_kind
    >>> flags = {"pretrain": "meta-llama/Meta-Llama-3-8B", "max_len": 2048, "micro_train_batch_size": 2,
    ...     "zero_stage": 3, "launcher": {"command": "openrlhf.cli.train_sft", "ranks": 8}}
    >>> job = read_kind(Document("sft.sh", flags, {}), "openrlhf", ImportOptions())
    >>> job.data["plan"]["global_batch"], job.data["plan"]["zero"], job.data["batch"]
    (128, 3, {'sequence_length': 2048})
    """
    kind = {"dpo": "reference", "rm": "reward"}.get(reader.text("command").rpartition("_")[2], "")
    reader.read_model("base")
    reader.put(("batch", "sequence_length"), reader.count("length", 2048), "length")
    packed = reader.flag("packed")
    reader.note_lengths("packed" if packed else "length", packed)
    _batch(reader, PAIR if kind else 1)
    put_states(reader)
    put_adapters(reader)
    reader.put_epochs("epochs")
    reader.put_preference(kind, "command")
    reader.put_checkpointing("checkpointing")
    usual = "flash" if reader.flag("flash_attn", True) else "eager"
    if reader.choice("attention", reader.words("attention"), usual) == "eager":
        reader.write_scores("attention", "flash_attn")


def _batch(reader: JobReader, sequences: int) -> None:
    """Put degrees and the batch into the plan; the batch in the command counts all replicas."""
    replicas = put_degrees(reader, reader.count("ranks") if reader.has("ranks") else None, "ranks")
    reader.put_whole_batch(("micro", 8), ("batch", 128), replicas, "samples", sequences)


def put_degrees(reader: JobReader, stated: int | None, *keys: str) -> int:
    """Put degrees into the plan; return the number of replicas.

    `stated` is the number of devices according to `keys`.
    """
    degrees = {"context_parallel": "context", "tensor_parallel": "tensor"}
    replicas = reader.put_degrees(degrees, stated, *keys)
    if reader.degree("context_parallel") > 1:
        reader.put(("plan", "context_order"), "zigzag", "context")
    return replicas


def put_states(reader: JobReader) -> None:
    """Put sharding, precision, optimizer and the stack into the job."""
    precision = reader.choice("dtype", {name: name for name in ("bf16", "fp16")}, "bf16")
    reader.put(("plan", "precision"), precision, "dtype")
    stage = deepspeed.put_stage(reader, min(reader.count("stage", 2, least=0), 3), precision, "stage")
    if reader.count("stage", 2, least=0) > 3:
        reader.fault("stage", "0, 1, 2 or 3", "DeepSpeed has no other stage", "write 3")
    reader.put(("plan", "zero"), stage, "stage")
    optimizers = {"adam": "adamw", **keys_of("trainers").words["optimizers"]}
    reader.put_named_optimizer(reader.text("optimizer").lower(), optimizers, "optimizer")
    gradients = {"dtype": precision, "overlap": reader.flag("overlaps")}
    stack: dict[str, object] = {"base": "deepspeed-zero", "gradients": gradients}
    if reader.flag("on_host"):
        reader.place(SHARDED_STATES[:1], "on_host")
        stack["offload"] = {"gradient_copies": "pinned"}
    reader.put(("stack",), stack, "stage")


def put_adapters(reader: JobReader) -> None:
    """Put adapters into the model if their rank is above 0."""
    quantised = reader.flag("four_bits")
    if not reader.count("adapter_rank", 0, least=0):
        if quantised:
            allowed, fix = "false, unless lora_rank is above 0", "add --lora_rank 16"
            refuse_frozen(reader, "four_bits", allowed, fix, "adapter_rank")
        return
    every = reader.names_all_linears("targets")
    read_adapters(reader, "adapter_rank", "targets", every, "four_bits" if quantised else "")
