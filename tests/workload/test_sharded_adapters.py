"""Frozen weights that FSDP shards, in 16 or 4 bits: against counts by hand and a published fine-tune."""

import pytest
from workload_cases import at, realised

from flopcast import job, predict
from flopcast.library import catalog
from flopcast.memory.sharded import gathered_parameters, parameter_shards, unreduced_gradients
from flopcast.spec.model import Model
from flopcast.workload.program import WHEN

ALL = ("q", "k", "v", "out", "gate", "up", "down")
NF4_BYTES = (4 + 8 / 64 + 32 / (64 * 256)) / 8  # of a weight, with its scales and theirs


def gathered(segments):
    """Bytes of all gathers of one forward pass of the only chunk, in the first micro-batch."""
    return sum(
        at(item.work.message_bytes) * at(item.count) * WHEN[item.when][0] * at(segment.repeat)
        for segment in segments
        for item in segment.items
        if item.name == "parameters.gather"
    )


@pytest.mark.parametrize(("base_dtype", "each_bytes"), [("model", 2.0), ("nf4", NF4_BYTES)])
def test_fsdp_shards_and_gathers_frozen_weights_as_they_are_stored(base_dtype, each_bytes):
    """Llama 2 7B with rank 16: 32 blocks of 202,375,168 weights in products; FSDP2 gathers one ahead."""
    adapters = {"rank": 16, "targets": ALL, "base_dtype": base_dtype}
    model = Model.model_validate(catalog.model("llama-2-7b").model_dump() | {"adapters": adapters})
    blocks, norms, tables = 32 * 202_375_168, (2 * 32 + 1) * 4096, 2 * 32_000 * 4096
    trained = 16 * 32 * (4 * 2 * 4096 + 3 * (4096 + 11_008))
    frozen_bytes = each_bytes * blocks + 2 * (norms + tables)

    programs = realised(model, catalog.stack("torch-fsdp2"), "dp=8 zero=3 gbs=8")

    assert gathered(programs.forward) == pytest.approx(frozen_bytes + 2 * trained)
    assert at(parameter_shards(programs)) == pytest.approx(frozen_bytes / 8)  # adapters: fp32 states only
    of_block_bytes = (each_bytes * blocks + 2 * (2 * 32 * 4096 + trained)) / 32
    of_root_bytes = 2 * (tables + 4096)
    whole = gathered_parameters(programs)[:, :, 0]
    assert at(whole) == pytest.approx(2 * of_block_bytes + of_root_bytes)
    assert at(unreduced_gradients(programs)[:, :, 0]) == pytest.approx((2 + 4) * trained / 32)


def test_two_cards_of_24_gb_train_llama_3_70b_only_in_4_bits_and_with_offload():
    """Published for Llama 3.1 70B on two RTX 3090 with FSDP, QLoRA and offload of parameters to the host:
    https://kaitchup.substack.com/p/multi-gpus-fine-tuning-for-llama (August 2024)."""
    setup = {"cluster": "rtx-3090-8", "gpus": 2, "seq": 512, "stack": "torch-fsdp2"}
    plan = "dp=2 zero=3 mbs=1 gbs=8 recompute=full"
    outside = f"{plan} offload=optimizer:host,parameters:host"

    def fits(plan, **adapters):
        peak = predict(job("llama-3.1-70b", plan=plan, **setup, **adapters)).memory
        return peak.device_used_bytes < 24 * 2**30

    assert fits(outside, qlora=16)
    assert not fits(plan, qlora=16)
    assert not fits(plan, lora=16)
