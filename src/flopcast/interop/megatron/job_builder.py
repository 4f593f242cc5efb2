"""A job document under construction: its data, and the line of each value.

Answers: where does a flag's value go, and which line do errors name for it?
Elsewhere: which flag goes where (model.py, plan.py).
"""

from pathlib import PurePath

from flopcast.files.yaml_text import Path, set_value
from flopcast.interop.megatron.arguments import Arguments


class JobBuilder:
    """The document of a script whose training command has these arguments.

    `layers` and `replicas` are known to everything that comes after the model and the plan's degrees.
    """

    def __init__(self, name: str, line: int, arguments: Arguments) -> None:
        """Start a job; `name`, the script's path, names the model; `line` is that of the command."""
        self.arguments = arguments
        self.name: str = PurePath(name).stem or "unnamed"
        self.layers = 1
        self.replicas = 1
        self.noop: tuple[int, ...] = ()  # layers that do nothing: stages count them, the model does not
        self.data: dict[str, object] = {}
        self.lines: dict[Path, int] = {(part,): line for part in ("model", "plan", "batch", "stack")}
        self.flags: dict[Path, str] = {}  # that set values

    def put(self, path: Path, value: object, *flags: str) -> None:
        """Set a value; its line is that of the first flag of these that is given."""
        set_value(self.data, path, value)
        given = next((flag for flag in flags if self.arguments.has(flag)), None)
        if given is not None:
            self.lines[path] = self.arguments.line(given)
            self.flags[path] = given
