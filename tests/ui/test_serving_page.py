"""The page of serving: its answers in a browser, its data, its errors."""

import json
import re
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import pytest
from browser_at_hand import changed, opened, step_s
from command_line import flopcast
from server_at_hand import data

from flopcast import predict_serving, serving_job
from flopcast.ui.serving import serve_page, serving_job_from

SMALL = {
    "model": "llama-3.1-8b",
    "cluster": "dgx-h100",
    "gpus": "2",
    "engine": "vllm",
    "rate": "4/s",
    "prompt": "500",
    "output": "50",
    "requests": "200",
    "tp": "1",
}


def test_a_change_is_answered_as_the_api_and_python_answer(browser, server):
    page = opened(browser, server, f"/serve?{urlencode(SMALL)}")
    before_s = step_s(page)

    changed(page, lambda: page.fill("[name=rate]", "40/s"), "serve")

    assert step_s(page) > before_s
    words = dict(parse_qsl(urlsplit(page.url).query))
    report = data(server, "serve", words)[1]
    ttft = report["latencies_s"]["ttft"]["mean"]
    assert step_s(page) == pytest.approx(ttft["value"], rel=1e-6)
    same = serving_job(
        "llama-3.1-8b",
        engine="vllm",
        cluster="dgx-h100",
        gpus=2,
        plan="tp=1",
        traffic="rate=40/s prompt=500 output=50 requests=200",
    )
    assert predict_serving(same).latencies["ttft"]["mean"].value == pytest.approx(ttft["value"])
    assert page.complaints == []


def test_the_first_lines_say_that_devices_are_idle_and_what_energy_includes():
    words = {name: value for name, value in SMALL.items() if name != "tp"} | {"gpus": "8", "rate": "1/s"}
    told = flopcast(
        *("predict", "llama-3.1-8b", "--engine", "vllm", "--cluster", "dgx-h100", "--gpus", "8"),
        *("--traffic", "rate=1/s prompt=500 output=50 requests=200"),
    ).out
    html = serve_page(words)["html"]

    assert told.split(",")[0] == "llama-3.1-8b on dgx-h100: 1 of 8 × h100-sxm5-80gb"
    assert "1 of 8 × h100-sxm5-80gb" in html.split("<dl")[0]
    for lines in (told.split("TTFT")[0], html.split("<dl")[0]):
        assert "fewest device-seconds; it uses 1 of 8 devices" in lines
    (energy,) = re.findall(r"energy    (\S+ kWh) for .* output tokens, with hosts and cooling", told)
    assert f"Energy, with hosts and cooling</dt><dd>{energy}<small>for a million output tokens" in html


def test_data_of_serving_jobs_is_that_of_the_commands(server):
    job = {"model": "llama-3.1-8b", "cluster": "dgx-h100", "gpus": 2, "engine": "vllm"}
    job |= {"traffic": "rate=4/s prompt=500 output=50 requests=200", "slo": "tpot_p99=50ms"}
    options = [word for name, value in job.items() for word in (f"--{name}", str(value))]
    space = "tp=1,2 max_sequences=64 max_tokens=8192"
    one, other = job | {"plan": "tp=1"}, job | {"plan": "tp=2"}
    of_file = {name: value for name, value in one.items() if name != "gpus"}
    for name, body, words in (
        ("predict", one, ("--plan", "tp=1")),
        ("memory", one, ("--plan", "tp=1")),
        ("memory", job | {"plan": "tp=1", "changes": "engine.memory_fraction=0.5"},
         ("--plan", "tp=1", "engine.memory_fraction=0.5")),
        ("memory", {"gpus": 2, "job": of_file}, ("--plan", "tp=1")),
        ("compare", {"a": one, "b": other}, ("--plan", "tp=1", "plan.tp=2")),
        ("search", job | {"plan": space, "objectives": "ttft"}, ("--plan", space, "--objective", "ttft")),
    ):  # fmt: skip
        top = ("--top", "20") if name == "search" else ()
        told = json.loads(flopcast(name, *options, *words, *top, "--json").out)
        status, answered = data(server, name, body)

        assert status == 200, name
        told.pop("seconds", None), answered.pop("seconds", None)
        assert answered == told, name
    assert data(server, "serve", SMALL | {"traffic": "rate=9/s"}) == data(server, "predict", SMALL)
    status, told = data(server, "compare", {"a": one, "b": {"model": "llama-3-8b", "gpus": 8}})
    assert (status, told["faults"][0]["fix"]) == (400, 'add "engine": "vllm" to b')


def test_other_settings_are_those_of_the_command_line(server):
    plain, drafting, wrong = (
        data(server, "serve", SMALL | ({"settings": words} if words else {}))
        for words in ("", "draft=eagle drafted=3", "colour=red")
    )

    means = [answer["latencies_s"]["tpot"]["mean"]["value"] for _, answer in (plain, drafting)]
    assert means[1] < means[0]
    assert wrong[0] == 400
    assert "colour" in str(wrong[1])
    job = serving_job_from(SMALL | {"settings": "draft=eagle drafted=3 engine.memory_fraction=0.8"})
    assert (job.engine.memory_fraction, job.plan.drafting is None) == (0.8, False)


def test_the_best_deployment_is_chosen_into_the_form(browser, server):
    asked = {name: value for name, value in SMALL.items() if name != "tp"} | {"slo": "tpot_p99=5ms"}
    page = opened(browser, server, f"/serve?{urlencode(asked)}")

    changed(page, lambda: page.click("button[name=choose]"), "serve")

    assert page.input_value("[name=tp]") == "2"  # one device takes 6 ms for a token
    links = page.locator("#answer table a")
    assert parse_qs(urlsplit(links.first.get_attribute("href")).query)["tp"] == ["2"]
    changed(page, lambda: page.fill("[name=tp]", "1"), "serve")
    assert "0 requests/s meet all limits" in page.inner_text("#answer dl.tiles")
    assert page.complaints == []


def test_an_error_leads_to_its_field_and_keeps_what_was_entered(browser, server):
    page = opened(browser, server, f"/serve?{urlencode(SMALL)}")

    changed(page, lambda: page.fill("[name=rate]", "often"), "serve")

    assert page.get_attribute("[name=rate]", "aria-invalid") == "true"
    assert page.input_value("[name=prompt]") == "500"


def test_pages_of_training_and_of_serving_share_the_machine(browser, server):
    page = opened(browser, server, f"/serve?{urlencode(SMALL)}")
    there = {
        urlsplit(link.get_attribute("href")).path: parse_qs(urlsplit(link.get_attribute("href")).query)
        for link in page.locator("header nav a").all()
    }
    assert there["/"] == {"model": ["llama-3.1-8b"], "cluster": ["dgx-h100"], "gpus": ["2"]}


def test_a_request_opens_no_file_and_names_unknown_fields(server):
    status, answer = data(server, "serve", SMALL | {"trace": "/etc/passwd"})
    assert status == 400
    assert answer["faults"][0]["field"] == "trace"
    bare = {name: value for name, value in SMALL.items() if name not in ("prompt", "output")}
    status, answer = data(server, "serve", bare | {"rate": "4/s trace=/etc/passwd"})
    assert status == 400
    assert answer["faults"][0]["allowed"] == "a rate such as 4/s or 240/min"
