"""The catalogue: devices, hosts, clusters, models, stacks, sites and prices that ship with flopcast.

Answers: which entry does a name mean? Every entry is one YAML file, `catalog/<kind>/<name>.yaml`.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from flopcast.errors import Problem, SpecError
from flopcast.files.field_paths import dotted
from flopcast.files.nearest_names import (
    alternatives,
    begun_words,
    counted_name,
    has_words,
    letters,
    nearest,
    some_of,
    words_of,
)
from flopcast.files.package_files import folder_of
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document, Path, read_yaml
from flopcast.fixes import Fix
from flopcast.library import hub
from flopcast.library.edits import extended, merged
from flopcast.spec.cluster import Cluster, Device, Host
from flopcast.spec.model import Model
from flopcast.spec.operations import Price
from flopcast.spec.site import Site
from flopcast.spec.stack import Stack

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from flopcast.spec.engine import Engine

Entry = TypeVar("Entry", Device, Host, Model, Stack, "Engine", Site, Price)

OWN = {  # kind → how to describe an entry that the catalogue does not have
    "models": "For another model, give its Hugging Face config.json, or its export (.pt2 or .onnx)",
    "devices": "For another device, change a similar one: {base: h100-sxm5-80gb, memory_bytes: 90 GB}",
}
OTHER_NAMES = {  # kind → letters and numbers of a name that people use → entry
    "engines": dict.fromkeys(("trtllm", "tensorrt"), "tensorrt-llm")
    | dict.fromkeys(("textgenerationinference", "huggingfacetgi"), "tgi")
    | {"transformers": "hugging-face", "turbomind": "lmdeploy"}
}
ENGINES_LIKE = {  # entry → letters of other serving software that runs it or resembles it
    "vllm": "aphrodite deepspeed dynamo fastgen kserve lightllm mii mlc nim rayserve triton xinference",
    "sglang": "dynamo lightllm nim xinference",
    "tensorrt-llm": "dynamo nim triton",
    "llama.cpp": "exllama koboldcpp llamafile lmstudio mlc ollama",
}
MOST_CLUSTERS = 5  # that an error names for a device
ENTRIES_WITH_BASES = ("stacks", "engines")  # state only what differs from another release
KINDS = ("devices", "hosts", "clusters", "models", "stacks", "engines", "sites", "prices")


def folder(kind: str) -> "Traversable":
    """Return the catalogue's folder of one kind; inside a zipped package, it is not a file system path."""
    return folder_of("flopcast") / "catalog" / kind


@lru_cache(maxsize=16)
def names(kind: str) -> tuple[str, ...]:
    """Return names of one kind, sorted; "jobs", which are in folders, as folder/name.

    >>> names("hosts")[0], names("jobs")[-1]
    ('core-i7-1165g7', 'paper/llemma-7b-vista-pp4-tp2-dp2')
    """
    return tuple(sorted(_names_in(folder(kind))))


def _names_in(place: "Traversable", before: str = "") -> Iterator[str]:
    """Yield names of the files of a folder, and of its subfolders; empty if the kind has no entries."""
    for entry in place.iterdir() if place.is_dir() else ():
        if entry.is_dir():
            yield from _names_in(entry, f"{before}{entry.name}/")
        else:
            yield before + entry.name.removesuffix(".yaml")


@lru_cache(maxsize=16)
def _by_plain_name(kind: str) -> Mapping[str, str]:
    """Return the names of one kind, keyed by their letters and numbers."""
    return OTHER_NAMES.get(kind, {}) | {letters(name): name for name in names(kind)}


@lru_cache(maxsize=4096)
def known(kind: str, written: str) -> str | None:
    """Return the name of the entry that a written name means, or None.

    Case and separators are ignored. `hub.known_model` defines which parts of a model's name may be omitted.
    A cluster may be named by its device if no other cluster has this device.

    Examples
    --------
    >>> known("clusters", "DGX_H100"), known("models", "meta-llama/Llama-2-7b-hf")
    ('dgx-h100', 'llama-2-7b')
    >>> known("models", "opt-1.3b"), known("models", "qwen3-235b"), known("models", "own/model")
    ('opt-1.3b', 'qwen3-235b-a22b', None)
    >>> known("engines", "TRT-LLM")
    'tensorrt-llm'
    >>> known("clusters", "RTX 4090"), known("clusters", "h100")  # a device of one cluster, and of several
    ('rtx-4090-8', None)
    """
    if written in names(kind):
        return written
    if kind != "models":
        own_name = _by_plain_name(kind).get(letters(written))
        return own_name or (_only_cluster_with(written) if kind == "clusters" else None)
    return hub.known_model(written, _by_plain_name(kind))


