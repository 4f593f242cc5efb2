"""Unknown keys of job files: which known key was meant?

Answers: which field do other programs call `tp_size`, and what does a key such as "batch = {seq" mean?
Elsewhere: keys in the wrong section (misplaced_keys.py), unknown keys of other programs' files
(unknown_keys.py).
"""

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from flopcast.errors import Problem
from flopcast.files.field_examples import BLOCK, MEANT, OF_BLOCKS, OTHER_NAMES
from flopcast.files.nearest_names import nearest
from flopcast.fixes import Edit, Fix, in_words
from flopcast.meant_quantities import meant_quantity
from flopcast.units import units_of

OF_TRAINING = "remove it: only training has it"
UNKNOWN_KEY = "is not a known key"
ARGUMENT = "argument "  # begins the place of a value that KEY=VALUE gives
NEAR = 0.6  # of letters in common, from which a key is a misspelling of a known one
SLIP = 0.85  # of letters in common, from which a key is a misspelling of another program's name
ZERO_OF = {"fsdp": 3, "ddp": 0}  # keys that may state a number of data-parallel ranks → their ZeRO stage
OF_TIERS = re.compile(r"bandwidth|bw\b|latency")  # a key that states the speed of a network of a cluster
OF_NODES = ("device", "gpu", "host", "nvme", "peer")  # parts of a node
INSIDE_NODES = re.compile(r"intra|nvlink|scale_up|xgmi")
GLUED = re.compile(r"(\w+) ?(?:=|::?)\s*([{\[]?)")  # a key with the "=" or ":" that should end it


def unknown_field(
    key: str,
    value: object,
    known: Iterable[str],
    field: str,
    where: str,
    whole: Mapping[str, object] | None = None,
    same: Callable[[str], Iterable[str]] = lambda name: (name,),
) -> Problem:
    """Return the fault of a key that its mapping does not have; the fix names the key that was meant.

    `whole` is the mapping, and `same` returns all names of the field with a name.

    >>> unknown_field("tp_size", 2, ["tensor_parallel"], "plan.tp_size", "").fix
    'did you mean tensor_parallel?'
    >>> unknown_field("batch = {seq", None, ["batch", "plan"], "batch = {seq", "job.yaml:3").fix
    'write "batch: {" in place of "batch = {", with a colon and a space'
    """
    names = sorted({*known})
    glued = GLUED.match(key)
    right = _of_unit(key, value, names) or meant_name(glued[1] if glued else key, names, value)
    because = "an unknown key raises an error, so that no setting is silently ignored"
    right = "stage_layers" if key == "stages" and "," in str(value) else right
    words = [f"{name}={each}" for name, each in value.items()] if isinstance(value, dict) else []
    words = value.split() if isinstance(value, str) else words
    rank = value.get("r", value.get("rank")) if isinstance(value, dict) else None  # of LoRA
    plain = str(rank or value).replace("'", "")
    in_section = f"{field.rpartition('.')[0].rpartition('.')[2]}_{key}"  # batch_size of size in batch
    in_words_of_others = (MEANT.get(key) or MEANT.get(in_section) or _meant_elsewhere(key)).format(
        value=plain
    )
    elsewhere = _as_part(key, value, words, names, whole or {}) or in_words_of_others
    elsewhere = _of_ranks(key, plain, whole or {}) or elsewhere
    if elsewhere.startswith(OF_TRAINING) and "replicas" not in names:  # of a plan of serving
        elsewhere = ""
    if key in ("seq", "sequence_length") and "replicas" in names:  # a plan of serving
        elsewhere = f"remove {key}: the traffic states the lengths of prompts and outputs"
    elsewhere = "" if same_elsewhere(key, names) or "," in str(value) * (key == "stages") else elsewhere
    if isinstance(elsewhere, Fix) and elsewhere.edits and where.startswith(ARGUMENT):
        changes = _changes(field.rpartition(".")[0], elsewhere.edits[0])
        elsewhere = Fix(f"write {' '.join(changes)}", elsewhere.edits)
    removed = where.removeprefix(ARGUMENT) if where.startswith(ARGUMENT) else key
    fix = elsewhere or (Fix(f"did you mean {right}?", ({right: value},)) if right else f"remove {removed}")
    stated = next((each for each in same(right) if each in (whole or {})), "") if right else ""
    if stated and "." in field and not elsewhere and not where.startswith(ARGUMENT):
        fix = f"remove {key}, because {stated} is given"
    if glued and right:
        written = f"{right}: {glued[2]}".rstrip()
        fix = f'write "{written}" in place of "{glued[0]}", with a colon and a space'
    if re.fullmatch(r"\d{3}", key) and value is None:
        because = f"a comma ends a value inside brackets, so that {key} is read as a key"
        fix = f"remove the comma before {key}"
    return Problem(field, value, ", ".join(names), because, fix, where=where, fault=UNKNOWN_KEY)


