"""Exchange of experts' tokens beside shared experts, against closed forms; invented seconds."""

from dataclasses import replace

import pytest
from all_cases import all_cases
from conftest import make_job
from workbench import priced_job, repriced

from flopcast.dtypes import constant
from flopcast.operators.item import kernel
from flopcast.operators.low_precision_messages import LowPrecisionMessage
from flopcast.operators.matmul import Matmul
from flopcast.timeline.program import simulate
from flopcast.workload.program import MIDDLE
from flopcast.workload.rewrites.shared_expert_overlap import shared_expert_overlap

LAYERS = 8
MIXTURE = {
    "hidden": 1024,
    "vocabulary": 51200,
    "blocks": [
        {
            "count": LAYERS,
            "mixer": {"heads": 16},
            "feed_forward": {"num_experts": 8, "top_k": 2, "expert_hidden": 512, "shared_experts": 1},
        }
    ],
}
LINEAR_S = {"shared.up": 2.0, "shared.down": 1.0}  # forward; either gradient takes as long
CASES = [(0.0, 0.0), (0.5, 0.5), (1.5, 1.5), (3.0, 0.5), (9.0, 9.0)]  # dispatch, combine


def played(dispatch_s, combine_s, overlap):
    rewrites = ["fused_layernorm", *(["shared_expert_overlap"] if overlap else [])]
    job = make_job(
        model=MIXTURE, stack={"base": "megatron-core", "rewrites": rewrites}, plan="dp=8 ep=8 mbs=1 gbs=16"
    )

    def seconds_of(item):
        name = item.name.removesuffix(".dgrad").removesuffix(".wgrad").removesuffix(".backward")
        return LINEAR_S.get(
            name, {"experts.dispatch": dispatch_s, "experts.combine": combine_s}.get(name, 0.0)
        )

    return repriced(priced_job(job), seconds_of)


def layer_s(segments, priced):
    return float(simulate(segments, priced, attribute=False).duration_s[MIDDLE, 0, 0]) / LAYERS


@all_cases(("dispatch_s", "combine_s"), CASES)
def test_each_exchange_hides_under_the_linear_that_runs_beside_it(dispatch_s, combine_s):
    priced = played(dispatch_s, combine_s, overlap=True)

    forward, backward = (layer_s(segments, priced) for segments in priced.programs.passes)

    assert forward == pytest.approx(max(2.0, dispatch_s) + max(1.0, combine_s))
    assert backward == pytest.approx(max(2 * 2.0, dispatch_s) + max(2 * 1.0, combine_s))


@all_cases(("dispatch_s", "combine_s"), CASES)
def test_without_the_overlap_all_of_an_exchange_is_exposed(dispatch_s, combine_s):
    priced = played(dispatch_s, combine_s, overlap=False)

    forward, backward = (layer_s(segments, priced) for segments in priced.programs.passes)

    assert forward == pytest.approx(3.0 + dispatch_s + combine_s)
    assert backward == pytest.approx(6.0 + dispatch_s + combine_s)


def test_the_same_items_run_in_another_order():
    plain, beside = (played(1.0, 1.0, overlap).programs for overlap in (False, True))

    for one, other in zip(plain.passes, beside.passes, strict=True):
        names = [sorted(i.name for segment in run for i in segment.items) for run in (one, other)]
        assert names[0] == names[1]


def test_experts_without_shared_ones_have_nothing_to_hide_their_exchange_under():
    layer = MIXTURE["blocks"][0]["feed_forward"] | {"shared_experts": 0}
    model = MIXTURE | {"blocks": [MIXTURE["blocks"][0] | {"feed_forward": layer}]}
    stack = {"base": "megatron-core", "rewrites": ["shared_expert_overlap"]}

    programs = priced_job(make_job(model=model, stack=stack, plan="dp=8 ep=8 mbs=1 gbs=16")).programs

    assert not [entry for entry in programs.accounting if entry.rewrite == "shared_expert_overlap"]


def test_a_layer_without_exchanges_keeps_its_kernels():
    """A traced block may name its modules "shared", and has no exchange to run them beside."""
    work = Matmul(m=constant(8), n=constant(8), k=constant(8), dtype="bf16")
    items = (kernel("shared.up", work, ("x",), "y", component="mlp"),)

    assert shared_expert_overlap(items) is items


def test_a_dispatch_whose_tokens_are_cast_hides_under_shared_experts_too():
    """Casts replace the message of the dispatch (rewrites/quantise.py)."""
    programs = played(0.0, 0.0, overlap=False).programs
    forward = [item for segment in programs.passes[0] for item in segment.items]
    first = next(n for n, item in enumerate(forward) if item.name == "experts.dispatch")
    plain = tuple(item for item in forward[first - 10 :] if item.name != "experts.dispatch")
    sent = forward[first].work
    message = LowPrecisionMessage(
        kind=sent.collective, axis="ep", message_bytes=sent.message_bytes, dual_bytes=sent.message_bytes
    )
    both = [shared_expert_overlap((replace(forward[first], work=work), *plain)) for work in (sent, message)]

    assert [item.name for item in both[0]] == [item.name for item in both[1]]
    assert {item.name for item in both[1] if item.beside} >= {"shared.up", "shared.down"}
