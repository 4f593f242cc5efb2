"""`flopcast import`."""

from pathlib import Path

import click

from flopcast.cli.observing import kineto, nccl_tests, nsys


@click.group("import")
def command() -> None:
    """Make a model, or measurements, out of what others wrote.

    A description is imported, never code or weights. What was assumed or left out is told on stderr.
    """


@command.command("hf")
@click.argument("config", type=click.Path(path_type=Path), metavar="CONFIG.json")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Write the model here, not to stdout.")
def hugging_face(config: Path, out: Path | None) -> None:
    """The model of a Hugging Face config.json, or of the folder that holds one, as YAML.

    Dense decoders only. The text is what stands under `model:` in a job file.

    \b
    flopcast import hf config.json
    flopcast import hf config.json -o model.yaml
    """
    from flopcast.cli.asking import check_writable
    from flopcast.io.hugging_face.config import model_from_config
    from flopcast.io.model_text import model_text
    from flopcast.io.sources import read_model_file
    from flopcast.io.validate import build
    from flopcast.spec.model import Model

    check_writable("--out", out)
    document = read_model_file(str(config))
    mapping, notes = model_from_config(document)
    model = build(Model, document, mapping)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    if out is None:
        click.echo(model_text(mapping), nl=False)
        return
    out.write_text(model_text(mapping), encoding="utf-8")
    click.echo(f"{out}: {model.name}, {model.parameters() / 1e9:.3f} billion parameters", err=True)


for _one in (nccl_tests, kineto, nsys):
    command.add_command(_one)
