"""Every control of every page in a real browser, and every state of every page as its reader sees it."""

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from browser_at_hand import opened, step_s, sync_api
from server_at_hand import data

AUDIT = (Path(__file__).parent / "audit.js").read_text(encoding="utf-8")
WIDTHS = (390, 800, 1300)
SCHEMES = {390: ("dark",), 1300: ("light",)}  # colours do not depend on the width
SMALL = "model=llama-3-8b&cluster=dgx-h100&gpus=16&tp=8&pp=1&vpp=1&cp=1&ep=1&mbs=1&gbs=64&zero=1"
WHOLE = f"{SMALL}&recompute=none&precision=bf16&plan=sp"
LOG = "".join(
    f" iteration {step:8d}/ 100 | consumed samples: 64 | elapsed time per iteration (ms): 2100.5 |\n"
    for step in range(1, 30)
)
SCRIPT = (
    "torchrun --nnodes $NNODES --nproc_per_node $1 pretrain_gpt.py --num-layers 24 --hidden-size 2048"
    " --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1"
    " --global-batch-size 64 --bf16 --tensor-model-parallel-size 2 --vocab-size 51200\n"
)


def answered(page):
    page.wait_for_selector("#answer :is(.plans, .tiles, .faults)")


def with_log(page):
    page.set_input_files("#log", {"name": "train.log", "mimeType": "text/plain", "buffer": LOG.encode()})
    page.wait_for_selector("#answer >> text=2.10 s")


def with_script(page):
    page.fill("#text", SCRIPT)
    page.fill("#name", "run.sh")
    page.fill("#arg", "1=8")
    page.fill("#env", "NNODES=4")
    page.click("text=Read this file")
    page.wait_for_selector("#preview")


def with_an_empty_list(page):
    page.fill("#field-model-pick", "llama")


def with_an_upload_that_is_no_file(page):
    page.fill("#text", "x")
    page.click("text=Read this file")
    page.wait_for_selector("[role=alert]")


STATES = {
    "opening": ("/", answered),
    "answer": (f"/?{WHOLE}", answered),
    "list": (f"/?{WHOLE}", with_an_empty_list),
    "errors": (f"/?{WHOLE}&tp=5", answered),
    "no plan fits": ("/?model=llama-3-8b&cluster=rtx-4090-8&gpus=1&lora=16", answered),
    "log": (f"/?{WHOLE}", with_log),
    "compare": ("/compare", answered),
    "serve": ("/serve", answered),
    "search": ("/search", None),
    "plans": (f"/search?{SMALL.replace('mbs=1', 'mbs=1,2')}&cluster=dgx-h100,dgx-a100&go=1", answered),
    "upload": ("/upload", with_script),
    "upload of no file": ("/upload", with_an_upload_that_is_no_file),
    "lost": ("/nowhere", None),
    "refused": (f"/report.html?{WHOLE}&tp=5", None),
}


@pytest.mark.parametrize("state", STATES)
def test_nothing_is_found_by_the_audit_at_any_width_in_any_scheme(browser, server, state):
    path, prepare = STATES[state]
    page = opened(browser, server, path)
    if prepare is not None:
        prepare(page)
    if state != "opening":  # whose folded parts are those of the answer
        page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    page.wait_for_load_state("networkidle")

    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(AUDIT, {"layout": True}) == [], width
        for scheme in SCHEMES.get(width, ()):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate(AUDIT, {"colours": True}) == [], (width, scheme)


JOB = {
    "model": "llama-3.1-8b",
    "cluster": "dgx-a100",
    "gpus": "32",
    "gbs": "64",
    "seq": "4096",
    "stack": "megatron-core-2025",
}
RUN = {"tokens": "1B", "checkpoint": "lazy nvme every=100", "lora": "8"}
OTHER_RUN = {"samples": "10k", "epochs": "2", "qlora": "8"}  # instead of tokens and LoRA
PLAN = {
    "dp": "",  # follows from the others
    "tp": "2",
    "pp": "2",
    "vpp": "1",
    "cp": "1",
    "ep": "1",
    "mbs": "1",
    "zero": "1",
    "recompute": "full",
    "precision": "bf16",
    "schedule": "1f1b",
    "offload": "optimizer:host",
    "plan": "sp",
}
MORE = {
    "price": "2 USD/h",
    "power_limit": "300 W",
    "slow": "device=3:0.8",
    "loader": "decode=9ms:8",
    "images": "2x336x336",
    "changes": "stack.attention_kernel=flash",
}
TRAINING = JOB | RUN | PLAN | MORE
SEARCH = {
    "find": "largest_batch",
    "objectives": "cost",
    "deadline": "30 d",
    "budget": "2M USD",
    "headroom": "90 %",
    "evolve": "yes",
    "tp_beyond_domain": "yes",
    "no_refine": "yes",
}
SERVING = {
    "model": "llama-3.1-8b",
    "cluster": "dgx-a100",
    "gpus": "8",
    "engine": "sglang",
    "rate": "2/s",
    "prompt": "500",
    "output": "50",
    "slo": "tpot_p99=50ms",
    "tp": "2",
    "dp": "1",
    "ep": "1",
    "pp": "1",
    "replicas": "2",
    "weights": "bf16",
    "cache": "fp8",
    "max_sequences": "64",
    "max_tokens": "4096",
    "settings": "engine.memory_fraction=0.8",
    "price": "2 USD/h",
    "requests": "100",
}


