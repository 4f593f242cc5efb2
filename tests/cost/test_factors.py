"""Named factors: one each, scaled by the site, made when first asked for."""

import pytest
from alone import site_with

from flopcast.cost.constant_transfer import FittedLevel
from flopcast.cost.factors import SHARED_DERATE, FactorBook
from flopcast.library import catalog
from flopcast.spec.site import Site, SiteFactor
from flopcast.spec.stack import Derate


def test_a_factor_without_a_site_changes_nothing():
    factor = FactorBook(Site()).get("host", 0.3)

    assert (factor.name, factor.ratio, factor.log_sigma_factor) == ("host", 1.0, 0.3)


def test_a_site_scales_the_factors_that_it_names():
    book = FactorBook(site_with(host=1.5))

    assert book.get("host", 0.3).ratio == 1.5
    assert book.get("nvlink", 0.1).ratio == 1.0


def test_a_sites_ratio_multiplies_what_the_stack_says():
    book = FactorBook(site_with(in_training_derate=1.5))

    assert book.get("in_training_derate", 0.3, ratio=1.2).ratio == pytest.approx(1.8)


def test_a_site_that_gives_no_sigma_leaves_it():
    assert FactorBook(site_with(host=1.5)).get("host", 0.3).log_sigma_factor == 0.3


@pytest.mark.parametrize("known", [0.0, 0.05])
def test_a_site_that_has_measured_a_factor_is_surer_of_it(known):
    site = Site(factors=(SiteFactor(name="host", ratio=1.0, log_sigma_factor=known),))

    assert FactorBook(site).get("host", 0.3).log_sigma_factor == known


@pytest.mark.parametrize(
    ("own", "ran", "expected"),
    [
        (False, False, (1.15 * 1.04, 0.5)),  # what stacks share, its doubt beside the stack's own: 0.3, 0.4
        (False, True, (1.15 * 1.2, 0.02)),
        (True, False, (1.15, 0.4)),  # a derate of its own is not on top of what others share
    ],
)
def test_a_stack_that_nobody_ran_has_the_shared_level_and_its_own_doubt_as_well(own, ran, expected):
    derate = Derate(ratio=1.15, own=own, log_sigma_factor=0.4)
    stack = catalog.stack("generic").model_copy(update={"derate": derate})
    levels = {SHARED_DERATE: FittedLevel(ratio=1.04, log_sigma_factor=0.3)}
    if ran:
        levels[f"{SHARED_DERATE}[{stack.label}]"] = FittedLevel(ratio=1.2, log_sigma_factor=0.02)

    factor = FactorBook(Site(), levels=levels).derate(stack)

    assert (factor.ratio, factor.log_sigma_factor) == pytest.approx(expected)
