"""Scripts that start the Trainer, LLaMA-Factory or MaxText: their flags are the settings of a file."""

from all_cases import all_cases
from foreign_cases import data_of, told
from megatron_cases import document_of, script_of
from megatron_cases import told as megatron_told

from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import resolve

TRAINER = (
    "{launcher} {program} --model_name_or_path mistralai/Mistral-7B-v0.1 --per_device_train_batch_size 2"
    " --gradient_accumulation_steps 4 --bf16 True --output_dir out {more}"
)


def trained(program="train.py", more="", launcher="torchrun --nproc_per_node 8", devices=None):
    """What a script of the Trainer says."""
    return data_of(TRAINER.format(launcher=launcher, program=program, more=more), "run.sh", devices)


def faults(*arguments, **named):
    """The fields of what is wrong in a script of the Trainer."""
    text = TRAINER.format(
        **{"launcher": "torchrun --nproc_per_node 8", "program": "train.py", "more": ""} | named
    )
    return [problem.field for problem in told(text, "run.sh", None)]


def test_a_program_with_the_trainers_flags_has_the_trainers_defaults():
    data = trained(more="--model_max_length 2048 --gradient_checkpointing True --deepspeed zero3.json")

    assert data["batch"] == {"sequence_length": 2048}
    assert (data["plan"]["data_parallel"], data["plan"]["global_batch"]) == (8, 64)
    assert (data["plan"]["zero"], data["plan"]["recompute"]) == (3, "full")
    assert trained(more="--model_max_length 2048")["plan"].get("recompute", "none") == "none"


@all_cases(
    ("program", "reference"),
    [("run_dpo.py", "separate"), ("run_orpo.py", None), ("scripts/simpo.py", None)],
)
def test_the_name_of_a_program_says_what_it_trains(program, reference):
    data = trained(program, "--max_length 1024 --max_prompt_length 512")

    assert data["model"].get("reference") == reference
    assert data["plan"]["micro_batch"] == 4  # two samples of two sequences


def test_a_program_that_trains_otherwise_is_refused():
    assert "launcher.program" in faults(program="run_mlm.py")
    assert "launcher.program" in faults(program="train_ppo.py")


def test_a_program_without_a_launcher_does_not_say_on_how_many_devices_it_runs():
    """The Trainer takes all devices that it sees."""
    for program in ("train.py", "-m fastchat.train.train"):
        assert faults(launcher="python", program=program) == ["world size"]
        alone = trained(program, "--model_max_length 2048", "python", devices=1)
        assert alone["plan"]["data_parallel"] == 1


def test_a_program_that_is_named_after_adapters_states_their_rank():
    """Otherwise the command would be read as training of all weights."""
    assert faults(program="train_unsloth.py", more="--max_length 1024") == ["launcher.program"]
    assert faults(program="finetune_qlora.py", more="--max_length 1024") == ["launcher.program"]
    stated = trained(
        "train_lora.py", "--max_length 1024 --use_peft --lora_r 8 --lora_target_modules all-linear"
    )
    assert stated["model"]["adapters"]["rank"] == 8


def test_accelerates_file_is_needed_unless_its_name_says_how_parameters_are_sharded():
    launcher = "accelerate launch --num_processes 8 --config_file"

    assert faults(launcher=f"{launcher} own.yaml", more="--max_length 1024") == ["launcher.config_file"]
    named = trained("run_sft.py", "--max_length 1024", f"{launcher} deepspeed_zero2.yaml")
    assert named["plan"]["zero"] == 2


