"""OpenRLHF's command for PPO, GRPO and similar algorithms as a step of reinforcement learning.

Answers: which rollout and which training does `openrlhf.cli.train_ppo_ray` run?
Elsewhere: the arguments of a command (trainer_commands.py), keys that change no step
(tables/openrlhf-rl.yaml), sharding and adapters, which SFT, DPO and reward models share (openrlhf.py).

References
----------
OpenRLHF/OpenRLHF: openrlhf/cli/train_ppo_ray.py (names, defaults: `rollout_batch_size` counts prompts,
and `train_batch_size` counts answers; only the estimator "gae" has a critic; `init_kl_coef 0` means that
there is no reference model; `remote_rm_url` means that there is no local reward model).
"""

from flopcast.files.yaml_text import Document
from flopcast.interop.configs import openrlhf
from flopcast.interop.configs.import_options import ImportOptions
from flopcast.interop.configs.keys import keys_of
from flopcast.interop.configs.step_reader import ALONE, StepReader

START = "openrlhf.cli.train_ppo_ray"
CRITIC = "gae"  # the estimator that needs a value model
PLAIN = ("reinforce", "rloo", "reinforce_baseline", "group_norm", "dr_grpo")  # without one
ESTIMATORS = {CRITIC: CRITIC, **dict.fromkeys(PLAIN, "none")}


def read(document: Document, options: ImportOptions) -> StepReader:
    """Return the reader after it read both jobs.

    Examples
    --------
    >>> from flopcast.interop.configs.rl_formats import step_document
    >>> flags = {"pretrain": "meta-llama/Meta-Llama-3-8B", "actor_num_gpus_per_node": 8,
    ...     "colocate_all_models": True, "rollout_batch_size": 128, "n_samples_per_prompt": 8,
    ...     "train_batch_size": 128, "micro_train_batch_size": 4, "zero_stage": 3,
    ...     "advantage_estimator": "group_norm"}
    >>> step = step_document(read(Document("ppo.sh", flags, {}), ImportOptions())).data
    >>> step["prompts"], step["samples"], step["training"]["plan"]["zero"], step["scorers"]
    (128, 8, 3, 3)
    """
    reader = StepReader(document, keys_of("openrlhf-rl"), options)
    reader.read_model("base")
    stated = reader.count("nodes") * reader.count("devices", 8)
    replicas, longest = openrlhf.put_degrees(reader, stated, "devices"), _lengths(reader)
    _devices(reader, replicas * reader.degree("tensor_parallel") * reader.degree("context_parallel"))
    _batch(reader, replicas, longest)
    openrlhf.put_states(reader)
    openrlhf.put_adapters(reader)
    reader.put_checkpointing("checkpointing")
    reader.put_engine("vllm", ("engine_memory", 0.95), ("engine_tensor", 1), "engine_memory")
    _step(reader)
    return reader


def _devices(reader: StepReader, training: int) -> None:
    """Set the devices of both jobs."""
    together, apart = reader.flag("together"), reader.flag("apart")
    generating = training if together else reader.count("engines") * reader.count("engine_tensor")
    if not together and not apart:
        allowed, fix = "true, unless async_train is set", "add --colocate_all_models"
        reader.fault("together", allowed, ALONE, fix, "" if reader.has("together") else "is missing")
    if not together and apart:
        reader.put(("step", "apart"), True, "apart")
    reader.put(("gpus",), training, "devices")
    reader.put(("rollout", "gpus"), generating, "engines", "devices")


def _lengths(reader: StepReader) -> int:
    """Put the lengths of prompts and answers into both jobs; return the length of a sequence."""
    prompt, answer = reader.count("prompt", 1024), reader.count("answer", 1024)
    longest = reader.count("length", prompt + answer)
    reader.put(("batch", "sequence_length"), longest, "length", "answer")
    lengths = {"prompt": prompt, "output": longest - prompt if reader.has("length") else answer}
    reader.put(("rollout", "traffic"), lengths, "answer", "length")
    reader.note_longest(longest, reader.first("answer", "length"))
    return longest


def _batch(reader: StepReader, replicas: int, longest: int) -> None:
    """Put the batch of answers into the plan; a limit on tokens gives the micro-batch."""
    if not reader.flag("dynamic"):
        reader.put_whole_batch(("micro", 4), ("batch", 128), replicas, "answers")
        return
    whole, tokens = reader.count("batch", 128), ("most_tokens", reader.count("most_tokens", 16192))
    share, ranks = max(whole // replicas, 1), reader.degree("context_parallel")
    each = reader.filled_micro_batch(tokens, longest, share, ranks)
    reader.put(("plan", "micro_batch"), each, "most_tokens", "dynamic")
    reader.put(("plan", "global_batch"), whole, "batch")


def _step(reader: StepReader) -> None:
    """Put the prompts and the models that process each answer into the step."""
    reader.put_samples()
    reader.put_scorers("kl", reference=reader.fraction("kl", 0.01) > 0, rewards=not reader.has("remote"))
    if reader.choice("estimator", ESTIMATORS, CRITIC) == CRITIC:
        reader.put_critic("estimator", "critic_pretrain", "base")
