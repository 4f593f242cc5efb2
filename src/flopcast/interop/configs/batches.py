"""Batches of trainers whose files state that of all replicas, or a limit on the tokens of a micro-batch.

Answers: which micro-batch and which global batch does such a file ask for?
Elsewhere: accumulation steps of transformers' Trainer (trainers.py).
"""

from flopcast.interop.configs.config_reader import ConfigReader
from flopcast.spec.divisors import nearest_multiples


def put_whole_batch(
    reader: ConfigReader,
    micro: tuple[str, int],
    whole: tuple[str, int],
    replicas: int,
    unit: str,
    sequences: int = 1,
) -> None:
    """Put the micro-batch and the batch of all replicas into the plan, which must divide.

    Parameters
    ----------
    micro, whole : each its key and its default
    replicas : number of data-parallel ranks
    unit : what the file counts: "samples" or "sequences"
    sequences : number of sequences of each unit
    """
    (micro_key, usual_micro), (key, usual) = micro, whole
    each, total = reader.count(micro_key, usual_micro), reader.count(key, usual)
    share = each * replicas
    if total % share:
        counted = f"{each} {unit if each > 1 else unit[:-1]}"
        because = f"each of {replicas} replicas runs whole micro-batches of {counted}"
        fix = f"write {nearest_multiples(total, share)}{reader.other_ranks}"
        reader.fault(key, f"a multiple of {share}", because, fix)
    reader.put(("plan", "micro_batch"), sequences * each, micro_key)
    reader.put(("plan", "global_batch"), sequences * total, key)


def filled_micro_batch(
    reader: ConfigReader, tokens: tuple[str, int], length: int, share: int, ranks: int = 1
) -> int:
    """Return how many sequences fill a micro-batch up to a limit on tokens; they divide a replica's share.

    Parameters
    ----------
    tokens : the key of the limit of a device, and its value
    length : tokens of a sequence, which `ranks` devices hold together
    share : sequences of a replica
    """
    key, most = tokens[0], tokens[1] * ranks
    if most < length:
        least, because = (
            -(-length // ranks),
            f"a micro-batch holds at least one sequence of {length} tokens",
        )
        reader.fault(key, f"at least {least}", because, f"write {key}: {least}")
        return 1
    number = next((size for size in range(min(most // length, share), 0, -1) if share % size == 0), 1)
    text = f"micro-batches of {number} sequences, which fill at most {most} tokens if all have {length}"
    reader.assume(text, key)
    return number
