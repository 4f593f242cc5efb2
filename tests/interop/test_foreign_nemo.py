"""NeMo's configurations as jobs: models of the catalogue, defaults of NeMo's code, faults by its keys."""

import pytest
from all_cases import all_cases
from foreign_cases import FOREIGN, data_of, job_in, replaced, told

from flopcast.library import catalog
from flopcast.spec.data_parallel import Gradients

NEMO = FOREIGN / "nemo"
GPT = (NEMO / "gpt3_175b.yaml").read_text(encoding="utf-8")
LLAMA = (NEMO / "llama2_70b.yaml").read_text(encoding="utf-8")
APEX = LLAMA.replace("mcore_distributed_optim", "distributed_fused_adam")
SMALL = (NEMO / "gpt3_126m_samples.yaml").read_text(encoding="utf-8")


def read(text, *changes, devices=None):
    """What a text says with some of its lines changed."""
    for old, new in changes:
        text, _ = replaced(text, old, new)
    return data_of(text, "nemo.yaml", devices)


@pytest.mark.parametrize(
    ("name", "model", "nodes"),
    [
        ("gpt3_126m_samples", "gpt3-125m", 1),
        ("llama2_70b", "llama-2-70b", 4),
        ("nemotron_8b", "nemotron-3-8b", 2),
    ],
)
def test_a_model_of_nemo_has_the_parameters_of_its_namesake(name, model, nodes):
    job = job_in(NEMO / f"{name}.yaml", f"dgx-h100:{nodes}")

    assert job.model.parameters() == catalog.model(model).parameters()
    assert job.model.forward_flop(2048) == catalog.model(model).forward_flop(2048)


def test_a_vocabulary_that_is_told_wins_over_the_tokenizers(tmp_path):
    spoken = tmp_path / "gpt.yaml"
    spoken.write_text(GPT.replace("  kv_channels: null", "  override_vocab_size: 51200"), encoding="utf-8")

    assert job_in(spoken, "dgx-h100:16").model.parameters() == catalog.model("gpt3-175b").parameters()


@all_cases(
    ("old", "new", "where", "value"),
    [
        ("precision: bf16-mixed", "precision: 16-mixed", "precision", "fp8"),
        ("  fp8: true", "  fp8: false", "precision", "bf16"),
        ("fp8_e4m3: false", "fp8_e4m3: true", "precision", "fp8"),
        ("name: mcore_distributed_optim", "name: distributed_fused_adam", "zero", 1),
        ("name: mcore_distributed_optim", "name: fused_adam", "zero", None),
        ("num_layers: 1", "num_layers: 0", "recompute", None),
        ("method: block", "method: uniform", "recompute_method", None),
        ("granularity: full", "granularity: null", "recompute", None),
        ("granularity: full", "granularity: selective", "recompute", "selective"),
        ("sequence_parallel: true", "sequence_parallel: false", "sequence_parallel", None),
        ("  num_nodes: 4", "  num_nodes: 8", "data_parallel", 4),
        ("context_parallel_size: 1", "context_parallel_size: 2", "context_parallel", 2),
    ],
)
def test_a_key_sets_a_field_of_the_plan(old, new, where, value):
    assert read(LLAMA, (old, new))["plan"].get(where) == value


@all_cases(
    ("old", "new", "name", "value"),
    [
        ("grad_sync_dtype: bf16", "lr: 1e-4", "dtype", "fp32"),
        ("overlap_grad_sync: true", "overlap_grad_sync: false", "overlap", False),
        ("overlap_grad_sync: true", "lr: 1e-4", "overlap", True),
        ("overlap_param_sync: true", "lr: 1e-4", "overlap_gather", False),
        ("bucket_cap_mb: 125", "bucket_cap_mb: 400", "bucket_elements", 200 * 1024**2),
        ("bucket_cap_mb: 125", "lr: 1e-4", "bucket_elements", 50 * 1024**2),
        ("accumulation_fusion: true", "accumulation_fusion: false", "accumulate_passes", 1),
        ("precision: bf16-mixed", "precision: 16-mixed", "overflow_checks", 1),
    ],
)
def test_gradients_of_apexs_adam_are_reduced_as_its_section_says(old, new, name, value):
    """DistributedFusedAdam: overlap_grad_sync True, overlap_param_sync False, bucket_cap_mb 100, fp32."""
    assert read(APEX, (old, new))["stack"]["gradients"][name] == value