def document(kind: str, name: str) -> Document:
    """Return an entry as plain data, with its name filled in; callers must not change it.

    Parameters
    ----------
    kind : a folder of the catalogue: one of `KINDS`, or "suites"
    name : a name, never a path, in any form that `known` accepts: only files that `names` lists are opened

    Raises
    ------
    SpecError
        There is no such entry; the message lists the entries and the nearest names.
    """
    if (own_name := known(kind, name)) is None:
        raise SpecError([unknown_name(kind, name)])
    on_hub = None if own_name in names(kind) else hub.hub_model(own_name)
    return hub.hub_document(on_hub) if on_hub else _document(kind, own_name)


@lru_cache(maxsize=256)
def _document(kind: str, own_name: str) -> Document:
    """Return the plain data of an entry by its exact name."""
    path = folder(kind) / f"{own_name}.yaml"
    written = read_yaml(path.read_bytes(), f"catalog/{kind}/{own_name}.yaml")
    data = {"name": own_name} | written.mapping
    if kind in ENTRIES_WITH_BASES and "base" in data:
        data = extended(_document(kind, data["base"]).mapping, data)
    return Document(written.name, data, written.lines)


def unknown_name(kind: str, name: str, field: str = "", where: str = "") -> Problem:
    """Return the fault of an entry that does not exist; for a device, the fix names clusters with it."""
    all_names = names(kind)
    number, named = counted_name(name, clusters_with(name).values()) if kind == "clusters" else (0, name)
    with_device = clusters_with(named) if kind == "clusters" else {}
    plain = "-".join(begun_words(name, all_names) if kind == "devices" else ()) or named  # without a vendor
    of_models = hub.suggestions(name, all_names) if kind == "models" else []
    of_engines = ENGINES_LIKE.items() if kind == "engines" else ()
    alike = [each for each, own in of_engines if letters(name).startswith(tuple(own.split()))]
    near = alike or list(with_device) or of_models or nearest(plain, all_names, most=3)
    near = near or [each for each in all_names if nearest(plain, words_of(each)[:1], least_ratio=0.75)][:3]
    reason = f"; {name} runs or resembles {alternatives(alike)}" if alike else ""
    reason += ", and there is no such file" * ("/" in name and kind == "models")
    others = [each[:-1] for each in ("models", "clusters", "engines") if each != kind and known(each, name)]
    of_other = "".join(f"; {name} is a{'n' * (each == 'engine')} {each}" for each in others)
    listing = 'write "2.10 USD/h", or ' * (kind == "prices") + "choose one of these names"
    listing += f" (flopcast catalog {kind} lists all)." * (kind in KINDS)
    listing += f" Describe another under {kind[:-1]}: in a job file" * (kind in ("clusters", "stacks"))
    listing = f"write --gpus {name}, and {listing}" if kind == "clusters" and name.isdecimal() else listing
    if len(with_device) > 1:
        listed = ", ".join(f"{a} ({b})" for a, b in with_device.items())
        of_other += f"; clusters with this device: {listed}"
    fix = f"did you mean {alternatives(near)}?" if near else listing
    own = number and (known(kind, named) or next(iter(with_device), None))
    if own:
        nodes, rest = divmod(number, 1 if known(kind, named) else cluster(own).node.devices)
        fix = f"write --cluster {own} --gpus {number}" if rest else f"write {own}:{nodes}"
    described = OWN.get(kind, "") if kind != "devices" or "." in (field or ".") else ""  # names alone
    fix = f"write --engine {name}" if others == ["engine"] else f"{fix} {described}".rstrip(". ")
    return Problem(
        where=where,
        field=field or kind[:-1],
        value=name,
        allowed=some_of(all_names, near),
        because=f"the catalogue has no such {kind[:-1]}{of_other}{reason}",
        fix=Fix(fix, [{"": each} for each in near * (not own)]),
    )


def _only_cluster_with(written: str) -> str | None:
    """Return the only cluster with a device of this name, without its memory; None if there are more."""
    if not any((begin := letters(written)) and letters(x).startswith(begin) for x in names("devices")):
        return None  # reads no cluster
    found = clusters_with(written)
    return next(iter(found)) if len(found) == 1 else None


def clusters_with(written: str) -> dict[str, str]:
    """Return the clusters whose nodes have a device of this name, or of a part of it, with the device.

    Words that occur in no device and no cluster, such as the name of a vendor, are ignored. Words of the
    cluster's name may accompany those of the device. The result has at most `MOST_CLUSTERS` entries, and
    begins with clusters whose own name contains the first word of the device.

    >>> clusters_with("a40"), clusters_with("NVIDIA A40"), clusters_with("dgx")
    ({'delta-a40': 'a40-48gb'}, {'delta-a40': 'a40-48gb'}, {})
    """
    devices = {name: cluster(name).node.device.name for name in names("clusters")}
    of_devices = begun_words(written, devices.values())
    of_clusters = [word for word in begun_words(written, devices) if word not in of_devices]
    if not of_devices:
        return {}
    short, own = "-".join(of_devices), "-".join(of_clusters)
    whole, begun = (
        [name for name, device in devices.items() if has_words(device, short, whole=whole)]
        for whole in (True, False)
    )
    of_own = ([name for name in some if own and has_words(name, own)] for some in (whole, begun))
    found = next(filter(None, (*of_own, whole)), begun)

    def unlike(name: str) -> tuple[bool, int, int, str]:
        return of_devices[0] not in words_of(name), len(devices[name]), len(name), name

    return {name: devices[name] for name in sorted(found, key=unlike)[:MOST_CLUSTERS]}