def _meant_elsewhere(key: str) -> str:
    """Return what to write instead of another program's name of a key that has a place of its own.

    >>> _meant_elsewhere("seq_len")
    'set batch.sequence_length, or --seq, to {value} instead'
    """
    return MEANT.get(same_elsewhere(key, MEANT), "")


def _of_ranks(key: str, value: str, whole: Mapping[str, object]) -> Fix | None:
    """Return the fix of a number of ranks or of accumulation steps, which several fields of a plan state.

    None if the key states no such number, or if the plan, `whole`, does not determine these fields.

    >>> print(_of_ranks("fsdp", "16", {}), _of_ranks("ga", "4", {"dp": 16, "mbs": 2}), sep="; ")
    write data_parallel=16 and zero=3; write global_batch=128
    """

    def number_of(*names: str) -> int:
        stated = (str(whole.get(name)) for name in names)
        return next((int(each) for each in stated if each.isdecimal()), 0)

    number = int(value) if value.isdecimal() else 0
    replicas = number_of("data_parallel", "dp")
    edit: dict[str, int] = {}
    if key in ZERO_OF and number > 1 and not replicas:
        edit = {"data_parallel": number, "zero": ZERO_OF[key]}
    if MEANT.get(key) == MEANT["grad_accum"] and number and (replicas := replicas or number_of(*ZERO_OF)):
        micro, total = number_of("micro_batch", "mbs"), number_of("global_batch", "gbs")
        if total and not micro and total % (replicas * number) == 0:
            edit = {"micro_batch": total // replicas // number}
        elif micro and not total:
            edit = {"global_batch": replicas * micro * number}
    words = [f"{name}={new}" for name, new in edit.items()]
    return Fix(f"write {' and '.join(words)}", (edit,)) if edit else None


def _as_part(
    key: str,
    value: object,
    words: Sequence[str],
    known: Collection[str] = (),
    whole: Mapping[str, object] | None = None,
) -> Fix | None:
    """Return the fix that writes a part of a job in place of an unknown key; None if no part is meant.

    `words` are the settings inside the value, and `known` the keys of the mapping. `whole` is as in
    `unknown_field`.

    >>> print(_as_part("top_k", 2, [], ["blocks"]))
    write blocks: {0: {feed_forward: {top_k: 2}}} in place of it
    """
    edit: Edit = {}
    meant = _field_of_block(key)
    if "blocks" in known and (meant not in ("", "count") or (meant and whole)):
        model = whole or {key: value}
        is_changed = not whole or "base" in whole
        edit = {"blocks": {"0": _sizes_of(model)} if is_changed else [BLOCK | _sizes_of(model)]}
    if "tiers" in known and (quantity := OF_TIERS.search(key)):
        tier = "0" if INSIDE_NODES.search(key) else "1"
        field = "latency_s" if quantity[0] == "latency" else "bytes_per_s"
        edit = {"tiers": {tier: {field: meant_quantity(str(value), units_of(field)) or value}}}
    if "tiers" in known and "links" in key:
        tier = "0" if INSIDE_NODES.search(f"{key} {value}") else "1"
        file = next(iter(value.values()), "links.csv") if isinstance(value, dict) else value
        edit = {"tiers": {tier: {"links": {"file": file, "unit": "MB/s"}}}}
    if "groups" in known and re.fullmatch(r"(?:num_)?(?:gpus?|devices)_per_node", key):
        edit = {"groups": {"0": {"node": {"devices": value}}}}
    if "groups" in known and key in OF_NODES:
        edit = {"groups": {"0": {"node": {key.replace("gpu", "device"): value}}}}
    elsewhere = MEANT.get(key) or MEANT.get(f"{key}_size", "")
    if "changes" in known and (moved := re.match(r"set ([a-z]+\.[a-z_]+)", elsewhere)):
        edit = {"changes": f"{moved[1]}={value}"}
    if key == "plan":
        edit = {"changes": " ".join(f"{key}.{word}" for word in words)}
    if key == "node" and not isinstance(value, int):
        edit = {"groups": {"0": {"node": value}}}
    nodes = ", for the nodes of the first group" if key == "node" else ""
    for name, new in edit.items():
        return Fix(f"write {name}: {in_words(new)} in place of it{nodes}", (edit,))
    return None


def _sizes_of(model: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a block whose values a model states beside its name.

    >>> _sizes_of({"num_layers": 6, "hidden": 512, "num_heads": 8, "kv_heads": 2})
    {'count': 6, 'mixer': {'heads': 8, 'kv_heads': 2}}
    """
    block: dict[str, Any] = {}
    for key, value in model.items():
        name = _field_of_block(key)
        part = OF_BLOCKS.get(name, "")
        if part:
            block[part] = block.get(part, {}) | {name: value}
        elif name and "base" not in model:
            block[name] = value
    return block


def _field_of_block(key: str) -> str:
    """Return the field of a block that a key beside the name of a model means; "" if it means none.

    >>> _field_of_block("num_heads"), _field_of_block("hidden")
    ('heads', '')
    """
    return key if key in OF_BLOCKS else same_elsewhere(key, OF_BLOCKS)


def _changes(path: str, value: object) -> Iterator[str]:
    """Yield the changes KEY=VALUE that set the values inside a mapping at a path.

    >>> list(_changes("cluster", {"groups": {"0": {"node": {"devices": 4.0}}}}))
    ['cluster.groups.0.node.devices=4']
    """
    if not isinstance(value, Mapping):
        text = in_words(value)
        yield f'{path}="{text}"' if " " in text else f"{path}={text}"
        return
    for key, inner in value.items():
        yield from _changes(f"{path}.{key}".lstrip("."), inner)


def _of_unit(key: str, value: object, known: Iterable[str]) -> str:
    """Return the known name of a key with the unit of its value: every_s for every: 30 min; "" if none.

    >>> _of_unit("every", "30 min", ["every_steps", "every_s"])
    'every_s'
    """
    has_unit = isinstance(value, str) and re.match(r"[\d.]+\s*[A-Za-z]", value)
    names = (name for name in known if has_unit and name.startswith(f"{key}_") and units_of(name))
    return next((name for name in names if meant_quantity(str(value), units_of(name))), "")


def meant_name(key: str, known: Iterable[str], value: object = None) -> str:
    """Return the known name that a key means in other programs, or that it misspells, or "" if there is
    none.

    >>> meant_name("micro_batch_size", ["micro_batch"]), meant_name("global_bacth", ["global_batch"])
    ('micro_batch', 'global_batch')
    """
    known = list(known)
    near = nearest(key, known, least_ratio=NEAR) if len(key) > 1 else []
    near = [*difflib.get_close_matches(key, known, n=1, cutoff=SLIP), *near]
    others = {other: name for name in known for other in OTHER_NAMES.get(name, "").split()}
    slip = nearest(key, others, least_ratio=SLIP) if len(key) > 4 and not near else []
    return same_elsewhere(key, known, value) or next(iter((*near, *(others[each] for each in slip))), "")


def same_in_section(key: str, known: Iterable[str]) -> list[str]:
    """Return the known keys of the same section that have the name of this key in other programs.

    >>> same_in_section("model.n_heads", ["num_attention_heads", "model.num_attention_heads"])
    ['model.num_attention_heads']
    """
    section, name = _parts(key)
    same = {other for names in OTHER_NAMES.values() if name in names.split() for other in names.split()}
    parts = ((each, *_parts(each)) for each in known) if same else ()
    return [each for each, of_section, other in parts if of_section == section and other in same]


def _parts(key: str) -> tuple[str, str]:
    """Return the section of a dotted key or a flag, and its name as `OTHER_NAMES` has it."""
    section, _, name = key.rpartition(".")
    return section, name.lstrip("-").replace("_", "-").lower()


def same_elsewhere(key: str, known: Collection[str], value: object = None) -> str:
    """Return the known name of the field that has this key in other programs, or "" if there is none.

    A field that ends in "_share" is not returned if the value is a whole number above 1.

    >>> known = ["prefix_hit_share", "shared_prefix_tokens"]
    >>> same_elsewhere("prefix", known, 0.5), same_elsewhere("prefix", known, 500)
    ('prefix_hit_share', 'shared_prefix_tokens')
    """
    plain, is_count = re.sub(r"[_ ]", "-", key.lower()), re.fullmatch(r"[2-9]|[1-9]\d+", str(value))
    same = (name for name, also in OTHER_NAMES.items() if name in known and plain in also.split())
    return next((name for name in same if not (is_count and name.endswith("_share"))), "")
