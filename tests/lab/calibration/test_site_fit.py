"""lab/calibration/site_fit.py against sites drawn at random, and the shipped residuals, left out."""

import json
from dataclasses import replace

import numpy as np
import pytest

from flopcast.cost.constants import Fitted, SiteResiduals
from flopcast.cost.factors import FASTER_SIDE
from flopcast.cost.unknown_site import SIDES, UNKNOWNS, site_log_sigmas
from flopcast.lab.calibration.site_fit import fit_sites
from flopcast.library.constants import read, shipped, write

REACH = 1.6449


def site(name, gaps, unknowns=("software",), sigma=0.05, family="dense", narrow=0.0):
    return SiteResiduals(
        source=name,
        family=family,
        unknowns=unknowns,
        log_gap_factors=tuple(gaps),
        log_sigma_factors=(sigma,) * len(gaps),
        narrow_fractions=(narrow,) * len(gaps),
    )


def sigmas(sites):
    found = {constant.name: constant.log_sigma_factor for constant in fit_sites(sites)}
    return [found.get(f"unknown_site[dense: software, {side}]", 0.0) for side in SIDES]


def drawn(faster, slower, count=400):
    generator = np.random.default_rng(0)
    sizes = np.abs(generator.normal(size=count))
    is_slower = generator.random(count) < slower / (faster + slower)
    return [float(size * (slower if up else -faster)) for size, up in zip(sizes, is_slower, strict=True)]


def test_the_sigma_of_each_side_is_found_again():
    faster, slower = sigmas([site(f"s{n}", [gap], sigma=0.001) for n, gap in enumerate(drawn(0.1, 0.3))])

    assert faster == pytest.approx(0.1, abs=0.015)
    assert slower == pytest.approx(0.3, abs=0.03)


def test_sites_that_are_as_near_as_their_predictions_say_add_no_doubt():
    assert sigmas([site(f"s{n}", [gap], sigma=0.1) for n, gap in enumerate(drawn(0.08, 0.08))]) == [0, 0]


def test_a_site_counts_once_however_many_runs_it_has():
    sites = [site(f"s{n}", [gap]) for n, gap in enumerate(drawn(0.1, 0.3, 30))]
    many = [replace(each, log_gap_factors=each.log_gap_factors * 5, log_sigma_factors=(0.05,) * 5,
                    narrow_fractions=(0.0,) * 5)
            for each in sites[:10]]  # fmt: skip

    assert sigmas([*many, *sites[10:]]) == sigmas(sites)


def test_an_unknown_library_has_a_doubt_of_its_own():
    near = [site(f"n{n}", [gap], UNKNOWNS[:2], 0.1) for n, gap in enumerate(drawn(0.02, 0.02, 40))]
    far = [site(f"f{n}", [gap], UNKNOWNS[:3], 0.1) for n, gap in enumerate(drawn(0.3, 0.3, 40))]

    found = {constant.name: constant for constant in fit_sites([*near, *far])}

    assert set(found) - {FASTER_SIDE} == {f"unknown_site[dense: software, {side}]" for side in SIDES}
    assert found["unknown_site[dense: software, slower]"].rows == 40


def test_narrow_experts_have_a_doubt_of_their_own():
    wide = [
        site(f"w{n}", [gap], ("framework",), family="experts", narrow=0.1)
        for n, gap in enumerate(drawn(0.02, 0.02, 40))
    ]
    narrow = [
        site(f"n{n}", [gap], ("framework",), family="experts", narrow=1.0)
        for n, gap in enumerate(drawn(0.02, 0.4, 200))
    ]

    found = {constant.name: constant.log_sigma_factor for constant in fit_sites([*wide, *narrow])}

    found.pop(FASTER_SIDE, None)
    assert found == {"unknown_site[experts: narrow, slower]": pytest.approx(0.4, abs=0.05)}


def test_runs_that_are_rarely_faster_than_predicted_narrow_the_lower_side():
    sites = [site(f"s{n}", [gap], (), 0.1) for n, gap in enumerate(drawn(0.05, 0.1, 2000))]

    [found] = fit_sites(sites)

    # 5 % of all are beyond the sigma of 0.05 whose half holds a third of the runs
    reach = -np.quantile([each.log_gap_factors[0] for each in sites], 0.05)
    assert found.name == FASTER_SIDE
    assert found.ratio == pytest.approx(reach / (REACH * 0.1), abs=0.01)


def test_a_few_sites_narrow_no_side():
    assert fit_sites([site(f"s{n}", [0.01], (), 0.1) for n in range(19)]) == ()


def test_residuals_survive_their_file(tmp_path):
    sites = (site("one", [0.1, 0.2]),)
    path = tmp_path / "sites.json"

    write(path, Fitted(fit_sites(sites), {}, sites))

    assert read(path.read_text(encoding="utf-8")).sites == sites
    assert "sites" in json.loads(path.read_text(encoding="utf-8"))


def test_shipped_constants_are_those_of_the_shipped_residuals():
    expected = {one.name: (one.ratio, one.log_sigma_factor) for one in fit_sites(shipped().sites)}

    known = {one.name: (one.ratio, one.log_sigma_factor) for one in shipped().constants}

    assert {name: known.get(name) for name in expected} == expected
    assert {name for name in known if name.startswith("unknown_site")} <= set(expected)


@pytest.mark.parametrize("family", ["dense", "experts"])
def test_intervals_hold_nine_sites_of_ten_whose_source_is_left_out(family):
    """Each source has the same weight, and is judged with constants of the other sources."""
    every = [each for each in shipped().sites if each.family == family]
    inside = []
    for each in every:
        others = [other for other in shipped().sites if other.source != each.source]
        levels = {one.name: one.level for one in fit_sites(others)}
        sides = np.transpose([site_log_sigmas(run, family, levels) for run in each.fractions()])
        gaps, own = np.array(each.log_gap_factors), np.array(each.log_sigma_factors)
        ratio = levels[FASTER_SIDE].ratio if FASTER_SIDE in levels else 1.0
        low, high = (
            REACH * np.hypot(own * one, side) for one, side in zip((ratio, 1.0), sides, strict=True)
        )
        inside.append(float(np.mean((-low <= gaps) & (gaps <= high))))

    assert 0.85 <= np.mean(inside) <= 0.95
