"""The fix that an error prints removes the error: each is applied as it stands."""

import re
import shlex

from all_cases import all_cases
from command_line import flopcast

from flopcast.spec.plan import Plan
from flopcast.spec.plan_fields import short_name

JOB, SEARCH = "predict llama-3.2-1b --gpus 8", "search bloom-560m --gpus 2"
SETTLED = "dp=8 mbs=1 gbs=8"  # where the plan is not at fault, little is left to choose
REST = "zero=1 vpp=1 recompute=none"  # beside wrong degrees and batches
FEW = "mbs=1 gbs=16 tp=1 cp=1 zero=1 vpp=1 dp_shard=0 recompute=none"
WHOLE_JOB, FEW_PLANS = f"{JOB} --plan '{SETTLED} zero=1'", f"{SEARCH} --plan '{FEW}'"
ROWS = {  # the start of a command line → what is wrong behind it
    f"{JOB} --plan": (
        *("tp=16", "'dp=8 foo=3'", "'dp=[8]'", "dp=-8", "num_replicas=8", "DP=8"),
        *(f"'{wrong} {REST}'" for wrong in ("tp=3 pp=1", "pp=5 tp=1", "dp=3 tp=2", "cp=2 tp=2 pp=2 dp=2")),
        *(f"'{wrong} {REST} tp=1 pp=1'" for wrong in ("mbs=0", "cp=3", "ep=2", "gbs=x", "mbs=3 gbs=8")),
        *(
            f"'{SETTLED} {wrong}'"
            for wrong in ("zero=5", "precision=int8", "recompute=maybe", "schedule=foo")
        ),
        *(f"'{SETTLED} {wrong}'" for wrong in ("optimizer=foo", "sp=maybe", "offload=foo")),
    ),
    f"{WHOLE_JOB} --tokens": ("2TB", "0", "many"),
    WHOLE_JOB: (
        *("--samples x", "--samples 52k --epochs 0", "batch.sequence_length=0", "--price x", "--lora 0"),
        "--cluster l4",
        "model.blocks.0.count=0",
    ),
    f"predict llama-3.2-1b --plan '{REST} tp=1 pp=1'": (
        *("--gpus 0", "--gpus 13", "--gpus x", "--cluster dgx-h100:0"),
    ),
    FEW_PLANS: ("--objective foo", "--deadline foo --tokens 2T", "--headroom 2"),
    f"{SEARCH} --plan": (f"'{FEW} precision=int8'",),
    f"{FEW_PLANS} --objective": ("time_to_train",),
    f"search bloom-560m --plan '{FEW}' --gpus": ("2..", "12"),
    f"run llama-3.2-1b --plan '{SETTLED} zero=1'": ("--gpus 8",),
    f"predict --gpus 8 --plan '{REST} tp=1 pp=1'": ("7b",),
    f"explain llama-3.2-1b --gpus 8 --plan '{SETTLED} zero=1'": ("nothing",),
    "explain step_time_s": ("llama-3.2-1b --gpus 8",),
    "catalog": ("foo",),
    "schema": ("foo",),
    "predict llama-3.2-1b --world-size": ("8",),
    "predict llama-3.2-1b -gpus": ("8",),
    "predict llama-3.2-1b --GPUS": ("8",),
    f"{WHOLE_JOB} --seq": ("-4096", "4096.5", "'4096 GB'"),
    f"{FEW_PLANS} headroom": ("0.9",),
    f"{FEW_PLANS} -objective": ("step_time",),
    f"predict llama-3.2-1b --seq 4096 --plan '{REST} tp=1 pp=1'": ("--gpu",),
    f"{JOB} --config": (f"'{SETTLED}'",),
    f"{WHOLE_JOB} --hardware": ("dgx-h100",),
    f"{WHOLE_JOB} --price": ("'-2 USD/h'",),
    "predict llama-3.2-1b gpus": ("8",),
    "predct": ("llama-3.2-1b --gpus 8",),
}
LINES = [f"{start} {wrong}" for start, each in ROWS.items() for wrong in each]
OPTIONS = {"objective": "--objective", "gpus": "--gpus", "cluster": "--cluster"}


