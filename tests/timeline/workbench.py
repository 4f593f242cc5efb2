"""Real programs with invented prices: what the timeline's tests play."""

from dataclasses import replace
from functools import cache

import numpy as np
from conftest import make_job

from flopcast.cost.factors import FactorBook
from flopcast.cost.item_prices import ItemPrice
from flopcast.cost.price import price
from flopcast.dtypes import ZERO
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.library.curves import load_book
from flopcast.spec.plan import batch_plans
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

KEPT = KeptResults(most=16384)  # layers and prices of the programs of other tests
NO_LEVELS = {}


def priced_plans(job, plans):
    """The programs of a batch of plans, priced with the catalogue's curves; plays keep nothing."""
    workload = lower(job.model, batch_plans(plans), job.batch, KEPT)
    programs = realise(workload, job.stack, kept=KEPT)
    factors = FactorBook(job.site, NO_LEVELS)
    priced = price(programs, job.cluster, load_book(job.cluster), factors, KEPT)
    return replace(priced, kept=NOTHING_KEPT)


def priced_job(job):
    return priced_plans(job, [job.plan])


@cache
def any_priced():
    """Some priced programs, to hang other prices on."""
    return priced_job(make_job())


def repriced(priced, seconds_of):
    """The same programs where `seconds_of(item)` gives each item's seconds; nothing is launched."""
    prices = {}
    for item in priced.programs.items():
        known = priced.of(item)
        seconds = np.zeros_like(known.alone_s) + seconds_of(item)
        prices[item] = ItemPrice(alone_s=seconds, host_s=ZERO, wholly=known.factors, link=known.link)
    return replace(priced, prices=prices)


def with_latency(priced, part_of):
    """The same prices, where `part_of(item)` says which part of a message is latency, not on its link."""
    prices = dict(priced.prices)
    for item in priced.programs.items():
        price = priced.of(item)
        if price.link is not None:
            link = replace(price.link, fraction=np.full_like(price.alone_s, 1.0 - part_of(item)))
            prices[item] = replace(price, link=link)
    return replace(priced, prices=prices)


def without_latency(priced):
    """The same prices where all of a message is on its link."""
    return with_latency(priced, lambda _: 0.0)


def only(seconds):
    """A rule for `repriced`: seconds by (item name, phase), nothing for all others."""
    return lambda item: seconds.get((item.name, item.phase), 0.0)
