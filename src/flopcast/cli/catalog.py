"""`flopcast catalog`."""

import textwrap
from collections.abc import Mapping
from typing import Any

import click

from flopcast.cli.options import further_problems, print_json, writes_document
from flopcast.cli.suggestions import kinds, names_of_kind
from flopcast.errors import Problem, SpecError

WIDTH = 100  # of the lines of all names
OTHER_WORDS = {  # that people use for a kind of the catalogue
    "gpus": "devices",
    "accelerators": "devices",
    "cpus": "hosts",
    "nodes": "clusters",
    "machines": "clusters",
    "frameworks": "stacks",
    "llms": "models",
}


def _problems_of_kind(named: Mapping[str, Any]) -> list[Problem]:
    """Return the error about a kind that the catalogue does not have; empty if it has this kind."""
    from flopcast.files.nearest_names import nearest
    from flopcast.library import catalog

    kind, name, known = named["kind"], named["name"], (*catalog.KINDS, "hub")
    if kind is None or kind in known:
        return []
    near = nearest(kind, (*known, *OTHER_WORDS))
    right = next((OTHER_WORDS.get(word, word) for word in near), "")
    because = "the catalogue has no entries of this kind"
    fix = f"run flopcast catalog {right}{f' {name}' if name else ''}" if right else "run flopcast catalog"
    return [Problem("KIND", kind, ", ".join(known), because, fix)]


@click.command("catalog")
@click.argument("kind", required=False, shell_complete=kinds)
@click.argument("name", required=False, shell_complete=names_of_kind)
@writes_document
@further_problems(_problems_of_kind)
def command(kind: str | None, name: str | None) -> None:
    """List the entries of the catalogue, or show one entry with its sources.

    KIND is devices, hosts, clusters, models, stacks, engines, sites or prices. With a NAME, the command
    prints the entry of this name as JSON, with units. If no entry has this name, it lists all entries whose
    names contain NAME. To change an entry, copy it into a job file and edit the copy, or write `base: NAME`
    and only the fields that differ. `flopcast catalog hub` lists further models by their ids on the Hugging
    Face hub.

    \b
    flopcast catalog
    flopcast catalog models
    flopcast catalog devices a100-sxm4-80gb
    flopcast catalog models HuggingFaceTB/SmolLM2-1.7B
    """
    from flopcast.library import catalog

    if kind == "hub":
        from flopcast.library.hub import hub_models

        part = (name or "").lower()
        found = sorted({model.id for model in hub_models().values() if part in model.id.lower()})
        if not found:
            raise SpecError([catalog.unknown_name("models", str(name))])
        click.echo("\n".join(found))
        return
    if wrong := _problems_of_kind({"kind": kind, "name": name}):
        raise SpecError(wrong)
    if kind is not None and name is not None:
        alike = [one for one in catalog.names(kind) if name.lower() in one]
        if alike and catalog.known(kind, name) is None:
            click.echo(f"{kind} with {name} in their names: {', '.join(alike)}")
            return
        print_json(catalog.document(kind, name).data)
        return
    if kind is not None:
        click.echo(_table(kind))
        return
    for each in catalog.KINDS:
        names = f"{each}: {', '.join(catalog.names(each))}"
        click.echo(textwrap.fill(names, WIDTH, subsequent_indent="  ", break_on_hyphens=False))


def _table(kind: str) -> str:
    """Return the entries of a kind, one a line, with the facts by which users choose among them."""
    from flopcast.library import catalog
    from flopcast.render.tables import aligned
    from flopcast.units import show, show_count, show_memory

    if kind == "devices":
        rows = [("device", "memory", "bandwidth", "16-bit peak")]
        for device in map(catalog.device, catalog.names(kind)):
            memory, rate = show_memory(device.memory_bytes), show(device.memory_bytes_per_s, "B/s")
            peak = device.peak_flop_per_s.get("bf16") or device.peak_flop_per_s.get("fp16")
            rows.append((device.name, memory, rate, show(peak, "FLOP/s") if peak else "–"))
        return "\n".join(aligned(rows, "<>>>"))
    if kind == "clusters":
        groups = {name: catalog.document(kind, name).mapping["groups"][0] for name in catalog.names(kind)}
        nodes = {name: (str(each["count"]), each["node"]) for name, each in groups.items()}
        machines = [
            (name, count, f"{node['devices']} × {node['device']}") for name, (count, node) in nodes.items()
        ]
        return "\n".join(aligned([("cluster", "nodes", "devices of a node"), *machines], "<><"))
    if kind == "models":
        models = [(name, show_count(catalog.model(name).parameters())) for name in catalog.names(kind)]
        return "\n".join(aligned([("model", "parameters"), *models], "<>"))
    return "\n".join(catalog.names(kind))
