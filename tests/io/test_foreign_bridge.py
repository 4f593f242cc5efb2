"""Dumps of Megatron-Bridge as jobs: the models are those of the catalogue, faults name keys of the dump."""

import pytest
from foreign_cases import FOREIGN, data_of, job_in, told

from flopcast.io import catalog

DUMP = (FOREIGN / "megatron-bridge" / "llama31_8b_pretrain.yaml").read_text(encoding="utf-8")


def read(*changes, devices=16):
    """What the dump says with some of its lines changed."""
    text = DUMP
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return data_of(text, "dump.yaml", devices)


@pytest.mark.parametrize(
    ("name", "model", "nodes"),
    [
        ("llama31_8b_pretrain", "llama-3.1-8b", 1),
        ("llama3_70b_fp8", "llama-3-70b", 4),
        ("mixtral_ep8", "mixtral-8x7b", 1),
    ],
)
def test_a_dumped_model_has_the_parameters_of_its_namesake(name, model, nodes):
    job = job_in(FOREIGN / "megatron-bridge" / f"{name}.yaml", f"dgx-h100:{nodes}")

    assert job.model.parameters() == catalog.model(model).parameters()
    assert job.model.forward_flop(4096) == catalog.model(model).forward_flop(4096)


@pytest.mark.parametrize(
    ("word", "precision"),
    [
        ("bf16_mixed", "bf16"),
        ("16-mixed", "fp16"),
        ("bf16_with_fp8_delayed_scaling_mixed", "fp8"),
        ("bf16_with_fp8_current_scaling_mixed", "fp8_current"),
        ("bf16_with_fp8_subchannel_scaling_mixed", "fp8_blockwise"),
        ("bf16_with_mxfp8_mixed", "mxfp8"),
    ],
)
def test_a_recipe_is_a_precision(word, precision):
    assert read(("bf16_mixed", word))["plan"]["precision"] == precision


@pytest.mark.parametrize(
    ("fields", "precision"),
    [
        ("{bf16: true, fp8: null, fp8_recipe: tensorwise}", "bf16"),
        ("{bf16: true, fp8: hybrid, fp8_recipe: mxfp8}", "mxfp8"),
        ("{bf16: true, fp4: e2m1, fp4_recipe: nvfp4}", "nvfp4"),
        ("{fp16: true, bf16: false}", "fp16"),
    ],
)
def test_fields_of_a_recipe_are_a_precision_too(fields, precision):
    assert (
        read(("mixed_precision: bf16_mixed", f"mixed_precision: {fields}"))["plan"]["precision"]
        == precision
    )


@pytest.mark.parametrize(
    ("old", "new", "name", "value"),
    [
        ("overlap_grad_reduce: true", "overlap_grad_reduce: false", "overlap", False),
        ("overlap_param_gather: true", "overlap_param_gather: false", "overlap_gather", False),
        ("grad_reduce_in_fp32: true", "grad_reduce_in_fp32: false", "dtype", "bf16"),
        ("bucket_size: null", "bucket_size: 1000000", "bucket_elements", 1_000_000),
    ],
)
def test_a_switch_of_gradients_is_the_stacks(old, new, name, value):
    assert read((old, new))["stack"]["gradients"][name] == value


def test_an_adapter_of_a_fused_matrix_stands_beside_all_of_it():
    job = job_in(FOREIGN / "megatron-bridge" / "llama31_8b_lora.yaml")

    assert job.model.trained_parameters() == 32 * 16 * (4096 + 6144 + 4096 + 4096)


def test_another_method_of_tuning_is_refused_by_name():
    (fault,) = told(
        DUMP.replace("peft: null", "peft: {_target_: megatron.bridge.peft.dora.DoRA, dim: 8}"), "d.yaml"
    )

    assert (fault.field, fault.because) == ("peft._target_", "DoRA is not modelled yet")


def test_a_fault_names_the_key_of_the_dump_and_not_a_flag():
    (fault,) = told(DUMP.replace("num_layers: 32", "num_layers: 0"), "dump.yaml")

    assert fault.field == "model.num_layers"
    assert "--" not in fault.fix


def test_without_devices_the_fault_is_theirs_alone():
    (fault,) = told(DUMP, "dump.yaml", None)

    assert fault.field == "world size"


def test_fields_that_nobody_reads_are_told_in_one_line():
    notes = read(("scale_factor: 8.0", "scale_factor: 8.0\n  moonshine: 3\n  sunshine: null"))[
        "assumptions"
    ]

    assert [note for note in notes if "not read" in note] == [
        "2 further fields are not read: model.scale_factor, model.moonshine"
    ]
