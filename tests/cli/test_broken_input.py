"""Whatever is wrong with the input: exit code 1, no traceback, nothing on stdout, field and line told."""

import pytest
from command_line import JOB, PLAN, WORDS, flopcast


def job(old="", new=""):
    """The right job with one text replaced."""
    assert old in JOB
    return JOB.replace(old, new).encode()


DEVICE = (
    "{name: toy, memory_bytes: 80 GB, memory_bytes_per_s: 2 TB/s, peak_flop_per_s: {fp16: 300 TFLOP/s},"
    " multiprocessors: 108, kernel_launch_s: 3 us}"
)
CLUSTER = f"""\
cluster:
  groups:
    - count: 1
      node: {{device: {DEVICE}, devices: 8, host: epyc-7763}}
  tiers:
    - {{name: nvlink, devices: 8, bytes_per_s: 300 GB/s, latency_s: 5 us}}
"""


def cluster(old="", new=""):
    """The right job on a described cluster, with one text replaced."""
    assert old in CLUSTER
    return JOB.replace("cluster: dgx-a100:1\n", CLUSTER.replace(old, new)).encode()


FILES = {  # what is wrong → the file, what must be told, and on which line
    "a degree is a word": (job("data_parallel: 8", "data_parallel: many"), "plan.data_parallel", 6),
    "a degree is a list": (job("data_parallel: 8", "data_parallel: [8]"), "plan.data_parallel", 6),
    "a degree is empty": (job("data_parallel: 8", "data_parallel:"), "plan.data_parallel", 6),
    "a degree is zero": (job("micro_batch: 1", "micro_batch: 0"), "plan.micro_batch", 7),
    "a degree is negative": (job("micro_batch: 1", "micro_batch: -1"), "plan.micro_batch", 7),
    "a degree is a fraction": (job("micro_batch: 1", "micro_batch: 1.5"), "plan.micro_batch", 7),
    "a degree is not finite": (job("micro_batch: 1", "micro_batch: 1e400"), "number", 7),
    "a degree is no number": (job("micro_batch: 1", "micro_batch: .nan"), "plan.micro_batch", 7),
    "a degree is too large to count": (job("micro_batch: 1", "micro_batch: 1e300"), "plan.micro_batch", 7),
    "a short name is out of range": (job("data_parallel: 8", "dp: 0"), "plan.data_parallel", 6),
    "a mode is unknown": (job("precision: fp16", "precision: fp4"), "plan.precision", 9),
    "a mode is in the wrong case": (job("precision: fp16", "precision: FP16"), "plan.precision", 9),
    "a switch is no truth value": (job("precision: fp16", "sp: maybe"), "plan.sequence_parallel", 9),
    "an unknown key of the plan": (job("precision: fp16", "presision: fp16"), "plan.presision", 9),
    "an unknown key of the job": (job("batch:", "bach:"), "bach", 4),
    "a missing part": (job("model: megatron-1.7b\n"), "model", 1),
    "a part that is a list": (job("model: megatron-1.7b", "model: [a]"), "model", 1),
    "a part that is empty": (job("stack: megatron-2022", "stack:"), "stack", 3),
    "a plan that is a number": (JOB.partition("plan:")[0].encode() + b"plan: 7\n", "plan = 7", 5),
    "an unknown model": (job("megatron-1.7b", "megatron-1.8b"), "model", 1),
    "an unknown cluster": (job("dgx-a100", "dgx-x100"), "cluster", 2),
    "an unknown stack": (job("megatron-2022", "megatron"), "stack", 3),
    "an unknown base": (job("megatron-1.7b", "{base: x}"), "model.base", 1),
    "a degree that divides no heads": (job("data_parallel: 8", "tensor_parallel: 7"), "tensor_parallel", 6),
    "stages that divide no blocks": (
        job("data_parallel: 8", "pipeline_parallel: 5"),
        "pipeline_parallel",
        6,
    ),
    "too many devices": (
        job("data_parallel: 8", "data_parallel: 16"),
        "data_parallel = 16 is not allowed",
        6,
    ),
    "too few devices": (
        job("data_parallel: 8", "data_parallel: 4\n  tensor_parallel: 1\n  pipeline_parallel: 1"),
        "plan.data_parallel = 4 is not allowed",
        6,
    ),
    "an indivisible global batch": (job("global_batch: 16", "global_batch: 17"), "plan.global_batch", 8),
    "what is not supported": (job("precision: fp16", "zero: 3"), "plan.zero", 9),
    "a sequence of no tokens": (job("sequence_length: 2048", "sequence_length: 0"), "sequence_length", 4),
    "a batch that is a word": (job("{sequence_length: 2048}", "long"), "batch", 4),
    "the same key twice": (job("micro_batch: 1", "data_parallel: 8"), "data_parallel", 7),
    "the same key by both names": (job("micro_batch: 1", "dp: 8"), "plan.dp", 7),
    "a bare number of bytes": (cluster("80 GB", "80"), "device.memory_bytes", 5),
    "a bare number in a mapping": (cluster("300 TFLOP/s", "300"), "device.peak_flop_per_s.fp16", 5),
    "the wrong unit": (cluster("300 GB/s", "300 GB"), "cluster.tiers[0].bytes_per_s", 7),
    "a negative quantity": (cluster("5 us", "-5 us"), "cluster.tiers[0].latency_s", 7),
    "an unknown key deep inside": (cluster("name: nvlink", "nmae: nvlink"), "cluster.tiers[0].nmae", 7),
    "an unknown host": (cluster("epyc-7763", "epyc-7764"), "host", 5),
    "nodes that are none": (cluster("count: 1", "count: 0"), "cluster.groups[0].count", 4),
    "an unknown rewrite": (
        job("stack: megatron-2022", "stack: {base: megatron-2022, rewrites: [fuse]}"),
        "rewrites",
        3,
    ),
    "a rewrite without a name": (
        job("stack: megatron-2022", "stack: {base: megatron-2022, rewrites: ['']}"),
        "rewrites",
        3,
    ),
    "a tag": (job("micro_batch: 1", "micro_batch: !!int 1"), "tag", 7),
    "a tag that would run code": (
        job("micro_batch: 1", "micro_batch: !!python/name:os.abort ''"),
        "tag",
        7,
    ),
    "an anchor": (job("micro_batch: 1", "micro_batch: &one 1"), "anchor", 7),
    "an alias": (job("micro_batch: 1", "micro_batch: *one"), "anchor", 7),
    "two documents": (job("plan:", "---\nplan:"), "document", 5),
    "a tab": (job("  micro_batch", "\tmicro_batch"), "text", 7),
    "an open bracket": (job("{sequence_length: 2048}", "{sequence_length: 2048"), "text", 4),
    "nesting without end": (b"[" * 100_000, "depth", 1),
    "nested mappings without end": (b'{"a":' * 100_000, "depth", 1),
    "nothing at all": (b"", "document", 1),
    "only a comment": (b"# nothing\n", "document", 1),
    "a list": (b"[1, 2, 3]", "document", 1),
    "a word": (b"hello", "document", 1),
    "latin-1": (job().replace(b"dgx", b"d\xe9x"), "encoding", 2),
    "utf-16": (JOB.encode("utf-16"), "encoding", 1),
    "bytes of all kinds": (bytes(range(256)) * 40, "encoding", 2),
    "a picture": (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "encoding", 1),
    "an archive": (b"PK\x03\x04\x14\x00\x00\x00", "character", 1),
    "control characters": (job("dgx", "d\x1b[31mx"), "character", 2),
    "zeros": (b"\0" * 1000, "character", 1),
    "more than four megabytes": (job() + b"#" * 4_000_000, "size", 1),
    "broken json": (b'{"model": "gpt3-175b",\n "plan": ]', "text", 2),
}


