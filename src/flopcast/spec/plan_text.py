"""The short form of a plan: "dp=2 tp=8 mbs=1 gbs=64 sp precision=bf16".

Answers: how is a plan written as one line that `--plan` reads back?
Elsewhere: the fields of a plan (plan.py), and the forms of single fields (plan_fields.py).
"""

from flopcast.spec import recompute as recompute_words
from flopcast.spec.plan_fields import ALWAYS_SHOWN, NUMERIC, WORDS, short_name, with_runs
from flopcast.strict_model import StrictModel


def short_form(plan: StrictModel, recompute_word: str, usual_expert_tensor_parallel: int) -> str:
    """Return a plan in short form without defaults: degrees and sizes first, then everything else.

    Recompute is one word, and an expert-tensor-parallel degree has the default that is given.
    """
    degrees, modes = list[str](), list[str]()
    for name, info in type(plan).model_fields.items():
        if name in recompute_words.FIELDS:
            continue
        value = recompute_word if name == "recompute" else getattr(plan, name)
        word = short_name(name, info)
        usual = usual_expert_tensor_parallel if name == "expert_tensor_parallel" else info.default
        if isinstance(value, bool):
            modes += [word] if value else []
        elif name in WORDS:
            text = WORDS[name](value)
            modes += [f"{word}={text}"] if text else []
        elif value != usual or name in ALWAYS_SHOWN:
            text = with_runs(value) if isinstance(value, tuple) else str(value)
            (degrees if name in NUMERIC else modes).append(f"{word}={text}")
    return " ".join([*degrees, *modes])
