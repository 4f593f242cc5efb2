"""Schedules in CSV files: read beside the job, checked line by line, shown wherever a schedule shows."""

import json

import pytest

from flopcast import load_job, predict
from flopcast.errors import SpecError
from flopcast.render.report_json import as_json
from flopcast.report.events import events

PLAN = "dp=2 pp=4 mbs=1 gbs=16 precision=fp16"
STACK = "{base: megatron-2022, pipeline: {transfers: overlapped}}"
FIRST = "stage,kind,micro_batch\n"


def one_f_one_b(stages, micro):
    """1F1B by its definition (arXiv:2104.04473, section 2.2.1), as rows of a table."""
    lines = []
    for stage in range(stages):
        warm = min(stages - 1 - stage, micro)
        tasks = [("F", m) for m in range(warm)]
        for m in range(micro):
            tasks += [("F", m + warm)] if m + warm < micro else []
            tasks.append(("B", m))
        lines += [f"{stage},{kind},{m}" for kind, m in tasks]
    return FIRST + "\n".join(lines) + "\n"


def job_file(folder, table=None, schedule="mine.csv", plan=PLAN, stack=STACK):
    """A job beside its table."""
    if table is not None:
        (folder / "mine.csv").write_text(table)
    path = folder / "job.yaml"
    path.write_text(
        "model: megatron-1.7b\ncluster: dgx-a100:1\n"
        f"stack: {stack}\nbatch: {{seq: 1024}}\nplan: {plan} schedule={schedule}\n"
    )
    return path


def told(folder, table, **named):
    with pytest.raises(SpecError) as raised:
        load_job(job_file(folder, table, **named))
    return raised.value.problems


def test_a_table_of_1f1b_predicts_what_1f1b_predicts(tmp_path):
    own = predict(load_job(job_file(tmp_path, one_f_one_b(4, 8))))

    built = predict(load_job(job_file(tmp_path, schedule="1f1b")))

    assert own.step_time_s == pytest.approx(built.step_time_s, rel=1e-12)
    assert [s.allocated_bytes for s in own.memory.per_stage] == [
        s.allocated_bytes for s in built.memory.per_stage
    ]


def test_an_order_that_holds_everything_needs_more_memory_and_shows_in_the_trace(tmp_path):
    rows = [f"{stage},{kind},{m}" for stage in range(4) for kind in "FB" for m in range(8)]

    report = predict(load_job(job_file(tmp_path, FIRST + "\n".join(rows))))

    built = predict(load_job(job_file(tmp_path, schedule="1f1b")))
    assert report.memory.per_stage[3].allocated_bytes > built.memory.per_stage[3].allocated_bytes
    tasks = [e for e in events(report) if (e.stream, e.stage) == ("tasks", 3)]
    ran = [task.operator for task in tasks if task.micro_batch >= 0]
    assert ran == [f"{kind}{m}" for kind in "FB" for m in range(8)]


def test_weight_gradients_in_a_table_split_the_backward(tmp_path):
    rows = [f"{stage},{kind},{m}" for stage in range(4) for m in range(8) for kind in "FBW"]
    rows.sort(key=lambda row: row[0])

    report = predict(load_job(job_file(tmp_path, FIRST + "\n".join(rows))))

    assert report.job.plan.order_rule.splits_backward
    assert {e.operator[0] for e in events(report) if e.stream == "tasks"} >= {"F", "B", "W"}


def test_a_report_names_the_file_and_holds_the_order(tmp_path):
    job = load_job(job_file(tmp_path, one_f_one_b(4, 8)))

    plan = json.loads(json.dumps(as_json(predict(job))))["job"]["plan"]

    assert "schedule=mine.csv" in job.plan.short()
    assert plan["schedule"]["tasks"][3].startswith("F0 B0 F1 B1")


@pytest.mark.parametrize(
    ("table", "line", "value"),
    [
        ("stage,kind\n0,F\n", 1, "stage,kind"),
        ("stage,kind,micro_batch,colour\n", 1, "stage,kind,micro_batch,colour"),
        ("", 1, ""),
        (FIRST, 1, None),
        (f"{FIRST}0,F,0\n0,X,0\n", 3, "kind: X"),
        (f"{FIRST}0,F,-1\n", 2, "micro_batch: -1"),
        (f"{FIRST}0,F\n", 2, "0,F"),
        (f"{FIRST}0,F,0,0\n", 2, "0,F,0,0"),
        (f"{FIRST}99999999,F,0\n", 2, "stage: 99999999"),
        (f"{FIRST}0,F,0\n0,B,0\n0,B,0\n", 4, "B0"),
        (f"{FIRST}0,B,0\n0,F,0\n", 2, "B0"),
        (f"{FIRST}0,F,0\n0,B,0\n0,F,1\n0,B,1\n1,F,1\n1,F,0\n1,B,0\n1,B,1\n", 3, "B0"),
    ],
)
def test_a_faulty_row_is_told_with_its_line(tmp_path, table, line, value):
    problem = told(tmp_path, table)[0]

    assert problem.where == f"{tmp_path / 'mine.csv'}:{line}"
    assert (problem.field, problem.value) == ("plan.schedule", value)
    assert problem.allowed
    assert problem.because
    assert problem.fix


def test_faults_of_a_table_and_of_the_job_are_told_together(tmp_path):
    fields = {p.field for p in told(tmp_path, f"{FIRST}0,X,0\n", plan="dp=2 pp=4 zero=9")}

    assert fields == {"plan.schedule", "plan.zero"}


def test_a_table_that_is_missing_or_no_text_is_told(tmp_path):
    assert told(tmp_path, None)[0].field == "file"
    (tmp_path / "mine.csv").write_bytes(b"stage\xff")

    (problem,) = told(tmp_path, None)
    assert (problem.allowed, problem.where) == ("UTF-8 text", f"{tmp_path / 'mine.csv'}:1")


@pytest.mark.parametrize(
    ("plan", "field", "allowed"),
    [
        ("dp=4 pp=2 mbs=1 gbs=32 precision=fp16", "plan.pipeline_parallel", "4"),
        ("dp=2 pp=4 vpp=2 mbs=1 gbs=16 precision=fp16", "plan.virtual_stages", "1"),
        ("dp=2 pp=4 mbs=1 gbs=32 precision=fp16", "plan.global_batch", "8 micro-batches"),
    ],
)
def test_a_table_must_have_the_plan_s_numbers(tmp_path, plan, field, allowed):
    (problem,) = told(tmp_path, one_f_one_b(4, 8), plan=plan)

    assert problem.field == field
    assert problem.allowed == f"{allowed}, as in mine.csv"


def test_messages_that_block_one_by_one_are_refused(tmp_path):
    (problem,) = told(tmp_path, one_f_one_b(4, 8), stack="gpt-neox-deepspeed")

    assert problem.because == "a table of tasks cannot state when a stage waits for transfers"
