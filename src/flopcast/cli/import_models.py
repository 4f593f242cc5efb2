"""`flopcast import hf` and `hf-model`: models of Hugging Face, described by a config or traced."""

import json
from pathlib import Path

import click

from flopcast.io.whole_files import write_whole
from flopcast.io.yaml_text import Document

PATH = click.Path(path_type=Path)


@click.command("hf")
@click.argument("config", type=click.Path(path_type=Path), metavar="CONFIG.json")
@click.option("-o", "--out", "--output", "out", type=PATH, help="Write the model here, not to stdout.")
def hugging_face(config: Path, out: Path | None) -> None:
    """The model of a Hugging Face config.json, or of the folder that holds one, as YAML.

    Decoders that flopcast has layers for. The text is what stands under `model:` in a job file.

    \b
    flopcast import hf config.json
    flopcast import hf config.json -o model.yaml
    """
    _import(str(config), out)


@click.command("hf-model")
@click.argument("model", metavar="CONFIG|FOLDER|NAME")
@click.option("--trace", is_flag=True, help="Run its code, on tensors without numbers.")
@click.option("--counts", is_flag=True, help="With --trace: print what was counted, as JSON, and no model.")
@click.option("--sequences", default=2, show_default=True, type=click.IntRange(1), help="Of --counts.")
@click.option("--length", default=512, show_default=True, type=click.IntRange(16), help="Of --counts.")
@click.option("-o", "--out", "--output", "out", type=PATH, help="Write the model here, not to stdout.")
def hf_model(model: str, trace: bool, counts: bool, sequences: int, length: int, out: Path | None) -> None:
    """A model of Hugging Face transformers as YAML: read from its config, or traced.

    Without --trace as `import hf`. With it, the code that transformers has for the model runs forward and
    backward, so that architectures that flopcast has no layer for become a list of operators. It needs
    torch and transformers. Code of a checkpoint never runs, and no weights are read; a NAME that is no file
    is asked of the Hugging Face hub, for its config alone.

    \b
    flopcast import hf-model my-model/ --trace -o model.yaml
    flopcast import hf-model config.json --trace --counts
    """
    if not trace:
        _import(model, out)
        return
    from flopcast.cli.asking import check_writable
    from flopcast.io.hugging_face.traced import config_of
    from flopcast.tracing.blocks import traced_model
    from flopcast.tracing.counts import count
    from flopcast.tracing.weightless import load_libraries

    check_writable("--out", out)
    libraries = load_libraries()
    config = config_of(libraries, model)
    if counts:
        click.echo(json.dumps(count(libraries, config, sequences, length), indent=1))
        return
    mapping, notes = traced_model(libraries, config)
    _write(Document(model, mapping, {}), mapping, notes, out)


def _import(config: str, out: Path | None) -> None:
    """The model that a config describes."""
    from flopcast.cli.asking import check_writable
    from flopcast.io.hugging_face.config import model_from_config
    from flopcast.io.sources import read_model_file

    check_writable("--out", out)
    document = read_model_file(config)
    mapping, notes = model_from_config(document)
    _write(document, mapping, notes, out)


def _write(
    document: Document, mapping: dict[str, object], notes: tuple[str, ...], out: Path | None
) -> None:
    """The model as YAML, on stdout or in a file; what was assumed, on stderr."""
    from flopcast.cli.asking import writing
    from flopcast.io.model_text import model_text
    from flopcast.io.validate import build
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
