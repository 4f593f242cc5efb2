"""InternEvo's sequence parallelism with weights that groups of ranks share (isp)."""

import pytest
from foreign_cases import FOREIGN, job_from_text, told

from flopcast import predict

ISP = (FOREIGN / "internevo" / "internlm2_7b_isp.py").read_text(encoding="utf-8")


def with_groups(sequence, weight, zero1=-1):
    text = ISP.replace("tensor=dict(size=2", f"tensor=dict(size={sequence}")
    return text.replace("weight=dict(size=4", f"weight=dict(size={weight}").replace(
        "zero1=dict(size=-1)", f"zero1=dict(size={zero1})"
    )


@pytest.mark.parametrize(("sequence", "weight"), [(1, 2), (1, 8), (2, 2), (2, 4), (2, 8), (4, 8)])
def test_a_rank_holds_weights_and_gradients_of_its_group_and_states_of_all_ranks(sequence, weight):
    """arXiv:2401.09149: bf16 weights and gradients over the group, 12 bytes of states over all ranks."""
    job = job_from_text(with_groups(sequence, weight), "isp.py")

    held = predict(job).memory.by_category
    weights_bytes = held["parameters"] * weight
    assert (job.plan.tensor_parallel, job.plan.context_parallel) == (1, sequence)
    assert held["gradients"] == pytest.approx(held["parameters"], rel=1e-6)
    assert held["optimizer_states"] == pytest.approx(6 * weights_bytes / 8, rel=1e-6)


def test_gathers_ahead_are_hidden_behind_kernels():
    ahead, late = (
        predict(job_from_text(ISP.replace("overlap=True, launch", f"overlap={word}, launch"), "isp.py"))
        for word in ("True", "False")
    )

    assert ahead.step_time_s < late.step_time_s


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (with_groups(2, 3), "parallel.weight.size"),
        (with_groups(4, 2), "parallel.weight.size"),
        (ISP.replace('mode="isp"', 'mode="msp"'), "parallel.weight.size"),
    ],
)
def test_groups_that_cut_a_sequence_are_refused(text, field):
    assert [fault.field for fault in told(text, "isp.py")] == [field]
