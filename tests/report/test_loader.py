"""Input pipelines: closed forms, conservation, and what a report says of them."""

import pytest
from unmarked import unmarked

from flopcast import Space, predict, search_plans
from flopcast.errors import SpecError
from flopcast.jobs import job
from flopcast.library.curves import load_book
from flopcast.render.report_json import as_json
from flopcast.render.report_text import marked_text
from flopcast.report.explain.registry import explain
from flopcast.search.exact import play_each
from flopcast.spec.loader import Loader
from flopcast.timeline.uncertainty import Sensitivity

as_text = unmarked(marked_text)

PLAN = "dp=16 mbs=1 gbs=512 zero=1 recompute=full"
NO_LOADER = predict(job("llama-3-8b", gpus=16, plan=PLAN))


def report_of(loader, *, plan=PLAN, changes=()):
    return predict(job("llama-3-8b", gpus=16, plan=plan, loader=loader, changes=changes))


def test_stages_that_are_not_overlapped_take_the_sum_and_overlapped_ones_the_maximum():
    """SALIENT (MLSys 2022): sampling, slicing and copying one after the other, or beside training."""
    stages = "sample=0.8s,slice=0.5s,copy=0.3s"
    device_s = NO_LOADER.step_time_s
    each_s = [32 * seconds for seconds in (0.8, 0.5, 0.3)]

    exposed, overlapped = report_of(f"{stages},exposed=all"), report_of(stages)

    assert exposed.step_time_s == pytest.approx(device_s + sum(each_s), rel=1e-12)
    assert overlapped.step_time_s == max(device_s, *each_s)
    ratio = exposed.step_time_s / overlapped.step_time_s
    assert ratio == pytest.approx((device_s + sum(each_s)) / max(device_s, *each_s), rel=1e-12)


def test_seconds_times_rates_are_the_bytes_of_the_batch():
    """A rank moves global_batch / data_parallel samples; sharers of a rate have a part of it each."""
    rates = ("capacity_bytes=1 PB", "read_bytes_per_s=40 GB/s", "write_bytes_per_s=40 GB/s")
    changes = [f"cluster.file_system.{rate}" for rate in rates]
    for degrees, replicas in (("dp=16", 16), ("dp=8 tp=2", 8), ("dp=2 tp=8", 2)):
        plan = f"{degrees} mbs=1 gbs=512 recompute=full"
        found = report_of("copy=1MB@link,read=2MB@file_system", plan=plan, changes=changes).loader
        copy, read = found.stages
        assert read.step_s * 40e9 == pytest.approx(512 * 2e6)
        assert copy.step_s * NO_LOADER.job.cluster.node.device.host_bytes_per_s == pytest.approx(
            512 / replicas * 1e6
        )


def test_more_workers_are_never_slower_and_the_devices_limit_them():
    steps = [report_of(f"decode=3s:{workers}").step_time_s for workers in (1, 2, 3, 4, 64)]

    assert steps == sorted(steps, reverse=True)
    assert steps[0] == pytest.approx(96.0)
    assert steps[1] == pytest.approx(48.0)
    assert steps[-1] == NO_LOADER.step_time_s


def test_stages_on_one_link_share_its_rate():
    alone, both = report_of("a=20GB@link"), report_of("a=20GB@link,b=20GB@zero_copy")

    assert both.loader.overlapped_s == pytest.approx(2 * alone.loader.overlapped_s)
    assert both.loader.slowest == ("a", "b")


