"""NeMo RL's YAML as a job: GRPO as a step of reinforcement learning, SFT, DPO and reward models.

Answers: which training, and which rollout, does a file of NeMo RL describe?
Elsewhere: flags of Megatron-Core (megatron_settings.py), the models of a step (job_reader.py), keys that
change neither time nor memory (tables/nemo-rl.yaml, tables/nemo-rl-grpo.yaml).

Most recipes state only their differences from another file, which they name under `defaults`. The user
also passes this file: `flopcast predict grpo_math_1B.yaml recipe.yaml`.

References
----------
NVIDIA-NeMo/RL: examples/configs (names), nemo_rl/utils/config.py (`defaults`),
nemo_rl/algorithms/grpo.py (the order of a step; the reference model computes every answer unless
`skip_reference_policy_logprobs_calculation`; devices of generation that is not colocated),
nemo_rl/algorithms/dpo.py and rm.py (a sample is a pair), nemo_rl/models/policy (DTensor is FSDP2;
`activation_checkpointing` of Megatron-Core recomputes whole blocks).
"""

import re
from collections.abc import Mapping, Sequence
from math import prod

from flopcast.errors import spec_error
from flopcast.files.yaml_text import Document
from flopcast.interop.configs.import_options import ImportOptions
from flopcast.interop.configs.job_reader import PAIR, SHARDED_STATES, JobReader
from flopcast.interop.configs.keys import flattened, keys_of
from flopcast.interop.configs.megatron_settings import DIVIDING, TranslatedFlags
from flopcast.interop.configs.step_reader import ALONE, StepReader
from flopcast.interop.configs.trainers import read_adapters
from flopcast.records import replace
from flopcast.spec.switches import TUNING_CODE

START = "nemo rl grpo"
SIGNS = ("policy.dtensor_cfg", "policy.megatron_cfg")
POLICY, CORE, TORCH = "policy", "policy.megatron_cfg", "policy.dtensor_cfg"
TYPES = {"bfloat16": "bf16", "float16": "fp16"}
FILLED = (f"{POLICY}.sequence_packing", f"{POLICY}.dynamic_batching")
ASYNC = "grpo.async_grpo"
VLLM, LIMITS = f"{POLICY}.generation.vllm_cfg", f"{POLICY}.generation.vllm_kwargs"
APART = f"{POLICY}.generation.colocated.resources"
METHODS = {"rm": "reward", "dpo": "reference"}  # sections of methods whose samples are pairs
OTHERS = ("distillation", "ppo", "on_policy_distillation")
PRODUCT = re.compile(r"\$\{mul:\s*\$\{([\w.]+)\}\s*,\s*\$\{([\w.]+)\}\s*\}")


def read(reader: JobReader) -> None:
    """Read the job of a file for SFT, DPO or a reward model.

    Examples
    --------
    >>> from flopcast.files.yaml_text import Document
    >>> from flopcast.interop.configs.formats import ImportOptions, read_kind
    >>> job = read_kind(Document("sft.yaml", {"sft": {}, "cluster": {"gpus_per_node": 8, "num_nodes": 1},
    ...     "policy": {"model_name": "meta-llama/Llama-3.1-8B", "train_global_batch_size": 32,
    ...         "train_micro_batch_size": 1, "max_total_sequence_length": 1024,
    ...         "dtensor_cfg": {"enabled": True, "tensor_parallel_size": 2}}}, {}),
    ...     "nemo-rl", ImportOptions())
    >>> job.data["plan"]["data_parallel"], job.data["plan"]["tensor_parallel"], job.data["plan"]["zero"]
    (4, 2, 3)
    """
    _start(reader)
    method = next((name for name in METHODS if reader.below(name)), "")
    devices = reader.ranks(_cluster(reader))
    _training(reader, devices, PAIR if method else 1)
    reader.note_lengths("length", reader.flag(f"{FILLED[0]}.enabled"))
    reader.put_preference(METHODS.get(method, ""), method)


