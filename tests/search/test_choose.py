"""The chosen plan: possible, fitting, and the fastest of a small world that is played whole."""

import pytest
from conftest import described_model, make_job

import flopcast
from flopcast.cost.between_plans import TIED_RATIO
from flopcast.errors import InfeasibleError, SpecError
from flopcast.files.yaml_text import Document
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.requests.job_files import job_of
from flopcast.search.default_plan import choose
from flopcast.search.exact import play_each
from flopcast.search.grid import batches, plan_at
from flopcast.search.space import Space
from flopcast.search.usual_plans import usual_spaces
from flopcast.search.usual_training import usual_batch
from flopcast.spec.divisors import divided_over_chunks
from flopcast.spec.plan import Plan
from flopcast.workload.checks import check

LARGE = described_model(hidden=8192, count=48, heads=64)


def described(**parts):
    """A job's document; the plan is left out unless given."""
    whole = {
        "model": make_job().model.model_dump(exclude_unset=True),
        "cluster": "dgx-a100:1",
        "stack": "megatron-2022",
        "batch": {"sequence_length": 1024},
    }
    return Document("test", whole | parts, {})


def _space(fixed):
    named = {name: value for name, value in fixed.items() if name in Space.model_fields}
    return Space(**named)


def candidates(job, fixed):
    """Every plan that is tried, with what is settled."""
    asked = job.model_copy(update={"plan": Plan(**fixed)})
    for _, plans in batches(asked, usual_spaces(asked, _space(fixed))[0]):
        for row in range(plans.size):
            yield plan_at(plans, row)


def test_the_chosen_plan_uses_every_device_keeps_every_rule_and_fits():
    job = make_job(model=LARGE, cluster="dgx-a100:4", plan="auto gbs=64")

    report = predict(job, load_book(job.cluster))

    assert job.plan.devices == 32
    assert check(job) == ()
    assert report.memory.fits


def test_no_plan_of_a_small_world_is_faster_than_the_chosen_one_by_more_than_repeats_differ():
    """Every candidate that fits, played exactly; the choice plays a few of them."""
    job = make_job(cluster="dgx-a100:1")
    fixed = {"global_batch": 64, "precision": "fp16"}
    book = load_book(job.cluster)
    every = (job.model_copy(update={"plan": plan}) for plan in candidates(job, fixed))
    played = play_each([tried for tried in every if not check(tried)], lambda _: book)
    steps_s = [one.step_time_s for _, one in played if one.fits]

    chosen = choose(job, fixed, book)

    step_s = predict(job.model_copy(update={"plan": chosen.plan}), book).step_time_s
    assert len(steps_s) > 50
    assert step_s <= TIED_RATIO * min(steps_s)
    assert chosen.next_ratio >= 1 / TIED_RATIO


def test_fields_that_are_settled_stay_as_they_are():
    job = make_job(plan="auto gbs=64 tp=2 mbs=2 recompute=full precision=fp16 zero=0")

    plan = job.plan

    assert (plan.tensor_parallel, plan.micro_batch, plan.global_batch) == (2, 2, 64)
    assert (plan.recompute, plan.precision, plan.zero) == ("full", "fp16", 0)


def test_what_one_word_settles_of_recompute_stays_whole():
    plan = make_job(plan="auto gbs=64 recompute=full:block:4").plan

    assert (plan.recompute, plan.recompute_method, plan.recompute_layers) == ("full", "block", 4)


@pytest.mark.parametrize("parts", [{}, {"plan": "auto"}, {"plan": {"auto": True}}])
def test_a_plan_that_is_left_out_is_chosen_and_told(parts):
    job = job_of(described(**parts))

    assert any(text.startswith("plan chosen automatically: the ") for text in job.assumptions)
    assert any(text.startswith(f"global_batch {job.plan.global_batch} ") for text in job.assumptions)


def test_checkpoints_that_are_to_be_cut_are_not_cut_by_sequence_parallelism_too():
    job = make_job()
    fixed = {"global_batch": 64, "precision": "fp16", "recompute": "full", "partition_activations": True}

    tried = [plan for plan in candidates(job, fixed) if plan.tensor_parallel > 1]

    assert any(not check(job.model_copy(update={"plan": plan})) for plan in tried)
    assert {plan.sequence_parallel for plan in tried} == {False}


