"""The input pipeline, and cuts over a chain of devices, in requests over HTTP."""

import pytest

from flopcast import predict
from flopcast.errors import SpecError
from flopcast.jobs import job
from flopcast.ui.layout_searches import found
from flopcast.ui.request_fields import job_from

LOADER, PLAN = "tokenize=3s:2,copy=64kB@link,exposed=copy", "dp=16 mbs=1 gbs=512 zero=1 recompute=full"


def test_the_field_of_the_loader_is_the_option_of_the_command_line():
    fields = {"model": "llama-3-8b", "gpus": "16", "plan": PLAN, "loader": LOADER}
    asked = job_from(fields)

    own = job("llama-3-8b", gpus=16, plan=PLAN, loader=LOADER)

    assert asked.loader == own.loader
    assert predict(asked).step_time_s == predict(own).step_time_s
    with pytest.raises(SpecError, match="a number above 0 with its unit"):
        job_from(fields | {"loader": "tokenize=3"})


def test_a_search_over_http_finds_where_to_cut_a_model():
    parts = {"batch": {"seq": 128, "forward_only": True}, "plan": "pp=2 mbs=1 gbs=1"}
    document = {"model": "megatron-1.7b", "cluster": "jetson-agx-orin:2", "stack": "megatron-core"} | parts

    text, data, _ = found("split_points", {"find": "split_points", "job": document})

    assert "no other division has both a lower latency and a higher throughput" in text
    assert any(point["on_front"] for point in data["split_points"])
