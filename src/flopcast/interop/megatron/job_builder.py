"""A job document under construction: its data, and the line of each value.

Answers: where is a flag's value stored, and which line do errors name for it?
Elsewhere: the field for each flag (model.py, plan.py).
"""

from collections.abc import Sequence
from pathlib import PurePath

from flopcast.files.yaml_text import Path, set_value
from flopcast.interop.megatron.arguments import Arguments
from flopcast.interop.shell.variables import Word


class JobBuilder(Arguments):
    """The arguments of a training command, and the job document that results from them.

    `layers` and `replicas` are set after the model and the plan's degrees were read.
    """

    def __init__(self, name: str, words: Sequence[Word], line: int) -> None:
        """Start an empty job, whose model has the name of the script with the path `name`."""
        super().__init__(name, words, line)
        self.name: str = PurePath(name).stem or "unnamed"
        self.layers = 1
        self.replicas = 1
        self.noop: tuple[int, ...] = ()  # layers that do nothing: stages count them, the model does not
        self.data: dict[str, object] = {}
        self.lines: dict[Path, int] = {(part,): line for part in ("model", "plan", "batch", "stack")}
        self.flags: dict[Path, str] = {}  # that set values

    def put(self, path: Path, value: object, *flags: str) -> None:
        """Set a value. Its line is that of the first given flag."""
        set_value(self.data, path, value)
        given = next((flag for flag in flags if self.has(flag)), None)
        if given is not None:
            self.lines[path] = self.line(given)
            self.flags[path] = given