def test_names_of_files_state_the_stage_and_what_is_offloaded():
    """Not offloaded is what `no_offload` says, and the stage of a training is not that of ZeRO."""
    expected = {
        "ds_zero2_no_offload.json": (2, None),
        "ds_zero2_offload.json": (2, "optimizer:host"),
        "deepspeed_stage2.json": (2, None),
        "stage1_zero3.json": (3, None),
    }
    for name, (stage, offload) in expected.items():
        plan = trained(more=f"--model_max_length 2048 --deepspeed conf/{name}")["plan"]
        assert (plan["zero"], plan.get("offload")) == (stage, offload), name
    plan = trained(
        launcher="accelerate launch --num_processes 8 --config_file conf/zero3_offload.yaml",
        more="--model_max_length 2048",
    )["plan"]
    assert (plan["zero"], plan["offload"]) == (3, "optimizer:host,parameters:host")


def test_a_file_of_old_releases_of_openrlhf_has_the_flags_of_its_module():
    flags = "--pretrain meta-llama/Llama-2-7b-hf --max_len 2048 --micro_train_batch_size 2 --zero_stage 2"
    own, module = (
        data_of(f"deepspeed {program} {flags}\n", "sft.sh", 8)
        for program in ("../train_sft.py", "--module openrlhf.cli.train_sft")
    )

    assert own["plan"] == module["plan"]
    assert own["plan"]["global_batch"] == 128


def test_flags_of_llama_factory_are_its_settings():
    data = data_of(
        "FORCE_TORCHRUN=1 llamafactory-cli train --stage sft --do_train True --finetuning_type lora"
        " --model_name_or_path meta-llama/Llama-2-7b-hf --dataset own --template llama2 --cutoff_len 2048"
        " --per_device_train_batch_size 1 --lora_rank 16 --lora_target q_proj,v_proj --bf16 True",
        "run.sh",
        4,
    )

    assert data["model"]["adapters"]["rank"] == 16
    assert (data["plan"]["data_parallel"], data["batch"]["sequence_length"]) == (4, 2048)


def test_overrides_of_maxtext_stand_behind_its_base_file():
    text = (
        "python3 -m MaxText.train MaxText/configs/base.yml model_name=llama3.1-8b per_device_batch_size=2"
        " ici_fsdp_parallelism=16 max_target_length=4096 remat_policy=full steps=10"
    )
    data = data_of(text, "run.sh", 16)

    assert data["batch"] == {"sequence_length": 4096}
    assert (data["plan"]["zero"], data["plan"]["micro_batch"], data["plan"]["recompute"]) == (3, 2, "full")


def test_the_program_that_a_script_starts_is_named_if_nothing_else_is_known():
    (fault,) = told("python pretrain_own.py --depth 12", "run.sh")
    (hydra,) = told("python train_own.py --config-path=conf --config-name=large", "run.sh")

    assert "pretrain_own.py" in fault.because
    assert hydra.fix.endswith("flopcast predict large.yaml")


def test_mindspeeds_algorithms_of_context_parallelism():
    ulysses = document_of("--context-parallel-size 2 --context-parallel-algo ulysses_cp_algo").data["plan"]
    refused = megatron_told(script_of("--stage dpo"))

    assert (ulysses["context_parallel"], ulysses["context_exchange"]) == (2, "all_to_all")
    assert "--stage" in [problem.field for problem in refused]


def test_a_deepspeed_file_in_the_script_keeps_gradients_in_fp32(tmp_path):
    script = """cat <<EOT > ds.json
{"data_types": {"grad_accum_dtype": "DTYPE"}, "bf16": {"enabled": true}}
EOT
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 1024 --num-attention-heads 8 \
 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 8 --bf16 \
 --vocab-size 32000 --deepspeed --deepspeed_config=ds.json --zero-stage=STAGE --no-pipeline-parallel
"""
    for dtype, stage, kept in (("fp32", 1, "fp32"), ("bf16", 1, "bf16"), ("bf16", 0, "fp32")):
        file = tmp_path / "run.sh"
        file.write_text(script.replace("DTYPE", dtype).replace("STAGE", str(stage)), encoding="utf-8")
        job = resolve(JobRequest(files=(str(file),), cluster="dgx-h100:1"))
        assert job.stack.gradients.dtype == kept
