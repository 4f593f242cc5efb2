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
from flopcast.interop.configs.trainers import TRANSFORMERS, read_training

START = "trl grpo"
SIGNS = ("num_generations", "max_completion_length", "use_vllm", "reward_funcs")  # any of them
PROMPT, ANSWER, SAMPLES = "max_prompt_length", "max_completion_length", "num_generations"
STEPS, EPOCHS = "steps_per_generation", "num_iterations"
ENGINE, MODE, MODES = "use_vllm", "vllm_mode", {"colocate": "colocate"}
TENSOR, MEMORY, KL = "vllm_tensor_parallel_size", "vllm_gpu_memory_utilization", "beta"
PROCESSES, REWARD = "accelerate.num_processes", "reward_model_path"


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
    stated = reader.count(PROCESSES) if reader.has(PROCESSES) else None
    read_training(reader, TRANSFORMERS, stated)
    trl.put_adapters(reader)
    trl.put_loaded_states(reader)
    trl.put_recompute(reader)
    prompt, answer = reader.count(PROMPT, 512), reader.count(ANSWER, 256)
    reader.put(("batch", "sequence_length"), prompt + answer, ANSWER, PROMPT)
    reader.note_longest(prompt + answer, ANSWER)
    reader.put(("rollout", "traffic"), {"prompt": prompt, "output": answer}, ANSWER, PROMPT)
    _rollout(reader)
    _step(reader)
    return reader


def _rollout(reader: StepReader) -> None:
    """Put the engine into the rollout, which runs on the devices of the training job."""
    for part in (("gpus",), ("rollout", "gpus")):
        reader.put(part, reader.degree("data_parallel"), PROCESSES)
    if not reader.flag(ENGINE):
        reader.put(("rollout", "engine"), "hugging-face", ENGINE)
        reader.assume("the trained model itself generates the answers, without a serving engine", ENGINE)
        return
    if not reader.has(MODE):
        because = "vLLM then runs on further devices, whose number this file does not state"
        reader.fault(MODE, "colocate", because, f"add {MODE}: colocate", "is missing")
    reader.choice(MODE, MODES, "colocate")
    reader.put_engine("vllm", (MEMORY, 0.3), (TENSOR, 1), ENGINE, MEMORY)


def _step(reader: StepReader) -> None:
    """Put the prompts, the samples and the models that process each answer into the step."""
    steps, samples = (reader.count(STEPS, reader.count(TRANSFORMERS.steps)), reader.count(SAMPLES, 8))
    answers = reader.count(TRANSFORMERS.micro, 8) * reader.degree("data_parallel") * steps
    if answers % samples:
        allowed = f"a divisor of {answers}, the completions that are generated at once"
        because = "each prompt has the same number of completions"
        reader.fault(SAMPLES, allowed, because, f"write {SAMPLES}: 1")
    reader.put(("step", "prompts"), max(answers // samples, 1), STEPS, SAMPLES)
    reader.put(("step", "samples"), samples, SAMPLES)
    reader.put_passes(EPOCHS)
    reader.put_scorers(KL, reference=reader.fraction(KL, 0.0) > 0, rewards=reader.has(REWARD))
    if "adapters" in reader.part("model"):
        reader.put(("step", "handoff"), "adapter")
