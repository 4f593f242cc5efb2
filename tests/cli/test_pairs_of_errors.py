"""Two errors of one command are reported together if each of them is reported alone.

Each command has parts, and each part has a right value and wrong ones. The oracle is the command with one
wrong value.
"""

import itertools
import random
import re
import shlex

from all_cases import all_cases
from command_line import flopcast

SCRIPT = """\
torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --bf16 --num-layers {layers} --seq-length {length} \\
 --hidden-size 4096 --num-attention-heads 32 --vocab-size 32000 --max-position-embeddings 4096 \\
 --micro-batch-size {micro} --global-batch-size 64 {flag}
"""
CONFIG = """\
{{"model_type": "llama", "hidden_size": 4096, "intermediate_size": {width},
"num_hidden_layers": {layers}, "num_attention_heads": 32, "hidden_act": "{activation}",
"vocab_size": {vocabulary}{key}}}
"""
COMMANDS = [  # a command, its files, and for each part of them the right value and wrong ones
    ("predict {model} --gpus {gpus} --cluster {cluster} --tokens {tokens} "
     "--plan 'dp={dp} tp={tp} gbs=64 {word}' {change} {option}", {}, {
        "model": ("llama-3-8b", "llama-3-9b", "nofile.yaml"), "gpus": ("16", "16x", "-8"),
        "cluster": ("dgx-h100", "dgx-h300"), "tokens": ("2T", "2x"), "dp": ("8", "8x"), "tp": ("2", "two"),
        "word": ("zero=1", "zero=5", "zeero=1", "precision=fp9", "schedule=zbx"),
        "change": ("", "stack.gradients.overlap=maybe", "model.vocabulary=32k2"),
        "option": ("", "--price 2EUR", "--lora x", "--headrom 3"),
    }),
    ("predict job.yaml {option}", {"job.yaml":
        "model: {model}\ncluster: {cluster}\nstack: {stack}\nbatch: {{sequence_length: {length}}}\n"
        "plan: {{data_parallel: 8, tensor_parallel: 2, global_batch: 64, {field}}}\n{section}\n"}, {
        "model": ("llama-3-8b", "llama-3-9b"), "cluster": ("dgx-h100:2", "dgx-h300:2"),
        "stack": ("megatron-core", "megatron-cor"), "length": ("8192", "8k2", "-1"),
        "field": ("", "zero: 5", "zeero: 1", "recompute: ful"),
        "section": ("", "prize: 2 USD/h", "phases: []"), "option": ("", "--tokens 2x", "--price 2EUR"),
    }),
    ("predict {model} --engine {engine} --cluster {cluster} "
     "--traffic 'rate={rate} prompt={prompt} output=30' --slo '{slo}' --plan '{plan}' {option}", {}, {
        "model": ("llama-3.1-70b", "llama-3.1-71b"), "engine": ("vllm", "vlm"),
        "cluster": ("dgx-h100:1", "dgx-h300:1"), "rate": ("4/s", "4/x", "fast"), "prompt": ("2000", "2k2x"),
        "slo": ("ttft_p99=2s", "ttft_p99=2x"), "plan": ("tp=8", "tpp=8", "weights=fp9"),
        "option": ("", "engine.max_sequences=many", "--tokens 2T", "--lora 16"),
    }),
    ("search {model} --gpus {gpus} --cluster {cluster} --deadline '{deadline}' --tokens 2T "
     "--plan {plan} {option}", {}, {
        "model": ("llama-3-8b", "llama-3-9b"), "gpus": ("64", "64x"), "cluster": ("dgx-h100", "dgx-h300"),
        "deadline": ("60 d", "60 dayz"), "plan": ("gbs=1024", "gbs=x", "zero=7"),
        "option": ("", "--stack megatron-cor", "--headroom 120%", "--objective cheap"),
    }),
    ("search llama-3-8b --gpus {gpus} --cluster dgx-h100 --plan {plan} {option}", {}, {
        "gpus": ("64", "12"), "plan": ("gbs=1024", "gbss=1"),
        "option": ("", "--stack megatron-cor", "--price 2EUR"),
    }),
    ("predict run.sh --cluster {cluster} {option}", {"run.sh": SCRIPT}, {
        "cluster": ("dgx-h100", "dgx-h300"), "layers": ("32", "32x"), "length": ("4096", "0"),
        "micro": ("1", "x"), "flag": ("", "--moe-router-topkk 2"),
        "option": ("", "--tokens 2x", "--price 2EUR"),
    }),
    ("predict config.json --gpus {gpus} --cluster dgx-h100 --plan '{plan}' {option}",
     {"config.json": CONFIG}, {
        "gpus": ("16", "16x"), "plan": ("tp=2", "tp=x", "zero=7"), "width": ("14336", "-1"),
        "layers": ("32", "0", "null"), "activation": ("silu", "swigelu"), "vocabulary": ("32000", "null"),
        "key": ("", ', "num_local_expertz": 8'), "option": ("", "--tokens 2x", "--stack megatron-cor"),
    }),
    ("predict llama-3.1-8b --engine vllm --cluster dgx-h100:1 --traffic trace=t.csv {option}", {"t.csv":
        "arrival_s,prompt_tokens,output_tokens\n{arrival},100,10\n1,{prompt},10\n2,100,{output}\n"}, {
        "arrival": ("0", "x"), "prompt": ("100", "-4"), "output": ("10", "0.5"),
        "option": ("", "--price 2EUR", "--tokens 2T"),
    }),
    ("checkpoint {model} --gpus {gpus} --cluster {cluster} --checkpoint '{saving}' "
     "--to-plan '{loading}' {option}", {}, {
        "model": ("llama-3-8b", "llama-3-9b"), "gpus": ("64", "64x"), "cluster": ("dgx-h100", "dgx-h300"),
        "saving": ("lazy host", "lazyy host", "lazy host evry=5"), "loading": ("dp=16 tp=4", "dp=4 tpp=4"),
        "option": ("", "--stack megatron-cor", "--plan zero=7"),
    }),
    ("contention {one} {other} --cluster {cluster} --gpus 8 --oversubscription {ratio} {option}", {}, {
        "one": ("llama-3-8b", "llama-3-9b"), "other": ("llama-3-8b", "llama-3-9c"),
        "cluster": ("dgx-h100", "dgx-h300"), "ratio": ("4", "0"),
        "option": ("", "--seq 0", "--plan zero=7"),
    }),
    ("predict rl.yaml {option}", {"rl.yaml":
        "rollout: {{model: llama-3.1-8b, cluster: dgx-h100:1, engine: vllm, plan: {{tp: 1}},\n"
        "  traffic: {{prompt: 500, output: 1500}}}}\n"
        "training: {{model: llama-3.1-8b, cluster: dgx-h100:1, batch: {{sequence_length: 2048}},\n"
        "  plan: auto gbs={batch}}}\nprompts: 100\nsamples: 8\nscored_on: {scored}\n{key}\n"}, {
        "batch": ("200", "256"), "scored": ("rollout", "engine"), "key": ("", "kl_coef: 0.1"),
        "option": ("", "--price 2"),
    }),
    ("compare llama-3-8b --gpus 16 --plan '{plan}' {change} {other}", {}, {
        "plan": ("", "zero=7"), "change": ("plan.tp=2", "gpus=32", "seq=4096"),
        "other": ("", "plan.tpp=2", "--price 2EUR"),
    }),
    ("search {model} --engine {engine} --cluster dgx-h100 --traffic 'rate={rate}' --plan {plan} {option}",
     {}, {
        "model": ("llama-3.1-70b", "llama-3.1-71b"), "engine": ("vllm", "vlm"), "rate": ("4/s", "4/x"),
        "plan": ("weights=fp8", "weights=fp9", "tpp=4"), "option": ("", "--tokens 2T", "--price 2EUR"),
    }),
]  # fmt: skip
PAIRS = 8  # of each command


