"""Causes that public job files showed: each test reads a small file of our own with the same cause."""

import pytest
from command_line import flopcast

from flopcast.interop.shell.script import read_script

AXOLOTL = """base_model: Qwen/Qwen2.5-7B-Instruct
adapter: lora
lora_r: 16
lora_target_linear: true
sequence_len: 2048
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: adamw_torch
bf16: auto
"""
LLAMA_FACTORY = """model_name_or_path: Qwen/Qwen2.5-7B-Instruct
stage: sft
finetuning_type: lora
cutoff_len: 2048
template: qwen
per_device_train_batch_size: 2
bf16: true
"""
TRAINER = (
    "deepspeed --num_gpus 4 tune.py --model_name_or_path Qwen/Qwen2.5-7B-Instruct --model_max_length 2048 "
    "--per_device_train_batch_size 2 --bf16 --deepspeed zero2.json"
)


def _text(words):
    done = flopcast(*words)
    return done.out + done.err


@pytest.fixture
def predicted(tmp_path):
    def run(text, name="job.sh", *options):
        (tmp_path / name).write_text(text)
        words = ["predict", str(tmp_path / name), "--cluster", "dgx-h100", *options]
        return _text(words)

    return run


def test_settings_that_a_script_writes_are_read(predicted):
    script = f"cat > sft.yml << 'END'\n{AXOLOTL}END\n"
    script += "accelerate launch --num_processes 2 -m axolotl.cli.train sft.yml\n"

    assert "dp=2 mbs=2 gbs=16" in predicted(script)
    assert "job.sh:7: micro_batch_size = 0" in predicted(
        script.replace("micro_batch_size: 2", "micro_batch_size: 0")
    )


def test_echo_writes_a_file():
    script = read_script("echo -e 'a: 1\\nb: 2' > c.yaml && serve --options c.yaml", "run.sh")

    assert script.file("c.yaml").text == "a: 1\nb: 2\n"


def test_visible_devices_are_counted_if_the_launcher_states_no_number(predicted):
    visible = "CUDA_VISIBLE_DEVICES=0,1,2 "
    swift = "swift sft --model Qwen/Qwen2.5-7B-Instruct --torch_dtype bfloat16 --max_length 2048"
    factory = "llamafactory-cli train " + " ".join(
        f"--{line.replace(':', '')}" for line in LLAMA_FACTORY.splitlines()
    )

    assert "3 × h100" in predicted(visible + factory)
    assert "3 × h100" in predicted(visible + TRAINER.replace("--num_gpus 4 ", ""))
    assert "4 × h100" in predicted(visible + TRAINER)
    assert "1 × h100" in predicted(f"CUDA_VISIBLE_DEVICES=5 {swift}")


def test_an_export_of_adapters_is_no_training(predicted):
    found = predicted(LLAMA_FACTORY + "export_dir: merged\n", "merge.yaml")

    assert "merge.yaml:8: export_dir = 'merged' is not allowed" in found
    assert "--lora" not in found.split("fix:")[1]


def test_a_rank_without_a_switch_of_adapters_is_a_question(predicted):
    ranked = f"{TRAINER} --lora_rank 16 --target_modules q_proj,v_proj"

    assert "use_peft is missing" in predicted(ranked)
    assert "adapters  rank 16 on q, v" in predicted(f"{ranked} --use_lora 1")


def test_an_argument_that_the_script_does_not_set_is_asked_for(predicted):
    script = TRAINER.replace("batch_size 2", "batch_size $3") + "\n"

    assert "fix:     add --arg 3=8, with its value" in predicted(script)
    assert "mbs=8" in predicted(script, "job.sh", "--arg", "3=8")


def test_fixes_of_settings_files_work(predicted, tmp_path):
    settings = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}, "train_batch_size": "auto"}'
    (tmp_path / "ds.json").write_text(settings)
    script = TRAINER.replace("zero2.json", "ds.json")

    assert f"give this file, too: flopcast predict {tmp_path / 'job.sh'} ds.json" in predicted(script)
    both = ["predict", str(tmp_path / "job.sh"), str(tmp_path / "ds.json"), "--cluster", "dgx-h100"]
    assert "zero=3" in _text(both)
    assert "fix:     add --model NAME" in predicted(settings.replace('"auto"', "1024"), "ds.json")


def test_files_of_unknown_programs_are_no_job_files(predicted):
    oumi = "model: {model_name: a}\ndata: {train: {}}\ntraining: {trainer_type: TRL_SFT}\n"

    assert "format is not recognised" in predicted(oumi, "train.yaml")
    assert "--kind" not in predicted("training: {seq_len: 1, a: 2, b: 3, c: 4}\n", "train.yaml")


def test_a_launcher_identifies_its_program(predicted):
    script = "swift sft --model_id_or_path Qwen/Qwen2.5-7B-Instruct --dtype bf16 --custom_a 1 --custom_b 2"

    assert "ms-swift" in predicted(script)
    assert "not recognised" not in predicted(script)


def test_a_renamed_flag_of_megatron_is_one_error(predicted):
    script = (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 "
        "--num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --batch-size 4 "
        "--model-parallel-size 2 --global-batch-size 64 --bf16 --vocab-size 50257"
    )

    found = predicted(script)
    assert "2 errors in the input" in found
    assert "write --micro-batch-size 4" in found
    assert "write --tensor-model-parallel-size 2" in found


def test_ms_swift_is_offered_settings_that_it_publishes(predicted):
    script = "swift sft --model Qwen/Qwen2.5-7B-Instruct --train_type full --deepspeed zero4"

    assert "fix:     write zero3" in predicted(script)
