"""A job as overrides of Megatron-Bridge's ConfigContainer.

Answers: with which YAML does a recipe of Megatron-Bridge train this job?
Elsewhere: Megatron-Core's flags (megatron_model.py, megatron_plan.py), the corresponding fields
(interop/configs/megatron_settings.py, whose tables are inverted here); the reader
(interop/configs/megatron_bridge.py).

Scripts with --config-file merge the file into a recipe; `run_recipe.py` takes the arguments in the
comment at its top. A missing field keeps the value of the recipe, so fields that the job does not use are
switched off.

References
----------
NVIDIA-NeMo/Megatron-Bridge: training/utils/omegaconf_utils.py (`process_config_with_overrides`),
utils/activation_map.py (names of activations), training/mixed_precision.py (names of recipes).
"""

import json
import shlex

from flopcast.files.exported import Exported
from flopcast.interop.configs.bridge_stack import BASE
from flopcast.interop.configs.megatron_bridge import TARGETS
from flopcast.interop.configs.megatron_settings import OFF, ON, TYPES, VALUES
from flopcast.interop.exports.megatron_model import model_flags
from flopcast.interop.exports.megatron_plan import plan_flags, stack_flags
from flopcast.interop.exports.same_job import SettingsFile, without_cluster
from flopcast.interop.megatron.layer_kinds import FREQUENCY, SKIPPED, WINDOW, layers_of
from flopcast.interop.megatron.offload import LAYERS, UNPINNED
from flopcast.interop.megatron.plan import MODULES_FLAG
from flopcast.interop.megatron.stack import DEFAULT_BUCKET
from flopcast.layers.attention import Attention
from flopcast.spec.job import Job
from flopcast.spec.model import Model

