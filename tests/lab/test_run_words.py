"""Words in cells of run tables: whoever printed them, they mean one thing."""

import pytest
from all_cases import all_cases
from run_tables import run

from flopcast.lab.published import cells
from flopcast.lab.published.known_names import cluster_of, model_of, software_of
from flopcast.lab.validation.run import Architecture, Machine, Mapping, Software, memory_kind


@all_cases(
    ("printed", "cluster", "replaces"),
    [
        ("NVIDIA A100-SXM4-80GB", "dgx-a100", ""),
        ("A100 40GB", "dgx-a100", "a100-sxm4-40gb"),
        ("A100-PCIe-40GB", "a100-pcie-40gb-8", ""),
        ("H100", "dgx-h100", ""),
        ("DGX-H100", "dgx-h100", ""),
        ("NVIDIA H100 80GB HBM3", "dgx-h100", ""),
        ("H100 PCIe", "h100-pcie-8", ""),
        ("H100-94GB", "grand-teton-h100", ""),
        ("H100-64GB", "marenostrum-5", ""),
        ("NVIDIA A100-SXM-64GB", "leonardo", ""),
        ("H200-141GB", "dgx-h200", ""),
        ("H20", "hgx-h20", ""),
        ("H100PCIe", "h100-pcie-8", ""),
        ("GH200", "alps", ""),
        ("Tesla V100-SXM2-32GB", "aws-p3dn", ""),
        ("GeForce RTX 4080", "rtx-4080-8", ""),
        ("AMD Instinct MI325X", "mi325x-8", ""),
        ("Habana Gaudi2", "gaudi2-8", ""),
        ("8x MI300X", "mi300x-8", ""),
    ],
)
def test_a_device_is_known_by_whatever_its_maker_and_its_owner_call_it(printed, cluster, replaces):
    known = cluster_of(run(machine=Machine(device=printed)))

    assert (known.cluster, known.replaces) == (cluster, replaces)


@pytest.mark.parametrize("printed", ["TPUv3", "", "a device of nobody", "H100X", "A4000", "RTX 4090D"])
def test_a_device_that_is_in_no_catalogue_is_none(printed):
    assert cluster_of(run(machine=Machine(device=printed))) is None


@all_cases(
    ("printed", "meant"), [("BF16", "bf16"), ("bfloat16", "bf16"), ("FP8_MX", "mxfp8"), ("NVFP4", "nvfp4")]
)
def test_a_precision_is_one_word(printed, meant):
    assert cells.precision_word(printed) == meant


@all_cases(
    ("printed", "meant"),
    [
        ("False", "none"),
        ("True", "full"),
        ("selective op", "selective:operators"),
        ("selective", "selective"),
        ("full:block:4", "full:block:4"),
    ],
)
def test_a_mode_of_recompute_is_one_word(printed, meant):
    assert cells.recompute_word(printed) == meant


@all_cases(
    ("word", "meant"),
    [
        ("FSDP=64", {"zero": 3, "data_shard": 0}),
        ("FSDP=8", {"zero": 3, "data_shard": 8}),
        ("FSDP 1", {"zero": 0}),
        ("FSDP2", {"zero": 3}),
        ("FSDP+DP", {"zero": 3}),
        ("16", {"zero": 3, "data_shard": 16}),
        ("hybrid_shard", {"zero": 3, "data_shard": 8}),
        ("none", {}),
        ("", {}),
    ],
)
def test_a_word_for_sharding_says_what_is_sharded_and_over_how_many(word, meant):
    assert cells.sharding(run(mapping=Mapping(fsdp=word, data_parallel=64))) == meant


@all_cases(
    ("plan", "devices", "implied"),
    [
        ({"data_parallel": 8}, 8, {"tensor_parallel": 1, "pipeline_parallel": 1}),
        ({"zero": 3}, 8, {"tensor_parallel": 1, "pipeline_parallel": 1}),
        ({"expert_parallel": 8, "tensor_parallel": 2}, 16, {"pipeline_parallel": 1}),
        ({}, 1, {"tensor_parallel": 1, "pipeline_parallel": 1}),
        ({}, 8, {}),
        ({"context_parallel": 1}, 8, {}),
    ],
)
def test_degrees_of_one_are_left_out_only_where_another_is_stated(plan, devices, implied):
    assert cells.implied_degrees(run(machine=Machine(num_devices=devices)), plan) == implied