def test_a_stack_that_scatters_gradients_still_gets_a_plan_with_one_replica():
    scattered = {"base": "megatron-2022", "gradients": {"collective": "reduce_scatter"}}

    job = make_job(stack=scattered, plan="auto gbs=64 dp=1 precision=fp16")

    assert (job.plan.data_parallel, job.plan.zero) == (1, 0)


def test_a_given_plan_is_not_second_guessed():
    assert make_job().assumptions == ()


def test_the_usual_batch_holds_about_four_million_tokens():
    """4 M tokens a batch: Llama 2 (arXiv:2307.09288, section 2.2)."""
    for cluster, devices, length in (
        ("dgx-a100:1", 8, 2048),
        ("selene:128", 1024, 4096),
        ("selene:3", 24, 8192),
    ):
        plan = f"dp={devices} gbs=3072 precision=fp16"
        job = make_job(cluster=cluster, batch={"sequence_length": length}, plan=plan)

        batch = usual_batch(job)

        assert batch % job.cluster.num_devices == 0
        assert 2**21.4 < batch * length < 2**22.6


def test_a_batch_is_never_smaller_than_one_sequence_a_device():
    job = make_job(cluster="selene:256", plan="dp=2048 gbs=2048", batch={"sequence_length": 32768})

    assert usual_batch(job) == 2048


def test_tensor_parallelism_stays_inside_a_scale_up_domain():
    job = make_job(cluster="vista:16", plan="dp=16 gbs=16")

    assert {plan.tensor_parallel for plan in candidates(job, {})} == {1}


def test_a_model_that_no_plan_fits_is_infeasible_and_told_with_the_smallest_plan():
    with pytest.raises(InfeasibleError, match=r"(?s)no plan fits.*recompute=full.*--gpus 16"):
        make_job(model=LARGE, cluster="dgx-a100:1", plan="auto gbs=8")


def test_settled_fields_that_contradict_the_devices_are_one_fault():
    with pytest.raises(SpecError) as error:
        make_job(cluster="dgx-a100:1", plan="auto gbs=8 pp=7")

    assert [(one.field, one.fix) for one in error.value.problems] == [
        ("plan.pipeline_parallel", "set pipeline_parallel to 8")
    ]


def test_what_no_plan_could_mend_is_told_as_the_fault_that_it_is():
    with pytest.raises(SpecError, match="offload"):
        make_job(plan="auto gbs=8 offload")


def test_ranks_share_sequences_in_a_chosen_plan_where_that_is_settled():
    plan = make_job(stack="megatron-core", plan="auto gbs=8 cp=2").plan

    assert plan.context_parallel == 2
    assert plan.devices == 8


def test_a_device_without_bf16_gets_fp16():
    peaks = {"fp16": "125 TFLOP/s", "fp32": "15.7 TFLOP/s"}
    device = {"name": "old", "memory_bytes": "32 GiB", "memory_bytes_per_s": "900 GB/s"}
    device |= {"peak_flop_per_s": peaks, "multiprocessors": 80, "kernel_launch_s": "3 us"}
    cluster = {
        "groups": [{"count": 1, "node": {"device": device, "devices": 8, "host": "epyc-7763"}}],
        "tiers": [{"name": "nvlink", "devices": 0, "bytes_per_s": "150 GB/s", "latency_s": "5 us"}],
    }

    assert job_of(described(cluster=cluster)).plan.precision == "fp16"


def test_blocks_that_no_number_of_stages_divides_get_stages_all_the_same():
    model = LARGE | {"blocks": [LARGE["blocks"][0] | {"count": 47}]}  # a prime

    job = make_job(model=model, cluster="dgx-a100:2", plan="auto gbs=64 pp=4 vpp=1")

    dealt = job.plan.model_copy(update={"stage_layers": divided_over_chunks(47, 4)})
    even_s, level_s = (
        predict(job.model_copy(update={"plan": plan}), load_book(job.cluster)).step_time_s
        for plan in (dealt, job.plan)
    )
    assert (len(job.plan.stage_layers), sum(job.plan.stage_layers)) == (4, 47)
    assert level_s <= even_s
    assert check(job) == ()