FILE = SettingsFile(
    name="overrides.yaml",
    kind=BASE,
    target="Megatron-Bridge's overrides",
    family=(BASE,),
    otherwise=f"is not Megatron-Bridge; a run with these overrides behaves like the stack {BASE}",
)
SECTIONS = ("train", "ddp", "optimizer", "dist")  # of fields that are not the model's
SECTION_OF = {
    field: section for section in reversed(SECTIONS) for table in (VALUES, ON) for field in table[section]
}
FIELDS = {  # flag → its field; of two the one whose section is written
    flag: field for section in ("model", *SECTIONS) for field, flag in VALUES[section].items()
}
TYPED = [flag for field, flag in VALUES["optimizer"].items() if field.endswith("_dtype")]
TRUE = {flag: field for section in ("model", *SECTIONS) for field, flag in ON[section].items()}
UNUSED = (  # of a recipe: null where the job says nothing
    "kv_channels", "virtual_pipeline_model_parallel_size", "pipeline_model_parallel_layout",
    "num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage", "cp_comm_type",
    "recompute_granularity", "recompute_method", "recompute_num_layers", "num_moe_experts",
    "moe_shared_expert_intermediate_size", "moe_expert_capacity_factor", "mtp_num_layers", "window_size",
    "window_attn_skip_freq",
)  # fmt: skip
USUAL: dict[str, object] = {
    "moe_layer_freq": 1, "softmax_type": "vanilla", "optimizer": "adam", "cpu_offloading": False,
}  # fmt: skip
NEVER = ("moe_grouped_gemm", "use_torch_fsdp2")  # left as the recipe has them
SWITCHES = tuple(field for section in ("model", *SECTIONS) for field in ON[section] if field not in NEVER)
RECIPE_OF = {
    "fp16": "fp16_mixed",
    "fp8": "bf16_with_fp8_delayed_scaling_mixed",
    "fp8_current": "bf16_with_fp8_current_scaling_mixed",
    "fp8_blockwise": "bf16_with_fp8_subchannel_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}
ACTIVATIONS = {  # its function, and whether it gates
    "swiglu": ("silu", True),
    "geglu": ("gelu", True),
    "relu2": ("squared_relu", False),
    "gelu": ("gelu", False),
}
Overrides = dict[str, dict[str, object] | str | None]


def export_megatron_bridge(job: Job) -> Exported:
    """Return overrides as YAML, with the same overrides as arguments in a comment.

    Raises
    ------
    SpecError
        Megatron-Bridge would read fields of the model, plan or batch differently. All of them are reported.

    Examples
    --------
    >>> from flopcast.files.yaml_text import Document
    >>> from flopcast.requests.job_files import job_of
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
        if isinstance(value, dict):
            lines += [f"{section}:", *(f"  {key}: {json.dumps(one)}" for key, one in value.items())]
        else:
            lines.append(f"{section}: {value or 'null'}")
    rest = "the file overrides a recipe of the same model family, which sets data, learning rate and logs"
    return FILE.exported(job, lines, without_cluster(job), rest)


def _words(overrides: Overrides) -> list[str]:
    """Return overrides in Hydra's grammar: lists without blanks, and special characters in quotes.

    >>> _words({"model": {"layers": 2, "window": None, "modules": ["mlp"], "layout": "Et|tL"}})
    ['model.layers=2', 'model.window=null', 'model.modules=["mlp"]', 'model.layout="Et|tL"']
    """
    words = []
    for section, value in overrides.items():
        if not isinstance(value, dict):
            words.append(f"{section}={value or 'null'}")
            continue
        for key, one in value.items():
            plain = isinstance(one, str) and one.replace("_", "").isalnum()
            text = one if plain else json.dumps(one, separators=(",", ":"))
            words.append(f"{section}.{key}={text}")
    return words


def _overrides(job: Job) -> Overrides:
    """Return every field with its value: first the fields that are switched off, then those of the job."""
    sections: dict[str, dict[str, object]] = {name: {} for name in ("model", *SECTIONS, "dataset")}
    fields = dict.fromkeys(UNUSED) | USUAL | dict.fromkeys(SWITCHES, False) | dict.fromkeys(OFF, True)
    fields |= _core_fields(job)
    for field, value in (fields | _direct(job)).items():
        sections[SECTION_OF.get(field, "model")][field] = value
    sections["optimizer"]["use_distributed_optimizer"] = fields["use_distributed_optimizer"]
    sections["ddp"]["bucket_size"] = _bucket(job)
    sections["ddp"]["check_for_nan_in_grad"] = job.stack.gradients.overflow_checks > 0
    if UNPINNED in plan_flags(_as_core(job), FILE.target):
        sections["optimizer"]["pin_cpu_grads"] = False
    if job.plan.precision != "fp16":  # as its recipe has it, which is laid over this section
        sections["ddp"]["grad_reduce_in_fp32"] = True
    sections["dataset"]["sequence_length"] = job.batch.sequence_length
    if job.plan.pipeline_parallel > 1:
        chunks = job.plan.virtual_stages > 1
        waits = not chunks or job.stack.pipeline.style(interleaved=chunks) != "overlapped"
        sections["model"] |= {"overlap_p2p_comm": not waits, "batch_p2p_comm": waits}
    # a recipe's overlaps would be laid over what is said here
    switched_off: Overrides = {"comm_overlap": None, "peft": _adapters(job.model)}
    return {"mixed_precision": RECIPE_OF.get(job.plan.precision, "bf16_mixed"), **switched_off, **sections}


def _bucket(job: Job) -> int | None:
    """Return the elements of a bucket, or None for Megatron-Core's default."""
    gradients = job.stack.gradients
    is_default = all(getattr(gradients, name) == value for name, value in DEFAULT_BUCKET.items())
    return None if is_default else gradients.smallest_bucket(job.plan.data_parallel)


def _adapters(model: Model) -> dict[str, object] | None:
    """Return adapters by their modules; a later check finds adapters that Bridge does not have."""
    if model.adapters is None:
        return None
    modules = {target: name for name, target in TARGETS.items()}
    named = [modules[target] for target in model.adapters.targets if target in modules]
    return {"dim": model.adapters.rank, "dropout": model.adapters.dropout, "target_modules": named}


def _as_core(job: Job) -> Job:
    """Return the job with Bridge's name for its stack, which has Megatron-Core's newest flags."""
    return job.model_copy(update={"stack": job.stack.model_copy(update={"name": BASE})})


def _core_fields(job: Job) -> dict[str, object]:
    """Return the flags of Megatron-Core as fields; a later check finds flags that Bridge does not have."""
    core = _as_core(job)
    false = {flag: field for field, flag in OFF.items()}
    fields: dict[str, object] = {}
    for written in (*model_flags(core, True), *plan_flags(core, FILE.target), *stack_flags(core)):
        flag, *words = shlex.split(written)
        if flag == LAYERS:
            fields |= {"cpu_offloading": True, "cpu_offloading_weights": False}
            fields["cpu_offloading_num_layers"] = int(words[0])
        elif flag in FIELDS:
            fields[FIELDS[flag]] = _field_value(flag, words, job.model.num_blocks)
        elif flag in TRUE or flag in false:
            fields[(TRUE | false)[flag]] = flag in TRUE
    return fields


def _field_value(flag: str, words: list[str], layers: int) -> object:
    """Return the value of a flag's field: both sides of a window, or one number per layer of a pattern."""
    if flag == MODULES_FLAG:
        return words
    if flag == WINDOW:
        return [int(side) for side in words[0].split(",")]
    if flag in TYPED:  # overrides are made types of PyTorch by their name
        return next((name for name, dtype in TYPES.items() if dtype == words[0]), words[0])
    listed = layers_of(words[0], layers) if flag in (FREQUENCY, SKIPPED) else None
    return [int(marked) for marked in listed] if listed else _value(words[0])


def _value(word: str) -> object:
    """x in a text, or the text if it is not a number.

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
    """Return the settings for which a flag and a field differ: vocabulary, groups of heads, activation."""
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