@pytest.mark.parametrize(
    ("notes", "rank", "targets"),
    [("LoRA rank 64, attention only", 64, 4), ("QLoRA r=16, all linear", 16, 7), ("LoRA", 8, 2)],
)
def test_remarks_of_adapters_give_rank_and_targets_or_those_of_peft(notes, rank, targets):
    found = cells.adapters(notes)

    assert (found["rank"], len(found["targets"])) == (rank, targets)
    assert cells.adapters("exploration") == {}


@all_cases(("hidden", "heads"), [(2560, 20), (768, 6), (960, 15), (100, None)])
def test_heads_that_no_table_prints_have_128_elements_or_64(hidden, heads):
    assert cells.assumed_heads(hidden) == heads


def test_a_model_of_the_catalogue_is_known_by_its_own_name_unless_the_sizes_are_anothers():
    alike, other = (
        model_of(
            run(model="GPT-2 Medium", architecture=Architecture(hidden=width, num_layers=24, gated=False))
        )
        for width in (1024, 2048)
    )

    assert alike.base == "gpt2-medium"
    assert other.sized


@all_cases(
    ("framework", "year", "stack"),
    [
        ("torchtitan", 2024, "torch-fsdp2"),
        ("PyTorch DDP", 2026, "pytorch-ddp"),
        ("MosaicGPT/Composer FSDP", 2023, "composer-llm-foundry"),
        ("Primus (Megatron-LM)", 2026, "megatron-core-2025"),
        ("PyTorch (Intel Gaudi)", 2024, "generic"),
        ("nobody's", 2024, "generic"),
    ],
)
def test_software_has_the_stack_of_its_kind(framework, year, stack):
    assert software_of(run(software=Software(framework=framework, year=year))).stack == stack


def test_names_of_schedules_mean_schedules_of_a_plan():
    cases = {
        "1F1B": "1f1b",
        "interleaved": "interleaved_1f1b",
        "Interleaved 1F1B": "interleaved_1f1b",
        "GPipe": "gpipe",
        "ZB-1p": "zb_h1",
        "ZB-2p": "zb_h2",
        "zb_v": "zb_v",
        "": None,
        "chimera": None,
    }

    assert {printed: cells.schedule_word(printed) for printed in cases} == cases


def test_a_written_out_network_is_ports_times_their_rate():
    """Gb/s over 8 is GB/s: Omni-Path 100 has 12.5 GB/s a port, NDR InfiniBand 50."""
    cases = {
        ("4x Omni-Path links per node", 4): 50e9,
        ("8x NDR", 8): 400e9,
        ("8x ConnectX-7 IB NDR 400Gb/s + 200Gb/s Ethernet", 8): 400e9,
        ("1600 Gb/s per node (RoCE)", 8): 200e9,
        ("3.2 Tb/s per node EFA", 8): 400e9,
        ("50 GB/s per GPU", 4): 200e9,
        ("10Gb/25Gb/40Gb/50Gb/100Gb/200Gb Ethernet", 8): None,
        ("InfiniBand", 8): None,
        ("400 Gb/s InfiniBand", 8): None,
        ("", 8): None,
    }

    found = {case: cells.node_bytes_per_s(*case) for case in cases}

    assert found == cases


def test_words_behind_a_unit_say_what_a_peak_of_memory_counts():
    cases = {
        "GiB (max allocated)": "allocated",
        "GB allocated (77.9 reserved)": "allocated",
        "GB": "allocated",
        "GB allocated after an iteration": "between steps",
        "GiB reserved": "reserved",
        "GB (nvidia-smi)": "device",
        "MiB as the driver shows": "device",
    }

    assert {unit: memory_kind(unit) for unit in cases} == cases
