"""The short form of a plan: "dp=2 tp=8 mbs=1 gbs=64 sp precision=bf16".

Answers: how is a plan written as one line that `--plan` reads back?
Elsewhere: the fields of a plan (plan.py), and the forms of single fields (plan_fields.py).
"""

from flopcast.spec import recompute as recompute_words
from flopcast.spec.plan_fields import ALWAYS_SHOWN, NUMERIC, RUN, WORDS, short_name, with_runs
from flopcast.strict_model import StrictModel, cached_results


@cached_results(64)  # a page shows the plan several times
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


def meaning_of_runs(short: str) -> str:
    """Return a sentence that explains the first repetition in a plan's `stage_layers`, or "".

    >>> meaning_of_runs("pp=4 vpp=3 stage_layers=2,3x10,0 precision=bf16")
    'in stage_layers, 3x10 means 10 consecutive virtual stages with 3 layers each'
    """
    run = RUN.search(short.partition("stage_layers=")[2].partition(" ")[0])
    if run is None:
        return ""
    layers = f"{run[1]} layer{'s' * (run[1] != '1')}"
    stages = "virtual stages" if "vpp=" in short else "pipeline stages"
    return f"in stage_layers, {run[0]} means {run[2]} consecutive {stages} with {layers} each"
