"""Jobs to export: every model of the catalogue, and plans drawn at random that keep all rules."""

from functools import cache

from hypothesis import assume
from hypothesis import strategies as st

from flopcast.errors import SpecError, problems_of
from flopcast.files.yaml_text import Document
from flopcast.library import catalog
from flopcast.requests.job_files import job_of

DENSE, SPARSE = "llama-3-8b", "qwen3-30b-a3b"
RANKS = 64


def refused(export, job):
    """The problems of a job that cannot be exported, by their fields."""
    return {problem.field: problem for problem in problems_of(lambda: export(job))}


@cache
def job_with(model, plan="dp=16 gbs=64", stack="megatron-core", cluster="selene:2", seq=1024):
    """A checked job of these words; SpecError where it breaks a rule."""
    seq = min(seq, catalog.model(model).learned_positions or seq) if isinstance(model, str) else seq
    stack = dict(stack) if isinstance(stack, tuple) else stack
    data = {"model": model, "cluster": cluster, "stack": stack, "batch": {"seq": seq}, "plan": plan}
    return job_of(Document("job", data, {}))


def is_exported(name):
    """No format has linear attention, and models with sparse attention are not trained."""
    model = catalog.model(name)
    is_sparse = any(getattr(block.mixer, "index", None) for block in model.blocks)
    return model.family != "hybrids" and not is_sparse


MODELS = [name for name in catalog.names("models") if is_exported(name)]
POWERS = st.sampled_from([1, 2, 4, 8])


@st.composite
def plans(draw, experts=False, zero=(0, 1), recompute=(), precisions=("bf16", "fp16")):
    """Words of a plan of 64 ranks; many break a rule of their model, then they are drawn again."""
    tp, pp, cp = draw(POWERS), draw(POWERS), draw(st.sampled_from([1, 1, 2, 4]))
    assume(tp * pp * cp <= RANKS)
    dp = RANKS // (tp * pp * cp)
    words = {"dp": dp, "tp": tp, "pp": pp, "cp": cp, "mbs": draw(st.sampled_from([1, 2]))}
    words["gbs"] = dp * words["mbs"] * draw(st.sampled_from([8, 16, 32]))
    words["vpp"] = draw(st.sampled_from([1, 1, 2, 4])) if pp > 1 else 1
    words["zero"] = draw(st.sampled_from(zero))
    words["recompute"] = draw(st.sampled_from(["none", "selective", "full", *recompute]))
    words["precision"] = draw(st.sampled_from(precisions))
    if experts:
        words["ep"] = draw(POWERS)
        words["etp"] = draw(st.sampled_from([1, tp]))
    switches = ["sp"] if tp > 1 and draw(st.booleans()) else []
    return " ".join([*(f"{key}={value}" for key, value in words.items()), *switches])


@st.composite
def jobs(draw, model=DENSE, stack="megatron-core", **options):
    """A job that keeps all rules."""
    words = draw(plans(**options))
    try:
        return job_with(model, words, stack, "dgx-h100:8", 4096)
    except SpecError:
        assume(False)
