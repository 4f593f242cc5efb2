"""Pages and their files as a browser without script gets them."""

import json
import re
from html.parser import HTMLParser
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from server_at_hand import asked, data

JOB = {"model": "llama-3-8b", "cluster": "dgx-h100", "gpus": "16", "tp": "8", "gbs": "64"}
SMALL = JOB | {"pp": "1", "mbs": "1", "vpp": "1", "zero": "1", "recompute": "none", "cp": "1"}
REST = {"ep": "1", "precision": "bf16"}  # with it, a plan is told whole
PAGES = ["/", "/search", "/compare", "/serve", "/upload"]


class Outline(HTMLParser):
    """What can be asked of a page: ids, headings, names of fields and their labels, links, forms."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.levels, self.fields, self.labels, self.links = [], [], {}, set(), []
        self.values, self.attributes = {}, []
        self._select = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.attributes += [(tag, name) for name, _ in attrs]
        if "id" in given:
            self.ids.append(given["id"])
        if re.fullmatch("h[1-6]", tag):
            self.levels.append(int(tag[1]))
        if tag in ("input", "select", "textarea") and given.get("type") == "hidden":
            self.values[given["name"]] = given["value"]
        elif tag in ("input", "select", "textarea"):
            self.fields[given.get("name", given.get("id"))] = given.get("id")
            self.values[given.get("name")] = given.get("value", "")
            self._select = given.get("name") if tag == "select" else None
        if tag == "option" and "selected" in given:
            self.values[self._select] = given["value"]
        if tag == "label":
            self.labels.add(given.get("for"))
        if tag == "a":
            self.links.append(given["href"])


def page(server, path, **words):
    status, headers, text = asked(server, f"{path}?{urlencode(words)}" if words else path)
    assert headers["content-type"].startswith("text/html")
    return status, Outline(text), text


@pytest.mark.parametrize("path", PAGES)
def test_every_field_has_a_label_every_id_is_one_and_headings_are_in_order(server, path):
    status, outline, text = page(server, path)

    assert status == 200
    assert len(outline.ids) == len(set(outline.ids))
    unlabelled = {name for name, key in outline.fields.items() if key not in outline.labels}
    assert unlabelled <= {"job"}
    assert outline.levels[0] == 1
    assert all(
        after - before <= 1 for before, after in zip(outline.levels, outline.levels[1:], strict=False)
    )
    assert '<html lang="en">' in text


@pytest.mark.parametrize("path", PAGES)
def test_a_page_holds_no_script_and_no_style_of_its_own(server, path):
    _, headers, text = asked(server, path)
    outline = Outline(text)

    assert {name for _, name in outline.attributes} & {"style", "onclick", "onload", "onchange"} == set()
    assert not re.search(r"<style|<script(?! src=\"/static/(app|early).js\")", text)
    assert not re.search(r"(src|href)=\"(https?:)?//", text)
    assert "'unsafe-inline'" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


def test_the_first_page_answers_and_holds_the_plan_that_was_chosen(server):
    status, outline, text = page(server, "/")
    _, report = data(server, "predict", {"model": "llama-3-8b", "cluster": "dgx-h100", "gpus": 64})

    assert status == 200
    assert f'<data value="{report["step_time_s"]:.9g}">' in text
    assert int(outline.values["tp"]) == report["job"]["plan"]["tensor_parallel"]
    assert int(outline.values["gbs"]) == report["job"]["plan"]["global_batch"]


def test_the_address_of_a_page_is_its_state(server):
    _, outline, text = page(server, "/", **SMALL)
    again = {name: value for name, value in outline.values.items() if value and name}

    _, _, same = page(server, "/", **again)

    assert outline.values["model"] == "llama-3-8b"
    assert re.findall(r'<data value="([^"]*)">', text) == re.findall(r'<data value="([^"]*)">', same)


def test_a_page_tells_every_fault_and_keeps_what_was_written(server):
    status, outline, text = page(
        server, "/", **SMALL | {"tp": "5", "vpp": "7", "precision": "bf16", "ep": "1"}
    )

    assert status == 400
    assert outline.values["tp"] == "5"
    assert "Tensor parallel</strong></a> = " in text
    assert "Virtual stages" in text
    assert 'role="alert"' in text


def test_what_is_written_is_shown_as_text(server):
    hostile = '"><script>alert(1)</script>'

    for word in ("model", "tp", "price", "changes", "plan", "stack"):
        _, _, text = page(server, "/", **SMALL | {word: hostile})
        assert "<script>alert" not in text


def test_choosing_leaves_the_batch_and_takes_another_plan(server):
    slow = SMALL | {"tp": "1", "pp": "8", "recompute": "full", "gbs": "128", "precision": "fp16"}

    _, outline, _ = page(server, "/", **slow, choose="1")

    assert (outline.values["gbs"], outline.values["precision"]) == ("128", "fp16")
    assert outline.values["recompute"] == "none"


def test_another_model_takes_another_plan_and_keeps_what_was_written(server):
    """Chunks of 32 blocks do not fit a model of 40: the form sends them all the same."""
    _, outline, _ = page(server, "/", model="llama-3-8b", cluster="dgx-h100", gpus="16")
    sent = {name: value for name, value in outline.values.items() if name and value}
    sent |= {"recompute": "full", "model": "llama-2-13b"}

    status, changed, text = page(server, "/", **sent)
    answered, _, body = asked(server, f"/answer/predict?{urlencode(sent)}")

    assert int(outline.values["vpp"]) > 1
    assert (status, answered) == (200, 200)
    assert changed.values["recompute"] == "full"
    assert "llama-2-13b" in text
    filled = json.loads(body)["form"]
    assert {name: filled[name] for name in ("tp", "pp", "recompute")} == {
        name: changed.values[name] for name in ("tp", "pp", "recompute")
    }


def test_a_number_of_devices_that_no_node_divides_is_one_error(server):
    _, outline, _ = page(server, "/", model="llama-3-8b", cluster="dgx-h100", gpus="64")
    sent = {name: value for name, value in outline.values.items() if name and value}

    for words in (
        sent,
        {name: value for name, value in sent.items() if name != "chosen"} | {"vpp": "1", "plan": ""},
    ):
        status, _, text = page(server, "/", **words | {"gpus": "13"})

        assert status == 400
        assert "1 error in the input" in text
        assert "set GPUs to 8 or 16" in text


def test_wrong_numbers_and_names_are_reported_together(server):
    status, _, text = page(
        server, "/", model="llama-3-8", cluster="nope", gpus="abc", seq="-4", tp="-1", gbs="0"
    )
    assert status == 400
    assert "6 errors in the input" in text
    status, _, text = page(server, "/serve", model="llama-3-8", gpus="abc", engine="nope", tp="-1")
    assert status == 400
    assert "4 errors in the input" in text


def test_files_are_what_the_page_shows(server):
    query = urlencode(SMALL)
    _, headers, text = asked(server, f"/job.yaml?{query}")
    status, _, report = asked(server, f"/report.json?{query}")
    _, _, whole = asked(server, f"/report.html?{query}")

    from flopcast.api import predict
    from flopcast.files.yaml_text import read_yaml
    from flopcast.requests.job_files import job_of

    assert status == 200
    assert headers["content-disposition"] == 'attachment; filename="job.yaml"'
    expected_s = json.loads(report)["step_time_s"]
    assert predict(job_of(read_yaml(text.encode(), "job.yaml"))).step_time_s == pytest.approx(
        expected_s, rel=1e-8
    )
    assert f'<data value="{expected_s:.9g}">' in whole


def test_a_file_that_cannot_be_made_is_a_page_that_says_why(server):
    query = urlencode(SMALL | REST | {"tp": "5"})

    for path in ("/report.html", "/job.yaml"):
        status, outline, text = page(server, f"{path}?{query}")

        assert status == 400
        assert "Tensor parallel</strong></a> = " in text
        assert {"/", "/search", "/compare"} <= set(outline.links)
    assert json.loads(asked(server, f"/report.json?{query}")[2])["faults"]


def test_a_search_without_script_is_a_link_away(server):
    words = SMALL | {"mbs": "1,2", "tp": "4,8"}
    _, outline, _ = page(server, "/search", **words, go="1")
    link = next(each for each in outline.links if "now=1" in each)

    status, _, text = asked(server, link)

    assert status == 200
    assert 'class="plans"' in text
    links = [each for each in Outline(text).links if each.startswith("/?")]
    answers = [asked(server, each)[0] for each in links[:4]]
    assert answers == [200] * 4


def test_a_search_tells_how_far_it_is_then_answers(server):
    status, headers, text = asked(
        server, f"/answer/search?{urlencode(SMALL | {'mbs': '1,2,4', 'tp': '2,4,8'})}"
    )
    events = [line for line in text.split("\n\n") if line.startswith("event: ")]

    assert status == 200
    assert headers["content-type"].startswith("text/event-stream")
    assert events[-1].startswith("event: answer\ndata: {")
    assert "plans" in json.loads(events[-1].split("data: ", 1)[1])["html"]
    assert all(event.startswith("event: told\n") for event in events[:-1])


def test_an_address_that_leads_nowhere_shows_where_there_is_something(server):
    status, headers, text = asked(server, "/pridict", headers={"accept": "text/html"})

    assert (status, headers["content-type"].partition(";")[0]) == (404, "text/html")
    assert {"/", "/search", "/compare"} <= set(Outline(text).links)
    assert "script-src 'self'" in headers["content-security-policy"]
    status, _, text = asked(server, "/api/v1/pridict", "POST", "{}")
    assert status == 404
    assert "did you mean /api/v1/predict?" in text


def test_faults_name_fields_and_no_options(server):
    words = {"model": "llama-3-8b", "cluster": "h100", "gpus": "12"}

    status, _, text = asked(server, f"/?{urlencode(words)}")
    other = asked(server, f"/?{urlencode(words | {'cluster': 'dgx-h100', 'tp': '3'})}")[2]

    assert status == 400
    assert "did you mean dgx-h100" in text
    assert "set GPUs to 8 or 16" in other
    assert "--" not in re.sub("<[^>]*>", "", text + other).replace("<!--", "")


def test_two_jobs_stand_side_by_side(server):
    sides = {f"{side}.{name}": value for side in ("a", "b") for name, value in SMALL.items()}

    status, outline, text = page(server, "/compare", **sides | {"b.recompute": "full"})
    _, compared = data(server, "compare", {"a": SMALL, "b": SMALL | {"recompute": "full"}})

    assert status == 200
    assert outline.values["b.recompute"] == "full"
    for side in ("first", "second"):
        assert f'<data value="{compared[side]["step_time_s"]:.9g}">' in text


def test_a_comparison_opens_with_two_jobs_that_differ_and_says_where_they_do_not(server):
    sides = {f"{side}.{name}": value for side in ("a", "b") for name, value in SMALL.items()}

    _, opening, _ = page(server, "/compare")
    _, _, same = page(server, "/compare", **sides)

    assert (opening.values["a.cluster"], opening.values["b.cluster"]) == ("dgx-h100", "dgx-b200")
    assert "Both jobs are the same: change a field of B" in same


def preview_link(text):
    """The link of an upload's preview to the prediction of its job."""
    return next(link for link in Outline(text).links if link.startswith("/?") and "job=" in link)