@pytest.mark.parametrize("name", FILES)
def test_a_broken_file_is_told_with_field_and_line(tmp_path, name):
    content, field, line = FILES[name]
    path = tmp_path / "job.yaml"
    path.write_bytes(content)

    ended = flopcast("predict", path)

    place = f"{path}:{line}: "
    assert (ended.code, ended.out) == (1, "")
    assert "Traceback" not in ended.err
    assert any(head.startswith(place) and field in head for head in ended.err.splitlines()), ended.err


def test_memory_and_predict_tell_a_broken_file_alike(tmp_path):
    path = tmp_path / "job.yaml"

    for content, _, _ in FILES.values():
        path.write_bytes(content)
        assert (
            flopcast("memory", path).err.splitlines()[:3] == flopcast("predict", path).err.splitlines()[:3]
        )


BESIDE = {  # files that arguments name
    "bert.json": '{"model_type": "bert", "hidden_size": 768}',
    "slip.json": '{"model_type": "llama", "hidden_size": "4k"}',
    "slip.sh": "torchrun pretrain_gpt.py --num-layres 24 --hidden-size 2048 --num-attention-heads 16"
    " --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 8\n",
    "nothing.yaml": "",
    "empty.sh": "#!/bin/bash\necho hello\n",
    "quote.sh": '#!/bin/bash\nA="open\n',
    "tasks.csv": "stage,kind,micro_batch\n0,many,0\n",
    "bare.json": '{\n  "model_type": "llama",\nmax_steps: x\n  "hidden_size": 4096\n}\n',
    "half.yml": "model_name: llama3.1-405b\nper_device_batch_size: 0.5\nmax_target_length: 8192\n",
    "memory.csv": "family,case,environment,median_mem_allocated_bytes,transformer_impl\n,,,5e8,\n",
}
WHOLE = (*WORDS, "--plan", PLAN)
ARGUMENTS = {  # what is wrong → the words, and what must be told
    "no such file": (("predict", "nowhere.yaml"), "nowhere.yaml"),
    "a folder": (("predict", "."), "Is a directory"),
    "a path through a file": (("memory", "job.yaml/job.yaml"), "Not a directory"),
    "a loop of links": (("predict", "loop.yaml"), "symbolic links"),
    "a name too long for any file": (("predict", "x" * 5000), "too long"),
    "no such site file": (("predict", "job.yaml", "--site", "nowhere.yaml"), "nowhere.yaml"),
    "no job": (("predict",), "model"),
    "an empty name": (("memory", ""), "model"),
    "only a cluster": (("predict", "--cluster", "selene"), "such as --model llama-3-8b"),
    "an unknown model": (("predict", *WHOLE, "--model", "gpt5"), "--model"),
    "an unknown cluster": (("predict", *WHOLE, "--cluster", "selen"), "did you mean selene"),
    "a number in place of a cluster": (("predict", *WHOLE, "--cluster", "10"), "write --gpus 10"),
    "an unknown stack": (("predict", *WHOLE, "--stack", "megatron"), "megatron-2022"),
    "a cluster of nothing": (("predict", *WHOLE, "--cluster", "dgx-a100:0"), "--cluster"),
    "a cluster of something": (("predict", *WHOLE, "--cluster", "dgx-a100:x"), "--cluster"),
    "plan words twice": (("predict", *WHOLE, "--plan", "dp=8 dp=4"), "data_parallel"),
    "a plan word without a value": (("predict", *WHOLE, "--plan", "dp= gbs=8"), "data_parallel"),
    "an unknown plan word": (("predict", *WHOLE, "--plan", "dp=8 gbs=8 tpp=1"), "plan.tpp"),
    "a plan word that is no number": (("predict", *WHOLE, "--plan", "dp=8 gbs=many"), "plan.global_batch"),
    "a degree alone": (("predict", *WHOLE, "--plan", "tp=8 gbs"), "gbs has no value"),
    "a plan that fits no cluster": (("predict", *WHOLE, "--plan", "dp=3 gbs=3"), "the number of devices"),
    "gpus that fill no node": (("predict", *WHOLE, "--gpus", "12"), "--gpus"),
    "gpus that are none": (("predict", *WHOLE, "--gpus", "0"), "--gpus"),
    "gpus in words": (("predict", *WHOLE, "--gpus", "many"), "--gpus"),
    "gpus of an unknown cluster": (("predict", *WHOLE, "--cluster", "x", "--gpus", "8"), "cluster"),
    "gpus of a described cluster": (
        ("predict", *WHOLE, "--gpus", "8", "cluster={name: mine}"),
        "unless the cluster is from the catalogue",
    ),
    "a model like no other": (
        ("predict", "lama-9-8b"),
        "no file with this name, and no model in the catalogue",
    ),
    "a model of a change": (("predict", "job.yaml", "lama-9-8b"), "no such file or model"),
    "two models": (("predict", "llama-3-8b", "--model", "gpt2"), "leave out llama-3-8b or gpt2"),
    "a model where a number is named": (("explain", "gpt2", "mlp"), "flopcast explain mlp gpt2"),
    "a sequence of nothing": (("predict", *WHOLE, "--seq", "0"), "--seq"),
    "a change without a value": (("predict", "job.yaml", "plan"), "KEY=VALUE"),
    "a change without a key": (("predict", "job.yaml", "=8"), "KEY=VALUE"),
    "a change of nothing": (("predict", "job.yaml", "plan..tp=8"), "KEY=VALUE"),
    "two files": (("predict", "job.yaml", "job.yaml"), "KEY=VALUE"),
    "a change of an unknown key": (("predict", "job.yaml", "plan.tpp=8"), "plan.tpp"),
    "a change of an unknown part": (("predict", "job.yaml", "modle.hidden=8"), "modle"),
    "a change to no number": (("predict", "job.yaml", "plan.gbs=e5"), "plan.global_batch"),
    "a change to infinity": (("predict", "job.yaml", "plan.gbs=1e400"), "1e400"),
    "a change to an infinite ratio": (("predict", "job.yaml", "stack.derate.ratio=inf"), "derate.ratio"),
    "a change to a hole": (("predict", "job.yaml", "stack.derate.ratio=nan"), "derate.ratio"),
    "a change to an anchor": (("predict", "job.yaml", "plan.gbs=&a 8"), "anchor"),
    "a change to an open bracket": (("predict", "job.yaml", "plan.gbs=["), "plan.gbs=["),
    "a change of a list to a word": (("predict", "job.yaml", "stack.rewrites=fuse"), "stack.rewrites"),
    "a change past the end of a list": (("predict", "job.yaml", "model.blocks.7.count=1"), "blocks"),
    "a page in no folder": (("predict", "job.yaml", "--report", "nowhere/page.html"), "nowhere"),
    "a page that is a folder": (("predict", "job.yaml", "--report", "."), "--report"),
    "a trace in no folder": (("predict", "job.yaml", "--trace", "nowhere/trace"), "nowhere"),
    "an unknown command": (("predikt", "job.yaml"), "flopcast predict"),
    "a command like no other": (("xyzzy",), "predict, search, run, compare"),
    "no command": ((), "Usage"),
    "an unknown option": (("predict", "job.yaml", "--jsn"), "--jsn"),
    "an option without its value": (("predict", "job.yaml", "--plan"), "--plan"),
    "an unknown kind": (("catalog", "device"), "devices"),
    "an entry of a list that has fewer": (("predict", *WHOLE, "cluster.tiers.9.latency_s=5us"), "tiers[9]"),
    "a block that the model does not have": (("predict", *WHOLE, "model.blocks.3.count=4"), "blocks[3]"),
    "a change beside --gpus": (
        ("predict", *WHOLE, "--gpus", "8", "cluster.tiers.0.latency_s=-5us"),
        "argument cluster.tiers.0.latency_s=-5us",
    ),
    "an unknown entry": (("catalog", "devices", "a100-80gb"), "a100-sxm4-80gb"),
    "too many words": (("catalog", "devices", "a100-sxm4-80gb", "x"), "remove x"),
    "an unknown suite": (("validate", "--suite", "mlperf"), "mlperf"),
    "an unknown suite to fit on": (("calibrate", "jitter", "--suite", "mlperf"), "sc21"),
    "no data to fit": (("calibrate", "fit", "--data", "nowhere", "--out", "out"), "does not exist"),
    "data without its option": (("calibrate", "fit"), "--data"),
    "a demo into a file": (("demo", "--out", "job.yaml"), "--out"),
    "a comparison of one job": (("compare", "job.yaml"), "two jobs"),
    "a comparison of three": (("compare", "job.yaml", "job.yaml", "job.yaml"), "two jobs"),
    "a kind of device for a cluster": (("predict", *WHOLE, "--cluster", "h100"), "did you mean dgx-h100"),
    "a name of a hub": (("predict", *WHOLE, "--model", "meta-llama/Llama-99-7B"), "did you mean llama-7b"),
    "more devices than there are": (
        ("predict", *WORDS, "--gpus", 10**12),
        "no known cluster has more devices",
    ),
    "more nodes than there are": (("memory", *WORDS, "--cluster", "dgx-a100:99999999"), "has more devices"),
    "a batch without end": (
        ("predict", "job.yaml", "plan.gbs=8000000000"),
        "no known training run has so many",
    ),
    "a sequence without end": (("predict", "job.yaml", "--seq", 10**26), "longer sequences"),
    "an empty site": (("predict", "job.yaml", "--site", "nothing.yaml"), "a mapping from fields to values"),
    "a file where a number is named": (("explain", "job.yaml", "mlp"), "flopcast explain mlp job.yaml"),
    "an unknown kind of a file to search": (("search", "job.yaml", "--kind", "yaml"), "nanotron"),
    "a folder of traces that is a file": (
        ("export", "chakra", "job.yaml", "-o", "job.yaml"),
        "File exists",
    ),
    "no such log": (("predict", "job.yaml", "--log", "train.log"), "train.log"),
    "a log without steps": (("predict", "job.yaml", "--log", "job.yaml"), "iteration"),
    "no such config": (("predict", *WHOLE, "--model", "./config.json"), "config.json"),
    "a folder without a config": (("predict", *WHOLE, "--model", "./"), "is a folder without config.json"),
    "a config of no known family": (("predict", *WHOLE, "--model", "bert.json"), "bert"),
    "a config with a slip of the pen": (("predict", *WHOLE, "--model", "slip.json"), "slip.json:1"),
    "a script with a slip of the pen": (("predict", "slip.sh", "--cluster", "dgx-a100:1"), "num-layers"),
    "a script without training": (("predict", "empty.sh", "--cluster", "dgx-a100:1"), "empty.sh"),
    "a script with an open quote": (("predict", "quote.sh", "--cluster", "dgx-a100:1"), "quote.sh:2"),
    "an import of nothing": (("import", "hf", "nowhere.json"), "nowhere.json"),
    "tasks of an unknown kind": (
        ("memory", *WHOLE, "plan.schedule=tasks.csv"),
        "has 'many' in the column kind",
    ),
    "half a sequence for each device": (
        ("import", "maxtext", "half.yml", "--cluster", "dgx-h100", "--gpus", "16"),
        "write 1, or set ici_tensor_parallelism to 2",
    ),
    "a wrong unit of an unknown key": (
        ("memory", *WHOLE, "stack.host.my_forward_item_s=x us"),
        'write stack.host.forward_item_s="30 us"',
    ),
    "a model that exists and one that does not": (
        ("checkpoint", "llama-3-8b", "--gpus", "8", "--model", "llama-3-8b:4"),
        "leave out llama-3-8b:4",
    ),
    "a cluster of no nodes beside devices": (
        ("predict", *WHOLE, "--cluster", "dgx-h100:0", "--gpus", "8"),
        "dgx-h100:1",
    ),
    "a line of YAML in JSON": (("predict", *WHOLE, "--model", "bare.json"), "line 3 is not JSON"),
    "a comparison of no jobs": (("contention",), "JOB is missing"),
    "a table of memory to fit times": (
        ("calibrate", "constants", "--runs", "memory.csv"),
        "flopcast validate --runs memory.csv",
    ),
    "a plan that no plan can be": (("predict", *WHOLE, "--plan", "auto gbs=8 cp=2"), "context_parallel"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_broken_arguments_are_told(tmp_path, monkeypatch, name):
    words, told = ARGUMENTS[name]
    (tmp_path / "job.yaml").write_text(JOB, encoding="utf-8")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    for file, text in BESIDE.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    ended = flopcast(*with_last_values(words))

    assert ended.code == 1
    assert "Traceback" not in ended.err
    assert told in ended.err


def with_last_values(words):
    """The words without options that a later word of the same row replaces."""
    replaced = [i for i, word in enumerate(words) if str(word)[:2] == "--" and word in words[i + 1 :]]
    return [word for i, word in enumerate(words) if i not in replaced and i - 1 not in replaced]


def test_all_faults_of_a_command_line_are_told_at_once(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_bytes(job("micro_batch: 1", "micro_batch: 0"))

    ended = flopcast("predict", path, "--gpus", "12", "--model", "gpt5", "stack.colour=red", "batch.seq=0")

    assert ended.code == 1
    assert ended.err.startswith("5 errors in the input\n")
    for field in ("--gpus", "model = 'gpt5'", "stack.colour", "plan.micro_batch", "batch.seq"):
        assert field in ended.err


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("plan.gbs=17",), "argument plan.gbs=17: plan.global_batch = 17"),
        (("--plan", "dp=8 mbs=1 gbs=17"), "--plan: plan.global_batch = 17"),
        (("--stack", "megatron"), "--stack: stack = 'megatron'"),
        (("--seq", "100", "plan.sp=true", "plan.tp=8", "plan.dp=1"), "argument plan.sp=true: plan.seq"),
    ],
)
def test_a_fault_of_the_command_line_is_not_blamed_on_the_file(tmp_path, words, place):
    path = tmp_path / "job.yaml"
    path.write_text(JOB, encoding="utf-8")

    ended = flopcast("predict", path, *words)

    assert ended.code == 1
    assert f"\n{place}" in ended.err