def test_a_head_of_many_words_gets_a_stage_of_few_blocks_where_that_is_worth_a_list():
    model = make_job().model.model_dump(exclude_unset=True) | {"vocabulary": 128256}
    plan = "auto gbs=64 pp=4 vpp=1 precision=fp16"
    job = make_job(model=model, stack="megatron-core", plan=plan)
    even = make_job(model=model, stack="megatron-core", plan=f"{plan} stage_layers=2,2,2,2")

    level_s, even_s = (predict(one, load_book(one.cluster)).step_time_s for one in (job, even))

    assert job.plan.stage_layers[-1] < 2
    assert level_s < 0.99 * even_s
    assert even.plan.stage_layers == (2, 2, 2, 2)


def test_experts_are_spread_where_that_is_faster():
    model = described_model(hidden=2048, vocabulary=32000, num_experts=8, top_k=2, expert_hidden=4096)
    job = make_job(model=model, stack="megatron-core", cluster="dgx-a100:1", plan="auto gbs=64")
    book = load_book(job.cluster)
    together = job.model_copy(update={"plan": job.plan.model_copy(update={"expert_parallel": 1})})

    chosen_s, together_s = (predict(one, book).step_time_s for one in (job, together))

    assert job.plan.expert_parallel > 1
    assert chosen_s < together_s


@pytest.mark.parametrize(("stack", "zero"), [("torch-fsdp2", 3), ("megatron-2022", 1), ("pytorch-ddp", 0)])
def test_replicas_share_what_the_stack_shards(stack, zero):
    job = make_job(stack=stack, plan="auto gbs=64")

    assert job.plan.data_parallel > 1
    assert job.plan.zero == zero


def test_where_states_alone_do_not_make_it_fit_parameters_are_sharded():
    job = make_job(model=LARGE, stack="megatron-core", cluster="dgx-a100:2", plan="auto gbs=16 pp=1 tp=1")

    assert job.plan.zero == 3
    assert predict(job, load_book(job.cluster)).memory.fits


def test_a_sequence_that_fits_on_no_rank_is_shared_by_ranks():
    long = flopcast.job("llama-3-8b", gpus=64, seq=2**20)

    assert long.plan.context_parallel > 1
    assert predict(long, load_book(long.cluster)).memory.fits
    assert flopcast.job("llama-3-8b", gpus=64, seq=2**13).plan.context_parallel == 1


def test_sequences_are_shared_where_a_search_finds_that_faster_than_tensor_parallelism_alone():
    job = flopcast.job("llama-3-8b", gpus=8, seq=2**15)
    space = {"gbs": job.plan.global_batch, "mbs": 1, "zero": 1, "dp_shard": 0, "vpp": 1, "cp": "1,2,4"}

    best = flopcast.search_plans(job, space).plans[0]

    assert job.plan.context_parallel > 1
    assert flopcast.predict(job).step_time_s < 1.05 * best.played.step_time_s


def test_only_the_fastest_estimate_is_simulated_where_its_pipeline_has_very_many_tasks(monkeypatch):
    job = make_job(stack="megatron-core")
    chosen = choose(job, {"global_batch": 64}, load_book(job.cluster))
    monkeypatch.setattr("flopcast.search.default_plan.PLAYED_TASKS", 1)

    alone = choose(job, {"global_batch": 64}, load_book(job.cluster))

    assert chosen.next_best is not None
    assert (alone.next_best, alone.fitting) == (None, chosen.fitting)


def test_a_model_of_very_many_entries_needs_the_whole_plan():
    block = described_model()["blocks"][0]
    model = described_model() | {"blocks": [{**block, "count": 1}] * 33}

    with pytest.raises(SpecError, match="at most 32 entries if flopcast chooses the plan"):
        make_job(model=model, plan="auto gbs=64")
    assert len(make_job(model=model, plan="dp=8 gbs=64 precision=fp16").model.blocks) == 33


def test_a_plan_is_chosen_for_slow_parts_as_if_all_were_equal():
    equal = flopcast.job("llama-3-8b", gpus=8)
    slow = flopcast.job("llama-3-8b", gpus=8, slow="device=3:0.8")

    assert slow.plan == equal.plan
    assert "flopcast chooses the plan as if all devices and links had equal speeds" in slow.assumptions
    assert flopcast.predict(slow).step_time_s > flopcast.predict(equal).step_time_s
