"""Preference tuning, reward models and distillation in files of TRL, LLaMA-Factory and torchtune."""

import json

import pytest
from foreign_cases import data_of

from flopcast.errors import SpecError

TRL = {"model_name_or_path": "Qwen/Qwen2.5-7B", "dataset_name": "own/data", "output_dir": "out",
       "attn_implementation": "sdpa", "per_device_train_batch_size": 2}  # fmt: skip
FACTORY = {"model_name_or_path": "Qwen/Qwen2.5-7B", "do_train": True, "finetuning_type": "full",
           "bf16": True, "per_device_train_batch_size": 2, "cutoff_len": 2048,
           "template": "qwen"}  # fmt: skip
TUNE = {"model": {"_component_": "torchtune.models.llama3_1.llama3_1_8b"}, "batch_size": 2, "dtype": "bf16",
        "tokenizer": {"max_seq_len": 4096}, "optimizer": {"_component_": "torch.optim.AdamW"}}  # fmt: skip
LORA = {"use_peft": True, "lora_target_modules": ["q_proj"]}
ADAPTED = {"finetuning_type": "lora", "lora_target": "q_proj"}
TRAINED = (None, None, None, None)
WANTED = [  # file, changes → reference, its passes, head, teacher; sequences of a micro-batch
    (TRL, {}, TRAINED, 2),
    (TRL, {"beta": 0.1}, ("separate", None, None, None), 4),
    (TRL, {"loss_type": "ipo", **LORA}, ("shared", None, None, None), 4),
    (TRL, {"beta": 0.1, "precompute_ref_log_probs": True}, TRAINED, 4),
    (TRL, {"loss_type": "simpo"}, TRAINED, 4),
    (TRL, {"desirable_weight": 1.0}, ("separate", 3, None, None), 2),
    (TRL, {"center_rewards_coefficient": 0.01}, (None, None, "score", None), 4),
    (TRL, {"teacher_model_name_or_path": "Qwen/Qwen2.5-72B", "lmbda": 0},
     (None, None, None, "qwen2.5-72b"), 2),
    (FACTORY, {"stage": "dpo"}, ("separate", None, None, None), 4),
    (FACTORY, {"stage": "dpo", **ADAPTED}, ("shared", None, None, None), 4),
    (FACTORY, {"stage": "dpo", "ref_model": "own/reference", **ADAPTED}, ("separate", None, None, None), 4),
    (FACTORY, {"stage": "dpo", "pref_loss": "orpo"}, TRAINED, 4),
    (FACTORY, {"stage": "kto"}, ("separate", 3, None, None), 2),
    (FACTORY, {"stage": "rm"}, (None, None, "score", None), 4),
    (TUNE, {"loss": {"_component_": "torchtune.rlhf.loss.DPOLoss", "beta": 0.1}},
     ("separate", None, None, None), 4),
    (TUNE, {"teacher_model": {"_component_": "torchtune.models.llama3_1.llama3_1_70b"}, "kd_ratio": 0.5},
     (None, None, None, "llama-3.1-70b"), 2),
]  # fmt: skip


def test_a_file_says_which_frozen_models_run_and_how_many_sequences_a_sample_has():
    for file, changes, wanted, sequences in WANTED:
        data = data_of(json.dumps(file | changes), "run.json", 8)
        model = data["model"]
        found = tuple(model.get(key) for key in ("reference", "reference_passes", "head", "teacher"))

        assert found == wanted, changes
        assert data["plan"]["micro_batch"] == sequences, changes
        assert data["plan"]["global_batch"] == 8 * sequences, changes


def test_distillation_that_generates_and_an_unknown_teacher_are_refused_with_their_key():
    for changes, field in (
        ({"teacher_model_name_or_path": "Qwen/Qwen2.5-72B"}, "teacher_model_name_or_path"),
        ({"teacher_model_name_or_path": "Qwen/Qwen2.5-72B", "lmbda": 0.5}, "lmbda"),
        ({"teacher_model_name_or_path": "own/teacher", "lmbda": 0}, "teacher_model_name_or_path"),
    ):
        with pytest.raises(SpecError) as told:
            data_of(json.dumps(TRL | changes), "run.json", 8)
        assert [problem.field for problem in told.value.problems] == [field]