def _entry(noun: type[Entry], kind: str, name: str) -> Entry:
    """Return a validated entry of the catalogue. Faults in our own files are reported like any other."""
    entry = document(kind, name)
    return build(noun, entry, entry.data)


@lru_cache(maxsize=256)
def device(name: str) -> Device:
    """Return a device by name; the object is frozen, so all callers may share it."""
    return _entry(Device, "devices", name)


@lru_cache(maxsize=256)
def host(name: str) -> Host:
    """Return a host processor by name."""
    return _entry(Host, "hosts", name)


@lru_cache(maxsize=256)
def model(name: str) -> Model:
    """Return a model by name."""
    return _entry(Model, "models", name)


@lru_cache(maxsize=256)
def stack(name: str) -> Stack:
    """Return a stack by name."""
    return _entry(Stack, "stacks", name)


@lru_cache(maxsize=256)
def engine(name: str) -> "Engine":
    """Return a serving engine by name."""
    from flopcast.spec.engine import Engine

    return _entry(Engine, "engines", name)


@lru_cache(maxsize=256)
def site(name: str) -> Site:
    """Return a site by name."""
    return _entry(Site, "sites", name)


@lru_cache(maxsize=256)
def price(name: str) -> Price:
    """Return a price by name. It is the price of a cluster or a device, or one of several offers."""
    return _entry(Price, "prices", name)


def with_price(made: Cluster) -> Cluster:
    """Return the cluster with the price of its name, or of its device.

    A cluster that has a price keeps it. If its device was replaced, it gets the price of the new device.

    Examples
    --------
    >>> cluster("aws-p5").price.name, cluster("dgx-h100").price.name, cluster("vista").price
    ('aws-p5', 'h100-sxm5-80gb', None)
    """
    device_name = made.node.device.name
    for name in () if made.has_mixed_devices else (made.name, device_name):
        if made.price is None and name in names("prices") and price(name).device == device_name:
            return made.model_copy(update={"price": price(name)})
    return made


@lru_cache(maxsize=256)
def cluster(name: str, nodes: object = None) -> Cluster:
    """Return a cluster by name, with its number of nodes in the catalogue or another number.

    Examples
    --------
    >>> cluster("selene").num_devices, cluster("selene", 2).num_devices
    (4480, 16)
    """
    entry = document("clusters", name)
    return with_price(build(Cluster, entry, with_parts(entry, entry.data, (), nodes)))


def with_parts(document: Document, data: object, path: Path, nodes: object = None) -> object:
    """Return a cluster's mapping, with entries for the names and bases of devices, hosts and prices.

    Parameters
    ----------
    document, path
        The document, and the path of the mapping in it.
    nodes : number of nodes of every group, instead of its own; whatever a user wrote

    Raises
    ------
    SpecError
        A device, a host or a price does not exist. The error lists all of them.
    """
    if not isinstance(data, dict) or not isinstance(data.get("groups"), list):
        return data
    problems: list[Problem] = []
    groups = []
    for number, written in enumerate(data["groups"]):
        group = written
        if isinstance(written, dict) and isinstance(written.get("node"), dict):
            at = (*path, "groups", number, "node")
            node = {
                key: _part(key, value, document, (*at, key), problems)
                for key, value in written["node"].items()
            }
            group = written | {"node": node} | ({} if nodes is None else {"count": nodes})
        groups.append(group)
    priced = {}
    if "price" in data:
        priced = {"price": _part("price", data["price"], document, (*path, "price"), problems)}
    if problems:
        raise SpecError(problems)
    return data | priced | {"groups": groups}


def _part(key: str, value: object, source: Document, at: Path, problems: list[Problem]) -> object:
    """Return a device, host or price by its name, or as a base with changes; anything else unchanged."""
    kind = {"device": "devices", "host": "hosts", "price": "prices"}.get(key)
    base = value.get("base") if isinstance(value, dict) else value
    if kind is None or not isinstance(base, str):
        return value
    if known(kind, base) is None:
        problems.append(unknown_name(kind, base, dotted(at), source.where(at)))
        return value
    if isinstance(value, dict):
        return merged(document(kind, base).data, {name: value[name] for name in value if name != "base"})
    return {"devices": device, "hosts": host, "prices": price}[kind](base)
