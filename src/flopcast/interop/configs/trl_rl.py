"""TRL's settings for GRPO as a step of reinforcement learning.

Answers: which rollout and which training does TRL's GRPOTrainer run?
Elsewhere: launch, adapters and recompute, which supervised and preference tuning share (trl.py), keys that
change no step (tables/trl-rl.yaml).

References
----------
huggingface/trl: trl/trainer/grpo_config.py (names, defaults: 8 generations, prompts of 512 tokens and
completions of 256, one vLLM engine on each device with 0.3 of its memory) and grpo_trainer.py (batches
count completions; `steps_per_generation` batches are generated at once).
"""

from flopcast.files.yaml_text import Document
from flopcast.interop.configs import trl
from flopcast.interop.configs.import_options import ImportOptions
from flopcast.interop.configs.keys import keys_of
from flopcast.interop.configs.step_reader import StepReader
from flopcast.interop.configs.trainers import read_training

START = "trl grpo"
SIGNS = ("num_generations", "max_completion_length", "use_vllm", "reward_funcs")  # any of them
MODES = {"colocate": "colocate"}


def read(document: Document, options: ImportOptions) -> StepReader:
    """Return the reader after it read both jobs.

    Examples
    --------
    >>> from flopcast.interop.configs.rl_formats import step_document
    >>> step = step_document(read(Document("grpo.yaml", {"model_name_or_path": "Qwen/Qwen2.5-7B",
    ...     "use_vllm": True, "vllm_mode": "colocate", "num_generations": 16, "bf16": True,
    ...     "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}, {}),
    ...     ImportOptions(devices=8))).data
    >>> step["prompts"], step["samples"], step["training"]["plan"]["global_batch"]
    (16, 16, 256)
    """
    reader = StepReader(trl.with_precision(document), keys_of("trl-rl"), options)
    reader.read_model("model_name_or_path")
    trl.check_launch(reader)
    stated = reader.count("ranks") if reader.has("ranks") else None
    read_training(reader, stated)
    trl.put_adapters(reader)
    trl.put_loaded_states(reader)
    trl.put_recompute(reader)
    prompt, answer = reader.count("prompt", 512), reader.count("answer", 256)
    reader.put(("batch", "sequence_length"), prompt + answer, "answer", "prompt")
    reader.note_longest(prompt + answer, "answer")
    reader.put(("rollout", "traffic"), {"prompt": prompt, "output": answer}, "answer", "prompt")
    _rollout(reader)
    _step(reader)
    return reader


def _rollout(reader: StepReader) -> None:
    """Put the engine into the rollout, which runs on the devices of the training job."""
    for part in (("gpus",), ("rollout", "gpus")):
        reader.put(part, reader.degree("data_parallel"), "ranks")
    if not reader.flag("engine"):
        reader.put(("rollout", "engine"), "hugging-face", "engine")
        reader.assume("the trained model itself generates the answers, without a serving engine", "engine")
        return
    if not reader.has("mode"):
        because = (
            "without this setting, vLLM runs on further devices, whose number this file does not state"
        )
        reader.fault("mode", "colocate", because, f"add {reader.first('mode')}: colocate", "is missing")
    reader.choice("mode", MODES, "colocate")
    reader.put_engine("vllm", ("engine_memory", 0.3), ("engine_tensor", 1), "engine", "engine_memory")


def _step(reader: StepReader) -> None:
    """Put the prompts, the samples and the models that process each answer into the step."""
    steps, samples = (reader.count("generation_steps", reader.count("steps")), reader.count("samples", 8))
    answers = reader.count("micro", 8) * reader.degree("data_parallel") * steps
    if answers % samples:
        allowed = f"a divisor of {answers} (the number of completions that are generated at once)"
        because = "each prompt has the same number of completions"
        reader.fault("samples", allowed, because, f"write {reader.first('samples')}: 1")
    reader.put(("step", "prompts"), max(answers // samples, 1), "generation_steps", "samples")
    reader.put(("step", "samples"), samples, "samples")
    reader.put_passes("passes")
    reader.put_scorers("kl", reference=reader.fraction("kl", 0.0) > 0, rewards=reader.has("reward"))
    if "adapters" in reader.part("model"):
        reader.put(("step", "handoff"), "adapter")
