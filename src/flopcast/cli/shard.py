"""`flopcast shard`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.options import FILE, further_problems, print_found
from flopcast.errors import Problem, problems_of

option = DocumentedOptions(__name__)


def _problems_of_file(named: Mapping[str, Any]) -> list[Problem]:
    from flopcast.interop.sharding.parameter_list import read_parameters

    return problems_of(lambda: read_parameters(named["file"])) if named["file"] else []


@click.command("shard")
@click.argument("file", type=FILE, metavar="PARAMETERS")
@option("--ranks", type=click.IntRange(min=2), required=True)
@option("--json", "wants_json", is_flag=True)
@further_problems(_problems_of_file)
def command(file: Path, ranks: int, wants_json: bool) -> None:
    """Derive sharding rules for tensor parallelism from a list of parameters.

    PARAMETERS is a JSON file of names and shapes, such as {"model.embed.weight": [32000, 4096]}, or a
    .safetensors file, of which flopcast reads only the header. For each parameter, the output states the
    dimension along which the ranks divide it; 0 is the first dimension.

    \b
    flopcast shard parameters.json --ranks 8
    flopcast shard model.safetensors --ranks 4 --json
    """
    from flopcast.interop.sharding.parameter_list import read_parameters
    from flopcast.interop.sharding.rules import sharding_rules
    from flopcast.render.sharding_text import as_json, as_text

    rules = sharding_rules(read_parameters(file), ranks)
    print_found(rules, wants_json, lambda found: as_json(found, ranks), lambda found: as_text(found, ranks))
