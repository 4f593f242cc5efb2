"""Training with a frozen model or a head that scores, as files of trainers ask for it.

Answers: which reference, teacher and head does a preference-tuning, distillation or reward run have?
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
