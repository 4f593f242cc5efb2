"""Sites of the catalogue: each names factors that reports of its machine have, and moves those alone."""

from functools import cache

import pytest
from conftest import make_job

from flopcast.api import predict
from flopcast.io import catalog

SITES = {"grand-teton-500w": {"cluster": "grand-teton-h100:1", "stack": "torch-fsdp2"}}  # a job it is of
PLAN = "dp=8 mbs=1 gbs=16 zero=3 precision=bf16"


@cache
def report(site="", **parts):
    """The report of a job on a site's machine."""
    named = {"site": site} if site else {}
    return predict(make_job(plan=PLAN, **parts, **named))


def pair(name):
    return report(**SITES[name]), report(site=name, **SITES[name])


def test_every_site_that_ships_has_a_job_here():
    assert set(catalog.names("sites")) == set(SITES)


@pytest.mark.parametrize("name", SITES)
def test_every_factor_of_a_site_is_one_that_its_machines_steps_hang_on(name):
    plain, _ = pair(name)

    assert {factor.name for factor in catalog.site(name).factors} <= {f.name for f in plain.factors}


@pytest.mark.parametrize("name", SITES)
def test_every_number_of_a_site_has_a_source(name):
    site = catalog.site(name)

    covered = {source.covers for source in site.source}
    assert covered == {"factors"}
    assert all(source.url.startswith("https://") and len(source.title) > 40 for source in site.source)


@pytest.mark.parametrize("name", SITES)
def test_a_slower_site_lengthens_the_step_by_the_shares_of_what_it_slows(name):
    """Between what the shares of the plain step and of the slow one say: shares hold for small changes."""
    plain, there = pair(name)
    ratios = {factor.name: factor.ratio for factor in catalog.site(name).factors}

    def added(of, sign):
        return sum(f.share * (ratios[f.name] ** sign - 1) for f in of.factors if f.name in ratios)

    ratio = there.step_time_s / plain.step_time_s
    slowest = 1 + added(plain, 1)
    assert all(ratio_of > 1 for ratio_of in ratios.values())
    assert 1 < ratio < max(ratios.values())
    assert ratio <= max(slowest, 1 / (1 + added(there, -1))) * (1 + 1e-9)


@pytest.mark.parametrize("name", SITES)
def test_a_site_is_as_sure_of_its_factors_as_it_says(name):
    _, there = pair(name)
    told = {f.name: f.log_sigma_factor for f in there.factors}

    for factor in catalog.site(name).factors:
        assert told[factor.name] == factor.log_sigma_factor


@pytest.mark.parametrize("name", SITES)
def test_a_site_changes_neither_memory_nor_flop_nor_what_it_does_not_name(name):
    plain, there = pair(name)

    assert there.memory == plain.memory
    assert there.metrics.model_flop == plain.metrics.model_flop
    named = {factor.name for factor in catalog.site(name).factors}
    sigmas = [
        {f.name: f.log_sigma_factor for f in of.factors if f.name not in named} for of in (plain, there)
    ]
    assert sigmas[0] == sigmas[1]


@pytest.mark.parametrize("name", SITES)
def test_on_another_device_a_sites_levels_say_nothing(name):
    """Its products and its attention are named after its own device."""
    elsewhere = {"cluster": "dgx-a100:1", "stack": "torch-fsdp2"}

    assert report(site=name, **elsewhere).step_time_s == report(**elsewhere).step_time_s