def edited(words, place, fix):
    """The command line after the edit that the fix names."""
    if (meant := renamed(words, place, fix)) is not None:
        return meant
    if set_to := re.match(r"set (\S+) to (?:a value such as )?([^\s,]+)", fix):
        return with_value(words, place, *set_to.groups())
    if option := re.match(r"(?:write|add) (?:a number such as )?(--[\w-]+) ([^,]*)", fix):
        return with_option(words, option[1], option[2].strip('"'))
    if text := re.match(r"write (\"[^\"]*\"|[^,;]+)", fix):
        option = place.partition(":")[0].partition(" ")[0]
        return with_option(words, OPTIONS.get(option, option), text[1].strip('"'))
    if removed := re.match(r"remove (\S+)", fix):
        return [re.sub(rf" ?\b{removed[1]}(=\S+)?$", "", word) for word in words if word != removed[1]]
    command = re.fullmatch(r"(?:run )?flopcast (.*)", fix)
    assert command, fix
    return shlex.split(command[1])


def renamed(words, place, fix):
    """The command line with the word in place of a wrong one that the fix names; None for other fixes."""
    if swapped := re.match(r"write (.+) in place of (.+)", fix):
        return [word.replace(swapped[2], swapped[1]) for word in words]
    wrong = re.search(r"'(.*)'|(--[\w-]+) is not known|plan\.(\w+) is not a known key", place)
    if meant := re.match(r"did you mean ([^ ?]+)", fix):
        name = next(filter(None, wrong.groups()))
        return [re.sub(rf"^{name}(?=$|=)", meant[1], word) for word in words]
    if wrong and wrong[2] and (option := re.match(r"write (--[\w-]+ )\"?([^\"]+)", fix)):
        at = words.index(wrong[2])
        return [*words[:at], option[1].strip(), option[2], *words[at + 2 :]]
    return None


def with_value(words, place, name, value):
    """The command line with another value of an option, a field of the plan, or a change."""
    if name.startswith("--") or name in OPTIONS:
        return with_option(words, OPTIONS.get(name, name), value)
    if not re.match(r"--plan|plan\.", place):
        return [f"{word.partition('=')[0]}={value}" if name in word else word for word in words]
    wrong = re.search(r"(\w+)(?:\[0\])? =", place)
    field = wrong[1] if wrong else name
    known = {field, short_name(field, Plan.model_fields[field])} if field in Plan.model_fields else {}
    plan = words[words.index("--plan") + 1].split()
    kept = [word for word in plan if word.partition("=")[0] not in {*known, name, short(name)}]
    return with_option(words, "--plan", " ".join([*kept, f"{name}={value}"]))


def short(name):
    return short_name(name, Plan.model_fields[name])


def with_option(words, option, value):
    """The command line with another value of an option."""
    place = words.index(option) if option in words else len(words)
    return [*words[:place], option, value, *words[place + 2 :]]


@all_cases("line", LINES)
def test_the_printed_fix_removes_the_error(line):
    first = flopcast(*shlex.split(line))
    assert first.code == 1
    place = first.err.splitlines()[2]
    fix = re.search(r"fix:     (.*)", first.err)[1]

    ended = flopcast(*edited(shlex.split(line), place, fix))

    assert ended.code in (0, 2) or "flopcast predict" in fix, ended.err


