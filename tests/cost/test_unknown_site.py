"""cost/unknown_site.py: the doubt about software and devices without fitted runs."""

import math

import pytest
from conftest import make_job

from flopcast import prediction
from flopcast.cost.constant_transfer import FittedLevel
from flopcast.cost.unknown_site import (
    CODE_LOG_SIGMAS,
    DEVICE,
    FRAMEWORK,
    PRIOR_LOG_SIGMAS,
    SIDES,
    SOFTWARE,
    site_constant,
    unknowns,
)
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.records import replace
from flopcast.spec.site import Site, SiteFactor
from flopcast.timeline.uncertainty import difference, log_sigmas

LEVELS = {
    site_constant("dense", SOFTWARE, side): FittedLevel(ratio=1.0, log_sigma_factor=sigma)
    for side, sigma in (("faster", 0.1), ("slower", 0.3))
}


def predicted(stack, levels=LEVELS, **parts):
    job = make_job(stack=stack, **parts)
    return prediction.predict(job, replace(load_book(job.cluster), levels=levels))


def of_site(report):
    return [factor for factor in report.factors if factor.name.startswith("unknown_site")]


def test_only_what_no_fitted_run_shows_widens_an_interval_and_no_step_changes():
    stack = catalog.stack("deepspeed-zero")
    device = make_job(stack=stack).cluster.node.device.name

    unknown, known = predicted(stack), predicted(stack.model_copy(update={"fitted_on": (device,)}))

    (factor,) = of_site(unknown)
    assert (factor.share, factor.sigmas) == (1.0, (0.1, 0.3))
    assert of_site(known) == []
    assert unknown.step_time_s == known.step_time_s
    for added, wide, narrow in zip(
        (0.1, 0.3), log_sigmas(unknown.factors), log_sigmas(known.factors), strict=True
    ):
        assert wide == pytest.approx(math.hypot(narrow, added))


def test_undescribed_code_widens_both_sides_and_the_slower_one_most():
    stack = catalog.stack("deepspeed-zero")

    described, other = predicted(stack), predicted(stack.model_copy(update={"stands_in": True}))

    assert other.step_time_s == described.step_time_s
    pairs = zip(SIDES, of_site(described)[0].sigmas, of_site(other)[0].sigmas, strict=True)
    for side, before, after in pairs:
        assert after == pytest.approx(math.hypot(before, CODE_LOG_SIGMAS[side]))


def test_without_constants_the_prior_is_as_wide_on_both_sides():
    described = catalog.stack("deepspeed-zero")
    for stack in (described, described.model_copy(update={"stands_in": True})):
        (factor,) = of_site(predicted(stack, levels={}))

        assert factor.sigmas == (PRIOR_LOG_SIGMAS[FRAMEWORK],) * 2


def test_the_site_that_was_measured_replaces_both_sides():
    stack = catalog.stack("deepspeed-zero")
    (factor,) = of_site(predicted(stack))
    site = Site(factors=(SiteFactor(name=factor.name, ratio=1.2, log_sigma_factor=0.02),))

    measured, before = predicted(stack, site=site), predicted(stack)

    assert of_site(measured)[0].sigmas == (0.02, 0.02)
    assert measured.step_time_s == pytest.approx(1.2 * before.step_time_s)


def test_plans_on_one_site_share_its_doubt():
    stack = catalog.stack("deepspeed-zero")

    one, other = predicted(stack), predicted(stack, levels={})

    assert difference(one.factors, one.factors, 0.0) == (1.0, 1.0)
    shared = difference(one.factors, other.factors, 0.0)
    alone = [tuple(f for f in each.factors if f not in of_site(each)) for each in (one, other)]
    assert shared == pytest.approx(difference(*alone, 0.0))


def test_operators_that_were_measured_inside_a_software_are_known_on_those_devices_alone():
    """Those of GPT-NeoX were measured on Perlmutter and Vista (arXiv:2509.22832)."""
    stack = catalog.stack("gpt-neox-deepspeed")

    assert [unknowns(stack, device) for device in ("a100-sxm4-80gb", "gh200-96gb")] == [(), ()]
    assert unknowns(stack, "h100-sxm5-80gb") == (FRAMEWORK, DEVICE)


def test_the_runs_of_a_library_are_those_of_the_frameworks_that_are_built_on_it():
    """Megatron-Core and PyTorch's FSDP: stacks that list the same devices are built on one library."""
    libraries = {}
    for stack in map(catalog.stack, catalog.names("stacks")):
        if stack.library_fitted_on:
            libraries.setdefault(stack.library_fitted_on, set()).update(stack.fitted_on)

    assert len(libraries) == 2
    for of_library, of_frameworks in libraries.items():
        assert of_frameworks == set(of_library)
