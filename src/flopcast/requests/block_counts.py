"""`num_layers` in a job file, which sets the number of blocks of a catalogue model with equal blocks.

Elsewhere: all other changes of a model (job_files.py).
"""

from flopcast.errors import Problem
from flopcast.files.yaml_text import Document
from flopcast.fixes import set_to
from flopcast.library.edits import merged


def with_num_layers(
    base: object, changes: dict[str, object], document: Document
) -> tuple[dict[str, object], list[Problem]]:
    """Return the changes with `num_layers` as the number of blocks, and its faults.

    Parameters
    ----------
    base : object
        Data of the catalogue model to which the changes apply.
    changes : dict
        What the job file changes in it.
    document : Document
        Document with the line of the value, for a fault.

    Returns
    -------
    tuple
        The changes without `num_layers`, and the problems. There is one if the blocks of the model are not
        all equal, or if the value is not a positive whole number.
    """
    if "num_layers" not in changes:
        return changes, []
    rest = {name: value for name, value in changes.items() if name != "num_layers"}
    blocks = base.get("blocks") if isinstance(base, dict) else None
    own, count = changes.get("blocks", {}), changes["num_layers"]
    if not isinstance(blocks, list) or len(blocks) != 1 or not isinstance(own, dict):
        allowed = "no value, because the blocks of the base model differ"
        because = "flopcast does not know which block to repeat"
        fix = "set the count of a block instead, such as model.blocks.0.count"
    elif isinstance(count, bool) or not isinstance(count, int) or count < 1:
        allowed = "a whole number of at least 1"
        because = "num_layers is the number of equal blocks of the model"
        fix = set_to({"num_layers": blocks[0]["count"]})
    else:
        return rest | {"blocks": merged(own, {"0": {"count": count}})}, []
    where = document.where(("model", "num_layers"))
    return rest, [Problem("model.num_layers", count, allowed, because, fix, where=where)]
