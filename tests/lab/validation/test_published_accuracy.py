"""What the README says of published runs: never fitted, left out, fitted; three ways that are never mixed.

Limits are for all sources whose software and machine are described: with constants of their stacks, with
those of the other sources, without any.
"""

import statistics

DESCRIBED = (
    "internevo",
    "korthikanti-2022",
    "llm-foundry-mpt",
    "megatron-bridge-b200",
    "megatron-bridge-b300",
    "megatron-bridge-gb200",
    "megatron-bridge-gb300",
    "nemo-24.07-h100",
    "nemo-automodel-h100",
    "nemo-longseq",
    "simumax-b200",
    "vtrain-measured",
)


def judged(published_runs, constants):
    """Rows of the described sources by family."""
    rows = [row for row in published_runs.judged(constants).rows if row.run.source in DESCRIBED]
    return {family: [row for row in rows if row.family == family] for family in ("dense", "experts")}


def mean_errors(rows):
    return {
        family: statistics.mean(abs(row.relative_error) for row in members)
        for family, members in rows.items()
    }


def test_runs_are_near_though_nothing_was_fitted(published_runs):
    errors = mean_errors(judged(published_runs, "none"))

    assert errors["dense"] <= 0.085
    assert errors["experts"] <= 0.15


def test_runs_of_sources_that_were_left_out_are_nearer_and_inside_their_intervals(published_runs):
    rows = judged(published_runs, "others")
    errors = mean_errors(rows)
    covered = {family: statistics.mean(row.covered for row in members) for family, members in rows.items()}

    assert errors["dense"] <= 0.085
    assert errors["experts"] <= 0.15
    assert {family for family, share in covered.items() if not 0.8 <= share <= 0.97} == set()


def test_runs_that_constants_were_fitted_on_are_met_and_fit_their_devices(published_runs):
    rows = judged(published_runs, "catalogue")
    errors = mean_errors(rows)
    all_rows = [row for members in rows.values() for row in members]

    assert errors["dense"] <= 0.05
    assert errors["experts"] <= 0.12
    assert sum(not row.fits for row in all_rows) <= 0.02 * len(all_rows)