RIGHT = """\
model: llama-3.2-1b
cluster:
  base: dgx-h100
  nodes: 2
stack: torch-fsdp2
batch:
  sequence_length: 4096
plan: {dp: 16, mbs: 1, gbs: 64, zero: 3, precision: bf16}
"""
UNDONE = {  # a slip in the file above → the fix, which undoes it
    ("4096", "-4096"): "write 4096 in place of -4096",
    ("4096", "4096 GB"): "write 4096 in place of 4096 GB",
    ("4096", "[4096]"): "write 4096 in place of [4096]",
    ("gbs: 64", "gbs: 64.5"): "set global_batch to 64",
    ("gbs: 64", "global_batch_size: 64"): "did you mean global_batch?",
    ("zero: 3", "zero: 3 x"): "write 3 in place of 3 x",
    ("nodes: 2", 'nodes: "2"'): "set nodes to 2",
    ("stack:", "framework:"): "did you mean stack?",
    ("batch:\n", "batch =\n"): 'write "batch:" in line 6',
    ("plan: {", "plan {"): 'write "plan: {" in line 8, with a colon',
    ("plan: {", "plan = {"): 'write "plan: {" in line 8, with a colon',
    ("{dp", "[dp"): "write { instead of [ in line 8, column 7",
    ("bf16}", "bf16]"): "write } instead of ] in line 8, column 57",
    ("  nodes: 2", "nodes: 2"): "move nodes to cluster (line 2)",
    ("  sequence", "sequence"): "indent line 7 more than line 6, as a part of batch",
    ("batch:\n", ""): "add batch: above line 6",
    ("  nodes", "\tnodes"): "indent line 4 with 2 spaces",
    ("mbs: 1,", "mbs: 1,,"): "remove , in line 8, column 23",
    ("zero: 3", "cluster: 3"): "move cluster out of plan, to the top level",
    ("zero: 3", "zero: -3"): "write 3 in place of -3",
    ("batch:", "  batch:"): "remove the indentation of line 6",
    ("cluster:\n", ""): "add cluster: above line 2",
    ("mbs: 1,", "mbs: 1;"): "write , in place of ; in line 8, column 22",
    ("gbs: 64", "gbs: [64] x"): "write 64 in place of [64] x",
    ("dgx-h100", "dgx-h100:"): "remove the colon at the end of line 3",
    ("base", "bsae"): "did you mean base?",
    ("sequence_length", "sq"): "did you mean seq?",
    ("sequence_length: 4096", "seq: 0"): "set seq to a value such as 4096",
    ("bf16", '"bf16'): 'write "bf16" in place of "bf16 in line 8',
}


@all_cases("slip", list(UNDONE))
def test_the_fix_undoes_a_slip_in_a_file(slip, tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(RIGHT.replace(*slip, 1), encoding="utf-8")

    ended = flopcast("predict", path)

    assert ended.code == 1
    assert re.findall("fix: +(.*)", ended.err) == [UNDONE[slip]], ended.err


def test_a_price_beside_the_name_of_a_cluster_gets_the_clusters_entry_with_it(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("model: llama-3.2-1b\ncluster: dgx-h100:1\nprice: 2 USD/h\n", encoding="utf-8")

    (fix,) = re.findall("fix: +(.*)", flopcast("predict", path).err)

    assert fix == "move price to cluster (line 2), as in cluster: {base: dgx-h100:1, price: 2 USD/h}"
    path.write_text(f"model: llama-3.2-1b\n{fix.partition(', as in ')[2]}\n", encoding="utf-8")
    assert flopcast("predict", path).code == 0


BRACKETS = {  # JSON → the fix of its brackets
    '{\n  "a": {\n    "b": 1\n  "c": 2\n}\n': "add }, at the end of line 3",
    '{\n  "a": [\n  "a": [\n    1\n  ],\n  "b": 2\n}\n': "remove line 3",
    '{\n  "a": {"b": 1}},\n  "c": 2\n}\n': "remove } in line 2, column 16",
    '{\n  "a" = 1\n}\n': "write : in place of = after a",
    '{\n  "a":: 1\n}\n': "remove : in line 2, column 7",
    '{\n  "a: 1\n}\n': 'write "a" in place of "a in line 2',
    '{\n  "a": [1, 2]\n]\n': "write } instead of ] in line 3, column 1",
}


@all_cases("text", list(BRACKETS))
def test_the_fix_of_brackets_is_where_the_indentation_says_that_they_are_wrong(text, tmp_path):
    path = tmp_path / "job.json"
    path.write_text(text, encoding="utf-8")

    ended = flopcast("predict", path)

    fixes = re.findall("fix: +(.*)", ended.err)
    of_format = [each for each in fixes if each.startswith("describe the job with --model")]
    assert [each for each in fixes if each not in of_format] == [BRACKETS[text]], ended.err
