"""Python configurations as data: values and lines, and what is not evaluated."""

import pytest
from foreign_cases import data_of, told

from flopcast.errors import SpecError
from flopcast.interop.configs.python_text import read_python

SMALL = """HIDDEN = 2**12
model_type = "LLAMA2"
data = dict(
    seq_len=4096,
    micro_bsz=2,
    micro_num=4,
)
model = dict(
    hidden_size=HIDDEN,
    num_layers=32,
    num_attention_heads=32,
    vocab_size=32000,
    mlp_ratio=8 / 3,
)
parallel = dict(zero1=dict(size=-1), tensor=dict(size=1), pipeline=dict(size=1))
lr = dict(steps=data["total"], path=f"a/{model_type}", call=int(3.5))
"""


def test_values_are_those_that_python_would_assign():
    document = read_python(SMALL.encode(), "small.py")
    names = {}
    exec(SMALL.replace('data["total"]', "9"), names)

    assert document.data["model"] == names["model"]
    assert document.data["parallel"] == names["parallel"]
    assert document.where(("model", "num_layers")) == "small.py:10"


def test_a_model_has_the_sizes_of_llama_2():
    found = data_of(SMALL, "small.py")

    block = found["model"]["blocks"][0]
    assert (found["model"]["hidden"], block["feed_forward"]["ffn_hidden"]) == (4096, 11008)
    assert found["plan"]["global_batch"] == 2 * 4 * 8


@pytest.mark.parametrize(
    "text",
    ["__import__('os').getpid()", "open('a').read()", "2**10**10", "[4096][0]", "HIDDEN if 1 else 2"],
)
def test_what_only_python_evaluates_is_refused_where_it_is_read(text):
    spoiled = SMALL.replace("seq_len=4096", f"seq_len={text}")

    (problem,) = told(spoiled, "small.py")

    assert (problem.where, problem.field) == ("small.py:4", "data.seq_len")
    assert "does not run code" in problem.because


@pytest.mark.parametrize(
    "text", ["model = dict(\n", "a = " + "(" * 500 + ")" * 500, "a = " + "[" * 90 + "]" * 90]
)
def test_a_text_that_is_no_python_or_too_deep_is_refused(text):
    with pytest.raises(SpecError, match="well-formed Python"):
        read_python(text.encode(), "broken.py")
