"""`flopcast demo`: predicts a real run and compares it with the measurement. `./dev run` calls it."""

from pathlib import Path

import click

from flopcast.cli.documented_options import DocumentedOptions
from flopcast.files.atomic_write import write_whole

option = DocumentedOptions(__name__)

RUN = "31694544"


@click.command("demo")
@option("-o", "--out", type=click.Path(path_type=Path, file_okay=False), default=Path())
def command(out: Path) -> None:
    """Predict a 128-GPU training run of GPT-NeoX-20B and compare it with the measured step time.

    The command also writes report.html, a page with the breakdown, and trace.pftrace, a timeline for
    ui.perfetto.dev.

    \b
    flopcast demo --out demo
    """
    from flopcast.accuracy import validate_suite
    from flopcast.api import predict, report_page
    from flopcast.cli.output_files import writing
    from flopcast.cli.terminal import print_text
    from flopcast.interop.exports.trace_files import write_trace
    from flopcast.render.report_text import marked_text
    from flopcast.render.suite_comparison import compared_text

    comparison = validate_suite("paper")
    row = next(row for row in comparison.suite.rows if row.id == RUN)
    report = predict(row.job)
    print_text(f"{marked_text(report)}\n\n{compared_text(comparison, RUN)}")
    with writing("--out", out):
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / "report.html", report_page(report))
        write_trace(report, out / "trace.pftrace")
    written = f"{out / 'report.html'} and {out / 'trace.pftrace'} (open it in ui.perfetto.dev)"
    click.echo(f"\nwrote {written}", err=True)
    click.echo("to see pages in a browser, run flopcast ui, or ./dev ui in this repository", err=True)