@all_cases(
    ("old", "new", "name", "value"),
    [
        ("grad_sync_dtype: bf16", "lr: 1e-4", "dtype", "fp32"),
        ("grad_sync_dtype: bf16", "grad_sync_dtype: fp32", "dtype", "fp32"),
        ("grad_sync_dtype: bf16", "grad_sync_dtype: float32", "dtype", "bf16"),
        ("precision: bf16-mixed", "precision: 16-mixed", "dtype", "fp16"),
        ("overlap_grad_sync: true", "lr: 1e-4", "overlap", False),
        ("overlap_param_sync: true", "lr: 1e-4", "overlap_gather", False),
        ("bucket_cap_mb: 125", "bucket_cap_mb: 400", "bucket_elements", 40_000_000),
        ("bucket_cap_mb: 125", "ddp_bucket_size: 7000000", "bucket_elements", 7_000_000),
        ("bucket_cap_mb: 125", "average_in_collective: false", "copies", ["scale_gradient"]),
        ("bucket_cap_mb: 125", "check_for_nan_in_grad: true", "overflow_checks", 1),
        ("name: mcore_distributed_optim", "name: fused_adam", "collective", "all_reduce"),
    ],
)
def test_gradients_of_megatron_cores_optimizer_have_defaults_of_their_own(old, new, name, value):
    """`setup_mcore_distributed_parallel`: no overlap by itself, buckets counted in parameters."""
    assert read(LLAMA, (old, new))["stack"]["gradients"][name] == value


def test_many_replicas_share_larger_buckets_of_megatron_core():
    """distributed_data_parallel.py: 40 million parameters, or a million for each replica."""
    gradients = Gradients(**read(LLAMA, devices=16 * 64)["stack"]["gradients"])

    assert gradients.smallest_bucket(64) == 64_000_000


def test_a_bucket_of_apex_is_told_to_be_without_effect_under_megatron_core():
    notes = read(LLAMA)["assumptions"]

    assert any("model.optim.bucket_cap_mb has no effect" in note for note in notes)


@all_cases(
    ("old", "new", "rewrite", "has"),
    [
        ("bias: false", "bias: false\n  apply_rope_fusion: false", "unfused_rope", True),
        ("bias: false", "bias: false\n  bias_activation_fusion: false", "bias_gelu", False),
        ("bias: false", "bias: false\n  bias_dropout_add_fusion: false", "bias_dropout_add", False),
        ("bias: false", "bias: false\n  apply_rope_fusion: true", "unfused_rope", False),
    ],
)
def test_a_fusion_that_is_switched_off_is_no_kernel_of_the_stack(old, new, rewrite, has):
    stack = read(LLAMA, (old, new))["stack"]

    assert (rewrite in stack.get("rewrites", catalog.stack("nemo").rewrites)) is has


@all_cases(
    ("changes", "overlap"),
    [
        ([], True),
        ([("amp_O2: False", "amp_O2: false")], False),
        ([("sequence_parallel: False", "sequence_parallel: True")], False),
        ([("pipeline_model_parallel_size: 1", "pipeline_model_parallel_size: 2")], False),
        ([("accumulation_fusion: False", "accumulation_fusion: True")], False),
        ([("activations_checkpoint_granularity: null", "async_grad_allreduce: false")], False),
    ],
)
def test_a_whole_optimizer_reduces_beside_the_backward_pass_only_with_o2_alone(changes, overlap):
    """`configure_optimizers` of MegatronBaseModel."""
    wide = [("precision: 16", "precision: bf16")]
    if not any(old.startswith("amp") for old, _ in changes):
        wide.append(("amp_O2: False", "amp_O2: True"))

    assert read(SMALL, *wide, *changes)["stack"]["gradients"]["overlap"] is overlap


def test_whole_gradients_in_fp16_have_no_o2():
    (fault,) = told(SMALL.replace("amp_O2: False", "amp_O2: True"), "nemo.yaml", None)

    assert fault.field == "model.megatron_amp_O2"


@pytest.mark.parametrize(
    ("changes", "pipeline"),
    [
        ([], None),
        ([("overlap_p2p_comm: true", "overlap_p2p_comm: false")], {"transfers": "batched"}),
        (
            [("virtual_pipeline_model_parallel_size: 20", "virtual_pipeline_model_parallel_size: null")],
            {"transfers": "batched"},
        ),
    ],
)
def test_only_interleaved_stages_that_are_asked_to_do_not_wait(changes, pipeline):
    assert read(LLAMA, *changes)["stack"].get("pipeline") == pipeline


def test_user_buffers_overlap_products_with_tensor_parallel_messages():
    assert read(GPT)["stack"]["tensor_overlap"] == "chunks"
    assert "tensor_overlap" not in read(LLAMA)["stack"]


def test_a_width_that_is_a_product_is_worked_out():
    (block,) = read(GPT)["model"]["blocks"]

    assert block["feed_forward"]["ffn_hidden"] == 4 * 12288


