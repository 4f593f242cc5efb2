"""`flopcast schema`."""

import click

from flopcast.cli.options import print_json, writes_document


@click.command("schema")
@writes_document
def command() -> None:
    """Print the JSON Schema of job files, for editors that complete and check them.

    \b
    flopcast schema > job.schema.json
    # yaml-language-server: $schema=job.schema.json    (first line of a job file)
    """
    from flopcast.spec.job import Job

    print_json(Job.model_json_schema())