def test_zero_copy_gathers_save_the_published_share_of_the_transfer():
    """PyTorch-Direct (arXiv:2101.07956): 47.1 % less transfer time on average, training up to 1.6x.

    Rows are features of Reddit (602 floats). We chose PCIe 3.0 with 12.3 GB/s and two channels of
    DDR4-2666 (42.7 GB/s); the text that we read states neither.
    """
    memory = {"capacity_bytes": "64 GB", "bytes_per_s": "42.7 GB/s"}
    device = {"base": "rtx-3090-24gb", "host_bytes_per_s": "12.3 GB/s"}
    node = {"devices": 1, "memory": memory, "device": device}
    cluster = {"base": "rtx-3090-8:1", "groups": {"0": {"node": node}}}

    def transfer_s(loader):
        asked = job("megatron-1.7b", cluster=cluster, plan="mbs=1 gbs=8", loader=loader)
        return predict(asked).loader.exposed_s

    rows = f"{100_000 * 2408}B"
    on_host = transfer_s(f"gather={rows}@host:2408B,copy={rows}@link,exposed=all")
    direct = transfer_s(f"gather={rows}@zero_copy:2408B,exposed=all")

    assert 1 - direct / on_host == pytest.approx(0.471, abs=0.02)
    training_s = 0.25 * on_host  # up to 1.6x if training takes a fifth of the step on the host
    assert (on_host + training_s) / (direct + training_s) == pytest.approx(1.6, rel=0.03)


def test_a_report_with_a_loader_is_consistent():
    """The breakdown sums to the step, what devices do sums to 1, and waiting draws the power of waiting."""
    report = report_of("tokenize=2s,copy=1MB@link,exposed=copy")
    found, cost = report.loader, report.cost

    assert found.is_limit
    assert found.slowest == ("tokenize",)
    assert sum(report.breakdown.values()) == pytest.approx(report.step_time_s, rel=1e-9)
    assert report.breakdown["loader"] == pytest.approx(64.0 - NO_LOADER.step_time_s)
    assert sum(cost.energy.busy.values()) == pytest.approx(1.0)
    ratio = cost.step_usd.value / NO_LOADER.cost.step_usd.value
    assert ratio == pytest.approx(report.step_time_s / NO_LOADER.step_time_s)
    assert NO_LOADER.cost.energy.step_j.value < cost.energy.step_j.value
    assert cost.energy.device_power_w.value < NO_LOADER.cost.energy.device_power_w.value
    assert [factor.name for factor in report.factors if factor.share] == ["loader[tokenize]"]
    assert report.metrics.tokens_per_s == pytest.approx(512 * 8192 / 64.0)
    assert "the loader is the limit: tokenize needs 64.0 s" in as_text(report)
    assert as_json(report)["loader"]["is_limit"] is True
    assert as_json(NO_LOADER)["loader"] is None


def test_devices_that_do_not_wait_have_the_step_without_loader():
    report = report_of("tokenize=0.1s:4")

    assert report.loader.wait_s == 0
    assert report.step_time_s == NO_LOADER.step_time_s
    assert report.factors == NO_LOADER.factors
    assert report.breakdown == NO_LOADER.breakdown
    assert report.warnings == NO_LOADER.warnings
    shown = explain(report, load_book(report.job.cluster), {}, "loader")
    assert shown.amount == 0
    assert shown.note.startswith("hidden")
    assert shown.parts[0].amount == report.loader.overlapped_s
    assert report_of("none").loader is None


def test_energy_depends_on_the_seconds_in_which_devices_wait_for_samples():
    """Of joules that grow only because the devices wait longer, the loader's factor scales its seconds."""
    report = report_of("tokenize=2s")
    device, energy = report.job.cluster.node.device, report.cost.energy
    joules = energy.device_power_w * report.cost.step_s

    wait_w = device.power.waiting.fraction * device.board_power_w
    change = joules.by_factor["loader[tokenize]"].change
    assert change == pytest.approx(wait_w * report.step_time_s, rel=1e-9)


def test_a_factor_of_the_loader_and_of_the_devices_is_one_factor():
    loader = report_of("copy=1GB@link,exposed=all").loader
    (copy,) = loader.stages
    of_device = (Sensitivity(name=copy.factor.name, log_sigma_factor=0.01, share=0.5),)

    (found,) = loader.factors(of_device)

    device_s, step_s = loader.device_step_s, loader.step_time_s
    assert found.share == pytest.approx((0.5 * device_s + copy.step_s) / step_s)
    assert found.log_sigma_factor == copy.factor.log_sigma_factor


