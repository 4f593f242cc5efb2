"""Which price a cluster gets: its own name's, its device's, or what a job says."""

import pytest
from all_cases import all_cases
from conftest import make_job

from flopcast.errors import SpecError
from flopcast.library import catalog

H100_NODE = {"node": {"device": "h100-sxm5-80gb", "devices": 8, "host": "epyc-7r13"}, "count": 1}


def price_of(cluster):
    return make_job(cluster=cluster, plan="dp=8 mbs=1 gbs=16 precision=fp16").cluster.price


@all_cases(
    ("cluster", "name"),
    [
        ("aws-p5:1", "aws-p5"),
        ("dgx-h100:1", "h100-sxm5-80gb"),
        ({"base": "aws-p5", "nodes": 1}, "aws-p5"),
        ({"base": "aws-p5", "groups": [H100_NODE]}, "aws-p5"),
        ({"base": "dgx-h100", "nodes": 1, "price": "coreweave-h100"}, "coreweave-h100"),
        ({"base": "dgx-h100", "nodes": 1, "name": "ours"}, "h100-sxm5-80gb"),
    ],
)
def test_a_cluster_has_the_price_of_its_name_or_of_its_device(cluster, name):
    assert price_of(cluster) is catalog.price(name)


def test_a_cluster_whose_device_is_another_than_its_names_has_its_devices_price():
    a100_node = H100_NODE | {"node": H100_NODE["node"] | {"device": "a100-sxm4-80gb"}}

    assert price_of({"base": "aws-p5", "groups": [a100_node]}).name == "a100-sxm4-80gb"


def test_a_device_without_a_price_has_none():
    assert price_of("vista:8") is None


def test_a_job_states_a_price_with_its_doubt():
    stated = {"device_usd_per_hour": "2.25 USD/h", "log_sigma_factor": 0.1}

    price = price_of({"base": "dgx-h100", "nodes": 1, "price": stated})

    assert (price.device_usd_per_hour, price.log_sigma_factor, price.terms) == (2.25, 0.1, "own")


def test_a_listed_price_is_a_base_that_a_job_changes():
    unsure = {"base": "aws-p5", "log_sigma_factor": 0.2}

    price = price_of({"base": "aws-p5", "nodes": 1, "price": unsure})

    assert (price.name, price.device_usd_per_hour, price.log_sigma_factor) == ("aws-p5", 6.88, 0.2)


@all_cases(
    ("price", "field"),
    [
        ("aws-p55", "cluster.price"),
        ({"base": "gold"}, "cluster.price"),
        ({"device_usd_per_hour": 2.0}, "cluster.price.device_usd_per_hour"),
        ({"device_usd_per_hour": "2 GBP/h"}, "cluster.price.device_usd_per_hour"),
        ({"device_usd_per_hour": "2 USD/h", "rebate": 3}, "cluster.price.rebate"),
        ({"log_sigma_factor": 0.1}, "cluster.price.device_usd_per_hour"),
    ],
)
def test_a_price_that_is_none_is_told_by_its_field(price, field):
    with pytest.raises(SpecError) as told:
        price_of({"base": "dgx-h100", "nodes": 1, "price": price})

    assert [problem.field for problem in told.value.problems] == [field]


def test_every_cluster_of_a_cloud_with_a_list_price_has_that_one():
    listed = [name for name in catalog.names("clusters") if name in catalog.names("prices")]

    assert len(listed) >= 6
    assert all(catalog.cluster(name).price.name == name for name in listed)