@all_cases(
    ("text", "old", "new", "note"),
    [
        (SMALL, "amp_O2: False", "amp_O2: False", "as with megatron_amp_O2 (nemo.yaml:29)"),
        (SMALL, "amp_O2: False", "amp_O2: False", "flopcast predicts kernels of Transformer Engine"),
        (SMALL, "gradient_accumulation_fusion: False", "fp8: True", "model.fp8 has no effect"),
        (
            LLAMA,
            "ffn_dropout: 0.0",
            "ffn_dropout: 0.1",
            "model.ffn_dropout: flopcast ignores dropout inside",
        ),
        (LLAMA, "ffn_dropout: 0.0", "mascot: llama", "model.mascot is not known and is ignored"),
        (
            LLAMA,
            "context_parallel_size: 1",
            "rampup_batch_size: [32, 32, 1000]",
            "the global batch size of 128, which is reached after the ramp-up",
        ),
    ],
)
def test_what_is_not_counted_or_not_known_is_told(text, old, new, note):
    notes = read(text, (old, new))["assumptions"]

    assert any(note in told for told in notes), notes
    assert not [told for told in notes if "--" in told]


@all_cases(
    "key", ["num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "global_batch_size"]
)
def test_a_key_that_nemo_needs_is_missed_by_name(key):
    line = next(line for line in SMALL.splitlines(keepends=True) if line.strip().startswith(f"{key}:"))

    faults = told(SMALL.replace(line, ""), "nemo.yaml", None)

    assert f"model.{key}" in [fault.field for fault in faults]
    assert not [fault for fault in faults if fault.field.startswith("--")]


def test_eight_bits_need_a_format_of_their_numbers():
    (fault,) = told(LLAMA.replace("fp8_hybrid: true", "fp8_hybrid: false"), "nemo.yaml", None)

    assert (fault.field, fault.fix) == ("model.fp8", "add fp8_hybrid: true")


def test_without_a_precision_training_would_be_in_fp32():
    (fault,) = told(SMALL.replace("  precision: 16\n", ""), "nemo.yaml", None)

    assert fault.field == "trainer.precision"


def test_devices_of_the_command_line_win_and_the_files_are_told():
    data = read(LLAMA, devices=64)

    assert data["plan"]["data_parallel"] == 4
    assert "64 devices as requested, instead of 32 in the file" in data["assumptions"]


def test_without_devices_the_fault_is_theirs_alone():
    text = SMALL.replace("  devices: 8\n", "")

    assert [fault.field for fault in told(text, "nemo.yaml", None)] == ["world size"]


def test_faults_of_all_sections_are_told_at_once_each_a_single_time():
    text = LLAMA
    for old, new in (("precision: bf16-mixed", "precision: 32"), ("num_layers: 80", "num_layers: 0")):
        text, _ = replaced(text, old, new)
    text, _ = replaced(text, "name: mcore_distributed_optim", "name: lion")

    fields = [fault.field for fault in told(text, "nemo.yaml", None)]

    assert fields == ["trainer.precision", "model.num_layers", "model.optim.name"]


UNNAMED = SMALL.split("\n", 1)[1] if SMALL.startswith("name:") else SMALL
OTHER_MODELS = {  # a line in place of another of a small file → the key that is to blame
    "name: megatron_mamba": "name",
    "name: megatron_griffin": "name",
    "name: megatron_hyena": "name",
    "name: nemo_neva": "name",
    "name: megatron_t5": "name",
    "name: megatron_bert": "name",
}
OTHER_KEYS = {
    "mm_cfg: {llm: {freeze: true}}": "model.mm_cfg",
    "hyena: {filter_order: 64}": "model.hyena",
    "ngroups_mamba: 8": "model.ngroups_mamba",
    "target: nemo.collections.multimodal.models.neva_model.MegatronNevaModel": "model.target",
    "target: nemo.collections.nlp.models.megatron_bert_model.MegatronBertModel": "model.target",
}


def test_a_configuration_of_another_model_is_refused_by_its_name_or_its_keys():
    for line, field in OTHER_MODELS.items():
        faults = told(f"{line}\n{UNNAMED}", "nemo.yaml", None)

        assert [(fault.field, fault.where) for fault in faults] == [(field, "nemo.yaml:1")], line
    for line, field in OTHER_KEYS.items():
        faults = told(SMALL.replace("\nmodel:\n", f"\nmodel:\n  {line}\n"), "nemo.yaml", None)

        assert [fault.field for fault in faults] == [field], line


def test_configurations_of_gpt_like_models_are_read():
    for line in ("name: megatron_gpt", "name: megatron_llama", "name: my_mamba_like_name"):
        assert told(f"{line}\n{UNNAMED}", "nemo.yaml", None) == (), line


def test_a_tokenizer_that_is_not_known_needs_a_vocabulary():
    text = LLAMA.replace("llama2/llama_tokenizer", "words/tokenizer")

    (fault,) = told(text, "nemo.yaml", None)

    assert (fault.field, fault.fault) == ("model.override_vocab_size", "is missing")
    assert told(text, "nemo.yaml", None, model="llama-2-7b") == ()