def test_a_file_becomes_an_address(server):
    text = "model: llama-3-8b\ncluster: dgx-h100:2\nplan: dp=2 tp=8 mbs=1 gbs=64 sp\nbatch: {seq: 4096}\n"
    body = urlencode({"name": "job.yaml", "text": text})

    status, _, preview = asked(server, "/upload", "POST", body)
    _, outline, shown = page(server, preview_link(preview))

    assert status == 200
    assert "dp=2 tp=8 mbs=1 gbs=64 sp" in preview
    assert outline.values["tp"] == "8"
    assert "seq=4096" in shown


SCRIPT = (
    "torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048"
    " --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1"
    " --global-batch-size 64 --bf16 --tensor-model-parallel-size 2 --vocab-size 51200\n"
)


@pytest.mark.parametrize(
    ("machine", "cluster", "gpus"),
    [
        ({}, "dgx-h100", "32"),
        ({"cluster": "dgx-a100"}, "dgx-a100", "32"),
        ({"gpus": "64", "cluster": "dgx-a100"}, "dgx-a100", "64"),
    ],
)
def test_an_uploaded_script_runs_on_its_own_devices_and_on_a_cluster_of_choice(
    server, machine, cluster, gpus
):
    body = urlencode({"name": "run.sh", "text": SCRIPT} | machine)

    status, _, preview = asked(server, "/upload", "POST", body)
    words = dict(parse_qsl(urlsplit(preview_link(preview)).query))

    assert status == 200
    assert f"{gpus} × " in preview
    assert (words["cluster"], words["gpus"]) == (cluster, gpus)
    assert page(server, preview_link(preview))[0] == 200


