"""Frozen models beside a trained one, and heads that score, against counts of parameters and FLOP."""

import pytest
from conftest import described_model, make_job

from flopcast.errors import SpecError
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.prediction import memory_of, predict, programs_of
from flopcast.spec.model import Model

SMALL = described_model(vocabulary=32000, count=4)
LORA = {"adapters": {"rank": 8, "targets": ["q", "v"]}}
PLAN = "dp=8 mbs=1 gbs=16 precision=fp16"
FP16_BYTES = 2


def job(plan=PLAN, stack="megatron-core", **model):
    return make_job(model=SMALL | model, plan=plan, stack=stack)


def forward_flop(programs, wanted):
    """FLOP of one forward pass of all stages, of items whose name fits."""
    counts = (programs.stages.multiplicity[:, :, None] * programs.stages.stage_counts).sum(axis=(0, 1))
    return sum(
        float((count * item.count * item.work.work().flop).sum())
        for layer, count in zip(programs.layers, counts, strict=True)
        for item in layer.forward
        if hasattr(item.work, "work") and wanted(item.name)
    )


def frozen_flop(one):
    return forward_flop(programs_of(one), lambda name: name.startswith("frozen"))


def test_a_reference_runs_the_forward_pass_once_more_and_keeps_nothing_for_the_backward():
    for plan in (PLAN, "dp=4 pp=2 mbs=1 gbs=16 precision=fp16", "dp=2 tp=4 sp mbs=1 gbs=16 precision=fp16"):
        alone, tuned, often = (
            job(plan, **more)
            for more in ({}, {"reference": "separate"}, {"reference": "separate", "reference_passes": 3})
        )
        once = forward_flop(programs_of(alone), lambda _: True)

        assert frozen_flop(tuned) == pytest.approx(once)
        assert frozen_flop(often) == pytest.approx(3 * once)
        for before, after in zip(programs_of(alone).layers, programs_of(tuned).layers, strict=True):
            assert [item.name for item in before.backward] == [item.name for item in after.backward]
            assert (before.kept_bytes, before.working_bytes) == (after.kept_bytes, after.working_bytes)


def test_a_copy_adds_its_weights_alone_and_adapters_need_no_copy():
    parameters = job().model.parameters()
    for zero, shards in ((0, 1), (1, 1), (3, 8)):
        plan = f"{PLAN} zero={zero}"
        before, after = (
            memory_of(job(plan, **more)).by_category for more in ({}, {"reference": "separate"})
        )
        added = {
            name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name)
        }

        assert added == pytest.approx({"parameters": FP16_BYTES * parameters / shards}, rel=0.01)
    plain, based = (memory_of(job(PLAN, **LORA, **more)) for more in ({}, {"reference": "shared"}))
    assert based.by_category == plain.by_category


def test_the_reference_of_adapters_is_the_model_without_them():
    based = job(**LORA, reference="shared")

    assert frozen_flop(based) == pytest.approx(forward_flop(programs_of(job()), lambda _: True))
    assert frozen_flop(based) < forward_flop(programs_of(based), lambda name: not name.startswith("frozen"))


def test_a_step_of_preference_tuning_takes_the_time_of_one_more_forward_pass():
    """A backward pass takes twice as long as a forward one: 4 / 3 of the time of compute."""
    wide = {"model": described_model(hidden=4096, vocabulary=32000, heads=32, count=4)}
    plain = make_job(**wide, plan=PLAN, stack="megatron-core", batch={"sequence_length": 4096})
    tuned = plain.model_copy(update={"model": plain.model.model_copy(update={"reference": "separate"})})
    before, after = (predict(one, load_book(plain.cluster)) for one in (plain, tuned))
    compute = ("attention", "mlp", "head", "embedding", "norm", "residual")
    forward_s = sum(before.breakdown[name] for name in compute) / 3

    assert after.breakdown["frozen_forward"] == pytest.approx(forward_s, rel=0.1)
    assert after.metrics.model_flop == pytest.approx(before.metrics.model_flop * 4 / 3)


def test_a_teacher_runs_forward_with_its_own_shape():
    teacher = described_model(hidden=2048, vocabulary=32000, count=6)
    alone, taught = job(), job(teacher=teacher)
    parameters = Model(**teacher).parameters()
    before, after = (memory_of(one).by_category["parameters"] for one in (alone, taught))

    own = make_job(model=teacher, stack="megatron-core")
    assert after - before == pytest.approx(FP16_BYTES * parameters, rel=0.01)
    assert frozen_flop(taught) == pytest.approx(forward_flop(programs_of(own), lambda _: True))


def test_a_teacher_is_a_name_of_the_catalogue_or_a_base_with_changes():
    for written in ("llama-3.1-8b", {"base": "llama-3.1-8b", "context_length": 4096}):
        one = make_job(
            model={"base": "llama-3.2-1b", "teacher": written},
            plan="dp=8 mbs=1 gbs=16 zero=3",
            stack="megatron-core",
            cluster="dgx-h100:1",
        )
        assert one.model.teacher.parameters() == catalog.model("llama-3.1-8b").parameters()
    with pytest.raises(SpecError) as told:
        make_job(model=SMALL | {"teacher": "llama-9"})
    assert [problem.field for problem in told.value.problems] == ["model.teacher"]


def test_a_score_needs_a_vector_in_place_of_the_table_of_logits():
    plain, scored = job(), job(head="score")
    tables = plain.model.hidden * plain.model.vocabulary

    assert scored.model.parameters() == plain.model.parameters() - tables + plain.model.hidden
    assert memory_of(scored).by_category.get("logits", 0) < memory_of(plain).by_category["logits"] / 1000
    tokens = plain.batch.sequence_length
    saved = forward_flop(programs_of(plain), lambda _: True) - forward_flop(
        programs_of(scored), lambda _: True
    )
    assert saved == pytest.approx(2 * tokens * (tables - plain.model.hidden), rel=0.01)


def test_a_stage_sends_the_activations_of_the_reference_as_well():
    plan = "dp=4 pp=2 mbs=1 gbs=16 precision=fp16"
    sent = [
        float(programs_of(job(plan, **more)).hop_across.forward[0].work.message_bytes.max())
        for more in ({}, {"reference": "separate"})
    ]

    assert sent[1] == 2 * sent[0]