def read_step(document: Document, options: ImportOptions) -> StepReader:
    """Return the reader after it read the rollout and the training of GRPO."""
    keys = keys_of("nemo-rl-grpo")
    whole = replace(keys, read=f"{keys.read} {keys_of('nemo-rl').read}")
    reader = StepReader(prepared(document, options), whole, options)
    _start(reader)
    devices = reader.ranks(_cluster(reader))
    generating = devices
    if not reader.flag("together", True):
        generating = _devices_apart(reader)
        devices = max(devices - generating, 1)
        reader.put(("step", "apart"), True, "together")
        if not reader.flag(f"{ASYNC}.enabled"):
            allowed = "true, unless grpo.async_grpo.enabled is true"
            reader.fault("together", allowed, ALONE, "write true")
    reader.put(("gpus",), devices, "devices")
    reader.put(("rollout", "gpus"), generating, "devices")
    _training(reader, devices, 1)
    _rollout(reader)
    reader.put(("step", "prompts"), reader.required("prompts"), "prompts")
    reader.put(("step", "samples"), reader.required("samples"), "samples")
    reader.put_scorers("skips_reference", reference=not reader.flag("skips_reference"), rewards=False)
    if "adapters" in reader.part("model"):
        reader.put(("step", "handoff"), "adapter")
    return reader


def merged(documents: Sequence[Document]) -> Document:
    """Merge each file over those that it names under `defaults`; the files may be passed in any order.

    Raises
    ------
    SpecError
        A file that another file names is missing.
    """
    waiting, whole, done = list(documents), None, set[str]()
    while waiting:
        ready = next((one for one in waiting if _bases(one) <= done), None)
        if ready is None:
            missing = ", ".join(sorted(_bases(waiting[0]) - done))
            raise _without_base(waiting[0], missing)
        waiting.remove(ready)
        done.add(_file(ready.name))
        whole = ready if whole is None else _over(whole, ready)
    if whole is None or not isinstance(whole.data, dict):
        return documents[0]
    return replace(whole, data={key: value for key, value in whole.data.items() if key != "defaults"})


def _start(reader: JobReader) -> None:
    """Read the model; unsupported algorithms are reported."""
    for section in OTHERS:
        if reader.below(section):
            reader.refuse(section, f"NeMo RL's {section}", "describe the step by hand (docs/howto/rl.md)")
    reader.read_model("model")


def _bases(document: Document) -> set[str]:
    """Return the names, without folders, of the files that a file changes."""
    given = document.data.get("defaults") if isinstance(document.data, dict) else None
    names = given if isinstance(given, list) else [given] if given else []
    return {_file(str(name)) for name in names}


def _file(path: str) -> str:
    return path.rpartition("/")[2]


def _without_base(document: Document, missing: str) -> Exception:
    allowed = "all files on which this file is based"
    because = "flopcast reads only the files that you name"
    fix = f"give {missing} too: flopcast predict {missing.replace(',', '')} {document.name}"
    fault = "is not given"
    return spec_error("defaults", missing, allowed, because, fix, document.where(("defaults",)), fault)


def _over(whole: Document, other: Document) -> Document:
    """Return a document in which another document's values override its own."""
    data, places = whole.data, dict(whole.places)
    for path, _ in flattened(other.data):
        places[path] = other.where(path)
    return replace(whole, data=_joined(data, other.data), places=places)


def _joined(one: object, other: object) -> object:
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return other
    return one | {key: _joined(one[key], value) if key in one else value for key, value in other.items()}


def prepared(document: Document, _options: ImportOptions) -> Document:
    """Return the document with `${mul:${a.b}, ${a.c}}` computed if both are numbers of the file.

    Raises
    ------
    SpecError
        The file states only its differences from another file, which is missing.
    """
    if bases := _bases(document):
        raise _without_base(document, ", ".join(sorted(bases)))
    values = {".".join(map(str, path)): value for path, value in flattened(document.data)}

    def computed(value: object) -> object:
        if isinstance(value, dict):
            return {key: computed(one) for key, one in value.items()}
        match = PRODUCT.fullmatch(value.strip()) if isinstance(value, str) else None
        factors = [values.get(name) for name in match.groups()] if match else []
        numbers = [one for one in factors if type(one) is int]
        return numbers[0] * numbers[1] if len(numbers) == 2 else value

    return replace(document, data=computed(document.data))


