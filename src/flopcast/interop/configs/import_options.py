"""What the command line adds to a file of another program.

Answers: which settings complete such a file?
Elsewhere: the values of the file itself (config_reader.py).
"""

from flopcast.records import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportOptions:
    """The settings of the command line that complete a foreign file.

    `devices`, where it says their number; `whole`, those of the cluster that it names without one. `model`,
    whether it names the model itself; `lengths`, whether it states those of prompts, answers and sequences.
    """

    devices: int | None = None
    whole: int | None = None
    model: bool = False
    lengths: bool = False
