"""Handoffs of weights over files: closed forms, and the ratios that MinT publishes (arXiv:2605.13779)."""

import pytest

from flopcast import serving_job
from flopcast.cost.tier_constants import HANDED_TENSORS
from flopcast.economics.checkpoints import SaveRates
from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.library import catalog
from flopcast.library.curves import load_serving_book
from flopcast.requests.rl_request import rl_request
from flopcast.rl.handoff import handoff_of
from flopcast.spec.model import Model
from flopcast.spec.rl_plan import RlPlan

LEVELS = load_serving_book(catalog.cluster("aws-p5")).levels

LINEARS = {  # all of each model
    "qwen3-4b": ("q", "k", "v", "out", "gate", "up", "down"),
    "qwen3-30b-a3b": ("q", "k", "v", "out", "expert_gate", "expert_up", "expert_down"),
}


def handoff(model, rank=16, levels=None, gpus=1, **fields):
    """From a training of adapters to one instance, through the drives of the node."""
    job = serving_job(model, engine="vllm", cluster="aws-p5", gpus=gpus, plan=f"tp={gpus}")
    adapters = {"rank": rank, "targets": LINEARS[model]}
    trained = Model.model_validate(catalog.model(model).model_dump() | {"adapters": adapters})
    plan = RlPlan(**{"handoff_over": "nvme"} | fields)
    found = load_serving_book(job.cluster).levels if levels is None else levels
    return handoff_of(job, trained, plan, found)


def test_a_file_is_written_once_and_read_by_parts():
    """One process writes 4 GB/s, each device loads 4 GB/s, and each tensor takes its time."""
    for gpus in (1, 4):
        sent = handoff("qwen3-4b", levels={}, gpus=gpus, handoff_tensor_s=0.01)
        file_bytes = 2 * catalog.model("qwen3-4b").parameters()
        drives = catalog.cluster("aws-p5").node.nvme
        rates = SaveRates()
        loaded_s = max(
            file_bytes / gpus / rates.allocated_bytes_per_s, file_bytes / drives.read_bytes_per_s
        )
        # 36 blocks: q, k, v, out, gate, up, down and four norms; the table and the last norm
        assert sent.tensors == 36 * 11 + 2
        assert sent.taken.value == pytest.approx(
            2 * drives.latency_s + file_bytes / rates.serialised_bytes_per_s + loaded_s + 398 * 0.01
        )


def test_handoffs_of_adapters_are_as_much_faster_as_mint_measured():
    """We chose ranks, one device, its drives, and adapters on all linears; the text states none of them."""
    for model, published in (("qwen3-4b", 18.3), ("qwen3-30b-a3b", 2.85)):
        for rank in (1, 8, 16):
            full, adapter = (handoff(model, rank, handoff=each) for each in ("full", "adapter"))
            assert full.taken.value / adapter.taken.value == pytest.approx(published, rel=0.2)


def test_the_time_of_a_tensor_is_a_constant():
    with_constant, without = (
        handoff("qwen3-30b-a3b", handoff="adapter", levels=each) for each in (None, {})
    )
    of_rates = {name: each for name, each in LEVELS.items() if name != HANDED_TENSORS}
    less = handoff("qwen3-30b-a3b", handoff="adapter", levels=of_rates)
    assert with_constant.taken.value - less.taken.value == pytest.approx(with_constant.tensors * 0.6e-3)
    assert without.tensors * 4e-4 < without.taken.value < without.tensors * 6e-4


def test_packed_adapters_of_experts_have_fewer_tensors():
    """48 blocks: two matrices of each of 4 + 3 x 128 adapters, or of 4 + 3. In MinT: 8.5 times as fast."""
    each, packed = (
        handoff("qwen3-30b-a3b", handoff="adapter", packed_experts=value) for value in (False, True)
    )
    assert (each.tensors, packed.tensors) == (48 * 2 * 388, 48 * 2 * 7)
    assert each.received_bytes == packed.received_bytes
    assert each.taken.value > 8.5 * packed.taken.value


def test_settings_of_files_need_files_that_both_sides_reach():
    machine = {"model": "qwen3-4b", "cluster": "dgx-h100:1"}
    step = {
        "rollout": {**machine, "plan": {"tp": 1}, "traffic": {"prompt": 500, "output": 200}},
        "training": {**machine, "batch": {"sequence_length": 1024}, "plan": "dp=8 mbs=1 gbs=64"},
    }
    wrong = (
        ({"handoff_over": "nvme", "apart": True}, {"handoff_over"}),
        ({"packed_experts": True, "handoff_over": "nvme"}, {"packed_experts"}),
        (
            {"packed_experts": True, "handoff": "adapter", "handoff_tensor_s": "0.1 s"},
            {"handoff_tensor_s", "packed_experts"},
        ),
    )
    for fields, named in wrong:
        with pytest.raises(SpecError) as error:
            rl_request(Document("step", step | fields, {}))
        assert {problem.field for problem in error.value.problems} == named
    with pytest.raises(SpecError, match="file_system"):
        handoff("qwen3-4b", handoff_over="file_system")
