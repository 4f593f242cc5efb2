"""A job as overrides of Megatron-Bridge's ConfigContainer.

Answers: which YAML makes a recipe of Megatron-Bridge train this job?
Elsewhere: Megatron-Core's flags (megatron_model.py, megatron_plan.py) and the fields that stand for them
(io/foreign/megatron_words.py, whose tables are read backwards here); the reader,
io/foreign/megatron_bridge.py.

Scripts with --config-file merge the file over a recipe; `run_recipe.py` takes the words of its head.
What is not said stays the recipe's: so fields that the job does not use are switched off, not left out.

References
----------
NVIDIA-NeMo/Megatron-Bridge: training/utils/omegaconf_utils.py (`process_config_with_overrides`),
utils/activation_map.py (names of activations), training/mixed_precision.py (names of recipes).
"""

import json
import shlex

from flopcast.io.exports.exported import Exported, text_file
from flopcast.io.exports.megatron_model import model_flags
from flopcast.io.exports.megatron_plan import plan_flags, stack_flags
from flopcast.io.exports.same_job import checked
from flopcast.io.foreign.kinds import parsed, read_kind
from flopcast.io.foreign.megatron_bridge import BASE, RECIPES
from flopcast.io.foreign.megatron_words import OFF, ON, VALUES
from flopcast.io.foreign.sheet import Asked
from flopcast.io.megatron.precision import FP8_RECIPES
from flopcast.io.yaml_text import Document
from flopcast.layers.attention import Attention
from flopcast.spec.job import Job

NAME, TARGET = "overrides.yaml", "Megatron-Bridge's overrides"
SECTIONS = {  # of fields that are not the model's
    "train": ("micro_batch_size", "global_batch_size"),
    "ddp": (
        "use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather", "average_in_collective",
        "use_megatron_fsdp", "data_parallel_sharding_strategy",
    ),
    "optimizer": ("use_precision_aware_optimizer", "exp_avg_dtype", "exp_avg_sq_dtype"),
    "dist": ("use_tp_pp_dp_mapping",),
}  # fmt: skip
SECTION_OF = {field: section for section, fields in SECTIONS.items() for field in fields}
UNUSED = (  # of a recipe: null where the job says nothing
    "kv_channels", "virtual_pipeline_model_parallel_size", "pipeline_model_parallel_layout",
    "num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage", "cp_comm_type",
    "recompute_granularity", "recompute_method", "recompute_num_layers", "num_moe_experts",
    "moe_shared_expert_intermediate_size", "moe_expert_capacity_factor", "mtp_num_layers", "window_size",
)  # fmt: skip
SWITCHES = (
    "sequence_parallel", "qk_layernorm", "add_qkv_bias", "tp_comm_overlap", "distribute_saved_activations",
    "multi_latent_attention", "moe_router_force_load_balancing", "moe_pad_expert_input_to_capacity",
    "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split",
    "use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather", "average_in_collective",
    "use_megatron_fsdp", "use_precision_aware_optimizer", "use_tp_pp_dp_mapping",
)  # fmt: skip
ACTIVATIONS = {  # its function, and whether it gates
    "swiglu": ("silu", True),
    "geglu": ("gelu", True),
    "relu2": ("squared_relu", False),
    "gelu": ("gelu", False),
}
Overrides = dict[str, dict[str, object] | str]


def export_megatron_bridge(job: Job) -> Exported:
    """Overrides as YAML, and as words of a command line in its head.

    Raises
    ------
    SpecError
        A field of model, plan or batch is another in Megatron-Bridge: each of them.

    Examples
    --------
    >>> from flopcast.io.jobs import job_of
    >>> made = export_megatron_bridge(job_of(Document("job", {
    ...     "model": "llama-3-8b", "cluster": "dgx-h100:2", "stack": "megatron-bridge",
    ...     "batch": {"seq": 4096}, "plan": "dp=2 tp=4 pp=2 gbs=16 zero=1"}, {})))
    >>> "  tensor_model_parallel_size: 4" in made.files[0][1].decode().splitlines()
    True
    """
    overrides = _overrides(job)
    words = " ".join(shlex.quote(word) for word in _words(overrides))
    lines = [f"# {job.model.name} on {job.cluster.num_devices} devices; as words: {words}"]
    for section, value in overrides.items():
        if isinstance(value, str):
            lines.append(f"{section}: {value}")
        else:
            lines += [f"{section}:", *(f"  {key}: {json.dumps(one)}" for key, one in value.items())]
    lost = checked(job, "\n".join(lines).encode("utf-8"), _read, TARGET)
    foreign = f"the stack {job.stack.label} is not Megatron-Bridge: the overrides run {BASE}"
    notes = [
        f"it names no cluster: read it back with --cluster {job.cluster.name}",
        *([] if job.stack.name == BASE else [foreign]),
        *lost,
        "it is merged over a recipe of the same family of models, whose data, learning rate and logs stay",
    ]
    return text_file(NAME, lines, notes)