def errors_of(line, files, parts, wrong, folder):
    """The places of the errors, such as "--plan: plan.zero", of a command with some wrong values."""
    values = {name: wrong.get(name, right) for name, (right, *_) in parts.items()}
    for name, text in files.items():
        (folder / name).write_text(text.format(**values), encoding="utf-8")
    ended = flopcast(*shlex.split(line.format(**values)))
    assert ended.code == 1, (wrong, ended)
    heads = re.findall(
        r"^(\S.*?)(?: = .*| is (?:not|missing).*| was not found)\n  allowed", ended.err, re.M
    )
    return [re.sub(r"\.base$", "", head) for head in heads]


@all_cases("line, files, parts", COMMANDS)
def test_errors_that_are_reported_alone_are_reported_together(line, files, parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = [{name: value} for name, (_, *values) in parts.items() for value in values]
    alone = [(each, errors_of(line, files, parts, each, tmp_path)) for each in wrong]
    pairs = [two for two in itertools.combinations(alone, 2) if not {*two[0][0]} & {*two[1][0]}]
    hidden = {}
    for (one, of_one), (other, of_other) in random.Random(0).sample(pairs, min(PAIRS, len(pairs))):
        both = errors_of(line, files, parts, one | other, tmp_path)
        if not {*of_one, *of_other} <= {*both} or len(both) > len(of_one + of_other):
            hidden[*one.values(), *other.values()] = (of_one, of_other, both)
    assert hidden == {}