def test_an_upload_with_an_error_keeps_what_was_written(server):
    written = {"name": "run.sh", "text": "first\n</textarea>line", "cluster": "dgx-a100", "gpus": "16"}

    status, outline, text = page_of_upload(server, written)

    assert status == 400
    assert {name: outline.values[name] for name in ("name", "cluster", "gpus")} == {
        name: written[name] for name in ("name", "cluster", "gpus")
    }
    assert "first\n&lt;/textarea&gt;line" in text


def page_of_upload(server, written):
    status, _, text = asked(server, "/upload", "POST", urlencode(written))
    return status, Outline(text), text


@pytest.mark.parametrize("given", [{}, {"name": "a", "text": " "}, {"name": "x\ny", "text": "a"}])
def test_an_upload_without_a_file_is_told(server, given):
    status, _, text = asked(server, "/upload", "POST", urlencode(given))

    assert status == 400
    assert 'role="alert"' in text


def test_a_log_stands_beside_its_prediction(server):
    lines = "".join(
        f" iteration {step:8d}/ 100 | consumed samples: {64 * step:12d} |"
        " elapsed time per iteration (ms): 2100.5 | global batch size: 64 | lm loss: 2.1E+00 |\n"
        for step in range(1, 30)
    )

    status, _, text = asked(server, f"/answer/log?{urlencode(SMALL)}", "POST", lines)

    assert status == 200
    assert "2.10 s" in json.loads(text)["html"]