def test_stages_refuse_fields_without_effect_and_names_that_do_not_read_back():
    cases = (
        ({"name": "copy", "sample_bytes": "1 MB", "workers": 2}, "no workers in a stage with sample_bytes"),
        ({"name": "decode", "sample_s": "0.1 s", "through": "host"}, "no through in a stage with sample_s"),
        ({"name": "exposed", "sample_s": "0.1 s"}, "a name without spaces"),
        ({"name": "read,copy", "sample_s": "0.1 s"}, "a name without spaces"),
    )
    for stage, said in cases:
        with pytest.raises(SpecError) as caught:
            job("llama-3-8b", gpus=16, plan=PLAN, loader={"stages": [stage]})
        assert said in caught.value.problems[0].allowed
        assert caught.value.problems[0].fix


def test_exact_predictions_of_a_search_have_the_same_loader():
    asked = job("llama-3-8b", gpus=16, plan=PLAN, loader="tokenize=2s,copy=1GB@link,exposed=copy")
    ((_, exact),) = play_each([asked], load_book)
    report = predict(asked)

    assert exact.step_time_s == pytest.approx(report.step_time_s, rel=1e-9)
    assert exact.step_high_s == pytest.approx(report.step_time_high_s, rel=1e-9)
    assert exact.breakdown == pytest.approx(report.breakdown, rel=1e-6)
    assert exact.cost.energy.busy == pytest.approx(report.cost.energy.busy, rel=1e-6)


def test_a_search_prefers_plans_with_more_loaders_if_these_are_the_limit():
    """With samples that take 3 s each, the step is 3 s · gbs / dp: only dp = 16 is best."""
    asked = job("llama-3-8b", gpus=16, plan=PLAN, loader="tokenize=3s")
    space = Space(gbs=512, mbs=1, tp=(1, 2), pp=1, cp=1, vpp=1, recompute="full", zero=1)
    found = search_plans(asked, space)

    best = found.plans[0].played
    assert best.plan.data_parallel == 16
    assert best.step_time_s == pytest.approx(3.0 * 512 / 16)


def test_short_forms_read_back_and_every_way_to_ask_agrees():
    text = "decode=9ms:8,rate=100/s:2,gather=12kB@zero_copy:400B,copy=602kB@link,exposed=copy+gather"
    loader = job("llama-3-8b", gpus=16, plan=PLAN, loader=text).loader
    stages = [
        {"name": "decode", "sample_s": "9 ms", "workers": 8},
        {"name": "rate", "sample_s": "10 ms", "workers": 2},
        {"name": "gather", "sample_bytes": "12 kB", "through": "zero_copy", "row_bytes": "400 B",
         "overlapped": False},
        {"name": "copy", "sample_bytes": "602 kB", "overlapped": False},
    ]  # fmt: skip

    for other in (loader.text(), {"stages": stages}):
        assert job("llama-3-8b", gpus=16, plan=PLAN, loader=other).loader == loader
    changed = job("llama-3-8b", gpus=16, plan=PLAN, loader=text, changes=["loader.stages.0.workers=3"])
    assert [stage.workers for stage in changed.loader.stages] == [3, 2, 1, 1]
    assert Loader.model_validate(loader.model_dump()) == loader


def test_every_wrong_word_names_what_is_allowed():
    cases = {
        "decode": "stages of the form NAME=VALUE",
        "decode=9": "a number above 0 with its unit",
        "decode=0s": "a number above 0 with its unit",
        "decode=9ms:0": "TIME:WORKERS",
        "decode=fast/s": "a rate such as 110/s",
        "copy=6MB@wire": "link, pageable, zero_copy",
        "a=1ms,exposed=b": "no stage is called 'b'",
        "a=1ms,a=2ms": "a different name for each stage",
        "copy=6MB@link:4kB": "no row_bytes in this stage",
    }
    for text, said in cases.items():
        with pytest.raises(SpecError) as caught:
            job("llama-3-8b", gpus=16, plan=PLAN, loader=text)
        (problem,) = caught.value.problems
        assert problem.field.startswith("loader")
        assert said in problem.allowed
        assert problem.because
        assert problem.fix
