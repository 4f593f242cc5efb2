"""DeepSpeed's JSON as a job: batch identity, auto, sharding, precision, buckets, and what is refused."""

import json
from functools import partial

import foreign_cases
import pytest
from all_cases import all_cases
from foreign_cases import data_of

from flopcast.interop.configs.keys import keys_of
from flopcast.library import catalog

told = partial(foreign_cases.told, model="llama-3-8b")

SMALL = {"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}


def small(**changes):
    """A small right file with other values at its top; None leaves a key out."""
    return json.dumps({key: value for key, value in (SMALL | changes).items() if value is not None})


def zero(**changes):
    """A small file with more settings of ZeRO."""
    return small(zero_optimization={"stage": 3} | changes)


def stack_of(text):
    """What a file changes of its stack."""
    stack = data_of(text, "ds.json")["stack"]
    assert stack.pop("base") == "deepspeed-zero"
    return stack


@all_cases(
    ("given", "batch"),
    [
        ({}, (2, 16)),
        ({"gradient_accumulation_steps": 4}, (2, 64)),
        ({"train_batch_size": 64}, (2, 64)),
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": None}, (8, 64)),
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": "auto"}, (8, 64)),
        (
            {
                "train_batch_size": 64,
                "train_micro_batch_size_per_gpu": None,
                "gradient_accumulation_steps": 2,
            },
            (4, 64),
        ),
        ({"train_micro_batch_size_per_gpu": "auto"}, (8, 64)),
    ],
)
def test_two_numbers_of_a_batch_make_the_third(given, batch):
    plan = data_of(small(**given), "ds.json")["plan"]

    assert (plan["micro_batch"], plan["global_batch"]) == batch


@all_cases("devices", [1, 2, 8, 64])
def test_the_identity_of_a_batch_holds_on_any_number_of_ranks(devices):
    steps, micro = 4, 2
    right = small(train_batch_size=steps * micro * devices, gradient_accumulation_steps=steps)

    assert told(right, "ds.json", devices) == ()
    (fault,) = told(right, "ds.json", devices * 2)
    assert (fault.field, fault.allowed) == ("train_batch_size", f"{16 * devices} (2 · 4 · {2 * devices})")
    assert fault.fix.endswith(f"use {devices} data-parallel ranks")


def test_a_batch_that_ranks_do_not_divide_is_refused():
    (fault,) = told(small(train_batch_size=60, train_micro_batch_size_per_gpu=None), "ds.json")

    assert (fault.field, fault.allowed, fault.fix) == (
        "train_batch_size",
        "a multiple of 8",
        "write 56 or 64",
    )


def test_a_batch_that_another_program_fills_in_is_called_auto():
    (fault,) = told(small(train_micro_batch_size_per_gpu=None, train_batch_size="auto"), "ds.json")

    assert (fault.field, fault.fault) == ("train_batch_size", 'is "auto"')
    assert "add train_micro_batch_size_per_gpu" in fault.fix


def test_without_any_batch_what_is_missing_is_told():
    (fault,) = told(small(train_micro_batch_size_per_gpu=None, steps_per_print=1), "ds.json")

    assert fault.fault == "is missing"
    assert fault.field == "train_micro_batch_size_per_gpu"


def test_a_model_that_is_named_nowhere_is_told_beside_faults_of_the_file():
    wrong = small(bf16=None)
    found = [
        {fault.field for fault in foreign_cases.told(wrong, "ds.json", **named)}
        for named in ({}, {"model": "llama-3-8b"}, {"changes": ("model=llama-3-8b",)})
    ]

    assert found == [{"bf16.enabled", "model"}, {"bf16.enabled"}, {"bf16.enabled"}]


def test_auto_is_resolved_aloud_with_the_line_of_each():
    data = data_of(
        small(train_micro_batch_size_per_gpu="auto", gradient_accumulation_steps="auto"), "ds.json"
    )

    told_here = [note for note in data["assumptions"] if "=auto means " in note]
    assert [note.split(",")[0] for note in told_here] == [
        "train_micro_batch_size_per_gpu=auto means 8",
        "gradient_accumulation_steps=auto means 1",
    ]
    assert all("ds.json:1" in note for note in told_here)


@all_cases("stage", [0, 1, 2, 3])
def test_reductions_overlap_by_themselves_in_the_third_stage_alone(stage):
    changes = stack_of(small(zero_optimization={"stage": stage}))["gradients"]

    gradients = catalog.stack("deepspeed-zero").gradients.model_copy(update=changes)
    assert gradients.overlaps(stage) is (stage == 3)
    assert gradients.scatters(stage) is (stage == 3)


@all_cases(
    ("text", "part", "name", "value"),
    [
        (zero(overlap_comm=False), "gradients", "overlap", False),
        (zero(reduce_bucket_size=2e8), "gradients", "bucket_elements", 200_000_000),
        (zero(use_multi_rank_bucket_allreduce=False), "gradients", "collective", "reduce_scatter"),
        (zero(stage3_prefetch_bucket_size=0), "sharding", "prefetch_units", 0),
        (small(communication_data_type="fp32"), "gradients", "dtype", "fp32"),
        (small(bf16=None, fp16={"enabled": True}), "gradients", "dtype", "fp16"),
        (small(bf16=None, fp16={"enabled": True}), "gradients", "overflow_checks", 1),
        (small(bf16=None, fp16={"enabled": True}), "sharding", "gradient_dtype", "fp16"),
    ],
)
def test_a_switch_changes_the_stack(text, part, name, value):
    assert stack_of(text)[part][name] == value


@all_cases(
    ("given", "optimizer"),
    [
        ("Adam", None),
        ("AdamW", None),
        ("SGD", "sgd_momentum"),
        ("Adam8bit", "adamw_8bit"),
        ("Lion", "lion"),
    ],
)
def test_an_optimizer_is_that_of_the_plan(given, optimizer):
    assert data_of(small(optimizer={"type": given}), "ds.json")["plan"].get("optimizer") == optimizer


@pytest.mark.parametrize("old", ["bfloat16", "bf16"])
def test_either_name_of_bf16_is_read(old):
    text = json.dumps(
        {key: value for key, value in SMALL.items() if key != "bf16"} | {old: {"enabled": True}}
    )

    assert data_of(text, "ds.json")["plan"]["precision"] == "bf16"


def test_an_automatic_fp16_that_stands_alone_is_fp16():
    """Some files leave only fp16 to the flag of the Trainer, whose usual choice is bf16."""
    alone, both = {"fp16": {"enabled": "auto"}}, {name: {"enabled": "auto"} for name in ("fp16", "bf16")}
    made = [data_of(json.dumps({"train_batch_size": 64} | each), "ds.json") for each in (alone, both)]

    assert [each["plan"]["precision"] for each in made] == ["fp16", "bf16"]


def test_training_in_fp32_is_refused_by_name():
    (fault,) = told(small(bf16={"enabled": False}), "ds.json")

    assert fault.because == "flopcast does not yet support training in fp32 with DeepSpeed"


def test_a_key_that_is_not_known_is_told_and_one_that_is_nearly_known_is_a_fault():
    data = data_of(small(experiment="a"), "ds.json")

    assert [note for note in data["assumptions"] if "experiment" in note] == [
        "experiment is not known and is ignored (ds.json:1)"
    ]
    (fault,) = told(small(gradient_accumulation_step=4), "ds.json")
    assert fault.fix == "did you mean gradient_accumulation_steps?"


@all_cases("key", sorted(keys_of("deepspeed").refused))
def test_whatever_is_refused_is_refused_only_where_it_is_asked_for(key):
    *sections, last = key.replace("*", "method").split(".")

    def nested(value):
        for part in reversed([*sections, last]):
            value = {part: value}
        return value | SMALL if "zero_optimization" not in value else SMALL | _merged(value)

    assert [fault.because for fault in told(json.dumps(nested(True)), "ds.json")] == [
        f"flopcast does not yet support {keys_of('deepspeed').refused[key]}"
    ]
    assert told(json.dumps(nested(False)), "ds.json") == ()


def _merged(value):
    """Settings of ZeRO with the stage of the small file."""
    return {"zero_optimization": SMALL["zero_optimization"] | value["zero_optimization"]}


def test_bf16_takes_an_optimizer_of_its_own_where_gradients_are_added_up_in_fp32():
    """deepspeed/runtime/engine.py, `_do_optimizer_sanity_check`: BFLOAT16 or ZERO_OPTIMIZATION."""
    wide = {"data_types": {"grad_accum_dtype": "fp32"}}
    fp16 = {"bf16": None, "fp16": {"enabled": True}}
    expected = {  # changes of a small file → the plan's stage, the type of gradients, of the kept shard
        "stage 0": (0, {}, (1, "fp32", None)),
        "stage 0 of one rank": (0, {"devices": 1}, (0, "fp32", None)),
        "stage 0 in fp16": (0, fp16, (0, "fp16", None)),
        "stage 1": (1, {}, (1, "bf16", None)),
        "stage 1 added up in fp32": (1, wide, (1, "fp32", None)),
        "stage 2 added up in fp32": (2, wide, (2, "bf16", "fp32")),
        "stage 2 in fp16": (2, fp16, (2, "fp16", "fp16")),
    }
    for name, (stage, changes, (zero, dtype, kept)) in expected.items():
        devices = changes.get("devices", 8)
        settings = {key: value for key, value in changes.items() if key != "devices"}
        text = small(zero_optimization={"stage": stage}, **settings)

        data = data_of(text, "ds.json", devices)

        stack = data["stack"]
        found = (
            data["plan"]["zero"],
            stack["gradients"]["dtype"],
            stack.get("sharding", {}).get("gradient_dtype"),
        )
        assert found == (zero, dtype, kept), name


HOST = {"device": "cpu"}
NVME = {"device": "nvme", "nvme_path": "/local_nvme"}
CHECKPOINTS = {"activation_checkpointing": {"cpu_checkpointing": True}}


@all_cases(
    ("given", "offload", "changes"),
    [
        ({"offload_optimizer": {"device": "none", "ratio": 0.3}}, None, {}),
        ({"offload_optimizer": HOST}, "optimizer:host", {}),
        ({"stage": 1, "offload_optimizer": HOST}, "optimizer:host", {}),
        ({"stage": 2, "cpu_offload": True}, "optimizer:host", {}),
        ({"offload_optimizer": HOST | {"ratio": 0.3}}, "optimizer:host:0.3", {}),
        ({"offload_optimizer": HOST | {"ratio": 0.0}}, None, {}),
        (
            {"offload_optimizer": HOST | {"pin_memory": True}},
            "optimizer:host",
            {"gradient_copies": "pinned"},
        ),
        (
            {"cpu_offload": True, "cpu_offload_use_pin_memory": True},
            "optimizer:host",
            {"gradient_copies": "pinned"},
        ),
        (
            {"offload_optimizer": HOST | {"super_offload": True, "ratio": 0.9}},
            "optimizer:host:0.9",
            {"gradient_flush": "overlapped", "overlaps_updates": True, "backward_fraction": 1.0},
        ),
        ({"offload_param": HOST | {"pin_memory": True}}, "parameters:host", {}),
        ({"cpu_offload_params": True, "cpu_offload": True}, "optimizer:host,parameters:host", {}),
        (
            {"offload_optimizer": NVME, "offload_param": NVME | {"buffer_count": 4}},
            "optimizer:nvme,parameters:nvme",
            {"buffer_bytes": f"{4 * 100_000_000 * 2} B"},
        ),
    ],
)
def test_states_are_placed_as_the_documentation_of_deepspeed_has_it(given, offload, changes):
    data = data_of(zero(**given), "ds.json")

    assert data["plan"].get("offload") == offload
    assert data["stack"].get("offload", {}) == changes


@all_cases(
    ("stage", "given", "field"),
    [
        (0, {"offload_optimizer": HOST}, "offload_optimizer.device"),
        (2, {"offload_optimizer": NVME}, "offload_optimizer.device"),
        (2, {"offload_param": HOST}, "offload_param.device"),
        (1, {"cpu_offload_params": True}, "cpu_offload_params"),
        (2, {"offload_optimizer": HOST | {"ratio": 0.5}}, "offload_optimizer.ratio"),
        (3, {"offload_optimizer": HOST, "cpu_offload": True}, "cpu_offload"),
        (3, {"offload_optimizer": HOST, "zenflow": {"topk_ratio": 0.1}}, "zenflow.topk_ratio"),
    ],
)
def test_offload_that_deepspeed_or_flopcast_has_not_is_refused_by_its_key(stage, given, field):
    (fault,) = told(zero(stage=stage, **given), "ds.json")

    assert fault.field == f"zero_optimization.{field}"


def test_checkpoints_on_the_host_are_those_of_whole_blocks():
    data = data_of(small(**CHECKPOINTS), "ds.json")

    assert (data["plan"]["recompute"], data["plan"]["offload"]) == ("full", "activations:host")
    assert any("cpu_checkpointing offloads" in note for note in data["assumptions"])


def test_a_bf16_optimizer_with_states_on_the_host_reduces_in_16_bits():
    """DeepSpeed's BF16_Optimizer, which accumulates in fp32, has no offload."""
    wide = {"data_types": {"grad_accum_dtype": "fp32"}}
    for offload, dtype in (({}, "fp32"), ({"offload_optimizer": HOST}, "bf16")):
        text = small(zero_optimization={"stage": 1} | offload, **wide)

        assert stack_of(text)["gradients"]["dtype"] == dtype


@all_cases(
    ("given", "shards"),
    [
        ({"zero_quantized_weights": True}, "parameters:all:int8"),
        ({"zero_hpz_partition_size": 4}, "secondary:4"),
        ({"zero_quantized_gradients": True}, "gradients:all:int4"),
        (
            {
                "zero_quantized_weights": True,
                "zero_hpz_partition_size": 4,
                "zero_quantized_gradients": True,
            },
            "parameters:all:int8,secondary:4:int8,gradients:all:int4",
        ),
        ({"mics_shard_size": 4, "zero_quantized_weights": True}, "parameters:4:int8"),
    ],
)
def test_zero_plus_plus_is_read_as_groups_of_states(given, shards):
    assert data_of(zero(**given), "ds.json")["plan"]["shards"] == shards


def test_a_partition_of_one_device_is_no_second_copy():
    assert "shards" not in data_of(zero(zero_hpz_partition_size=1), "ds.json")["plan"]
