"""The typed settings of one engine, from the flags of a command or the keys of a YAML file.

Answers: which setting do `--tp-size 4` and `tensor_parallel_size: 4` mean, and on which line is it?
Elsewhere: the commands (launch.py), the meaning of the settings (one file for each engine), values by key
and their faults (interop/configs/config_reader.py).

A setting has one key for all its spellings: the usual spelling in tables/*.yaml, without leading dashes,
with dashes for underscores, and with dots between the parts of a nested key. If a flag occurs several
times, the last counts, as in argparse. An unknown flag is an error if it is clearly a misspelling, because
the engine would not start, or if its name contains a word for a size or a degree (configs/keys.py).
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise

from flopcast.errors import told_as
from flopcast.files.package_table import meanings, read_table
from flopcast.files.unknown_keys import UnknownKey
from flopcast.files.yaml_text import Document, read_yaml, resolve
from flopcast.interop.configs.keys import Keys, flattened
from flopcast.interop.shell.variables import Word
from flopcast.records import Record, field, replace

FLAG = re.compile(r"--?[A-Za-z]")
TRUTHS = ("true", "false")  # may follow a switch: `--enable-chunked-prefill False` of older releases


ENGINES = ("vllm", "sglang", "trtllm")  # whose users mistake the keys of one for those of another
SAME_MEANING = (  # keys of these engines
    ("gpu-memory-utilization", "mem-fraction-static", "kv-cache-config.free-gpu-memory-fraction"),
    ("max-num-seqs", "max-running-requests", "max-batch-size"),
    ("max-num-batched-tokens", "chunked-prefill-size", "max-num-tokens"),
    ("max-model-len", "context-length", "max-seq-len"),
)


class LaunchKeys(Keys):
    """The settings of an engine.

    Attributes
    ----------
    engine : str
        The entry of the catalogue whose defaults apply; "" for a benchmark.
    same : mapping
        Maps another spelling to its key.
    switches, json, files, lists : str
        Keys of flags without a value, of flags whose value is a mapping, of flags that name a YAML file
        with settings, and of flags with several values.
    file_wins : bool
        Whether the settings of such a file replace those of the command.
    environment : bool
        Whether environment variables are settings: NUM_SHARD for num-shard.
    costly : str
        Words, separated by "|": an unknown key that contains one of them is an error.
    """

    engine: str = ""
    same: Mapping[str, str] = field(default_factory=dict)
    switches: str = ""
    json: str = ""
    files: str = ""
    lists: str = ""
    file_wins: bool = False
    environment: bool = False
    costly: str = ""

    def key(self, written: str) -> str:
        """Return the key of a flag, or of a dotted key of a file.

        >>> keys_of_engine("sglang").key("--tp_size"), keys_of_engine("vllm").key("max_num_seqs")
        ('tensor-parallel-size', 'max-num-seqs')
        """
        name = written.lstrip("-").replace("_", "-")
        return self.same.get(name, name)

    def weighty(self) -> list[str]:
        """Return the keys that change a prediction or are refused, in all their spellings."""
        return [*Keys.weighty(self), *(name for name, key in self.same.items() if self.sets(key))]

    def judged(self, key: str, value: object, given: Collection[str]) -> UnknownKey:
        """Return the verdict on an unknown key, which is an error if it has one of the costly words."""
        found = Keys.judged(self, key, value, given)
        others = (keys_of_engine(name) for name in ENGINES)
        if not found.because and (other := next((each for each in others if each.sets(key)), None)):
            group = next((names for names in SAME_MEANING if key in names), ())
            because = f"{self.program} has no such key; it is a key of {other.program}"
            near = next((name for name in group if self.sets(name)), None)
            return UnknownKey(near=near, because=because, slip=near is not None)
        word = re.search(self.costly, key) if self.costly else None
        if found.because or word is None:
            return found
        because = (
            f"flopcast does not know this key of {self.program}, and {word[0]!r} in its name suggests that"
            " it affects the requests"
        )
        return replace(found, because=because)

    def switch(self, key: str) -> tuple[str, bool]:
        """Return the key of a switch, and whether the key turns it on: the prefix `no-` turns it off.

        >>> keys_of_engine("vllm").switch("no-enable-prefix-caching")
        ('enable-prefix-caching', False)
        """
        name = key.removeprefix("no-")
        return (name, False) if name != key and name in self.switches.split() else (key, True)


@cache
def keys_of_engine(kind: str) -> LaunchKeys:
    """Return the settings of an engine by the name of its table."""
    table = read_table(__package__, f"tables/{kind}.yaml")
    words = {setting: meanings(named) for setting, named in table.pop("words", {}).items()}
    return LaunchKeys(**table, words=words)


class Setting(Record):
    """One setting: its key, its value, its line, and the spelling of its key there.

    `unknown` is the part of its value that only a running shell knows; the value is then None.
    """

    key: str
    value: object
    place: str
    written: str
    unknown: str = ""


def settings_of_words(
    words: Sequence[Word], keys: LaunchKeys, name: str, positional: str = ""
) -> tuple[Setting, ...]:
    """Return the settings of a command's arguments.

    Parameters
    ----------
    words : the words after the program
    keys : the keys of the engine
    name : the name of the script in errors
    positional : the key of the argument without a flag

    Raises
    ------
    SpecError
        A value that should be JSON is not valid JSON.
    """
    found: list[Setting] = []
    loose: list[Word] = []
    for flag, after in _grouped(words):
        if flag is None:
            loose += after
            continue
        written, equals, text = flag.text.partition("=")
        key, place = keys.key(written), f"{name}:{flag.line}"
        key, turned_on = keys.switch(key)
        if not turned_on:
            found.append(Setting(key=key, value=False, place=place, written=written))
            loose += after
            continue
        values = [Word(text, flag.line, flag.unknown)] if equals else []
        if key in keys.switches.split():
            is_value = bool(after) and (after[0].text.lower() in TRUTHS or bool(loose) or not positional)
            stated = after[:1] if is_value and not equals else []
            values, loose = [*values, *stated], [*loose, *after[len(stated) :]]
        else:
            single = key not in keys.lists.split() and (keys.knows(key) or key in keys.json.split())
            taken = 0 if equals else 1 if single else len(after)
            values, loose = [*values, *after[:taken]], [*loose, *after[taken:]]
        found += _of_flag(key, written, values, place, keys)
    if positional and loose and not any(setting.key == positional for setting in found):
        found += _of_flag(positional, positional.upper(), loose[:1], f"{name}:{loose[0].line}", keys)
    return tuple(found)


def settings_of_environment(
    before: Sequence[Word], variables: Mapping[str, Word], keys: LaunchKeys, name: str
) -> tuple[Setting, ...]:
    """Return the settings in environment variables, if the program has any.

    Parameters
    ----------
    before : the words up to the program, in which `docker run -e` may set variables
    variables : those before the command
    keys, name : as those of `settings_of_words`
    """
    pairs = [(variable, word.text, word) for variable, word in variables.items()]
    for flag, word in pairwise(before):
        variable, equals, value = word.text.partition("=")
        if flag.text in ("-e", "--env") and equals:
            pairs.append((variable, value, word))
    found: list[Setting] = []
    for variable, value, word in pairs if keys.environment else ():
        key = keys.key(variable.lower())
        if keys.sets(key):
            as_flag = [Word(f"--{key}", word.line), Word(value, word.line, word.unknown)]
            found += (replace(each, written=variable) for each in settings_of_words(as_flag, keys, name))
    return tuple(found)


def _grouped(words: Iterable[Word]) -> list[tuple[Word | None, list[Word]]]:
    """Return flags with the words before the next flag; the words before the first have the key None."""
    groups: list[tuple[Word | None, list[Word]]] = [(None, [])]
    for word in words:
        if FLAG.match(word.text):
            groups.append((word, []))
        elif word.text.strip():
            groups[-1][1].append(word)
    return groups


def _of_flag(
    key: str, written: str, values: Sequence[Word], place: str, keys: LaunchKeys
) -> Iterator[Setting]:
    """Yield the settings of one flag: several if its value is a mapping."""
    unknown = next((word.unknown for word in values if word.unknown), "")
    if unknown:
        yield Setting(key=key, value=None, place=place, written=written, unknown=unknown)
        return
    text = " ".join(word.text for word in values)
    if key in keys.json.split() and text:
        yield from _of_mapping(key, text, written, place, keys)
        return
    yield Setting(key=key, value=resolve(text) if values else True, place=place, written=written)


def _of_mapping(key: str, text: str, written: str, place: str, keys: LaunchKeys) -> Iterator[Setting]:
    """Yield the settings of a flag whose value is JSON."""
    with told_as(lambda problem: replace(problem, where=place, field=written)):
        data = read_yaml(text.encode(), place).data
    for path, value in flattened(data):
        inner = keys.key(".".join((key, *map(str, path))))
        spelt = ".".join((written, *map(str, path)))
        yield Setting(key=inner, value=value, place=place, written=spelt)


def settings_of_document(document: Document, keys: LaunchKeys) -> tuple[Setting, ...]:
    """Return the settings of a YAML file."""
    found = []
    for path, value in flattened(document.data):
        written = ".".join(map(str, path))
        key, turned_on = keys.switch(keys.key(written))
        stated = value if turned_on else not value
        found.append(Setting(key=key, value=stated, place=document.where(path), written=written))
    return tuple(found)
