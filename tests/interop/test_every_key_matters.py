"""What a reader counts as read changes the job: every key of every format, every flag of Megatron-LM.

A key that is counted as read and changes nothing would be accepted and ignored. The few that change only
what is told are listed here with their reasons.
"""

from functools import cache

from all_cases import all_cases
from key_cases import CHANGES, CHANGES_OF_FLAGS, after, before, cases, outcome_of_script, put

from flopcast.files.yaml_text import Document
from flopcast.interop.configs.config_reader import ConfigReader
from flopcast.interop.configs.formats import KINDS
from flopcast.interop.configs.keys import covered, keys_of
from flopcast.interop.megatron.flags import MODELLED

ALL = [(kind, *case) for kind, table in CHANGES.items() for case in cases(table)]
FLAGS = cases(CHANGES_OF_FLAGS)
LENGTHS = "lengths of sequences are not in the file: each is counted as long as the longest"
NO_FP32 = "bf16 is assumed if no type is asked for, because the file does not name that of the weights"
RAMP = "a long run has the size after the ramp for most of its steps"
GROUPED = "products of experts are counted in one kernel, however they are run"
ROWS = "rowwise scaling is predicted as one scale per tensor"
FROM_PINNED = "flopcast assumes that parameters are copied from pinned memory"
ON_DRIVES = "all parameters are counted on NVMe, wherever DeepSpeed keeps them meanwhile"
AT_ONCE = "states on drives are counted as read and written while others are updated"
CHANCE = "forced balance draws logits at random, so that loads are differ only by chance, as without it"
TOLD = {  # kind, key, value → why it changes nothing but what is told
    **{
        (kind, f"zero_optimization.{key}", value): reason
        for kind in ("deepspeed", "gpt-neox")
        for key, value, reason in (
            ("offload_param.pin_memory", "true", FROM_PINNED),
            ("offload_param.max_in_cpu", "0", ON_DRIVES),
            ("offload_optimizer.pipeline_read", "true", AT_ONCE),
            ("offload_optimizer.pipeline_write", "true", AT_ONCE),
        )
    },
    ("torchtitan", "float8.recipe_name", "rowwise"): ROWS,
    ("torchtitan", "quantize.linear.float8.recipe_name", "rowwise"): ROWS,
    ("torchtitan", "quantize.dense.float8.recipe_name", "rowwise"): ROWS,
    ("axolotl", "sample_packing", "false"): LENGTHS,
    ("axolotl", "bfloat16", "true"): NO_FP32,
    ("axolotl", "bf16", "false"): NO_FP32,
    ("llm-foundry", "compile_config", "{}"): "flopcast predicts kernels of eager",
    ("torchtune", "dataset.packed", "false"): LENGTHS,
    ("trl", "packing", "true"): LENGTHS,
    ("nemo-rl", "policy.sequence_packing.enabled", "true"): LENGTHS,
    ("ms-swift", "packing", "true"): LENGTHS,
    ("ms-swift", "bf16", "full"): "flopcast predicts states and main weights in fp32 beside bf16",
    ("openrlhf", "packing_samples", "false"): LENGTHS,
    ("openrlhf", "data.packing_samples", "false"): LENGTHS,
    ("llama-factory", "stage", "pt"): LENGTHS,
    ("llama-factory", "packing", "true"): LENGTHS,
    ("llama-factory", "neat_packing", "true"): LENGTHS,
    ("llama-factory", "bf16", "false"): NO_FP32,
    ("maxtext", "hardware", "tpu"): "devices are those of the cluster, whatever the file is for",
    ("megatron-bridge", "train.rampup_batch_size", "[16, 16, 1000]"): RAMP,
    ("megatron-bridge", "model.moe_grouped_gemm", "false"): GROUPED,
    ("megatron-bridge", "model.moe_router_force_load_balancing", "true"): CHANCE,
    ("nemo", "model.moe_router_force_load_balancing", "true"): CHANCE,
    ("nemo", "model.rampup_batch_size", "[16, 16, 1000]"): RAMP,
    ("nemo", "model.moe_grouped_gemm", "true"): GROUPED,
}
FLAGS_TOLD = {
    "--cpu-offloading": "no layer is offloaded without their number",
    "--rampup-batch-size": RAMP,
    "--moe-grouped-gemm": GROUPED,
    "--moe-router-force-load-balancing": CHANCE,
}


@cache
def script_before(context):
    """What a small script with the flags of a context is by itself."""
    return outcome_of_script(context)


def test_every_format_has_changes():
    assert CHANGES.keys() == KINDS.keys()


@all_cases("kind", CHANGES)
def test_each_key_that_is_read_is_given_another_value(kind):
    changed = {key for _, key, _ in cases(CHANGES[kind])}
    read = keys_of(kind).read.split()

    assert [name for name in read if not any(covered(key, (name,)) for key in changed)] == []
    assert [key for key in sorted(changed) if not covered(key, read)] == []


@all_cases(("kind", "context"), dict.fromkeys((kind, context) for kind, context, *_ in ALL))
def test_what_is_changed_is_a_job_before(kind, context):
    assert before(kind, context)[0] != "refused"


@all_cases(("kind", "context", "key", "value"), ALL)
def test_another_value_of_a_key_is_another_job_or_is_refused(kind, context, key, value):
    job, notes = before(kind, context)

    other, told = after(kind, context, key, value)

    if (kind, key, value) in TOLD:
        assert (other, told != notes) == (job, True)
    else:
        assert other != job


def test_each_flag_that_is_modelled_is_given_another_value():
    assert {flag for _, flag, _ in FLAGS} == MODELLED


@all_cases(("context", "flag", "value"), FLAGS)
def test_a_flag_makes_a_script_another_job_or_is_refused(context, flag, value):
    job, notes = script_before(context)

    other, told = outcome_of_script(context, f"{flag} {value}")

    if flag in FLAGS_TOLD:
        assert (other, told != notes) == (job, True)
    else:
        assert (other, told) != (job, notes) if job == "refused" else other != job


@all_cases(("kind", "key"), [(k, key) for k in CHANGES for key in keys_of(k).left_out])
def test_a_key_that_costs_what_is_not_counted_is_told_with_what_is_counted(kind, key):
    whole = key.removesuffix(".*")
    data: dict = {}
    put(data, whole, 12345)

    reader = ConfigReader(Document("a.yaml", data, {}), keys_of(kind))

    assert reader.assumptions == [f"{whole}: {keys_of(kind).left_out[key]} (a.yaml)"]


@all_cases(("kind", "key"), [(k, key) for k in CHANGES for key in keys_of(k).refused])
def test_a_key_that_asks_for_what_is_not_built_is_refused_by_name(kind, key):
    whole = key.removesuffix(".*")
    data: dict = {}
    put(data, whole, 12345)

    (fault,) = ConfigReader(Document("a.yaml", data, {}), keys_of(kind)).problems

    assert fault.field == whole
    assert fault.because == f"flopcast does not yet support {keys_of(kind).refused[key]}"
