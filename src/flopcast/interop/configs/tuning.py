"""Further models beside the trained one, as files of trainers ask for them.

Answers: which reference, teacher, critic and head does a tuning, distillation or reward run have?
Elsewhere: what they cost (workload/companions.py), the keys of each trainer (trl.py, llama_factory.py,
torchtune.py).
"""

from flopcast.interop.configs.config_reader import ConfigReader
from flopcast.library import catalog

PAIR = 2  # sequences of a sample: the chosen and the rejected answer
KTO_PASSES = 3  # one of the model itself for the divergence, and two of the reference


def put_reference(reader: ConfigReader, *keys: str, passes: int = 1, own: bool = False) -> None:
    """Put a frozen reference into the model: weights of its `own`, or those under the adapters if any.

    Call it after the adapters are read.
    """
    shared = "adapters" in reader.part("model") and not own
    reader.put(("model", "reference"), "shared" if shared else "separate", *keys)
    if passes > 1:
        reader.put(("model", "reference_passes"), passes, *keys)


def note_pairs(reader: ConfigReader, *keys: str) -> None:
    """Note that a sample is a pair of sequences."""
    given = next((key for key in keys if reader.has(key)), "")
    reader.assume("a sample consists of two sequences, the chosen and the rejected one", given)


def put_score(reader: ConfigReader, key: str) -> None:
    """Put a head of one number into the model, and note its pairs."""
    reader.put(("model", "head"), "score", key)
    note_pairs(reader, key)


def put_teacher(reader: ConfigReader, key: str, name: str) -> None:
    """Put a teacher of the catalogue into the model; report an unknown one."""
    entry = catalog.known("models", name) if name else None
    if entry is None:
        allowed = "a name that `flopcast catalog models` lists, with or without its owner"
        because = "flopcast needs the shape of the teacher to predict its time and memory"
        reader.fault(key, allowed, because, "write such a name, or describe the job by hand")
        return
    reader.put(("model", "teacher"), entry, key)
    reader.assume(f"the teacher {name} is {entry} in the catalogue", key)


def note_longest(reader: ConfigReader, tokens: int, key: str) -> None:
    """Note that every prompt and answer of a rollout is predicted as the longest one that may occur."""
    if not reader.options.lengths:
        way = "state the lengths of your data by --traffic 'prompt=400 output=300' and --seq"
        reader.assume(f"every sequence has {tokens} tokens, the most that can occur; {way}", key)


def put_scorers(reader: ConfigReader, key: str, *, reference: bool, rewards: bool) -> None:
    """Put the models that compute each answer of a rollout once into a step of reinforcement learning."""
    names = ["the log-probabilities of the trained model"]
    names += ["the reference model"] * reference + ["a reward model as large as the trained one"] * rewards
    reader.put(("step", "scorers"), len(names), key)
    reader.assume(f"scoring: {', '.join(names)}, each a forward pass of the training workers", key)


def put_critic(reader: ConfigReader, estimator: str, critic: str, actor: str) -> None:
    """Put a trained critic, which must be as large as the actor, into a step of reinforcement learning."""
    sizes = [catalog.known("models", reader.text(key)) for key in (critic, actor)]
    if reader.has(critic) and sizes[0] != sizes[1]:
        because = "flopcast predicts a critic only if it has the size of the actor"
        reader.fault(critic, reader.text(actor), because, f"write {reader.text(actor)}, or remove {critic}")
    reader.put(("step", "critics"), 1, estimator)
    reader.assume("the critic is as large as the actor and is trained with the same plan", estimator)
