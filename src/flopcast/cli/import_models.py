"""`flopcast import hf` and `hf-model`: models of Hugging Face, described by a config or traced."""

import json
from pathlib import Path

import click

from flopcast.cli.options import FILE
from flopcast.files.atomic_write import write_whole
from flopcast.files.yaml_text import Document


@click.command("hf")
@click.argument("config", type=FILE, metavar="CONFIG.json")
@click.option("-o", "--out", "--output", "out", type=FILE, help="Write the model to this file.")
def hugging_face(config: Path, out: Path | None) -> None:
    """Print the model of a Hugging Face config.json, or of its folder, as YAML.

    Covers the decoders that flopcast has layers for. Put the text under `model:` in a job file.

    \b
    flopcast import hf config.json
    flopcast import hf config.json -o model.yaml
    """
    _import(str(config), out)


@click.command("hf-model")
@click.argument("model", metavar="CONFIG|FOLDER|NAME")
@click.option("--trace", is_flag=True, help="Run the model's code, on tensors without data.")
@click.option("--counts", is_flag=True, help="With --trace: print the counts as JSON instead of a model.")
@click.option(
    "--sequences", default=2, show_default=True, type=click.IntRange(1), help="Sequences of --counts."
)
@click.option(
    "--length", default=512, show_default=True, type=click.IntRange(16), help="Sequence length of --counts."
)
@click.option("-o", "--out", "--output", "out", type=FILE, help="Write the model to this file.")
def hf_model(model: str, trace: bool, counts: bool, sequences: int, length: int, out: Path | None) -> None:
    """Print a model of Hugging Face transformers as YAML, from its config or from a trace of its code.

    Without --trace, this is `import hf`. With --trace, the model's code in transformers runs forward and
    backward, so that architectures without layers in flopcast become a list of operators. This needs torch
    and transformers. Code of a checkpoint never runs, and no weights are read; if NAME is not a file, only
    its config is fetched from the Hugging Face hub.

    \b
    flopcast import hf-model my-model/ --trace -o model.yaml
    flopcast import hf-model config.json --trace --counts
    """
    if not trace:
        _import(model, out)
        return
    from flopcast.cli.options import check_writable
    from flopcast.interop.tracing.blocks import traced_model
    from flopcast.interop.tracing.counts import count
    from flopcast.interop.tracing.weightless import load_libraries
    from flopcast.requests.model_to_trace import config_of

    check_writable("--out", out)
    libraries = load_libraries()
    config = config_of(libraries, model)
    if counts:
        click.echo(json.dumps(count(libraries, config, sequences, length), indent=1))
        return
    mapping, notes = traced_model(libraries, config)
    _write(Document(model, mapping, {}), mapping, notes, out)


def _import(config: str, out: Path | None) -> None:
    from flopcast.cli.options import check_writable
    from flopcast.interop.hugging_face.config import model_from_config
    from flopcast.requests.sources import read_model_file

    check_writable("--out", out)
    document = read_model_file(config)
    mapping, notes = model_from_config(document)
    _write(document, mapping, notes, out)


def _write(
    document: Document, mapping: dict[str, object], notes: tuple[str, ...], out: Path | None
) -> None:
    """Write the model as YAML, to stdout or a file, and what was assumed to stderr."""
    from flopcast.cli.options import writing
    from flopcast.files.validate import build
    from flopcast.library.model_yaml import model_text
    from flopcast.spec.model import Model

    model = build(Model, document, mapping)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    if out is None:
        click.echo(model_text(mapping), nl=False)
        return
    with writing("--out", out):
        write_whole(out, model_text(mapping))
    click.echo(f"{out}: {model.name}, {model.parameters() / 1e9:.3f} billion parameters", err=True)
