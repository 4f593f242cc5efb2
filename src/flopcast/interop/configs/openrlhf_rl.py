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
MODEL, CRITIC_MODEL = "pretrain", "critic_pretrain"
NODES, DEVICES = "actor_num_nodes", "actor_num_gpus_per_node"
ENGINES, TENSOR, MEMORY = "vllm_num_engines", "vllm_tensor_parallel_size", "vllm_gpu_memory_utilization"
TOGETHER, ASYNC = "colocate_all_models", "async_train"
PROMPT, ANSWER, LONGEST = "prompt_max_len", "generate_max_len", "max_len"
PROMPTS, SAMPLES, EPOCHS = "rollout_batch_size", "n_samples_per_prompt", "max_epochs"
BATCH, MICRO, DYNAMIC = "train_batch_size", "micro_train_batch_size", "use_dynamic_batch"
MOST_TOKENS, ESTIMATOR, KL = "train_max_tokens_per_gpu", "advantage_estimator", "init_kl_coef"
REMOTE, CHECKPOINTING = "remote_rm_url", "gradient_checkpointing"
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
    reader.read_model(MODEL)
    stated = reader.count(NODES) * reader.count(DEVICES, 8)
    replicas, longest = openrlhf.put_degrees(reader, stated, DEVICES), _lengths(reader)
    _devices(reader, replicas * reader.degree("tensor_parallel") * reader.degree("context_parallel"))
    _batch(reader, replicas, longest)
    openrlhf.put_states(reader)
    openrlhf.put_adapters(reader)
    reader.put_checkpointing(CHECKPOINTING)
    reader.put_engine("vllm", (MEMORY, 0.95), (TENSOR, 1), MEMORY)
    _step(reader)
    return reader


def _devices(reader: StepReader, training: int) -> None:
    """Set the devices of both jobs."""
    together, apart = reader.flag(TOGETHER), reader.flag(ASYNC)
    generating = training if together else reader.count(ENGINES) * reader.count(TENSOR)
    if not together and not apart:
        allowed, fix = "true, unless async_train is set", "add --colocate_all_models"
        reader.fault(TOGETHER, allowed, ALONE, fix, "" if reader.has(TOGETHER) else "is missing")
    if not together and apart:
        reader.put(("step", "apart"), True, ASYNC)
    reader.put(("gpus",), training, DEVICES)
    reader.put(("rollout", "gpus"), generating, ENGINES, DEVICES)


def _lengths(reader: StepReader) -> int:
    """Put the lengths of prompts and answers into both jobs; return the length of a sequence."""
    prompt, answer = reader.count(PROMPT, 1024), reader.count(ANSWER, 1024)
    longest = reader.count(LONGEST, prompt + answer)
    reader.put(("batch", "sequence_length"), longest, LONGEST, ANSWER)
    lengths = {"prompt": prompt, "output": longest - prompt if reader.has(LONGEST) else answer}
    reader.put(("rollout", "traffic"), lengths, ANSWER, LONGEST)
    reader.note_longest(longest, reader.first(ANSWER, LONGEST))
    return longest


def _batch(reader: StepReader, replicas: int, longest: int) -> None:
    """Put the batch of answers into the plan; a limit on tokens gives the micro-batch."""
    if not reader.flag(DYNAMIC):
        reader.put_whole_batch((MICRO, 4), (BATCH, 128), replicas, "answers")
        return
    whole, tokens = reader.count(BATCH, 128), (MOST_TOKENS, reader.count(MOST_TOKENS, 16192))
    share, ranks = max(whole // replicas, 1), reader.degree("context_parallel")
    each = reader.filled_micro_batch(tokens, longest, share, ranks)
    reader.put(("plan", "micro_batch"), each, MOST_TOKENS, DYNAMIC)
    reader.put(("plan", "global_batch"), whole, BATCH)


def _step(reader: StepReader) -> None:
    """Put the prompts and the models that process each answer into the step."""
    reader.put_samples((PROMPTS, 1024), SAMPLES, EPOCHS)
    reader.put_scorers(KL, reference=reader.fraction(KL, 0.01) > 0, rewards=not reader.has(REMOTE))
    if reader.choice(ESTIMATOR, ESTIMATORS, CRITIC) == CRITIC:
        reader.put_critic(ESTIMATOR, CRITIC_MODEL, MODEL)
