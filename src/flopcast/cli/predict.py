"""`flopcast predict`."""

from pathlib import Path

import click

from flopcast.cli.asking import asks_for_job, check_writable, job_from, print_json


@click.command("predict")
@asks_for_job
@click.option("--json", "wants_json", is_flag=True, help="Print the report as JSON.")
@click.option("--report", type=click.Path(path_type=Path), help="Write an HTML page.")
@click.option("--trace", type=click.Path(path_type=Path), help="Write a trace for ui.perfetto.dev.")
def command(
    job: str | None,
    changes: tuple[str, ...],
    wants_json: bool,
    report: Path | None,
    trace: Path | None,
    **named: object,
) -> None:
    """Predict one training step of a job.

    Prints seconds of a step with their interval, tokens per second, MFU, memory, where the time goes,
    and which measurements all of it rests on. A job is a YAML or JSON file, or options, or both: an
    option replaces a part of the file, KEY=VALUE changes one value of it.

    \b
    flopcast predict job.yaml
    flopcast predict job.yaml plan.tensor_parallel=4 plan.data_parallel=16
    flopcast predict --model gpt3-175b --cluster selene --gpus 1024 --stack megatron-2022 \\
        --plan "dp=16 tp=8 pp=8 mbs=1 gbs=1536 recompute=full precision=fp16" --json
    """
    from flopcast.api import predict
    from flopcast.report.as_json import as_json
    from flopcast.report.text import as_text

    check_writable("--report", report)
    check_writable("--trace", trace)
    made = predict(job_from(job, changes, **named))
    if wants_json:
        print_json(as_json(made))
    else:
        click.echo(as_text(made))
    if report is not None:
        from flopcast.report.html import as_html

        report.write_text(as_html(made), encoding="utf-8")
        click.echo(f"wrote {report}", err=True)
    if trace is not None:
        from flopcast.io.trace import write_trace

        write_trace(made, trace)
        click.echo(f"wrote {trace}: open it in ui.perfetto.dev", err=True)
