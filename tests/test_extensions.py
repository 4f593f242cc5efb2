"""A schedule, a rewrite with a kernel of its own, a family and an importer: one file and one line each."""

import json
import sys
from textwrap import dedent

from children import ran

PARTS = {
    "schedule.py": """
        from typing import ClassVar

        import numpy as np

        from flopcast.schedules.base import AbstractSchedule, Order, alternate

        class Patient(AbstractSchedule):
            blocks_because: ClassVar[str] = "a patient stage takes its messages when it likes"

            def order(self, stages, virtual, micro_batches):
                tasks = np.arange(micro_batches)
                warm_up = (min(3 * (stages - 1 - stage), micro_batches) for stage in range(stages))
                rows = [alternate(each, tasks, tasks) for each in warm_up]
                kind, index = (np.stack(columns) for columns in zip(*rows, strict=True))
                return Order(kind=kind, chunk=np.zeros_like(kind), micro_batch=index)

            def in_flight(self, stage, stages, virtual, micro_batches, chunk):
                return np.minimum(3 * (stages - 1 - stage) + 1, micro_batches) * (chunk == 0)
        """,
    "kernel.py": """
        from flopcast.operators.memory_bound import Kind

        TWIST = Kind(forward=30, backward=30, passes_on_from=0)
        """,
    "rewrite.py": """
        from flopcast.workload.rewrites.base import change_kind

        def twisted_residuals(items):
            return change_kind(items, "residual_add", "twist")
        """,
    "family.py": """
        from flopcast.interop.hugging_face.families import FAMILIES, Family, fact

        OWL = Family(facts=FAMILIES["llama"].facts | {"hidden": fact(1024, "owl_width")})
        """,
    "importer.py": """
        from flopcast.interop.configs.formats import ConfigFormat
        from flopcast.interop.configs.keys import Keys

        KEYS = Keys(program="Owl Trainer", read="owl.model owl.devices owl.batch")

        def read(reader):
            reader.put(("model",), reader.text("owl.model"), "owl.model")
            reader.put(("plan", "data_parallel"), reader.count("owl.devices"), "owl.devices")
            reader.put(("plan", "global_batch"), reader.count("owl.batch"), "owl.batch")

        OWL = ConfigFormat(description="of Owl Trainer", read=read, signs=KEYS.read, keys=KEYS)
        """,
    "__init__.py": """
        from flopcast.interop.configs.formats import KINDS as IMPORTERS
        from flopcast.interop.hugging_face.families import FAMILIES
        from flopcast.operators.memory_bound import KINDS
        from flopcast.schedules import SCHEDULES
        from flopcast.workload.rewrites import REWRITES
        from owls import family, importer, kernel, rewrite, schedule

        SCHEDULES["patient"] = schedule.Patient()
        KINDS["twist"] = kernel.TWIST
        REWRITES["twisted_residuals"] = rewrite.twisted_residuals
        FAMILIES["owl"] = family.OWL
        IMPORTERS["owl-trainer"] = importer.OWL
        """,
}
PROGRAM = """
import json, sys
import owls
from flopcast import SpecError, job, predict
from flopcast.library.catalog import stack

folder = sys.argv[1]
plan = "pp=4 dp=2 gbs=32 schedule={}"
steps = {
    name: predict(job(model="llama-3-8b", cluster="dgx-h100:1", plan=plan.format(name))).step_time_s
    for name in ("1f1b", "patient")
}
try:
    waiting = {"base": "deepspeed-zero", "pipeline": {"transfers": "sequential"}}
    predict(job(model="llama-3-8b", cluster="dgx-h100:1", plan=plan.format("patient"), stack=waiting))
except SpecError as error:
    refused = str(error)
rewrites = [*stack("megatron-core").rewrites, "twisted_residuals"]
twisted = {"base": "megatron-core", "rewrites": rewrites}
report = predict(job(model="llama-3-8b", cluster="dgx-h100:1", plan="dp=8 gbs=32 zero=1", stack=twisted))
kernels = {item.work.kernel for item in report.priced.programs.items() if hasattr(item.work, "kernel")}
owl = job(model=f"{folder}/config.json", cluster="dgx-h100:1", plan="dp=8 gbs=32 zero=1").model
read = job(f"{folder}/train.yaml", cluster="dgx-h100:1")
print(json.dumps({
    "steps": steps, "refused": refused, "kernels": sorted(kernels), "hidden": owl.hidden,
    "read": [read.model.name, read.plan.data_parallel, read.plan.global_batch],
}))
"""


def test_a_schedule_a_kernel_a_family_and_an_importer_are_one_file_and_one_line_each(tmp_path):
    package = tmp_path / "owls"
    package.mkdir()
    for name, text in PARTS.items():
        (package / name).write_text(dedent(text), encoding="utf-8")
    (tmp_path / "config.json").write_text('{"model_type": "owl", "owl_width": 2048}', encoding="utf-8")
    (tmp_path / "train.yaml").write_text(
        "owl: {model: llama-3-8b, devices: 8, batch: 64}\n", encoding="utf-8"
    )
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROGRAM}"

    found = json.loads(ran([sys.executable, "-c", program, tmp_path], check=True, text=True).stdout)

    assert 0.5 < found["steps"]["patient"] / found["steps"]["1f1b"] <= 1.0  # more lies ready
    assert "a patient stage takes its messages when it likes" in found["refused"]
    assert {"twist", "twist.backward"} <= set(found["kernels"])
    assert found["hidden"] == 2048
    assert found["read"] == ["llama-3-8b", 8, 64]