def test_a_fault_of_a_site_file_is_told_with_that_file_and_line(tmp_path):
    path, site = tmp_path / "job.yaml", tmp_path / "site.yaml"
    path.write_text(JOB, encoding="utf-8")
    site.write_text("name: here\nfactors:\n  - {name: host, ratio: 1}\n  - {name: host, ratio: -1}\n")

    ended = flopcast("predict", path, "--site", site)

    assert ended.code == 1
    assert f"{site}:4: site.factors[1].ratio = -1" in ended.err


def test_a_fault_ends_with_an_edit_that_mends_it(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_bytes(job("global_batch: 16", "global_batch: 17"))

    advised = flopcast("predict", path).err.rpartition("fix:")[2].split()

    assert advised == ["set", "global_batch", "to", "16"]
    assert flopcast("predict", path, f"plan.{advised[1]}={advised[3]}").code == 0


def test_faults_of_a_file_and_of_options_are_told_together(tmp_path):
    path = tmp_path / "ds.json"
    path.write_text('{"train_batch_size": "x", "zero_optimization": {"stage": 7}}', encoding="utf-8")
    options = ("--model", "llama-9b", "--cluster", "dgx-h100", "--gpus", "12", "--price", "2 EUR/h")

    told = flopcast("predict", path, *options).err

    for field in ("train_batch_size", "stage", "--model: model", "--gpus = 12", "--price: cluster.price"):
        assert field in told