def _cluster(reader: JobReader) -> int | None:
    if not reader.has("nodes", "devices"):
        return None
    return reader.count("nodes") * reader.count("devices")


def _devices_apart(reader: JobReader) -> int:
    """Return the devices that only generate: some devices of one node, or whole nodes."""
    if reader.count("nodes") == 1:
        return reader.required(f"{APART}.gpus_per_node")
    return reader.required(f"{APART}.num_nodes") * reader.count("devices")


def _training(reader: JobReader, devices: int, sequences: int) -> None:
    """Put plan, batch, adapters and stack of the trained model into the job."""
    length = reader.required("length")
    reader.put(("batch", "sequence_length"), length, "length")
    if reader.flag(f"{CORE}.enabled"):
        _megatron(reader, devices, length, sequences)
    elif reader.flag(f"{TORCH}.enabled", True):
        _sharded(reader, devices, length, sequences)
    else:
        because = "DTensor and Megatron-Core are the only ways in which NeMo RL trains"
        reader.fault(f"{TORCH}.enabled", "true", because, f"write {TORCH}.enabled: true")


def _sharded(reader: JobReader, devices: int, length: int, sequences: int) -> None:
    """Read how DTensor and FSDP2 share the model."""
    tensor, context = (reader.count(f"{TORCH}.{name}_parallel_size") for name in ("tensor", "context"))
    replicas = _replicas(reader, devices, tensor * context, f"{TORCH}.tensor_parallel_size")
    if reader.count(f"{TORCH}.expert_parallel_size") > 1:
        what = "expert parallelism of NeMo RL's DTensor"
        reader.refuse(f"{TORCH}.expert_parallel_size", what, "write 1")
    reader.put(("plan", "data_parallel"), replicas, "devices")
    reader.put_degree("tensor_parallel", tensor, f"{TORCH}.tensor_parallel_size")
    reader.put_degree("context_parallel", context, f"{TORCH}.context_parallel_size")
    if tensor > 1 and reader.flag(f"{TORCH}.sequence_parallel"):
        reader.put(("plan", "sequence_parallel"), True, f"{TORCH}.sequence_parallel")
    _batch(reader, length, replicas, sequences)
    reader.put(("plan", "zero"), 3)
    reader.put(("plan", "precision"), reader.choice("precision", TYPES, "bf16"), "precision")
    reader.put_checkpointing(f"{TORCH}.activation_checkpointing")
    reader.place_if(f"{TORCH}.cpu_offload", SHARDED_STATES)
    _adapters(reader, f"{TORCH}.lora_cfg")
    reader.put(("stack",), {"base": "torch-fsdp2", **TUNING_CODE}, f"{TORCH}.enabled")