def _read(text: bytes, devices: int) -> Document:
    """What the reader makes of it."""
    return read_kind(parsed(text, NAME), BASE, Asked(devices=devices))


def _words(overrides: Overrides) -> list[str]:
    """Overrides in Hydra's grammar: lists have no blanks, texts with other than letters have quotes.

    >>> _words({"model": {"layers": 2, "window": None, "modules": ["mlp"], "layout": "Et|tL"}})
    ['model.layers=2', 'model.window=null', 'model.modules=["mlp"]', 'model.layout="Et|tL"']
    """
    words = []
    for section, value in overrides.items():
        if isinstance(value, str):
            words.append(f"{section}={value}")
            continue
        for key, one in value.items():
            plain = isinstance(one, str) and one.replace("_", "").isalnum()
            said = one if plain else json.dumps(one, separators=(",", ":"))
            words.append(f"{section}.{key}={said}")
    return words


def _overrides(job: Job) -> Overrides:
    """Every field with its value: what is off first, then what the job says."""
    sections: dict[str, dict[str, object]] = {name: {} for name in ("model", *SECTIONS, "dataset")}
    fields = dict.fromkeys(UNUSED) | dict.fromkeys(SWITCHES, False) | dict.fromkeys(OFF, True) | _said(job)
    for field, value in (fields | _direct(job)).items():
        sections[SECTION_OF.get(field, "model")][field] = value
    sections["optimizer"]["use_distributed_optimizer"] = fields["use_distributed_optimizer"]
    sections["ddp"]["bucket_size"] = job.stack.gradients.bucket_elements
    if job.plan.precision != "fp16":  # as its recipe has it, which is laid over this section
        sections["ddp"]["grad_reduce_in_fp32"] = True
    sections["dataset"]["sequence_length"] = job.batch.sequence_length
    return {"mixed_precision": _recipe(job), **sections}


def _said(job: Job) -> dict[str, object]:
    """The flags of Megatron-Core as fields; those that Bridge has not are found by the check."""
    core = job.model_copy(update={"stack": job.stack.model_copy(update={"name": BASE})})
    values = {flag: field for field, flag in VALUES.items()}
    switches = {flag: (field, True) for field, flag in ON.items()}
    switches |= {flag: (field, False) for field, flag in OFF.items()}
    fields: dict[str, object] = {}
    for told in (*model_flags(core, True), *plan_flags(core), *stack_flags(core)):
        flag, *words = shlex.split(told)
        if flag in values:
            fields[values[flag]] = _value(words[0])
        elif flag in switches:
            field, fields[field] = switches[flag]
        elif flag == "--recompute-modules":
            fields["recompute_modules"] = words
    return {field: value for field, value in fields.items() if field not in ("bf16", "fp16")}


def _value(word: str) -> object:
    """A number where a word is one.

    >>> _value("4"), _value("1e-2"), _value("RMSNorm")
    (4, 0.01, 'RMSNorm')
    """
    for number in (int, float):
        try:
            return number(word)
        except ValueError:
            continue
    return word


def _direct(job: Job) -> dict[str, object]:
    """What a flag says in another way than a field: vocabulary, groups of heads, activation."""
    model, block = job.model, job.model.blocks[0]
    function, gated = ACTIVATIONS.get(getattr(block.feed_forward, "activation", ""), ("gelu", False))
    heads = {}
    if isinstance(block.mixer, Attention):
        heads = {"num_query_groups": block.mixer.groups, "kv_channels": block.mixer.size(model.hidden)}
    return {
        **heads,
        "vocab_size": model.vocabulary,
        "make_vocab_size_divisible_by": model.vocabulary_multiple,
        "should_pad_vocab": True,
        "activation_func": function,
        "gated_linear_unit": gated,
    }


def _recipe(job: Job) -> str:
    """The name of a recipe of mixed precision; that of bf16 where none is the plan's."""
    if job.plan.precision == "fp16":
        return "fp16_mixed"
    names = {FP8_RECIPES[recipe]: name for name, recipe in reversed(RECIPES.items()) if recipe}
    return names.get(job.plan.precision, "bf16_mixed")
