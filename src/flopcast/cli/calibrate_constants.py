"""`flopcast calibrate constants`: prints the fitted constants, or fits them again on published runs.

Answers: which constants exist, what do they mean, how uncertain are they, which sources support them?
Elsewhere: the fit (lab/calibration/constant_fit.py), its protocol (lab/validation/leave_one_out.py), the
file (library/constants.py), the text of the page around its tables (constants_page.md).
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.engine_constants import engines_as_json, engines_as_text, fitted_engines
from flopcast.cli.file_types import InputFile
from flopcast.cli.options import OUTPUT, print_found
from flopcast.cli.progress import OfRuns
from flopcast.cli.validate_options import reads_tables
from flopcast.errors import SpecError, spec_error
from flopcast.files.package_table import read_text

if TYPE_CHECKING:
    from flopcast.cost.constants import Constant, Fitted
    from flopcast.lab.validation.published import Published

option = DocumentedOptions(__name__)

NAME_WIDTH = 58


@click.command("constants", short_help="Print the fitted constants, or fit them to measured runs.")
@option("--runs", "runs", multiple=True, type=InputFile())
@option("--every", type=click.IntRange(min=1), default=1, metavar="N")
@option("--sites", "of_sites", is_flag=True)
@option("-o", "--out", type=OUTPUT)
@option("--json", "wants_json", is_flag=True)
@option("--markdown", "wants_markdown", is_flag=True)
@reads_tables
def constants(
    runs: tuple[str, ...],
    every: int,
    of_sites: bool,
    out: Path | None,
    wants_json: bool,
    wants_markdown: bool,
) -> None:
    """Print the constants that were fitted to whole runs, or fit them again.

    A constant is a ratio, such as the time of kernels in whole runs divided by their time in benchmarks.
    Without --runs, the command prints the constants that predictions use. The mark "only source" means that
    a constant was fitted to runs of a single source.

    With --runs, the command fits constants to these tables. The kind of the tables determines which
    constants: those of training, of offload, of checkpoints, or of serving engines. A fit takes minutes. If
    you interrupt the fit, the file of --out does not change. With --sites, the command predicts each run
    with constants fitted to other sources. The errors of these predictions determine how much wider the
    interval must be for a framework or device of which flopcast has no measured runs.

    \b
    flopcast calibrate constants
    flopcast calibrate constants --runs published_runs.csv --out src/flopcast/catalog/constants/runs.json
    flopcast calibrate constants --sites --runs published_runs.csv --runs held_out_runs.csv --out sites.json
    flopcast calibrate constants --runs zero3_offload_runs.csv --out offload.json
    flopcast calibrate constants --runs headlines.yaml --runs async_dcp_h200.yaml --out checkpoints.json
    flopcast calibrate constants --runs serving_measured_ttft_tpot.csv.gz --every 10
    """
    from flopcast.lab.measured_tables import SERVING
    from flopcast.library.constants import shipped, write

    of_engines = [path for path in runs if SERVING.holds(Path(path))]
    if of_sites and (of_engines or not runs):
        allowed = "--runs with training runs"
        because = "differences between sites are fitted to training runs"
        fix, fault = "add --runs TABLE", "is given without --runs"
        if runs:
            fix, fault = "remove --sites", "is given for runs of serving"
        raise spec_error("--sites", None, allowed, because, fix, fault=fault)
    if of_engines:
        others = [path for path in runs if path not in of_engines]
        engines = fitted_engines(of_engines, others, every, out)
        print_found(engines, wants_json, engines_as_json, engines_as_text)
        return
    unchanged = "" if out is None else f", and {out} is unchanged"
    with OfRuns(whole=f"no constant has been fitted yet{unchanged}") as watch:
        fitted = (_fitted_sites if of_sites else _fitted)(runs, watch) if runs else shipped()
    if out is not None:  # written before printing: a closed pipe must not lose minutes of work
        write(out, fitted)
        click.echo(f"wrote {out}: {len(fitted.constants)} constants", err=True)
    shown = as_markdown if wants_markdown else as_text
    print_found(fitted, wants_json, as_json, shown, is_page=wants_markdown)


def _fitted(paths: tuple[str, ...], watch: OfRuns) -> "Fitted":
    from flopcast.lab.measured_tables import OFFLOAD
    from flopcast.lab.offload_runs.score import fit_runs as fit_offload
    from flopcast.lab.published.predictions import PublishedTables
    from flopcast.lab.saving_runs import CHECKPOINTS, fit_saving, read_saving_runs
    from flopcast.lab.validation.leave_one_out import fit_runs

    if of_offload := _only(paths, OFFLOAD.holds, "offloaded training"):
        return fit_offload([run for path in of_offload for run in OFFLOAD.read(path)])
    if of_saving := _only(paths, CHECKPOINTS.holds, "checkpoints"):
        return fit_saving(read_saving_runs(of_saving))
    tables = PublishedTables(paths, watch)
    fitted = fit_runs(tables.predicted)
    if not fitted.constants:
        _raise_nothing_fitted(paths, tables.predicted())
    return fitted


def _raise_nothing_fitted(paths: tuple[str, ...], published: "Published") -> NoReturn:
    """Raise the faults of the rows of tables to which no constant was fitted, or an error for the tables.

    Raises
    ------
    SpecError
        Always.
    """
    if problems := [problem for row in published.left_out for problem in row.problems]:
        raise SpecError(problems)
    allowed = "tables with runs of several models or plans"
    because = f"no constant can be fitted to {len(published.rows)} run{'s' * (len(published.rows) != 1)}"
    fix = "add other tables, such as the one to which the constants of the catalogue were fitted"
    raise spec_error("--runs", " ".join(paths), allowed, because, fix)


def _fitted_sites(paths: tuple[str, ...], watch: OfRuns) -> "Fitted":
    from flopcast.cost.constants import Fitted
    from flopcast.lab.calibration.site_fit import fit_sites
    from flopcast.lab.published.predictions import PublishedTables

    sites = tuple(site for path in paths for site in PublishedTables([path], watch).site_residuals())
    return Fitted(constants=fit_sites(sites), noise_log_sigmas={}, sites=sites)


def _only(paths: tuple[str, ...], is_table: Callable[[Path], bool], subject: str) -> list[Path]:
    """Return the paths if they are tables of a kind whose constants have their own file; none if none is.

    Raises
    ------
    SpecError
        Some of the files are such tables, and others are not.
    """
    own = [path for path in paths if is_table(Path(path))]
    others = [path for path in paths if path not in own]
    if own and others:
        because = f"constants of {subject} are stored in a separate file"
        fix = "fit the constants to this table in a separate command"
        raise spec_error("--runs", others[0], f"tables of {subject} only", because, fix)
    return [Path(path) for path in own]


def as_json(fitted: "Fitted") -> dict[str, object]:
    """Return the constants as JSON data; keys may be added, never renamed."""
    from flopcast.library.constants import meaning_of

    return {
        "format_version": 1,
        "noise_log_sigmas": dict(fitted.noise_log_sigmas),
        "constants": [
            {
                "name": one.name,
                "meaning": meaning_of(one.name),
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
    """Return a table with one line per constant."""
    if not fitted.constants:
        return (
            "The catalogue contains no fitted constants. Predictions use only kernel measurements and"
            " data sheets."
        )
    head = f"{'constant':{NAME_WIDTH}} {'ratio':>6} {'sigma':>6} {'before':>6} {'rows':>5}  sources"
    return "\n".join((head, *(_line(one) for one in fitted.constants)))


def _line(one: "Constant") -> str:
    sigmas = f"{one.log_sigma_factor:6.3f} {one.prior_log_sigma_factor:6.3f}"
    return f"{one.name:{NAME_WIDTH}} {one.ratio:6.3f} {sigmas} {one.rows:5d}  {_sources(one)}"


def _sources(one: "Constant") -> str:
    only = one.of_one_source and one.sources
    return f"{one.sources[0]} (only source)" if only else ", ".join(one.sources)


def as_markdown(fitted: "Fitted") -> str:
    """Return a page of the documentation that explains the constants and lists them."""
    from flopcast.library.constants import meaning_of
    from flopcast.library.fitted_on import fitted_numbers

    rows = [
        f"| `{one.name}` | {one.ratio:.3f} | {one.log_sigma_factor:.3f} | {one.prior_log_sigma_factor:.3f}"
        f" | {one.rows} | {_sources(one)} |"
        for one in fitted.constants
    ]
    kinds = dict.fromkeys(one.name.partition("[")[0] for one in fitted.constants)
    meanings_text = "\n".join(f"- `{kind}`: {meaning_of(kind)}." for kind in kinds)
    origins = [
        f"| `{one.where}` | {one.covers} | {', '.join(one.fitted_on)} | {one.title} |"
        for one in fitted_numbers()
    ]
    page = read_text(__package__, "constants_page.md")
    return page.format(meanings=meanings_text, rows="\n".join(rows), origins="\n".join(origins))
