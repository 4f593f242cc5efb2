"""Sites of the catalogue: each names factors that reports of its machine have, and moves those alone."""

from functools import cache

from all_cases import all_cases
from conftest import make_job

from flopcast.api import predict
from flopcast.library import catalog

SITES = {  # a job it is of
    "alps-660w": {"cluster": "alps:2", "stack": "torch-fsdp2"},
    "grand-teton-500w": {"cluster": "grand-teton-h100:1", "stack": "torch-fsdp2"},
    "jupiter-680w": {"cluster": "jupiter:2", "stack": "torch-fsdp2"},
}
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


def slowed(name):
    """Ratios of the factors that a site's steps have and plain ones have not, or have otherwise."""
    plain, there = (each.priced.factors for each in pair(name))
    return {each: factor.ratio for each, factor in there.items() if plain.get(each) != factor}


@all_cases("name", SITES)
def test_every_factor_of_a_site_is_one_that_its_machines_steps_hang_on(name):
    plain, there = pair(name)

    assert {factor.name for factor in catalog.site(name).factors} <= {f.name for f in plain.factors}
    assert slowed(name)
    assert set(slowed(name)) <= {factor.name for factor in there.factors}


@all_cases("name", SITES)
def test_every_number_of_a_site_has_a_source(name):
    site = catalog.site(name)

    covered = {source.covers for source in site.source}
    assert covered == site.model_fields_set - {"name", "source"}
    assert all(source.url.startswith("https://") and len(source.title) > 40 for source in site.source)


@all_cases("name", SITES)
def test_a_slower_site_lengthens_the_step_by_the_shares_of_what_it_slows(name):
    """By less than if nothing else took time, and by no more than the share of it in the slow step says."""
    plain, there = pair(name)
    ratios = slowed(name)
    shares = {factor.name: factor.share for factor in there.factors}

    ratio = there.step_time_s / plain.step_time_s
    assert all(ratio_of > 1 for ratio_of in ratios.values())
    assert 1 < ratio < max(ratios.values())
    kept = 1 - sum(shares[each] * (1 - 1 / ratio_of) for each, ratio_of in ratios.items())
    assert ratio <= (1 / kept) * (1 + 1e-9)


@all_cases("name", SITES)
def test_a_site_is_as_sure_of_its_factors_as_it_says(name):
    _, there = pair(name)
    told = {f.name: f.log_sigma_factor for f in there.factors}

    for factor in catalog.site(name).factors:
        assert told[factor.name] == factor.log_sigma_factor


@all_cases("name", SITES)
def test_a_site_changes_neither_memory_nor_flop_nor_what_it_does_not_name(name):
    plain, there = pair(name)

    assert there.memory == plain.memory
    assert there.metrics.model_flop == plain.metrics.model_flop
    named = set(slowed(name))
    sigmas = [
        {f.name: f.log_sigma_factor for f in of.factors if f.name not in named} for of in (plain, there)
    ]
    assert sigmas[0] == sigmas[1]


@all_cases("name", SITES)
def test_on_another_device_a_site_says_nothing(name):
    """Factors are named after its own device, and its limit is above what another board draws at all."""
    elsewhere = {"cluster": "dgx-a100:1", "stack": "torch-fsdp2"}

    assert report(site=name, **elsewhere).step_time_s == report(**elsewhere).step_time_s
