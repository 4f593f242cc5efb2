"""`flopcast calibrate constants`: prints the fitted constants, or fits them again on published runs.

Answers: which constants exist, what do they mean, how uncertain are they, which sources support them?
Elsewhere: the fit (lab/calibration/constant_fit.py), its protocol (lab/validation/leave_one_out.py), the
file (library/constants.py).
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flopcast.cli.options import check_writable, print_json, with_progress

if TYPE_CHECKING:
    from flopcast.cost.constants import Constant, Fitted

NAME_WIDTH = 58


@click.command("constants")
@click.option(
    "--runs", "runs", multiple=True, type=click.Path(), help="Fit again on these tables of measured runs."
)
@click.option("--out", type=click.Path(path_type=Path), help="Write the fitted constants to this file.")
@click.option("--json", "wants_json", is_flag=True, help="Print as JSON.")
@click.option("--markdown", "wants_markdown", is_flag=True, help="Print as a page of the documentation.")
def constants(runs: tuple[str, ...], out: Path | None, wants_json: bool, wants_markdown: bool) -> None:
    """Print the constants that were fitted on whole runs, or fit them again.

    A constant is the level of a named factor: the measured time divided by the time that kernel
    measurements predict. Without --runs, prints the constants that predictions use. "site" marks constants
    that depend on the runs of a single source. A fit takes minutes; an interrupted fit leaves the file of
    --out unchanged.

    \b
    flopcast calibrate constants
    flopcast calibrate constants --runs published_runs.csv --out src/flopcast/catalog/constants/runs.json
    """
    from flopcast.library.constants import shipped, write

    check_writable("--out", out)
    try:
        found = _fitted(runs) if runs else shipped()
    except KeyboardInterrupt:
        if out is not None:
            click.echo(f"\nthe fit was interrupted: {out} is unchanged", err=True)
        raise
    if out is not None:  # written before printing: a closed pipe must not lose minutes of work
        write(out, found)
        click.echo(f"wrote {out}: {len(found.constants)} constants", err=True)
    if wants_json:
        print_json(as_json(found))
    else:
        click.echo(as_markdown(found) if wants_markdown else as_text(found))


def _fitted(paths: tuple[str, ...]) -> "Fitted":
    """Return the constants fitted on the runs of some tables."""
    from flopcast.lab.published.predictions import PublishedTables
    from flopcast.lab.validation.leave_one_out import fit_runs

    return fit_runs(PublishedTables(paths, with_progress).predicted)


def as_json(fitted: "Fitted") -> dict[str, object]:
    """Return the constants as JSON data; keys may be added, never renamed."""
    return {
        "format_version": 1,
        "noise_log_sigmas": dict(fitted.noise_log_sigmas),
        "constants": [
            {
                "name": one.name,
                "meaning": one.meaning,
                "ratio": one.ratio,
                "log_sigma": one.log_sigma_factor,
                "prior_log_sigma": one.prior_log_sigma_factor,
                "rows": one.rows,
                "sources": list(one.sources),
                "site": one.of_one_source,
            }
            for one in fitted.constants
        ],
    }


def as_text(fitted: "Fitted") -> str:
    """Return a table with one line per constant, the one that moves predictions most first."""
    if not fitted.constants:
        return "no constant was fitted: predictions use kernels and data sheets alone"
    head = f"{'constant':{NAME_WIDTH}} {'ratio':>6} {'sigma':>6} {'before':>6} {'rows':>5}  sources"
    return "\n".join((head, *(_line(one) for one in fitted.constants)))


def _line(one: "Constant") -> str:
    sigmas = f"{one.log_sigma_factor:6.3f} {one.prior_log_sigma_factor:6.3f}"
    return f"{one.name:{NAME_WIDTH}} {one.ratio:6.3f} {sigmas} {one.rows:5d}  {_sources(one)}"


def _sources(one: "Constant") -> str:
    return f"{one.sources[0]} (site)" if one.of_one_source and one.sources else ", ".join(one.sources)


def as_markdown(fitted: "Fitted") -> str:
    """Return a page of the documentation that explains the constants and lists them."""
    from flopcast.library.fitted_on import fitted_numbers

    rows = [
        f"| `{one.name}` | {one.ratio:.3f} | {one.log_sigma_factor:.3f} | {one.prior_log_sigma_factor:.3f}"
        f" | {one.rows} | {_sources(one)} |"
        for one in fitted.constants
    ]
    meanings = dict.fromkeys((one.name.partition("[")[0], one.meaning) for one in fitted.constants)
    told = "\n".join(f"- `{name}`: {meaning}." for name, meaning in meanings)
    origins = [
        f"| `{one.where}` | {one.covers} | {', '.join(one.fitted_on)} | {one.title} |"
        for one in fitted_numbers()
    ]
    return PAGE.format(meanings=told, rows="\n".join(rows), origins="\n".join(origins))


PAGE = """# Constants fitted on whole runs

Generated by `flopcast calibrate constants --markdown`. Kernels and collectives are measured separately; the
levels of a few named factors show only in whole training runs. `flopcast calibrate constants --runs TABLE
--out src/flopcast/catalog/constants/runs.json` fitted them together; the prior sigma (`before`) is the
uncertainty that the kernel measurements leave. *ratio* is the measured time divided by the time that kernel
measurements predict; *rows* counts the runs in which the factor scales at least two per cent of the step;
*(site)* marks a constant with a single source, on which no claim rests.

{meanings}

| constant | ratio | sigma | before | rows | sources |
|---|---|---|---|---|---|
{rows}

A constant is less certain in a context that differs from all of its runs. `carried[...]` is the standard
deviation of constants between device generations, precisions (16, 8, 4 bits), model families and steps of
scale, estimated from how the constants above differ (`lab/calibration/variance_components.py`). It adds to
the sigma of every constant that is used across such a difference (`cost/constant_transfer.py`).

## Numbers of the catalogue that come from runs

No other number of a stack, device, host, cluster or site comes from a whole run. When the runs behind one
of these numbers are judged, the number is first fitted again on the other rows.

| where | what | runs | how |
|---|---|---|---|
{origins}
"""
