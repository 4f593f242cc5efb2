"""Flows that share equal-cost paths, against enumeration and laws."""

from itertools import product

import numpy as np
import pytest
from conftest import make_job

from flopcast.cost.collectives.collisions import collision_ratio, fullest_bin
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.spec.tier import HashedPaths


def test_the_fullest_bin_is_as_full_as_in_an_enumeration_of_all_throws():
    for balls, bins in ((1, 3), (4, 2), (5, 3), (6, 4)):
        throws = [np.bincount(throw, minlength=bins).max() for throw in product(range(bins), repeat=balls)]
        expected = np.bincount(throws, minlength=balls + 1) / len(throws)

        assert fullest_bin(balls, bins) == pytest.approx(expected, abs=1e-12)


def test_more_paths_and_finer_flows_never_collide_more():
    for name, values in (("uplinks", (1, 2, 4, 8, 16, 64)), ("flows_per_device", (1, 2, 4, 8, 16))):
        ratios = [
            collision_ratio(HashedPaths(**{"devices": 8, "uplinks": 8} | {name: value})) for value in values
        ]

        assert ratios == sorted(ratios, reverse=True)
        assert ratios[-1] >= 1.0


def test_planned_paths_collide_only_where_there_are_too_few():
    assert collision_ratio(HashedPaths(devices=8, uplinks=8, planned=True)) == 1.0
    assert collision_ratio(HashedPaths(devices=8, uplinks=4, planned=True)) == 2.0
    assert collision_ratio(HashedPaths(devices=8, uplinks=4, uplink_ratio=2.0, planned=True)) == 1.0


def test_a_message_between_nodes_takes_longer_by_the_ratio_of_collisions():
    def exposed_s(paths):
        tiers = {"1": {"latency_s": "0 us"} | ({"paths": paths} if paths else {})}
        job = make_job(cluster={"base": "dgx-a100:4", "tiers": tiers}, plan="dp=32 gbs=32 precision=fp16")
        return predict(job, load_book(job.cluster)).breakdown["dp_communication"]

    hashed = {"devices": 8, "uplinks": 8, "flows_per_device": 2}

    assert exposed_s(hashed | {"planned": True}) == exposed_s(None)
    ratio = collision_ratio(HashedPaths(**hashed))
    assert 1.0 < exposed_s(hashed) / exposed_s(None) <= ratio * (1 + 1e-9)