def entered(page, words):
    """Enter values as a reader does: in lists that can be searched, in other lists, and in fields."""
    page.evaluate("document.querySelectorAll('form details').forEach(part => { part.open = true; })")
    for name, value in words.items():
        field, picker = page.locator(f"[name='{name}']"), page.locator(f"[id='field-{name}-pick']")
        if picker.count():
            picker.fill(value)
            picker.press("Enter")
        elif field.evaluate("each => each.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)


def kept(page, words):
    """Wait until the address holds exactly these values, apart from what was chosen, and the answer."""
    page.wait_for_function(
        """words => {
          const query = new URLSearchParams(location.search);
          return Object.entries(words).every(([name, value]) => (query.get(name) || '') === value)
            && document.getElementById('answer').ariaBusy === 'false';
        }""",
        arg=words,
    )


def names_of(page):
    return set(
        page.locator("form [name]:not([type=hidden]):not(button)").evaluate_all(
            "all => all.map(e => e.name)"
        )
    )


def with_prefix(prefix, words):
    return {prefix + name: value for name, value in words.items()}


def test_every_field_of_a_prediction_is_answered_as_the_api_answers(browser, server):
    page = opened(browser, server, f"/?{WHOLE}", color_scheme="dark", width=390)
    assert names_of(page) == set(TRAINING | OTHER_RUN)
    words = TRAINING | {"images": ""}  # of a model that takes images

    entered(page, words)
    kept(page, words)
    status, report = data(server, "predict", {name: value for name, value in words.items() if value})
    assert status == 200, report
    assert step_s(page) == pytest.approx(report["step_time_s"], rel=1e-8)

    changes = dict.fromkeys(RUN, "") | OTHER_RUN | {"images": MORE["images"]}
    entered(page, changes)
    kept(page, words | changes)
    assert page.locator("#answer .faults").inner_text().count("Images") >= 1


def test_every_field_of_a_comparison_is_answered_as_the_api_answers(browser, server):
    both = "&".join(f"{side}.{word}" for side in "ab" for word in WHOLE.split("&"))
    page = opened(browser, server, f"/compare?{both}", width=800)
    sides = {"a": TRAINING | {"images": ""}, "b": TRAINING | {"images": "", "recompute": "none"}}
    words = with_prefix("a.", sides["a"]) | with_prefix("b.", sides["b"])
    assert names_of(page) == set(words) | {f"{side}.{name}" for side in "ab" for name in OTHER_RUN}

    entered(page, words)
    kept(page, words)

    asked = {
        side: {name: value for name, value in side_words.items() if value}
        for side, side_words in sides.items()
    }
    status, compared = data(server, "compare", asked)
    assert status == 200, compared
    assert step_s(page) == pytest.approx(compared["first"]["step_time_s"], rel=1e-8)


def test_every_field_of_serving_is_answered_as_the_api_answers(browser, server):
    few = "model=llama-3.2-1b&cluster=dgx-h100&gpus=2&tp=1&requests=50&prompt=100&output=10&rate=1/s"
    page = opened(browser, server, f"/serve?{few}", width=1300, color_scheme="dark")
    assert names_of(page) == {*SERVING, "concurrency"}

    entered(page, SERVING)
    kept(page, SERVING)
    status, report = data(server, "serve", SERVING)
    assert status == 200, report
    assert step_s(page) == pytest.approx(report["latencies_s"]["ttft"]["mean"]["value"], rel=1e-6)

    changes = {"rate": "", "concurrency": "4"}
    entered(page, changes)
    kept(page, SERVING | changes)


def test_every_field_of_a_search_is_asked_for_and_several_names_are_offered(browser, server):
    page = opened(browser, server, "/search", width=390)
    words = SEARCH | TRAINING | {"cluster": "dgx-a100,dgx-h100", "images": "", "tp": "2,4"}
    assert names_of(page) == set(SEARCH | TRAINING | OTHER_RUN)
    assert "1..8" in page.inner_text("#answer").split()

    entered(page, words)
    offered = page.locator("#field-cluster-offered option").evaluate_all("all => all.map(e => e.value)")
    with page.expect_request(re.compile("/answer/search")) as asked:
        page.click("button[name=go]")

    assert "dgx-a100,dgx-b200" in offered
    query = {name: value[0] for name, value in parse_qs(urlsplit(asked.value.url).query).items()}
    assert {name: query.get(name, "") for name in words} == words


def test_what_is_typed_is_not_overwritten_by_an_answer_that_comes_late(browser, server):
    page, late = opened(browser, server, "/?model=llama-3-8b&cluster=dgx-h100&gpus=16"), []

    def hold(route):
        late.append((route, route.fetch()))

    page.route(re.compile("/answer/predict"), hold, times=1)
    with page.expect_request(re.compile("/answer/predict")):
        page.fill("[name=seq]", "4096")  # with which another plan is chosen

    while not late:
        page.wait_for_timeout(10)
    route, response = late[0]
    page.fill("[name=mbs]", "4")
    route.fulfill(response=response)  # before the page asks again
    kept(page, {"mbs": "4", "seq": "4096"})

    assert page.input_value("[name=mbs]") == "4"


def test_every_field_of_an_upload_is_read(browser, server):
    page = opened(browser, server, "/upload", color_scheme="dark", width=800)
    assert names_of(page) == {"name", "text", "cluster", "gpus", "arg", "env"}

    entered(
        page,
        {
            "name": "run.sh",
            "text": SCRIPT,
            "cluster": "dgx-a100",
            "gpus": "32",
            "arg": "1=8",
            "env": "NNODES=4",
        },
    )
    page.click("text=Read this file")

    sync_api.expect(page.locator("#preview")).to_contain_text("32 × a100-sxm4-80gb (dgx-a100)")
    page.click("text=Predict this job")
    page.wait_for_selector("#answer .tiles")
    page.uncheck("[name=job]")
    page.wait_for_function("() => !location.search.includes('job=')")
