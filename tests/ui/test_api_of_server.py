"""The API: the same data as the command line's, described by OpenAPI, faults as data."""

import json

import pytest
from conftest import REPOSITORY
from server_at_hand import asked, data

from flopcast.api import predict
from flopcast.lab.diagnosis.diagnose import diagnose
from flopcast.lab.logs.reader import read_log
from flopcast.render.diagnosis import as_json as as_diagnosis
from flopcast.render.report_json import as_json
from flopcast.ui.openapi import OPERATIONS
from flopcast.ui.request_fields import job_from, with_field_names

JOB = {"model": "llama-3-8b", "cluster": "dgx-h100", "gpus": 16, "tp": 8, "gbs": 64, "mbs": 1}
WHOLE = {"model": "llama-3-8b", "cluster": "dgx-h100:2", "plan": "dp=2 tp=8 mbs=1 gbs=64 sp"}


def test_a_prediction_is_that_of_the_command_line(server):
    status, report = data(server, "predict", JOB)

    assert status == 200
    assert report == json.loads(json.dumps(as_json(predict(job_from(JOB)))))


def test_memory_is_that_of_the_prediction(server):
    _, report = data(server, "predict", JOB)
    _, memory = data(server, "memory", JOB)

    assert memory["memory"] == report["memory"]


def test_a_job_may_be_told_whole(server):
    status, report = data(server, "predict", {"job": WHOLE, "recompute": "full"})

    assert status == 200
    assert report["job"]["plan"]["recompute"] == "full"


def test_the_best_plan_of_a_search_is_the_one_that_prediction_gives(server):
    _, found = data(server, "search", JOB | {"tp": "4,8", "mbs": "1,2", "vpp": 1, "cp": 1, "zero": 1})
    best = found["plans"][0]

    _, report = data(
        server,
        "predict",
        {"job": {"plan": best["plan"]}, **{k: JOB[k] for k in ("model", "cluster", "gpus")}},
    )

    assert found["feasible"] > 1
    assert report["step_time_s"] == pytest.approx(best["step_time_s"], rel=1e-8)


def test_a_diagnosis_is_that_of_the_command_line(server):
    text = (REPOSITORY / "tests" / "lab" / "logs" / "megatron-lm.log").read_text(encoding="utf-8")

    status, found = data(server, "diagnose", JOB | {"log": text})

    expected = diagnose(job_from(JOB), predict, read_log(text, "log"))
    assert status == 200
    assert found == json.loads(with_field_names(json.dumps(as_diagnosis(expected))))


def test_the_same_job_twice_is_no_faster(server):
    _, compared = data(server, "compare", {"a": JOB, "b": JOB})

    assert compared["time_per_token_ratio"] == 1.0


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("predict", {"job": WHOLE | {"plan": "dp=2 tp=5 gbs=64"}}, "plan.tensor_parallel"),
        ("predict", JOB | {"tpp": 5}, "tpp"),
        ("predict", {"cluster": "dgx-h100"}, "model"),
        ("compare", {"a": JOB, "c": JOB}, "c"),
        ("compare", {"a": JOB}, "b"),
        ("compare", {"a": JOB, "b": "llama-3-8b"}, "b"),
        ("search", JOB | {"objectives": "speed"}, "objectives"),
        ("memory", JOB | {"model": ["a"]}, "model"),
        ("diagnose", JOB | {"log": "no log"}, "log"),
        ("diagnose", JOB | {"log": 7}, "log"),
    ],
)
def test_faults_are_data(server, name, body, field):
    status, told = data(server, name, body)

    assert status == 400
    assert field in {problem["field"] for problem in told["faults"]}
    assert all(problem["allowed"] and problem["fix"] for problem in told["faults"])


def test_an_error_of_a_compared_job_names_the_job_and_its_edit_mends_it(server):
    jobs = {"a": JOB, "b": JOB}
    for side, wrong in [("b", {"recompute": "everything"}), ("a", {"tp": 3}), ("b", {"price": "3 EUR/h"})]:
        _, told = data(server, "compare", jobs | {side: JOB | wrong})

        (fault,) = told["faults"]
        assert fault["place"] == side, wrong
        for edit in fault["edits"][:1]:
            status, _ = data(server, "compare", jobs | {side: JOB | wrong | edit})
            assert status == 200, wrong
    _, told = data(server, "compare", jobs | {"recompute": "full"})
    assert told["faults"][0]["message"] == "recompute describes one job, not two"


def test_errors_of_a_log_and_of_misnamed_jobs_are_reported_with_those_of_the_job(server):
    _, told = data(server, "diagnose", JOB | {"tp": 3, "log": "no log"})
    assert [fault["field"] for fault in told["faults"]] == ["log", "plan.tensor_parallel"]
    _, told = data(server, "compare", {"old": JOB | {"tp": 3}, "new": "llama-3-8b"})
    places = [(fault["field"], fault["place"], fault["fix"]) for fault in told["faults"]]

    assert places[:2] == [
        ("old", "request", 'write "a" in place of "old"'),
        ("new", "request", 'write "b": {"model": "llama-3-8b"} in place of "new"'),
    ]
    assert [each[:2] for each in places[2:]] == [("plan.tensor_parallel", "old")]
    flat = {f"{side}.{name}": value for side in "ab" for name, value in JOB.items()}
    assert data(server, "compare", flat)[0] == 200


def test_what_no_plan_satisfies_is_said(server):
    status, told = data(server, "predict", {"model": "llama-3.1-405b", "cluster": "dgx-h100", "gpus": 8})

    assert status == 422
    (fault,) = told["faults"]
    assert fault["kind"] == "infeasible"
    assert "405" in fault["message"] or "memory" in fault["message"]


def test_the_description_names_every_request_and_every_word_of_a_job(server):
    status, _, text = asked(server, "/api/v1/openapi.json")
    described = json.loads(text)
    words = described["components"]["schemas"]["Job"]["properties"]

    assert status == 200
    assert described["openapi"] == "3.1.0"
    assert set(described["paths"]) == {f"/api/v1/{name}" for name in OPERATIONS}
    assert set(JOB) <= set(words)
    for name in OPERATIONS:
        assert asked(server, f"/api/v1/{name}", "POST", "{")[0] == 400


def test_every_word_that_the_description_names_is_known(server):
    described = json.loads(asked(server, "/api/v1/openapi.json")[2])
    kinds = {"integer": 1, "string": "x", "object": {}}
    for word, schema in described["components"]["schemas"]["Job"]["properties"].items():
        kind = schema["type"] if isinstance(schema["type"], str) else schema["type"][0]

        _, told = data(server, "memory", JOB | {word: kinds[kind]})

        unknown = [
            each for each in told.get("faults", ()) if str(each["because"]).startswith("an unknown field")
        ]
        assert unknown == [], word
