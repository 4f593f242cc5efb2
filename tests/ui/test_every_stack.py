"""Every stack writes its report and its page for each kind of model, and for each number of devices."""

import json

from all_cases import all_cases
from conftest import described_model
from single_calls import screen_each

from flopcast import api
from flopcast.errors import SpecError
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.render.report_page import as_html
from flopcast.ui import responses
from flopcast.ui.request_fields import job_from

DENSE = described_model(hidden=256, vocabulary=4096, count=8, heads=8)
MODELS = {
    "dense": DENSE,
    "experts": described_model(
        hidden=256, vocabulary=4096, count=8, heads=8, num_experts=8, top_k=2, expert_hidden=512
    ),
    "adapters": DENSE | {"adapters": {"rank": 8, "targets": ["q", "v"]}},
}
DEVICES = (1, 8, 64)
STACKS = catalog.names("stacks")
SPLITS = ("tp=2 pp=2", "ep=4 pp=2", "ep=4", "")  # the rest of the devices are replicas


def words_of(stack, model, devices, plan):
    job = {"model": model, "cluster": "dgx-a100", "stack": stack, "batch": {"sequence_length": 512}}
    return {"job": job | {"plan": plan}, "gpus": devices}


def possible(stack, model, devices):
    """Return a job for each split, with the first ZeRO stage that the stack has, and all errors.

    Only on 8 devices are there several.
    """
    taken, faults = [], []
    for split in SPLITS:
        if taken and devices != 8:
            break
        said = dict(word.split("=") for word in split.split())
        inside = int(said.get("tp", 1)) * int(said.get("pp", 1))
        if devices % inside or (devices // inside) % int(said.get("ep", 1)):
            continue
        for zero in (1, 0, 3):
            plan = f"dp={devices // inside} {split} mbs=1 gbs=64 zero={zero} precision=bf16"
            try:
                taken.append(job_from(words_of(stack, model, devices, plan)))
                break
            except SpecError as error:
                faults += error.problems
    return taken, faults


def cases_of(stack):
    """Each kind of model on another number of devices, in turn: each third stack has the same pairs."""
    turn = STACKS.index(stack) % len(DEVICES)
    return zip(MODELS, DEVICES[turn:] + DEVICES[:turn], strict=True)


@all_cases("stack", STACKS)
def test_every_stack_writes_its_report_and_answers_its_page(stack):
    broken = []
    for name, devices in cases_of(stack):
        model = MODELS[name]
        case = f"{name} on {devices}"
        taken, faults = possible(stack, model, devices)
        broken += [f"{case}: {each.field} without a fix" for each in faults if not each.fix]
        if not taken:
            broken.append(f"{case}: no plan is taken")
            continue
        report = api.predict(taken[0])
        if devices == 8:
            plans, book = [job.plan for job in taken], load_book(taken[0].cluster)
            screened = screen_each(taken[0], plans, book)
            if not (screened.possible & (screened.step_time_s > 0)).all():
                broken.append(f"{case}: a plan that is possible alone is not screened")
        shown = json.loads(responses.report_parts(report)[1])["html"]
        broken += [
            f"{case}: no {part} in {where}"
            for where, text in (("the report", as_html(report)), ("the page", shown))
            for part in ("memory-drawing", "pipeline-drawing")
            if f'id="{part}"' not in text
        ]

    assert broken == []
