"""What files of trainers keep outside the devices, as their documentation describes the keys."""

from all_cases import all_cases
from key_cases import before, started

from flopcast.files.yaml_text import Document
from flopcast.interop.configs.formats import read_kind
from flopcast.interop.configs.import_options import ImportOptions
from flopcast.spec.offload import offload_word

STATES = "optimizer:host,parameters:host"
KEPT = "activations:host"
CASES = [
    ("torchtitan", "llama3_8b_fsdp.toml gpus=8 training.enable_cpu_offload=true", STATES),
    ("torchtune", "llama3_8b_full.yaml gpus=8 fsdp_cpu_offload=true", STATES),
    ("torchtune", "llama3_8b_full.yaml gpus=8 enable_activation_offloading=true", KEPT),
    ("llm-foundry", "mpt_125m.yaml gpus=8 fsdp_config.activation_cpu_offload=true", KEPT),
    (
        "llm-foundry",
        "mpt_7b.yaml gpus=8 fsdp_config.cpu_offload=true fsdp_config.activation_cpu_offload=true",
        f"{STATES},{KEPT}",
    ),
    ("trl", "llama2_13b_fsdp.yaml gpus=8 fsdp_config.fsdp_offload_params=true", STATES),
    ("trl", "qwen25_7b_lora.yaml gpus=8 activation_offloading=true", KEPT),
    ("llama-factory", "gemma2_fsdp.yaml gpus=8 fsdp_config.fsdp_offload_params=true", STATES),
    ("maxtext", "llama2_7b_gpu.yml gpus=16 remat_policy=minimal_offloaded", KEPT),
    ("maxtext", "llama2_7b_gpu.yml gpus=16 optimizer_memory_host_offload=true", "optimizer:host"),
    (
        "maxtext",
        "llama2_7b_gpu.yml gpus=16 parameter_memory_host_offload=true optimizer_memory_host_offload=true",
        STATES,
    ),
    (
        "megatron-bridge",
        "llama31_8b_pretrain.yaml gpus=8 optimizer.optimizer_cpu_offload=true"
        " optimizer.optimizer_offload_fraction=0.5",
        "optimizer:host:0.5",
    ),
    ("megatron-bridge", "llama31_8b_pretrain.yaml gpus=8 optimizer.optimizer_cpu_offload=true", ""),
    (
        "megatron-bridge",
        "llama31_8b_pretrain.yaml gpus=8 model.cpu_offloading=true model.cpu_offloading_num_layers=8"
        " model.pipeline_model_parallel_size=1",
        f"{KEPT}:0.25",
    ),
    (
        "nemo",
        "llama2_70b.yaml gpus=0 model.cpu_offloading=true model.pipeline_model_parallel_size=1"
        " model.virtual_pipeline_model_parallel_size=null model.cpu_offloading_num_layers=40"
        " model.activations_checkpoint_granularity=null",
        f"{KEPT}:0.5",
    ),
    ("nemo", "llama2_70b.yaml gpus=0 model.cpu_offloading=false model.cpu_offloading_num_layers=40", ""),
    ("gpt-neox", "gpt_6_7b.yml gpus=64 checkpoint_in_cpu=true", KEPT),
    ("gpt-neox", "gpt_6_7b.yml gpus=64 checkpoint_in_cpu=true checkpoint-activations=false", ""),
    ("gpt-neox", "gpt_6_7b.yml gpus=64 optimizer.type=cpu_adam", "optimizer:host"),
    (
        "gpt-neox",
        "gpt_6_7b.yml gpus=64 zero_optimization.stage=3 optimizer.type=cpu_adam"
        " zero_optimization.offload_optimizer.device=nvme",
        "optimizer:nvme",
    ),
]


@all_cases(("kind", "context", "offload"), CASES)
def test_a_file_places_states_as_the_documentation_of_its_keys_has_it(kind, context, offload):
    job, _ = before(kind, context)

    assert offload_word(job.plan.offload) == offload


def test_maxtext_recomputes_the_core_of_attention_where_it_offloads_the_rest():
    job, notes = before("maxtext", "llama2_7b_gpu.yml gpus=16 remat_policy=minimal_offloaded")

    assert (job.plan.recompute, job.plan.recompute_modules) == ("selective", ("core_attention",))
    assert any("inputs of layers" in note for note in notes)


def test_a_checkpoint_on_the_host_without_checkpoints_is_told():
    (_, notes) = before(
        "gpt-neox", "gpt_6_7b.yml gpus=64 checkpoint_in_cpu=true checkpoint-activations=false"
    )

    assert any("checkpoint_in_cpu has no effect" in note for note in notes)


def test_torchtune_shards_on_one_device_only_to_offload():
    for offload, zero in (("true", 3), ("false", 0)):
        name, data, _ = started("torchtune", f"llama3_8b_full.yaml fsdp_cpu_offload={offload}")
        job = read_kind(Document(name, data, {}), "torchtune", ImportOptions(devices=1))

        assert job.data["plan"]["zero"] == zero


def test_the_usual_number_of_offloaded_layers_of_nemo_is_computed():
    """Its sample file writes all layers but one as a sum."""
    context = (
        "llama2_70b.yaml model.cpu_offloading=true model.pipeline_model_parallel_size=1"
        " model.virtual_pipeline_model_parallel_size=null model.activations_checkpoint_granularity=null"
    )
    name, data, _ = started("nemo", context)
    data["model"]["cpu_offloading_num_layers"] = "${sum:${.num_layers},-1}"
    job = read_kind(Document(name, data, {}), "nemo", ImportOptions())

    assert job.data["plan"]["offload"] == f"{KEPT}:{79 / 80:g}"
