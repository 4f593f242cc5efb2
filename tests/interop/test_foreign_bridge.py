"""Dumps of Megatron-Bridge as jobs: the models are those of the catalogue, faults name keys of the dump."""

import pytest
from all_cases import all_cases
from foreign_cases import FOREIGN, data_of, job_in, told

from flopcast.library import catalog
from flopcast.spec.model import Model

MIXTRAL = (FOREIGN / "megatron-bridge" / "mixtral_ep8.yaml").read_text(encoding="utf-8")
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


@all_cases(
    ("word", "precision"),
    [
        ("bf16_mixed", "bf16"),
        ("fp16-mixed", "fp16"),
        ("bf16_with_fp8_delayed_scaling_mixed", "fp8"),
        ("bf16_with_fp8_current_scaling_mixed", "fp8_current"),
        ("bf16_with_fp8_subchannel_scaling_mixed", "fp8_blockwise"),
        ("bf16_with_mxfp8_mixed", "mxfp8"),
    ],
)
def test_a_recipe_is_a_precision(word, precision):
    assert read(("bf16_mixed", word))["plan"]["precision"] == precision


@all_cases(
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


@all_cases(
    ("old", "new", "name", "value"),
    [
        ("overlap_grad_reduce: true", "overlap_grad_reduce: false", "overlap", False),
        ("overlap_param_gather: true", "overlap_param_gather: false", "overlap_gather", False),
        ("average_in_collective: true", "average_in_collective: false", "copies", ["scale_gradient"]),
        ("bucket_size: null", "check_for_nan_in_grad: true", "overflow_checks", 1),
        (
            "gradient_accumulation_fusion: true",
            "gradient_accumulation_fusion: false",
            "accumulate_passes",
            1,
        ),
        ("bucket_size: null", "bucket_size: 1000000", "bucket_elements", 1_000_000),
    ],
)
def test_a_switch_of_gradients_is_the_stacks(old, new, name, value):
    assert read((old, new))["stack"]["gradients"][name] == value


NARROW = "bf16_with_fp8_current_scaling_mixed"
FIELDS = "mixed_precision: {bf16: true, grad_reduce_in_fp32: %s}"


@all_cases(
    ("changes", "dtype"),
    [
        ([("grad_reduce_in_fp32: true", "grad_reduce_in_fp32: false")], "fp32"),
        ([("bf16_mixed", NARROW), ("grad_reduce_in_fp32: true", "grad_reduce_in_fp32: false")], "fp32"),
        ([("bf16_mixed", "fp16_mixed")], "fp16"),
        ([("mixed_precision: bf16_mixed", FIELDS % "false")], "bf16"),
        ([("mixed_precision: bf16_mixed", FIELDS % "true")], "fp32"),
        ([("mixed_precision: bf16_mixed", "mixed_precision: {bf16: true}")], "fp32"),
        ([("mixed_precision: bf16_mixed", "mixed_precision: null")], "fp32"),
        (
            [
                ("mixed_precision: bf16_mixed", "mixed_precision: null"),
                ("grad_reduce_in_fp32: true", "grad_reduce_in_fp32: false"),
            ],
            "bf16",
        ),
    ],
)
def test_gradients_travel_in_the_type_of_the_recipe_whatever_ddp_says(changes, dtype):
    """mixed_precision.py: `bf16_mixed` sets grad_reduce_in_fp32, `fp16_mixed` does not; laid over DDP."""
    assert read(*changes)["stack"]["gradients"]["dtype"] == dtype


@all_cases(
    ("recipe", "narrow"),
    [
        ("bf16_with_fp8_delayed_scaling_mixed", {"narrow_parameters": True}),
        ("bf16_with_fp8_subchannel_scaling_mixed", {"narrow_parameters": False}),
        (NARROW, {"narrow_parameters": True, "wide_first_blocks": 1, "wide_last_blocks": 1}),
        (
            "nemotron_h_bf16_with_fp8_current_scaling_mixed",
            {"narrow_parameters": True, "wide_first_blocks": 2, "wide_last_blocks": 2},
        ),
        (
            "nemotron_3_super_bf16_with_nvfp4_mixed",
            {"narrow_parameters": False, "wide_first_blocks": 0, "wide_last_blocks": 14},
        ),
    ],
)
def test_a_recipe_says_which_weights_stay_wide(recipe, narrow):
    """mixed_precision.py: fp8_param_gather, num_layers_at_start_in_bf16, num_layers_at_end_in_bf16."""
    assert read(("bf16_mixed", recipe))["stack"]["narrow"] == narrow


def test_a_dump_says_how_many_kernels_compute_the_loss_and_whether_weights_are_transposed_once():
    """TransformerConfig: cross_entropy_loss_fusion, its fusion_impl, disable_parameter_transpose_cache."""
    fused, one, several = "\n  cross_entropy_loss_fusion: ", {}, {"fused_loss": "none"}
    for fields, expected in (
        (f"{fused}true\n  cross_entropy_fusion_impl: te", one),
        (f"{fused}true\n  cross_entropy_fusion_impl: native", several),
        (f"{fused}false\n  cross_entropy_fusion_impl: te", several),
        ("\n  disable_parameter_transpose_cache: true", {"narrow": {"weight_caching": False}}),
        ("\n  disable_parameter_transpose_cache: false", {}),
    ):
        stack = read(("\nmodel:", f"\nmodel:{fields}"))["stack"]

        found = {name: stack[name] for name in ("fused_loss", "narrow") if name in stack}
        assert found == expected, fields


@pytest.mark.parametrize(
    ("section", "changes"),
    [
        ("{tp_comm_overlap: false}", {"overlap": True, "overlap_gather": True, "bucket_elements": 2**27}),
        ("{tp_comm_overlap: false, overlap_grad_reduce: false}", {"overlap": False}),
        ("{tp_comm_overlap: false, bucket_size: 5000000}", {"bucket_elements": 5_000_000}),
    ],
)
def test_overlaps_that_are_asked_for_are_laid_over_those_of_ddp(section, changes):
    """comm_overlap.py: with a shared optimizer and several replicas, overlap and buckets of 128 Mi."""
    found = read(
        ("comm_overlap: null", f"comm_overlap: {section}"),
        ("overlap_grad_reduce: true", "overlap_grad_reduce: false"),
    )["stack"]["gradients"]

    assert {name: found[name] for name in changes} == changes


PIPED = [("  pipeline_model_parallel_size: 1", "  pipeline_model_parallel_size: 4")]
CHUNKED = [
    *PIPED,
    ("  virtual_pipeline_model_parallel_size: null", "  virtual_pipeline_model_parallel_size: 2"),
]
WINDOW = "window_size: null"


@all_cases(
    ("changes", "transfers"),
    [
        (PIPED, None),
        ([*PIPED, ("comm_overlap: null", "comm_overlap: {tp_comm_overlap: false}")], None),
        (CHUNKED, None),
        ([*CHUNKED, (WINDOW, "overlap_p2p_comm: true")], None),
        ([*CHUNKED, (WINDOW, "overlap_p2p_comm: false")], "batched"),
        ([*CHUNKED, ("comm_overlap: null", "comm_overlap: {tp_comm_overlap: false}")], None),
        ([*CHUNKED, ("comm_overlap: null", "comm_overlap: {overlap_p2p_comm: false}")], "batched"),
    ],
)
def test_interleaved_stages_wait_for_their_transfers_where_the_file_says_so(changes, transfers):
    """Others always do: the stack overlaps the transfers of several chunks alone."""
    stack = read(*changes, devices=32)["stack"]

    assert ({} if isinstance(stack, str) else stack).get("pipeline", {}).get("transfers") == transfers


@all_cases("name", [name for name in catalog.names("stacks") if name.startswith("megatron-")])
def test_no_plain_1f1b_of_megatron_runs_ahead_of_its_transfers(name):
    """validate_args of megatron/training/arguments.py: overlap_p2p_comm needs interleaved stages."""
    pipeline = catalog.stack(name).pipeline

    assert pipeline.style(interleaved=False) != "overlapped"
    if name.startswith(("megatron-core", "megatron-bridge")):
        assert pipeline.style(interleaved=True) == "overlapped"


def test_overlap_of_transfers_without_interleaved_stages_is_refused():
    text = DUMP.replace(*PIPED[0]).replace(WINDOW, "overlap_p2p_comm: true")

    (fault,) = told(text, "dump.yaml", 32)

    assert (fault.field, fault.fix) == ("model.overlap_p2p_comm", "write model.overlap_p2p_comm: false")


@pytest.mark.parametrize(
    ("pattern", "kinds"),
    [
        ("1", ["experts"] * 32),
        ("2", ["experts", "mlp"] * 16),
        (f"[{', '.join(['0'] * 3 + ['1'] * 29)}]", ["mlp"] * 3 + ["experts"] * 29),
    ],
)
def test_experts_stand_in_the_layers_that_the_dump_lists(pattern, kinds):
    text = MIXTRAL.replace("  moe_router_topk: 2", f"  moe_router_topk: 2\n  moe_layer_freq: {pattern}")

    model = Model.model_validate(data_of(text, "dump.yaml", 8)["model"])

    found = [
        place for place, count in model.runs() for _ in range(count) if 1 <= place <= len(model.blocks)
    ]
    assert [model.blocks[place - 1].feed_forward.kind for place in found] == kinds


def test_a_type_that_is_dumped_as_an_object_is_read():
    types = "\n".join(
        f"  {field}:\n    _call_: false\n    _target_: torch.bfloat16"
        for field in ("exp_avg_dtype", "exp_avg_sq_dtype")
    )
    aware = f"optimizer: adam\n  use_precision_aware_optimizer: true\n{types}"

    assert read(("optimizer: adam", aware))["stack"]["optimizer"] == {
        "exp_avg_dtype": "bf16",
        "exp_avg_sq_dtype": "bf16",
        "main_parameter_bytes": "2 B",
    }


@all_cases(
    ("name", "gated", "activation"),
    [
        ("silu", "true", "swiglu"),
        ("gelu", "true", "geglu"),
        ("fast_gelu", "true", "geglu"),
        ("gelu_pytorch_tanh", "true", "geglu"),
        ("gelu_pytorch_tanh", "false", "gelu"),
        ("relu2", "false", "relu2"),
        ("squared_relu", "false", "relu2"),
    ],
)
def test_a_name_of_bridges_activations_is_one_of_ours(name, gated, activation):
    """utils/activation_map.py: Gemma's is fast_gelu, serialised as gelu_pytorch_tanh."""
    found = read(
        ("torch.nn.functional.silu", name), ("gated_linear_unit: true", f"gated_linear_unit: {gated}")
    )

    assert found["model"]["blocks"][0]["feed_forward"]["activation"] == activation


def test_an_adapter_of_a_fused_matrix_stands_beside_all_of_it():
    job = job_in(FOREIGN / "megatron-bridge" / "llama31_8b_lora.yaml")

    assert job.model.trained_parameters() == 32 * 16 * (4096 + 6144 + 4096 + 4096)


def test_another_method_of_tuning_is_refused_by_name():
    (fault,) = told(
        DUMP.replace("peft: null", "peft: {_target_: megatron.bridge.peft.dora.DoRA, dim: 8}"), "d.yaml"
    )

    assert (fault.field, fault.because) == ("peft._target_", "flopcast does not yet support DoRA")


def test_a_fault_names_the_key_of_the_dump_and_not_a_flag():
    (fault,) = told(DUMP.replace("num_layers: 32", "num_layers: 0"), "dump.yaml")

    assert fault.field == "model.num_layers"
    assert "--" not in fault.fix


def test_full_recompute_without_a_method_is_refused_with_the_keys_to_add():
    (fault,) = told(
        DUMP.replace("recompute_granularity: null", "recompute_granularity: full"), "dump.yaml", 32
    )

    assert fault.field == "model.recompute_method"
    assert fault.fix == "add model.recompute_method: uniform and model.recompute_num_layers: 1"


def test_without_devices_the_fault_is_theirs_alone():
    (fault,) = told(DUMP, "dump.yaml", None)

    assert fault.field == "world size"


def test_fields_that_nobody_reads_are_told_in_one_line():
    notes = read(("scale_factor: 8.0", "scale_factor: 8.0\n  moonshine: 3\n  sunshine: null"))[
        "assumptions"
    ]

    assert [note for note in notes if "are ignored" in note] == [
        "2 other fields are ignored: model.moonshine, model.scale_factor"
    ]


def test_a_provider_of_another_model_is_refused_by_its_class():
    providers = {
        "mamba.mamba_provider.MambaModelProvider": "state-space",
        "nemotronh.nemotron_h_provider.NemotronHModelProvider": "state-space",
        "qwen_vl.qwen25_vl_provider.Qwen25VLModelProvider": "vision encoder",
        "t5_provider.T5ModelProvider": "decoder",
    }
    own = "megatron.bridge.models.llama.llama_provider.Llama31ModelProvider8B"
    for provider, what in providers.items():
        text = DUMP.replace(own, f"megatron.bridge.models.{provider}")

        (fault,) = told(text, "dump.yaml", 16)

        assert fault.field == "model._target_", provider
        assert what in fault.because
