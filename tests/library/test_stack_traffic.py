"""Gradient and parameter traffic of every stack of the catalogue, against the framework's own code."""

from flopcast.library import catalog

RANKS = (1, 8, 39, 40, 41, 256, 1024)
MEBI = 2**20
ALWAYS_SUMMED = (False, False, False, True)  # at ZeRO-0, 1, 2 and 3: shards come with ZeRO-3 alone
SCATTERED = (False, True, True, True)  # whoever owns a part of the states gets that part of the sum
NEVER, ALWAYS, ZERO_3_ALONE = (False,) * 4, (True,) * 4, (False, False, False, True)


def megatron_core(ranks):
    """distributed_data_parallel.py: the default of bucket_size where reductions overlap."""
    return max(40_000_000, 1_000_000 * ranks)


def fixed(elements):
    """A bucket whose size does not depend on the number of ranks."""
    return lambda ranks: elements


BUCKETS = {  # elements of a bucket that travels beside compute, from the sources that each stack names
    "composer-llm-foundry": fixed(25 * MEBI // 2),  # bucket_cap_mb 25 of DDP, bf16
    "deepspeed-zero": fixed(500_000_000),  # reduce_bucket_size
    "deepspeed-zero-2021": fixed(500_000_000),
    "generic": fixed(40_000_000),
    "gpt-neox-deepspeed": fixed(500_000_000),
    "hai-llm": fixed(128 * MEBI),  # an estimate
    "internevo": fixed(512 * MEBI // 2),  # reduce_bucket_size 512 MiB, bf16
    "megatron-2021": fixed(40_000_000),  # used by no switch of that release
    "megatron-2022": fixed(40_000_000),
    "megatron-bridge": fixed(128 * MEBI),  # comm_overlap.py
    "megatron-bridge-26.04": fixed(128 * MEBI),
    "megatron-bridge-26.04-hopper": fixed(128 * MEBI),
    "megatron-bridge-26.06": fixed(128 * MEBI),
    "megatron-core": megatron_core,
    "megatron-core-2025": megatron_core,
    "megatron-core-2026": megatron_core,
    "megatron-deepspeed": fixed(500_000_000),
    "nemo": fixed(400 * MEBI // 2),  # bucket_cap_mb 400 of Apex, bf16
    "nemo-automodel": fixed(25 * MEBI // 4),
    "maxtext": fixed(200_000_000),
    "neuron": fixed(200_000_000),
    "oneflow": fixed(16 * MEBI // 2),  # nccl_fusion_threshold_mb 16, fp16
    "pytorch-ddp": fixed(25 * MEBI // 4),
    "torch-fsdp2": fixed(100 * MEBI // 4),  # bucket_cap_mb 100 of apply_ddp
    "torch-fsdp2-compiled": fixed(100 * MEBI // 4),
    "xla": fixed(200_000_000),
}
ALL_REDUCE_SHARDED_STATES = {  # the rest reduce-scatter gradients whose optimizer states are sharded
    "deepspeed-zero",  # allreduce_and_scatter
    "gpt-neox-deepspeed",
    "internevo",  # reduce_rank None
    "pytorch-ddp",  # DistributedDataParallel reduces all gradients, also beside ZeroRedundancyOptimizer
}
OVERLAP = {
    "composer-llm-foundry": ALWAYS,
    "deepspeed-zero": ZERO_3_ALONE,
    "generic": ALWAYS,
    "hai-llm": ALWAYS,
    "internevo": ALWAYS,
    "megatron-bridge": ALWAYS,
    "megatron-bridge-26.04": ALWAYS,
    "megatron-bridge-26.04-hopper": ALWAYS,
    "megatron-bridge-26.06": ALWAYS,
    "megatron-core-2025": ALWAYS,
    "maxtext": ALWAYS,
    "nemo": ALWAYS,
    "nemo-automodel": ALWAYS,
    "oneflow": ALWAYS,
    "pytorch-ddp": ALWAYS,
    "torch-fsdp2": ALWAYS,
    "torch-fsdp2-compiled": ALWAYS,
    "xla": ALWAYS,
}
GATHERS_OVERLAP = {"hai-llm", "nemo"} | {name for name in BUCKETS if name.startswith("megatron-bridge")}
ONE_MESSAGE_AFTER_THE_BACKWARD = {name for name in BUCKETS if name.startswith("megatron-")} - {
    "megatron-deepspeed"
}


def test_a_bucket_has_the_size_that_the_framework_gives_it():
    sizes = {name: [catalog.stack(name).gradients.smallest_bucket(n) for n in RANKS] for name in BUCKETS}

    assert sizes == {name: [rule(n) for n in RANKS] for name, rule in BUCKETS.items()}


def test_every_stack_of_the_catalogue_is_compared():
    assert set(catalog.names("stacks")) == set(BUCKETS)


def test_gradients_of_sharded_states_are_reduced_as_the_framework_reduces_them():
    for name in BUCKETS:
        stack = catalog.stack(name)
        summed = name in ALL_REDUCE_SHARDED_STATES
        wanted = ALWAYS_SUMMED if summed else SCATTERED
        stages = stack.sharding.zero_stages

        found = {zero: stack.gradients.scatters(zero) for zero in stages}

        assert found == {zero: wanted[zero] for zero in stages}, name


def test_reductions_and_gathers_overlap_where_the_framework_overlaps_them():
    for name in BUCKETS:
        gradients = catalog.stack(name).gradients

        assert tuple(map(gradients.overlaps, range(4))) == OVERLAP.get(name, NEVER), name
        assert gradients.overlap_gather == (name in GATHERS_OVERLAP), name
        assert gradients.single_bucket_after_backward == (name in ONE_MESSAGE_AFTER_THE_BACKWARD), name


def test_each_stack_names_the_source_of_its_gradient_traffic():
    silent = {"composer-llm-foundry", "oneflow", "pytorch-ddp", "xla"}  # one of them stands for all stages
    for name in set(BUCKETS) - silent:
        covered = " ".join(source.covers for source in catalog.stack(name).source)

        assert "gradients.collective" in covered or "gradients" in covered.split(), name
