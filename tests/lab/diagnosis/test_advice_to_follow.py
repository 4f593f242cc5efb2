"""Advice that can be followed: switches of the software that runs the job, or fields of a job file."""

import json
from functools import cache
from pathlib import Path

from all_cases import all_cases
from judged import GOOD, found, without_plans
from unmarked import unmarked

from flopcast.jobs import job
from flopcast.lab.diagnosis.settings import SETTINGS
from flopcast.lab.logs.formats import FORMATS
from flopcast.library import catalog
from flopcast.render.diagnosis import as_json, marked_text
from flopcast.spec.plan import Plan
from flopcast.spec.switches import Switches

as_text = unmarked(marked_text)

LOGS = Path(__file__).parents[1] / "logs"
STACKS = catalog.names("stacks")
SMALL = {"model": "megatron-1.7b", "cluster": "dgx-a100:1", "plan": "dp=8 gbs=64 recompute=full"}


@all_cases("name", STACKS)
def test_changes_of_settings_name_the_software_of_the_stack_or_only_the_job_file(name):
    one = job(**SMALL, stack=name)
    known = one.stack.switches

    told = without_plans(one)

    of_settings = {setting.name: setting for setting in SETTINGS}
    assert told.suspects
    for suspect in told.suspects:
        switch = getattr(known, of_settings[suspect.name].switch)
        if known.software:
            assert switch
            assert suspect.change.startswith(f"{known.software}: {switch}; in a job file: ")
        else:
            assert suspect.change.startswith("in a job file: ")


def test_what_the_software_has_no_switch_for_is_no_suspect():
    """DeepSpeed cannot overlap the gather of updated parameters, nor without ZeRO or with stages reduce."""
    plans = {"dp=32 gbs=64 zero=1": True, "dp=32 gbs=64": False, "dp=8 pp=4 gbs=64 zero=1": False}
    for plan, can in plans.items():
        names = [
            one.name for one in found(job(**GOOD | {"stack": "deepspeed-zero", "plan": plan})).suspects
        ]

        assert "parameters_not_overlapped" not in names
        assert ("gradients_not_overlapped" in names) <= can


def test_another_plan_keeps_the_optimizer_and_what_the_software_cannot_change():
    data_parallel_only = {"stack": "pytorch-ddp", "plan": "dp=32 gbs=64 recompute=full optimizer=adafactor"}
    for stack in (data_parallel_only, {"plan": "dp=4 tp=8 gbs=128 zero=1 optimizer=adamw_8bit"}):
        one = job(**GOOD | stack)
        for suspect in found(one).suspects:
            if suspect.name == "plan":
                plan = job(**GOOD | stack | {"plan": suspect.change.split('"')[1]}).plan
                assert plan.optimizer == one.plan.optimizer
                for name in one.stack.switches.fixed:
                    assert getattr(plan, name) == getattr(one.plan, name)


@all_cases("name", STACKS)
def test_switches_are_whole_and_have_a_source(name):
    stack = catalog.stack(name)
    known = stack.switches

    texts = {field: text for field, text in known.model_dump().items() if isinstance(text, str)}
    assert bool(known.software) == any(text for field, text in texts.items() if field != "software")
    assert set(known.fixed) <= set(Plan.model_fields)
    assert not known.software or any("switches" in (one.covers or "") for one in stack.source)


def test_every_switch_of_a_setting_is_a_field_of_switches_and_every_software_of_a_log_is_known():
    known = {catalog.stack(name).switches.software for name in STACKS}

    assert {setting.switch for setting in SETTINGS} <= set(Switches.model_fields)
    assert {software for each in FORMATS.values() for software in each.software} <= known


def test_a_log_of_other_software_than_the_stack_is_told():
    one = job(**GOOD | {"stack": "torch-fsdp2", "plan": "dp=32 gbs=128 zero=3"})
    line = " iteration {:8d}/ 200 | elapsed time per iteration (ms): 3600.0 | global batch size:   128 |\n"

    text = "".join(map(line.format, range(1, 9)))

    assert any("--stack" in advice for advice in without_plans(one, text).advice)
    assert not any("--stack" in advice for advice in without_plans(job(**GOOD), text).advice)


def test_a_job_that_does_not_fit_is_told():
    one = job(**GOOD | {"cluster": "dgx-a100:1", "plan": "dp=8 gbs=64 mbs=8"})

    told = found(one)

    assert told.report.memory.verdict == "does not fit"
    assert any("does not fit" in advice for advice in told.advice)


JOBS = (
    GOOD | {"stack": "deepspeed-zero", "plan": "dp=32 gbs=128 zero=3"},
    GOOD | {"plan": "dp=4 tp=2 pp=4 vpp=2 gbs=128 sp zero=1"},
)


@cache
def described_jobs():
    return [job(**described) for described in JOBS]


@all_cases("path", sorted(LOGS.glob("*.log")))
def test_every_log_gives_a_diagnosis_whose_seconds_are_those_of_a_step(path):
    for one in described_jobs():
        told = without_plans(one, path.read_text(encoding="utf-8", errors="replace"))

        data = json.loads(json.dumps(as_json(told), allow_nan=False))
        longest_s = max(told.step.mean_s, told.report.step_time_s)
        assert as_text(told)
        for suspect in data["suspects"]:
            if suspect["basis"] != "stated":
                assert 0.0 <= suspect["cost_s"] <= longest_s
