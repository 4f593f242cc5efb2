"""Settings of the command line that complete a file of another program.

Answers: which settings complete such a file?
Elsewhere: the values in the file itself (config_reader.py).
"""

from flopcast.records import Record


class ImportOptions(Record):
    """The settings of the command line that complete a foreign file.

    `devices` is the number of devices, if the command line states it. Otherwise, `whole` is the number of
    devices of the named cluster. `model` states whether it names the model itself; `lengths` states whether
    it gives the lengths of prompts, answers and sequences, and `samples` whether it gives those of an
    epoch, but not the number of epochs.
    """

    devices: int | None = None
    whole: int | None = None
    model: bool = False
    lengths: bool = False
    samples: bool = False
