"""All serving engines and benchmarks whose commands are read. A new kind needs a file, a table and a line
in this module.

Answers: to which engine does this command or settings file belong, and which function reads it?
Elsewhere: the table of engines (tables/kinds.yaml), how commands become a job (launch.py).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from flopcast.errors import spec_error
from flopcast.files.package_table import read_table
from flopcast.files.yaml_text import Document
from flopcast.interop.configs.keys import flattened
from flopcast.interop.serving import clients, sglang, tgi, trtllm, vllm
from flopcast.interop.serving.launch_reader import LaunchReader
from flopcast.interop.serving.settings import keys_of_engine
from flopcast.records import Record

FEWEST_SIGNS = 2
MOST_UNKNOWN_SHARE = 0.4  # of a file's keys; beyond it, the file belongs to another program


class LaunchFormat(Record):
    """The commands of an engine or a benchmark: their description, and the reader of their settings.

    `programs` are patterns of the words that start the program, matched against the last part of a path.
    `signs` are the keys that identify a YAML file of its settings. `model` is the key of the argument
    without a flag. `release` is the pattern of words that state a release, such as the tag of an image; ""
    if no words do. `sends` states whether the program is a benchmark that sends requests.
    """

    description: str
    programs: Sequence[str]
    read: Callable[[LaunchReader], None]
    signs: str = ""
    model: str = ""
    release: str = ""
    sends: bool = False

    def release_in(self, words: Iterable[str]) -> str:
        """Return the release that some words state; "" if they state none.

        >>> KINDS["vllm"].release_in(["docker", "run", "vllm/vllm-openai:v0.5.4"])
        '0.5.4'
        """
        found = (re.search(self.release, word) for word in words if self.release)
        return next((match[1] for match in found if match), "")


_TABLE = read_table(__package__, "tables/kinds.yaml")
KINDS: Mapping[str, LaunchFormat] = {
    "vllm": LaunchFormat(**_TABLE["vllm"], read=vllm.read, model="model"),
    "sglang": LaunchFormat(**_TABLE["sglang"], read=sglang.read),
    "trtllm": LaunchFormat(**_TABLE["trtllm"], read=trtllm.read, model="model"),
    "tgi": LaunchFormat(**_TABLE["tgi"], read=tgi.read),
    "vllm-bench": LaunchFormat(**_TABLE["vllm-bench"], read=clients.read_vllm, sends=True),
    "sglang-bench": LaunchFormat(**_TABLE["sglang-bench"], read=clients.read_sglang, sends=True),
    "aiperf": LaunchFormat(**_TABLE["aiperf"], read=clients.read_aiperf, sends=True),
    "trtllm-data": LaunchFormat(**_TABLE["trtllm-data"], read=clients.read_trtllm_data, sends=True),
}
_PROGRAMS = [(name, program.split()) for name, kind in KINDS.items() for program in kind.programs]
_FIRST_WORD = re.compile("|".join(f"(?:{parts[0]})" for _, parts in _PROGRAMS))
_WHOLE = "|".join(r"\s+".join(parts) for _, parts in _PROGRAMS)
_COMMAND = re.compile(rf"(?:^|[\s/\"'(\[])(?:{_WHOLE})(?=[\s\"',\]]|$)")  # one pass over a text


def has_command(text: str) -> bool:
    """Return whether a text has the words that start an engine.

    >>> has_command("vllm serve gpt2 --tensor-parallel-size 2"), has_command("torchrun pretrain_gpt.py")
    (True, False)
    """
    return _COMMAND.search(text) is not None


def program_of(words: Sequence[str]) -> tuple[str, int]:
    """Return the engine that a command starts, and the number of words that start it; "" and 0 if it
    starts none.

    If a command contains several, the last counts, because a container's name precedes its command.

    >>> program_of("docker run --gpus all vllm/vllm-openai:v0.11 --model gpt2".split())
    ('vllm', 5)
    """
    names = [word.rpartition("/")[2] for word in words]
    begins = [start for start, name in enumerate(names) if _FIRST_WORD.fullmatch(name)]
    found, end = "", 0
    for kind, parts in _PROGRAMS:
        for start in begins:
            own = names[start : start + len(parts)]
            fits = len(own) == len(parts) and all(map(re.fullmatch, parts, own))
            if fits and start + len(parts) > end:
                found, end = kind, start + len(parts)
    return found, end


def kind_of_settings(document: Document) -> str:
    """Return the engine whose settings a YAML file contains, "" if it contains those of none.

    Raises
    ------
    SpecError
        The settings of several engines fit equally well.
    """
    written = [".".join(map(str, path)).replace("_", "-") for path, _ in flattened(document.data)]
    fits = {kind: _fit(written, kind) for kind in KINDS}
    best = max(fits.values())
    names = [kind for kind, fit in fits.items() if fit == best]
    if best[1] < FEWEST_SIGNS:
        return ""
    if len(names) > 1:
        because, fix = "several engines have these settings", f"name the engine by --kind {names[0]}"
        allowed = "a file whose settings only one engine has"
        raise spec_error("format", " or ".join(names), allowed, because, fix, document.where(()))
    return names[0]


def _fit(written: Sequence[str], kind: str) -> tuple[float, int]:
    """Return minus the share of unknown keys, and the number of signs; (-1, 0) if the file does not fit."""
    keys = keys_of_engine(kind)
    own = [keys.key(each) for each in written]
    names = {*own, *(each.partition(".")[0] for each in written)}
    signs = len(names & {keys.key(sign) for sign in KINDS[kind].signs.split()})
    if signs < FEWEST_SIGNS:
        return -1.0, 0
    unknown = sum(not keys.knows(each) for each in own) / max(len(written), 1)
    return (-unknown, signs) if unknown <= MOST_UNKNOWN_SHARE else (-1.0, 0)
