"""States outside the devices: every byte is copied once, and nothing is computed twice."""

import numpy as np
import pytest
from all_cases import all_cases
from workload_cases import LLAMA

from flopcast.library import catalog
from flopcast.operators.base import AbstractOperator
from flopcast.operators.tier_copies import HostUpdate, TierCopy
from flopcast.spec.batch import Batch
from flopcast.spec.plan import Plan, one_plan
from flopcast.workload.lower import lower
from flopcast.workload.program import WHEN
from flopcast.workload.realise import realise

BASE = {"dp": 4, "mbs": 2, "gbs": 24, "precision": "bf16"}
MICRO_BATCHES = 3
OFTEN = (1, MICRO_BATCHES - 2, 1, 0, 0)  # by position: first, middle, last, only, alone


def programs_of(offload="none", stack="generic", **changes):
    plan = Plan(**(BASE | changes), offload=offload)
    return realise(lower(LLAMA, one_plan(plan), Batch(sequence_length=512)), catalog.stack(stack))


def runs(programs):
    """Every item of one rank's step, with how often it runs in a step; one stage."""
    for passes in programs.passes:
        for segment in passes:
            times = float(segment.repeat.sum())
            for item in segment.items:
                often = np.dot(WHEN[item.when], OFTEN) if item.when != "every" else MICRO_BATCHES
                yield item, times * float(item.count.max()) * often
    for item in (*programs.reduce, *programs.synchronise, *programs.update):
        yield item, float(item.count.max())


def copied(programs, link, name=""):
    """Bytes of a step that one rank copies over a link."""
    return sum(
        float(item.work.size_bytes.max()) * times
        for item, times in runs(programs)
        if isinstance(item.work, TierCopy) and item.work.link == link and item.name.startswith(name)
    )


def flop(programs):
    works = ((i.work, times) for i, times in runs(programs) if isinstance(i.work, AbstractOperator))
    return sum(float(work.work().flop.max()) * times for work, times in works)


PLACED = (
    "optimizer:host",
    "optimizer:nvme:0.5,optimizer:host:0.25",
    "optimizer:host:stride2",
    "parameters:host",
    "parameters:nvme,optimizer:nvme,gradients:host",
    "activations:host",
    "activations:nvme:0.5,optimizer:host",
)


@all_cases("offload", PLACED)
def test_no_placement_changes_what_is_computed(offload):
    for zero in (0, 3) if "parameters" not in offload else (3,):
        kept = programs_of(zero=zero, recompute="full")

        assert flop(programs_of(offload, zero=zero, recompute="full")) == pytest.approx(
            flop(kept), rel=1e-12
        )


@all_cases(
    ("offload", "fraction"), [("optimizer:host", 1.0), ("optimizer:host:0.3", 0.3), ("optimizer:nvme", 1.0)]
)
def test_gradients_of_a_shard_leave_once_a_step_in_fp32(offload, fraction):
    for zero in (1, 2, 3):
        programs = programs_of(offload, zero=zero)
        shard = float(programs.trained_parameters.max()) / BASE["dp"]

        assert copied(programs, "to_host", "gradients") == pytest.approx(4 * shard * fraction)
        written = copied(programs, "disk_write", "gradients")
        assert written == pytest.approx(4 * shard if "nvme" in offload else 0.0)


def test_reduced_gradients_pass_through_buffers_in_16_bits_in_every_micro_batch_of_zero_3():
    for zero in (1, 2, 3):
        programs = programs_of("optimizer:host:0.3", stack="deepspeed-zero", zero=zero)
        shard = float(programs.trained_parameters.max()) / BASE["dp"]
        expected = 2 * shard * MICRO_BATCHES if zero == 3 else 0.0

        for link in ("to_host", "to_device"):
            assert copied(programs, link, "gradient_buffers") == pytest.approx(expected)


def test_updated_parameters_return_in_16_bits_unless_their_place_is_outside():
    shard = float(programs_of(zero=3).parameters.max()) / BASE["dp"]

    back = copied(programs_of("optimizer:host:0.5", zero=3), "to_device", "parameters")
    both = programs_of("optimizer:host,parameters:host", zero=3)
    gathers = 2 * MICRO_BATCHES  # in every forward and backward pass

    assert back == pytest.approx(2 * shard * 0.5)
    assert copied(both, "to_device", "parameters") == pytest.approx(4 * shard * gathers)  # of fp32 shards
    deepspeed = programs_of("optimizer:host,parameters:host", "deepspeed-zero", zero=3)
    assert copied(deepspeed, "to_device", "parameters") == pytest.approx(2 * shard * gathers)
    assert copied(deepspeed, "to_host", "parameters") == 0.0  # the host has updated them
    for placed, left in {"parameters:host": 1.0, "optimizer:host:0.25,parameters:nvme": 0.75}.items():
        programs = programs_of(placed, "deepspeed-zero", zero=3)
        assert copied(programs, "to_host", "parameters") == pytest.approx(2 * shard * left), placed


def test_activations_on_peers_leave_and_return_without_touching_the_host():
    on_peers, on_host = programs_of("activations:peer"), programs_of("activations:host")

    for there, here in {"to_host": "peer_write", "to_device": "peer_read"}.items():
        assert copied(on_peers, here) == pytest.approx(copied(on_host, there))
        assert copied(on_peers, there) == 0.0


@all_cases(("offload", "links"), [("activations:host", 1), ("activations:nvme", 2)])
def test_activations_that_leave_return(offload, links):
    programs = programs_of(offload)
    kept = programs_of()
    blocks = [layer for layer in kept.layers if layer.kind == "block"]
    expected = sum(float(block.kept_bytes.max()) * block.logical.count * MICRO_BATCHES for block in blocks)

    assert copied(programs, "to_host") == pytest.approx(expected)
    assert copied(programs, "to_device") == pytest.approx(expected)
    assert copied(programs, "disk_write") == pytest.approx(expected * (links - 1))
    assert copied(programs, "disk_read") == pytest.approx(expected * (links - 1))


@all_cases(
    ("offload", "nvme"),
    [("optimizer:host", 0), ("optimizer:nvme", 28), ("optimizer:nvme,gradients:host", 24)],
)
def test_an_update_passes_28_bytes_a_parameter_and_drives_what_is_placed_there(offload, nvme):
    programs = programs_of(offload, zero=3)
    (update,) = [item.work for item in programs.update if isinstance(item.work, HostUpdate)]
    shard = float(programs.trained_parameters.max()) / BASE["dp"]
    moved = sum(float((each.read_bytes + each.written_bytes).max()) for each in update.storage)

    assert float(update.moved_bytes.max()) == pytest.approx(28 * shard)
    assert moved == pytest.approx(nvme * shard)


def test_a_software_that_updates_on_the_device_copies_states_there_and_back():
    programs = programs_of("optimizer:host", stack="maxtext", zero=3)
    shard = float(programs.trained_parameters.max()) / BASE["dp"]

    assert copied(programs, "to_device", "states") == pytest.approx(12 * shard)
    assert copied(programs, "to_device", "states") == copied(programs, "to_host", "states")
    assert not any(isinstance(item.work, HostUpdate) for item in programs.update)