def _megatron(reader: JobReader, devices: int, length: int, sequences: int) -> None:
    """Put the plan of Megatron-Core into the job, as its flags state it."""
    share = prod(reader.count(f"{CORE}.{name}_parallel_size") for name in DIVIDING)
    replicas = _replicas(reader, devices, share, f"{CORE}.tensor_model_parallel_size")
    flags = TranslatedFlags(reader)
    flags.section(CORE, "model", skipped=("moe_router_load_balancing_type",))
    flags.section(f"{CORE}.optimizer", "optimizer")
    eight = f"{CORE}.fp8_cfg"
    if reader.flag(f"{eight}.enabled"):
        flags.add("--fp8-format", f"{eight}.fp8", reader.text(f"{eight}.fp8") or "hybrid")
        flags.add("--fp8-recipe", f"{eight}.fp8_recipe", reader.text(f"{eight}.fp8_recipe") or "delayed")
    flags.add("--fp16" if reader.choice("precision", TYPES, "bf16") == "fp16" else "--bf16", "precision")
    if reader.flag(f"{CORE}.activation_checkpointing"):
        for flag, value in (("granularity", "full"), ("method", "uniform"), ("num-layers", 1)):
            flags.add(f"--recompute-{flag}", f"{CORE}.activation_checkpointing", value)
    _batch(reader, length, replicas, sequences)
    batch = reader.part("plan")
    flags.add("--micro-batch-size", "micro", batch.get("micro_batch"))
    flags.add("--global-batch-size", "batch", batch.get("global_batch"))
    flags.read_plan(share * replicas)
    _adapters(reader, f"{CORE}.peft")
    reader.put(("stack",), "megatron-core-2025", f"{CORE}.enabled")


def _replicas(reader: JobReader, devices: int, share: int, key: str) -> int:
    """Return the number of replicas, each of `share` devices."""
    if devices % share:
        because = (
            f"each data-parallel replica needs {share} devices, but the training has {devices} devices"
        )
        reader.fault(key, f"degrees whose product divides {devices}", because, "change one of the degrees")
    return max(devices // share, 1)


def _batch(reader: JobReader, length: int, replicas: int, sequences: int) -> None:
    """Put the batch into the plan; packed sequences fill a number of tokens."""
    section = next((name for name in FILLED if reader.flag(f"{name}.enabled")), None)
    tokens = f"{section}.train_mb_tokens"
    if section is None or not reader.has(tokens):
        reader.put_whole_batch(("micro", 1), ("batch", 1), replicas, "samples", sequences)
        return
    whole = sequences * reader.required("batch")
    if whole % replicas:
        because = f"each of the {replicas} replicas trains on the same number of sequences"
        reader.fault("batch", f"a multiple of {replicas}", because, f"write {replicas}")
    share = max(whole // replicas, 1)
    each = reader.filled_micro_batch((tokens, reader.count(tokens, length)), length, share)
    reader.put(("plan", "micro_batch"), each, tokens)
    reader.put(("plan", "global_batch"), whole, "batch")


def _adapters(reader: JobReader, section: str) -> None:
    if reader.flag(f"{section}.enabled"):
        targets = f"{section}.target_modules"
        every = reader.flag(f"{section}.match_all_linear") or reader.names_all_linears(targets)
        every = every or reader.raw(targets) in (None, [])
        read_adapters(reader, f"{section}.dim", targets, every, "")


def _rollout(reader: StepReader) -> None:
    """Put vLLM, its deployment and the lengths into the rollout."""
    reader.choice("engine", {"vllm": "vllm"}, "vllm")
    memory, tensor = (f"{VLLM}.gpu_memory_utilization", 0.6), (f"{VLLM}.tensor_parallel_size", 1)
    reader.put_engine("vllm", memory, tensor, "engine")
    for field in ("pipeline_parallel", "expert_parallel"):
        if (degree := reader.count(key := f"{VLLM}.{field}_size")) > 1:
            reader.put(("rollout", "plan", field), degree, key)
    for field, name in (("max_sequences", "max_num_seqs"), ("max_tokens", "max_num_batched_tokens")):
        if reader.has(key := f"{LIMITS}.{name}"):
            reader.put(("rollout", "plan", field), reader.count(key), key)
    precision = f"{VLLM}.precision"
    formats: Mapping[str, str] = {"bfloat16": "", "float16": "", "fp8": "fp8"}
    if kept := reader.choice(precision, formats, ""):
        reader.put(("rollout", "plan", "weights"), kept, precision)
    whole = reader.count("length")
    answer = min(reader.count("answer", whole), whole - 1)
    reader.put(
        ("rollout", "traffic"), {"prompt": max(whole - answer, 1), "output": max(answer, 1)}, "answer"
    )
    reader.note_longest(whole, "length")
