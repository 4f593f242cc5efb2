"""Errors that do not depend on each other are reported together, and no fix drops what the user wrote.

Each case is a command line, the file that it reads ("" for none), and the fixes of its errors in order.
"""

import re
import shlex

from all_cases import all_cases
from command_line import flopcast

JOB = "predict llama-3.2-1b --gpus 16"
NO_DEVICE = "did you mean h100-pcie-80gb or h100-sxm5-80gb?"
SERVED = "search llama-3.1-70b --engine vllm --cluster dgx-h100:1 --traffic 'rate=4/s prompt=20 output=30'"
H200 = "predict llama-3.1-70b --engine vllm --cluster dgx-h200:1"
RUN = (
    "id,source_key,kind,model_name,gpu_model,num_gpus,seq_len,dp,tp,pp,micro_batch,global_batch,precision,"
    "framework,year,step_time_s\n"
    "mine-1,mine,train,MyGPT 13B,H100,64,8192,32,2,1,1,512,bf16,Megatron-LM,2025,6.9"
)
TWO_WRONG = RUN.replace("MyGPT 13B", "Llama 3 8B").replace("H100", "H1OO")  # letters O
TWO_WRONG += RUN.replace("MyGPT 13B", "Llama 3 8B").partition("\n")[2].replace("mine-1", "\nmine-2") + " s"
LLAMA = RUN.replace("MyGPT 13B", "Llama 3 8B")
ROW = RUN.partition("\n")[2].replace("MyGPT 13B", "Llama 3 9B")
TWO_RUNS = f"{LLAMA}\n{ROW}\n" + LLAMA.partition("\n")[2].replace("mine-1", "x").replace("H100", "H101")
TWO_RUNS = TWO_RUNS.removesuffix("6.9") + "-7"
TOO_MANY = RUN.replace("MyGPT 13B", "Llama 3 8B").replace(",32,2,", ",32,4,")  # ranks
MEGATRON = (
    "torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --tensor-model-paralel-size 2 --bf16 "
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --vocab-size 32000 --seq-length 4096 "
    "--max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 50\n"
)
UNEVEN = MEGATRON.replace("paralel-size 2", "parallel-size 1 --pipeline-model-parallel-size 4")
UNEVEN = UNEVEN.replace("layers 32", "layers 30").replace("heads 32", "heads 30").replace("50", "64")
SGLANG = (
    "python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --tp 6 "
    "--mem-fraction-static 88\n"
)
CLASHING = (
    MEGATRON.replace("--tensor-model-paralel-size 2", "--fp16")
    .replace("embeddings 4096", "embeddings 2048")
    .replace("heads 32", "heads 31")
    .replace("size 50", "size 32")
)
VLLM = "vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 3 --quantization fp9\n"
TRL = (
    "accelerate launch --mixed_precision bf17 --num_processes 8 sft.py --model_name_or_path "
    "meta-llama/Meta-Llama-3-8B --per_device_train_batch_size 4 --attn_implementation flash_attn_2x\n"
)
DEEPSPEED = '{"train_batch_size": 64, "zero_optimisation": {"stage": 3}, "bf16": {"enabled": true}}'
SPARSE = '{"model_type": "qwen3_moe", "num_expert_layers": 64}'
NEOX = (
    '{"pipe_parallel_size": 3, "model_parallel_size": 2, "num_layers": 8, "hidden_size": 2048, '
    '"num_attention_heads": 33, "seq_length": 2048, "max_position_embeddings": 2048, "vocab_size": 50432, '
    '"train_micro_batch_size_per_gpu": 4, "pos_emb": "rotary", "fp16": {"enabled": true}}'
)
BLOCK = "[{count: 6, mixer: {heads: 8}, feed_forward: {ffn_hidden: 11008}}]"
TWO_NODES = "model: llama-3.2-1b\ncluster: {base: 'dgx-h100:2'"
OWN_MODEL = "model: {hidden: 512, heads: 8, num_layers: 6, vocabulary: 32000}\ncluster: dgx-h100:2\n"
STORAGE = (
    "describe cluster.file_system with the values of your storage, such as "
    'cluster.file_system.capacity_bytes="1 PB" cluster.file_system.read_bytes_per_s="200 GB/s" '
    'cluster.file_system.write_bytes_per_s="100 GB/s"'
)
PREFIX, SHARED = (f"predict llama-3-8b --gpus 8 --traffic '{name}" for name in ("prefix", "shared_prefix"))
GPT2 = "model: gpt2\ncluster: dgx-h100:2\n"
CASES = [
    ("calibrate from-run gpt2 --gpus 16 --observed-step -3 --noise lots --out no/site.yaml plan.tp=5",
     "", [
        "run mkdir -p no, or choose another path", "write a value such as --noise 2%",
        'write a value such as --observed-step "3 s"', "set tensor_parallel to 4",
    ]),
    ("calibrate from-run llama-3.2-1b --gpus 16 --noise lots --log missing.log", "", [
        "check the path", "write a value such as --noise 2%"
    ]),
    ("predict axolotl.yaml --cluster dgx-h100:1",
     "base_model: meta-llama/Meta-Llama-3-8B\nadapter: lora\nlora_rank: 16\nlora_target_linear: true\n"
     "sequence_len: 4096\nmicro_batch_size: 2\n", ["did you mean lora_r?"]),
    ("predict --model config.json --gpus 16",
     '{"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": "14336",\n'
     '"num_hidden_layers": -32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,\n'
     '"num_experts_per_tok": 16, "num_local_experts": 8}', [
        "write 14336 without quotes", "write 32 in place of -32", "set num_experts_per_tok to 2"
    ]),
    ("search gpt2 --gpus 16 --headroom 95", "", ["set --headroom to 0.95"]),
    ("predict titan.toml --cluster dgx-h100:1",
     '[model]\nname = "llama3"\nflavor = "9B"\n[training]\nlocal_batch_size = 1\nsteps = 10\n'
     "[parallelism]\ntensor_parallel_degree = 2\n",
     ["did you mean 8B? If not, add --model config.json, the config of this model"]),
    ("calibrate fit --data missing --out curves --device h1000", "", [
        "choose the path of a folder", NO_DEVICE
    ]),
    ("calibrate fit --data . --out curves --device h1000", "", [
        NO_DEVICE,
        "give a folder that has one of these subfolders, or the output folder of flopcast measure",
    ]),
    (f"{SERVED} --plan 'tp=2,4 weights=nvfp4'", "", ["set plan.weights to bf16"]),
    (f"{SERVED} --plan 'tp=5 weights=w4a4'", "", [
        "set plan.tensor_parallel to 4", "set plan.weights to bf16"
    ]),
    (f"{SERVED} --plan 'tp=2,4 weights=int8' --objective latency", "", [
        "set weights to fp8", "write end_to_end"
    ]),
    (f"{SERVED} --plan 'tp=4 replicas=3'", "", ["set plan.replicas to 2, or use --gpus 16"]),
    (f"{SERVED} --plan 'tp=8 pools=yes'", "", [
        "list more values in the plan, or remove a field, so that flopcast chooses its value"
    ]),
    (f"{JOB} --slow device=99:0.8,node=1:1.8", "", ['write --slow "device=15:0.8,host=1:0.56"'] * 3),
    (
        f"{JOB} --plan 'zero=1 tp=8, gbs=512, recompute=ful'",
        "",
        ['write "zero=1 tp=8 gbs=512 recompute=ful"', "set recompute to full"],
    ),
    (f"{JOB} --tokens 2X", "", ["set --tokens to a value such as 2T"]),
    (f"{JOB} --plan 'gbs=64 precision=fp7'", "", ["set precision to fp8"]),
    (f"{JOB} --plan 'tp=8 mbs=3 gbs=100'", "", ["set global_batch to 102"]),
    (f"{JOB} --checkpoint 'lazy to=/mnt/d every=9h'", "", [
        f"write file_system in place of to=/mnt/d, and {STORAGE}"
    ]),
    (f"{JOB} --checkpoint 'async nfs every=9h'", "", [
        f"write asynchronous file_system every=9h in place of async nfs every=9h, and {STORAGE}"
    ]),
    (f"{JOB} --checkpoint 'lazy file_system every=9h'", "", [STORAGE]),
    ("search llama-3.2-1b --gpus 8 --plan gbs=64 --offload 'auto optimizer'", "", [
        'write --offload "auto optimizer:host"'
    ]),
    ("predict llama-3.2-1b --gpus 12 --cluster dgx-h100:2 --plan dp=16", "", ["set --gpus to 16"]),
    ("predict job.yaml plan.gsb=64", f"{TWO_NODES}}}\nplan: dp=16 gbs=32\n", ["did you mean gbs?"]),
    (f"{JOB} --offload optimizer=cpu,activation:hosts", "", [
        "write optimizer:host,activations:host in place of optimizer=cpu,activation:hosts"
    ]),
    (f"{JOB} --plan 'recompute=selective:attn,mlpp'", "", ["set recompute to selective:attention,mlp"]),
    (f"{JOB} cluster.tiers.0.bandwidth=900GB/s", "", ["did you mean bytes_per_s?"]),
    (f"{JOB} --plan 'ep=8 gbs=512'", "", ["set expert_parallel to 1"]),
    ("export llama-3.2-1b --to deepspeed", "", [
        "write the format before the job: flopcast export deepspeed JOB"
    ]),
    (f"{JOB} --price 2usd", "", ['write --price "2 USD/h"']),
    (f"{H200} --plan 'tp=3 weights=fp6'", "", ["set weights to fp8", "set plan.tensor_parallel to 4"]),
    ("search llama-3.2-1b --gpus 8,sixteen", "", ["set --gpus to 8,16"]),
    ("search llama-3.2-1b --gpus 64..32", "", ["set --gpus to 32..64"]),
    ("search llama-3.2-1b --gpus 8..64..2", "", ["set --gpus to 8..64"]),
    ("search llama-3.2-1b --gpus 16 --plan 'tp=3,5 gbs=512'", "", ["set tensor_parallel to 2,4"]),
    ("search llama-3.2-1b --gpus 16 --plan 'recompute=none,fulll'", "", ["set recompute to none,full"]),
    ("search llama-3.2-1b --gpus 16 --objective step_time,price", "", ["write cost in place of price"]),
    ("predict lama-3.2-1b --gpus 16 --plan 'tp=2 recompute=ful'", "", [
        "did you mean llama-3.2-1b, llama-3.1-8b or llama-3.2-3b? For another model, give its Hugging Face "
        "config.json, or its export (.pt2 or .onnx)",
        "set recompute to full",
    ]),
    ("predict job.yaml", f"{TWO_NODES}, inter_node_bandwidth: 400 Gb/s}}\n", [
        "write tiers: {1: {bytes_per_s: 400 Gbit/s}} in place of it"
    ]),
    ("predict job.yaml", f"{TWO_NODES}, gpus_per_node: 4}}\n", [
        "write groups: {0: {node: {devices: 4}}} in place of it"
    ]),
    ("predict job.yaml", "model: {base: llama-3-8b, heads: 33}\ncluster: dgx-h100:2\n", [
        "write blocks: {0: {mixer: {heads: 33}}} in place of it", "set heads to 32, or give head_size"
    ]),
    ("predict job.yaml", "model: {base: llama-3-8b, num_heads: 16, n_kv_heads: 4}\ncluster: dgx-h100:2\n", [
        "write blocks: {0: {mixer: {heads: 16, kv_heads: 4}}} in place of it",
        "remove n_kv_heads, which is a part of blocks",
    ]),
    ("predict job.yaml", OWN_MODEL, [
        f"write blocks: {BLOCK} in place of it", "remove num_layers, which is a part of blocks"
    ]),
    ("validate --runs runs.csv", RUN, [
        "fill these columns of the row: layers, hidden, ffn_hidden, heads, vocab, gated_mlp"
    ]),
    ("validate --runs runs.csv", f"{TOO_MANY} s", [
        "write 6.9 in place of 6.9 s", "set dp to 16, or set num_gpus to 128"
    ]),
    ("predict job.yaml", f"{TWO_NODES}, measured_links: {{infiniband: links.csv}}}}\n", [
        "write tiers: {1: {links: {file: links.csv, unit: MB/s}}} in place of it", "check the path"
    ]),
    (f"{JOB} --plan 'dp=16 gbs=64 zero=1' --offload optimizer:host,parameters:host", "", [
        "choose --stack torch-fsdp2 and set zero to 3, or remove parameters:host from offload"
    ]),
    (f"{JOB} --plan 'dp=16 gbs=64 zero=2' --stack deepspeed-zero --offload gradients:host", "", [
        "set --offload to optimizer:host,gradients:host"
    ]),
    (f"{JOB} --plan 'fsdp=16 gbs=512 grad_accum=4'", "", [
        "write data_parallel=16 and zero=3", "write micro_batch=8"
    ]),
    (f"{JOB} --plan 'ddp=16 mbs=2 ga=4'", "", [
        "write data_parallel=16 and zero=0", "write global_batch=128"
    ]),
    (f"{JOB} --power-limit 80%", "", ['write --power-limit "560 W"']),
    (f"{JOB} cluster.tiers.1.bytes_per_s=80%", "", ['write cluster.tiers.1.bytes_per_s="40 GB/s"']),
    ("validate --runs runs.csv", TOO_MANY, ["set dp to 16, or set num_gpus to 128"]),
    ("validate --runs runs.csv", TOO_MANY.replace("H100,64", "H100X,"), [
        "did you mean h100-sxm5-64gb, h100-sxm5-80gb or h100-sxm5-96gb?", "write the value of num_gpus"
    ]),
    (f"{JOB} --plan 'dp=16 tp=2 pp=1 gbs=64'", "", ["set data_parallel to 8, or use --gpus 32"]),
    ("predict run.sh --cluster dgx-h100", MEGATRON, [
        "did you mean --tensor-model-parallel-size?",
        "change --global-batch-size so that global_batch is 48",
    ]),
    ("predict job.yaml", f"{TWO_NODES}}}\nbatch: {{seq_len: 64}}\nplan: dp=10 tp=2 pp=3 gbs=50\n", [
        "did you mean sequence_length?", "set pipeline_parallel to 4 and data_parallel to 2"
    ]),
    ("predict llama-3.2-1c --gpus 16 --plan 'dp=10 tp=2 gbs=50'", "", [
        "did you mean llama-3.2-1b, llama-3.2-3b or llama-3.1-8b? For another model, give its Hugging Face "
        "config.json, or its export (.pt2 or .onnx)",
        "set data_parallel to 2, or use --gpus 20",
    ]),
    ("predict llama-3.2-1b --cluster dgx-h1000:2 --plan 'dp=16 mbs=3 gbs=50'", "", [
        "did you mean dgx-h100, dgx-h200 or dgx-a100?", "set global_batch to 48"
    ]),
    (f"{H200.replace('vllm', 'vlm')} --plan tp=3 --traffic 'rate=4 prompts=9' --slo ttft=2", "", [
        "did you mean vllm, vllm-0.5 or vllm-0.6?",
        "did you mean prompt?",
        "write ttft=2s",
        "set plan.tensor_parallel to 4",
    ]),
    ("run llama-3.2-1b --gpus 16 --plan 'dp=16 gbs=32' --phases phases.yaml",
     "phases: [{tokens: 1B, changes: plan.gbs=25}, {token: 2B}]\n", [
        "did you mean tokens?", "set global_batch to 32"
    ]),
    ("predict run.sh --cluster dgx-h100:1", VLLM, [
        "did you mean fp8?", "change --tensor-parallel-size so that tensor_parallel is 4"
    ]),
    ("predict run.sh --cluster dgx-h100", MEGATRON.replace("paralel-size 2 --bf16", (
        "parallel-size 2 --bf16 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3"
    )).replace("batch-size 50", "batch-size 64"), ["write --num-layers-per-virtual-pipeline-stage 2"]),
    (f"{JOB} --plan 'dp=16 gbs=64 recompute=selective:attnn offload=activations:hots'", "", [
        "set offload to activations:host", "write attention in place of attnn"
    ]),
    (f"{JOB} --loader decode=9:8,copy=600kB", "", ['write --loader "decode=9ms:8,copy=600kB@link"']),
    ("search llama-3.2-1b --gpus 16 --plan 'tp=2,3 gbs=512'", "", ["set tensor_parallel to 2"]),
    ("search llama-3.2-1b --gpus 16 --objective cost,speed", "", ["write step_time in place of speed"]),
    ("validate --runs runs.csv", RUN.replace("MyGPT 13B", "Llama 3 8B").replace(",64,", ",60,", 1), [
        "write 56 or 64"
    ]),
    ("sweep grid.yaml", "model: llama-3-8b\ngpus: [16]\nplan: {tp: [1, 2], gbs: 64}\n", [
        'write plan: "tp=1,2 gbs=64"'
    ]),
    ("shard job.yaml --ranks 2", '{"a": [0, 8], "b": [8], "c": "8x4"}', [
        'write "a": [4096, 4096]', 'write "c": [8, 4]'
    ]),
    (f"{JOB} --slow gpu=3:80%", "", ["write device in place of gpu"]),
    ("search llama-3.2-1b --gpus 16 --top 0 --plan 'tp=3 gbs=64'", "", [
        "write a number such as --top 10", "set tensor_parallel to 2"
    ]),
    ("search llama-3.2-1b --gpus 16 --largest mbs --plan 'tp=3 gbs=64'", "", [
        "write --largest", "set tensor_parallel to 2"
    ]),
    (f"{JOB} --plan 'tp=3 gbs=64' --out nowhere/a.txt --report nowhere/a.html", "", [
        *["run mkdir -p nowhere, or choose another path"] * 2, "set tensor_parallel to 2"
    ]),
    ("compare llama-3.2-1b gpt2 --gpus 0 --plan tp=5", "", [
        "write a number such as --gpus 8", "set tensor_parallel to 4"
    ]),
    (f"{JOB} --tensor-parallel-size 3 --precision bf16-mixed", "", [
        'write --plan "tp=2", or add tp=2 to the plan',
        'write --plan "precision=bf16", or add precision=bf16 to the plan',
    ]),
    (f"{JOB} --plan 'zero=4 tp=3'", "", ["set zero to 3", "set tensor_parallel to 2"]),
    (f"{JOB} tp=3 --seq foo", "", ["write a number such as --seq 4096", "write plan.tp=2"]),
    (f"{JOB} --plan gbs=4M --seq 4096", "", ["set global_batch to 1024"]),
    (f"{JOB} --batch 16k", "", ["set --batch to 16"]),
    ("predict deepseek-v3 --gpus 2048 --cluster dgx-h800 --plan 'pp=16 ep=60'", "", [
        "did you mean hgx-h800?", "set expert_parallel to 64"
    ]),
    ("export vllm llama-3.1-8b --gpus 8 --plan tp=3", "", ["set plan.tensor_parallel to 4"]),
    (f"{JOB} --optimizer adam8", "", [
        'write --plan "optimizer=adamw", or add optimizer=adamw to the plan'
    ]),
    (f"{JOB} stack.zero=4", "", ["write plan.zero=3"]),
    ("predict run.sh", SGLANG, [
        "write 0.88 in place of 88", "change --tp so that tensor_parallel is 8"
    ]),
    ("predict run.sh --cluster dgx-h100", CLASHING, [
        "write --max-position-embeddings 4096",
        "remove --fp16 or --bf16",
        "change --num-attention-heads so that heads is 32",
    ]),
    ("import megatron run.sh --cluster dgx-h100 --gpus x", CLASHING, [
        "write a number such as --gpus 8",
        "write --max-position-embeddings 4096",
        "remove --fp16 or --bf16",
    ]),
    (f"{JOB} --plan tp=5 every=foo", "", [
        'write --checkpoint "nvme every=10min"', "set tensor_parallel to 4"
    ]),
    (f"{JOB} --lora 16 --epochs -1", "", ["set --epochs to a value such as 3, and add --samples 52000"]),
    (f"{JOB} --precison fp8", "", ['write --plan "precision=fp8", or add precision=fp8 to the plan']),
    ("search llama-3.2-1b --gpus 12 --plan tp=5", "", ["set --gpus to 16", "set tensor_parallel to 4"]),
    ("predict llama-3.2-1b --engine vllm --gpus 1 --plan tp=3", "", ["set plan.tensor_parallel to 1"]),
    ("memory llama-3.2-1b --engine vllm --gpus 1 --plan tp=2", "", [
        "use --gpus 2, or choose smaller degrees"
    ]),
    ("search llama-3.2-1b --engine vllm --gpus 4 --plan tp=3 --slo ttft=0", "", [
        "write ttft=2s", "set plan.tensor_parallel to 4"
    ]),
    ("predict job.yaml", "model: llama-3.2-1b\ncluster: dgx-h100:-2\nstack: megatron-cor\n"
     "plan: {data_parallel: 8, tensor_parallel: two}\n", [
        "write dgx-h100:2",
        "did you mean megatron-core, megatron-core-2025 or megatron-core-2026?",
        "write 2 in place of two",
    ]),
    ("validate --runs runs.csv", TWO_WRONG, [
        "did you mean h100-pcie-80gb, h100-sxm5-64gb or h100-sxm5-80gb?", "write 6.9 in place of 6.9 s"
    ]),
    ("explain steptime llama-3.2-1b --gpus 8 --price 2.10", "", [
        "remove --price, or run flopcast predict", "did you mean step?"
    ]),
    ("export megatorn llama-3.2-1b --gpus 8 --plan tp=3", "", [
        "did you mean megatron?", "set tensor_parallel to 2"
    ]),
    ("catalog modles --gpus 8", "", [
        "remove --gpus, or run flopcast predict", "run flopcast catalog models"
    ]),
    ("completion bsh --gpus 8", "", [
        "remove --gpus, or run flopcast predict", "write bash in place of bsh"
    ]),
    ("explain memroy llama-3.2-1b --gpus 8 --plan tp=3", "", [
        "set tensor_parallel to 2", "did you mean memory?"
    ]),
    ("predict job.yaml", f"{TWO_NODES}}}\nbatch: {{size: 512, seq: 4096}}\nplan: tp=5\n", [
        "set plan.global_batch to 512 instead", "set tensor_parallel to 4"
    ]),
    ("predict job.yaml", "model: &m llama-3.2-1b\ncluster: dgx-h100:2\nplan: tp=5\nplan: tp=2\n", [
        "remove &m", "keep only line 3 or line 4, or rename the key that has the wrong name"
    ]),
    ("predict run.sh --cluster dgx-h100", MEGATRON.replace("--nnodes 4", "--nnodes $N"), [
        "did you mean --tensor-model-parallel-size?",
        "add --env N=2, with its value",
    ]),
    ("predict run.sh --cluster dgx-h100:1", TRL, ["did you mean bf16?", "did you mean flash_attention_2?"]),
    ("validate --runs runs.csv --no-constant", RUN.replace(",6.9", ',"6,9"'), [
        "did you mean --no-constants?", "write 6.9 in place of 6,9"
    ]),
    ("predict config.json --gpus 8 --plan tp=3", '{"model_type": "llama", "intermediate_size": 0}', [
        "copy intermediate_size from the original config.json of the model, such as 14336",
        "set tensor_parallel to 2"
    ]),
    ("predict ds.json --model llama-3.2-1b --cluster dgx-h100:1", DEEPSPEED, [
        "did you mean zero_optimization?"
    ]),
    ("predict job.yaml", "model: nothere.json\nclustr: dgx-h100:2\n", [
        "check the path", "did you mean cluster?"
    ]),
    ("predict job.yaml", "model: {graph: none.onnx}\nclustr: dgx-h100:2\n", [
        "check the path", "did you mean cluster?"
    ]),
    (f"{JOB} cluster.nodes=-1", "", ["set nodes to 1"]),
    ("explain mlp.upp llama-3.2-1b --gpus 8 --plan zero=7", "", ["set zero to 3", "did you mean mlp.up?"]),
    (f"{JOB} --price '3 EUR/h' --plan zero=7", "", ["convert the price to USD/h", "set zero to 3"]),
    (f"{JOB} --plan tp=2 --plan tp=4", "", ["leave out all but one --plan"]),
    ("import axolotl job.yaml --gpus 8", "model_name_or_path: gpt2\nstage: sft\nfinetuning_type: full\n", [
        "write llama-factory in place of axolotl"
    ]),
    ("predict config.json --gpus 16 --plan 'ep=16 gbs=64 zero=7'", SPARSE, [
        "did you mean num_experts?", "set zero to 3"
    ]),
    (f"{H200} --traffic trace.csv --plan tp=3", "", [
        'write --traffic "trace=trace.csv"', "set plan.tensor_parallel to 4"
    ]),
    ("predict neox.json --cluster dgx-h100:1", NEOX, [
        "set pipe_parallel_size to 2",
        "did you mean padded_vocab_size?",
        "change num_attention_heads so that heads is 32",
    ]),
    ("predict job.yaml", f"{TWO_NODES}}}\nsite: {{factors: [{{name: host, ratio: fast}}]}}\nplan: tp=5\n", [
        "set ratio to a value such as 1.1", "set tensor_parallel to 4"
    ]),
    ("checkpoint llama-3.2-1b --gpus 8 --to-plan tp=3 --checkpoint every=2x", "", [
        'write --checkpoint "nvme every=10min"', "set tensor_parallel to 2"
    ]),
    ("search llama-3.2-1b --gpus 8 --tokens 1T --budget free", "", ['write --budget "2M USD"']),
    ("sweep grid.yaml", "models: llama-3.2-1b\ncluster: dgx-h100\ngpus: 12\nplan: zero=7 tp=5\n", [
        "did you mean model?", "set gpus to 16", "set zero to 3", "set tensor_parallel to 4"
    ]),
    ("sweep grid.yaml", "model: llama-3.2-1b\ngpus: 8\nsequence_length: [4096, 8192k2, 4096t]\n", [
        "write 8192", "remove it"
    ]),
    ("diagnose llama-3.2-1b --gpus 8 --cluster dgx-h100 --log log.csv",
     "step,milliseconds\n1,710\n2,-720\n3,0.7s\n4,700 ms\n5,x\n", [
        "write the measured numbers, or remove the row", "write 700", "write 700",
        "write the number of this step, or remove the row",
    ]),
    ("diagnose llama-3.2-1b --gpus 8 --plan 'dp=8 gbs=12' --log log.csv",
     "step,seconds\n1,-1\n2,-2\n3,2\n", [
        "add --cluster NAME, the machine of the run", "write the measured numbers, or remove the row",
        "write the measured numbers, or remove the row", "set global_batch to 16",
    ]),
    (f"{JOB} --traffic rate=4/s --slo 'ttft_p101=2s tpot_p99=50 msec'", "", ["write ttft_p99=2s"]),
    ("search llama-3-8b --gpus 64 --plan 'gbs=512 tp=3,x'", "", ["set tensor_parallel to 2"]),
    ("predict sft.yaml --gpus 8",
     "base_model: Qwen/Qwen2.5-7B\nsequence_len: 2048\nmicro_batch_size: 2\nnum_epochs: 0\n"
     "deepspeed: zero3.json\nfsdp_config:\n  offload_params: maybe\n", [
        "write 1", "keep one of deepspeed and fsdp_config", "write false",
    ]),
    ("predict sft.sh",
     "torchrun --nproc_per_node 8 -m openrlhf.cli.train_sft --pretrain meta-llama/Meta-Llama-3-8B "
     "--max_epochs 0 --learning_rat 5e-6 --micro_train_batch_size 3 --train_batch_size 256\n", [
        "did you mean learning_rate?", "write 1", "write 240 or 264",
    ]),
    ("checkpoint llama-3-8b --gpus 64 --to-plan 'dp=4 tp=3 pp=1'", "", ["set tensor_parallel to 16"]),
    ("validate --runs runs.csv", LLAMA.replace("H100", "H1OO").replace("bf16", "bf61"), [
        "did you mean h100-pcie-80gb, h100-sxm5-64gb or h100-sxm5-80gb?", "set precision to bf16"
    ]),
    ("validate --runs runs.csv", LLAMA.replace(",512,", ",500,").replace("8B", "9B"), [
        "write llama-3-8b in the column model_name, or fill these columns of the row: layers, hidden, "
        "ffn_hidden, heads, vocab, gated_mlp",
        "set global_batch to 512",
    ]),
    (
        "validate --runs runs.csv",
        LLAMA.replace(",precision,", ",precison,").replace(",train,", ",trian,").replace("6.9", "6900 ms"),
        [
            "write precision in place of precison in line 1", "write 6.9 in place of 6900 ms",
            "write train in place of trian",
        ],
    ),
    ("validate --runs missing.csv --runs other.csv --precision fp8", "", [
        "check the path", "check the path", "choose one of these values, such as --precision amp"
    ]),
    (f"{JOB} precision fp7 tp=3", "", [
        'write --plan "precision=fp8", or add precision=fp8 to the plan', "write plan.tp=2"
    ]),
    ("predict llama-3.2-1b gpus=16 seq 4096", "", [
        "write --gpus in place of gpus", "write --seq in place of seq"
    ]),
    ("search llama-3.2-1b --gpus 8,192 --plan gbs=64,64", "", [
        "set --gpus to 8192", "set global_batch to 64"
    ]),
    ("sweep grid.yaml", "model: llama-3.2-1b\ngpus: [8, 8]\nsequence_length: [8,192]\n", [
        "leave out one of the values 8", "write 8192 in place of [8, 192]"
    ]),
    ("predict llama-3.2-1b --site site.yaml --gpus 8", "factors: [{name: gemm_lvel, ratio: -1}]\n", [
        "set name to gemm_level", "set ratio to a value such as 1.1"
    ]),
    ("predict llama-3.2-1b --gpus 8 --images 4x0x100 --plan tp=3", "", [
        "remove --images", "set tensor_parallel to 2"
    ]),
    ("sweep grid.yaml --top 0", "model: llama-3.2-1b\ngpus: [8, 8]\n", [
        "write a number such as --top 10", "leave out one of the values 8"
    ]),
    ("search mixtral-8x7b --gpus 64 --plan 'ep=1,2,16 gbs=1k' --sort cost", "", [
        "write --objective cost", "set global_batch to 1024", "set expert_parallel to 1,2"
    ]),
    ("search llama-3.2-1b --gpus 16,24..8 --plan tp=8..2", "", [
        "set --gpus to 16,8..24", "set tensor_parallel to 2..8"
    ]),
    ("explain gemm_lvel", "", [
        "add a job file, or --model NAME, such as --model llama-3-8b",
        "did you mean gemm_level[h100-sxm5-80gb]?",
    ]),
    ("explain tpott llama-3.1-70b --engine vllm --cluster dgx-h100:1 --plan tp=5", "", [
        "set plan.tensor_parallel to 4", "did you mean tpot?"
    ]),
    ("predict run.sh --cluster dgx-h100", UNEVEN, [
        "add --decoder-first-pipeline-num-layers 6, or write --pipeline-model-parallel-size 2",
        "change --num-attention-heads so that heads is 32",
    ]),
    ("explain", "", [
        "add one of these words, such as flopcast explain step",
        "add a job file, or --model NAME, such as --model llama-3-8b",
    ]),
    ("predict llama/model.safetensors --plan tp=x", "", [
        "copy config.json from the Hugging Face page of the model to llama/config.json, and give it in "
        "place of llama/model.safetensors",
        "set tensor_parallel to 1",
    ]),
    ("predict llama-3.2-1b --gpus 8 --trace log.csv --plan tp=5", "step,seconds\n1,2\n", [
        "write --trace log.json", "set tensor_parallel to 4"
    ]),
    ("diagnose llama-3.2-1b --gpus 8 --cluster dgx-h100 --log log.csv", "step,seconds\n1,2\n2,2\n3,x", [
        "write the number of this step, or remove the row"
    ]),
    ("search job.yaml --gpus 16",
     "model: gpt2\ncluster: dgx-h100\nplan: {gbs: 64, tp: [1, 2], recompute: [none, ful]}\n", [
        'set recompute to none, or remove it, and run flopcast search with --plan "recompute=none,ful"',
        'set tensor_parallel to 1, or remove it, and run flopcast search with --plan "tensor_parallel=1,2"',
    ]),
    (f"{JOB} plan.tp=3 plan.tensor_parallel=5 plan.zero", "", [
        "remove plan.tensor_parallel=5", "write plan.zero=2", "set tensor_parallel to 2"
    ]),
    (f"{JOB} stak.tensor_overlap=none --lora 8 model.adapters.targets=[q,z]", "", [
        "leave out z", "did you mean stack?"
    ]),
    ("predict llama-3-8b --gpus 16 --batch 64k --seq -1", "", [
        "write a number such as --seq 4096", "set --batch to 16"
    ]),
    ("run llama-3.2-1b --gpus 64 --batch 0 --phases phases.yaml",
     "phases:\n  - {tokens: 1T, changes: plan.tp=5}\n  - {tokens: lots}\n", [
        "write a number such as --batch 64", "set tokens to a value such as 1T", "set tensor_parallel to 4"
    ]),
    (f"{PREFIX}=5000'", "", ["did you mean shared_prefix_tokens?"]),
    (f"{PREFIX}=50%'", "", ["did you mean prefix_hit_share?"]),
    (f"{PREFIX}=9000'", "", ["write shared_prefix_tokens=7892"]),
    (f"{PREFIX}=5000 prompt=1000'", "", ["write shared_prefix_tokens=5000, and write prompt=6000"]),
    (f"{SHARED}=9000 prompt=9000'", "", ["write shared_prefix=7892", "write prompt=7892"]),
    (f"{SHARED}=900 prompt=uniform(100,800)'", "", ["write shared_prefix=800"]),
    (f"{JOB} --slo 'ttft<2 lightyears'", "", ["write ttft_p99=2s"]),
    (f"{JOB} --loader 'read=3 parsecs,decod=2'", "", ['write --loader "read=9ms,decod=2ms"']),
    (f"{JOB} --checkpoint 'fsdp lustre'", "", [
        f"write file_system in place of fsdp lustre, and {STORAGE}"
    ]),
    ("predict llama-3-8b --gpus 12 --cluster dgx-h200x --plan tp=3", "", [
        "set --gpus to 8 or 16", "did you mean dgx-h200, dgx-h100 or dgx-b200?", "set tensor_parallel to 2"
    ]),
    ("import hf missing.json --output no/model.yaml", "", [
        "run mkdir -p no, or choose another path", "check the path"
    ]),
    ("predict job.yaml", f"{GPT2}batch: 4096\nplan: {{tp: 2, gbs: 64}}\n", [
        "remove batch, or write batch: {seq: 4096}, because plan.gbs is given"
    ]),
    ("predict job.yaml", f"{GPT2}optimiser: lion\nplan: tp=16 gbs=64\nsequense_length: 8\nfoo: 3\n", [
        "move optimiser to plan (line 4) and call it optimizer, as in plan: tp=16 gbs=64 optimizer=lion",
        "set tensor_parallel to 4",
        "move sequense_length to batch and call it sequence_length",
        "remove foo",
    ]),
    (f"{JOB} precison=fp8", "", ["write plan.precision=fp8"]),
    ("memory llama-3-8b --gpus 16 --tokens 2T --plan tp=3", "", [
        "remove --tokens, or run flopcast predict", "set tensor_parallel to 2"
    ]),
    (f"{JOB} --seq 8q", "", ["write a number such as --seq 4096"]),
    ("run llama-3.2-1b --gpus 16 --tokens 1T --phases missing --plan tp=3", "", [
        "leave out --tokens, or --phases", "check the path", "set tensor_parallel to 2"
    ]),
    (f"{JOB} --site site.yaml --plan tp=3",
     "factors: [{name: host, ratio: 1.2}]\nfabric: 1.1\ngemm_level[h100-sxm5-80gb]: 1.3\nhot: 2\n", [
        *2 * [
            'write factors: [{"name": "host", "ratio": 1.2}, {"name": "fabric", "ratio": 1.1}, {"name": '
            '"gemm_level[h100-sxm5-80gb]", "ratio": 1.3}] in place of factors and fabric and '
            "gemm_level[h100-sxm5-80gb]",
        ],
        "remove hot",
        "set tensor_parallel to 2",
    ]),
    ("predict run.sh --cluster dgx-h100:1",
     VLLM.replace("--quantization fp9", "--max-model-len 1Q").replace("size 3", "size 2"),
     ["write --max-model-len 4096"]),
    ("predict trl.yaml --cluster dgx-h100:1",
     "model_name_or_path: meta-llama/Llama-3.1-8B\nper_device_train_batch_size: 1\nmax_length: -4\n",
     ["write 1024"]),
    ("predict run.sh --cluster dgx-h100:4",
     MEGATRON.replace("paralel-size 2", "parallel-size 2").replace("size 50", "size 64").replace(
         "seq-length 4096", "seq-length -4"), ["write --seq-length 4096"]),
    ("predict job.yaml", "model: gpt2\nplan: tp=1\ncluster: dgx-h100\nplan: tp=2\nbatch: {seq: 512\n", [
        "keep only line 2 or line 4, or rename the key that has the wrong name",
        "add } at the end of line 5",
    ]),
    ("export vllm llama-3.2-1b --cluster dgx-h100:1 --engine sglang --plan tp=3", "", [
        "write --engine vllm, or run flopcast export sglang to start sglang",
        "set plan.tensor_parallel to 4",
    ]),
    *(("predict job.yaml", f"{GPT2}batch: {{seq: 1024, global_batch: 256}}\nplan: {plan}\n", [
        f"remove global_batch, because plan already has {stated}"
    ]) for plan, stated in {
        "dp=8 tp=2 gbs=256 mbs=1": "gbs=256",
        "{dp: 8, tp: 2, global_batch: 256}": "global_batch=256",
        "dp=8 tp=2 gbs=128": "gbs=128; if you mean 256, also write gbs=256 in plan",
    }.items()),
    *(("predict job.yaml", f"model: gpt2\ncluster: {cluster}\ngpus: 32\nplan: mbs=1 gbs=256\n", [fix])
      for cluster, fix in {
          "dgx-h100:4": "remove gpus, because dgx-h100:4 already has 32",
          "dgx-h100:2": "write cluster: dgx-h100:4 in place of gpus",
          "dgx-h100": "write cluster: dgx-h100:4 in place of gpus",
      }.items()),
    ("predict axolotl.yaml --gpus 8",
     "base_model: meta-llama/Meta-Llama-3-8B\nadapter: lora\nlora_r: 16\nsequence_len: 4096\n"
     "lora_target_modules: [q_proj, k_proj, w_proj]\nmicro_batch_size: 2\n",
     ["write v_proj in place of w_proj"]),
    (f"{JOB} --tokens 2T --samples 52k --slow device=20:0.8", "", [
        "remove samples, or tokens", "write --slow \"device=15:0.8\""
    ]),
    (f"{JOB} --tokens 0.3.5T", "", ["set --tokens to a value such as 1T"]),
    ("predict job.yaml", "model: gpt2\ncluster: {name: dgx-h100, nodes: eight}\n", [
        "write base: dgx-h100 in place of name: dgx-h100", "set nodes to 8"
    ]),
    ("explain memory.gradient llama-3.2-1b --gpus 0", "", [
        "write a number such as --gpus 8", "did you mean memory.gradients?"
    ]),
    ("explain attention.flash.bwd llama-3.2-1b --gpus 8", "", ["did you mean attention.flash.dgrad?"]),
    ("predict run.sh --cluster dgx-h100:4",
     MEGATRON.replace("paralel-size 2", "parallel-size 2 --recompute-granularity full").replace(
         "size 50", "size 64"), ["add --recompute-method uniform --recompute-num-layers 1"]),
    ("predict serve.sh --cluster dgx-h100:1",
     VLLM.replace("size 3", "size 2 --block-size 17 --enable-prefix-caching maybe").replace("fp9", "fp8"), [
        "write --block-size 16",
        "write --enable-prefix-caching without a value",
    ]),
    ("predict site.yaml --model llama-3-8b --cluster dgx-h100:1",
     "site: {factors: {fabrik: 1.2}, host: 1.3}\n", [
        'write factors: [{"name": "fabric", "ratio": 1.2}, {"name": "host", "ratio": 1.3}] in place of '
        "factors and host",
    ] * 2),
    ("predict tiers.yaml --model llama-3-8b",
     "cluster: {base: 'dgx-h100', tiers: {ib: {bytes_per_s: 50 GB}}}\n", [
        "write bytes_per_s: 50 GB/s",
        "write 1, the index of infiniband in dgx-h100, in place of ib",
    ]),
    ("predict radix.sh --cluster dgx-h100:1",
     SGLANG.replace("6 --mem-fraction-static 88", "2 --disable-radix-cache nope"), [
        "write --disable-radix-cache without a value",
    ]),
    ("predict kind.json --model llama-3-8b --cluster dgx-h100:1 --kind deepsped",
     '{"train_batch_size": -64, "bf16": {"enabled": true}, "zero_optimization": {"stage": 4}}', [
        "did you mean deepspeed?", "write 64", "write 3",
    ]),
    ("predict kind.yaml --kind jbo", "model: gpt2\ncluster: dgx-h100:2\nplan: dp=16 gbs=64 zerro=1\n", [
        "leave out --kind, because the file is a job file", "did you mean zero?",
    ]),
    ("predict llama-3.2-1b --gpus 1 --engine vllm --traffic lines.csv",
     "arrival_s,prompt_tokens,output_tokens\n0,100,10\n1,200,x\n", [
        'write --traffic "trace=lines.csv"',
        "write a whole number in this cell, or remove the line",
    ]),
    ("predict family.yaml --cluster dgx-h100:1",
     "model: {hidden_size: 4096, num_hidden_layer: 32, num_attention_heads: 32, vocab_sizes: 32000}\n", [
        'add "model_type": "llama", if the layers are those of Llama',
        "did you mean num_hidden_layers?",
        "did you mean vocab_size?",
    ]),
    ("predict vocabulary.json --gpus 8",
     '{"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, '
     '"num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": null}', [
        "copy vocab_size from the original config.json of the model, such as 32000",
    ]),
    ("predict served.yaml",
     "model: llama-3.2-1b\ncluster: dgx-h100:1\nengine: vllm\nplan: {tp: 1, gbs: 64}\n", ["remove gbs"]),
    ("predict length.yaml", "model: gpt2\ncluster: dgx-h100:1\nplan: gbs=8\nbatch: {global_batch: 8}\n", [
        "add sequence_length: 1024", "remove global_batch, because plan already has gbs=8",
    ]),
    ("import empty.json", "{}\n", ["give a script, a configuration or a job file that has content"]),
    ("predict llama-3.1-8b --engine vllm --cluster dgx-h100 --gpus 1 --traffic trace=azure.csv",
     "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,374,44\n2023-11-16 18:17:04,n.a.,9\n"
     "2023-13-16 18:17:04.1,91,16\n", [
        "write a whole number in this cell, or remove the line",
        "write a date and a time in this cell, or remove the line",
    ]),
    ("predict run.sh --cluster dgx-h100",
     MEGATRON.replace("paralel-size 2", "parallel-size 2 --pipeline-model-parallel-size 3").replace(
         "nnodes 4", "nnodes 6").replace("size 50", "size 64"), [
        "add --decoder-first-pipeline-num-layers 10, or write --pipeline-model-parallel-size 2"
    ]),
    ("predict --model config.json --gpus 8",
     '{"model_type": "llama", "hidden_act": "swigelu", "hidden_size": 4096, "intermediate_size": 14336,\n'
     '"num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32000}', ["write silu"]),
    ("checkpoint llama-3.2-1b --gpus 16 --plan tp=2 --checkpoint nvme --to-plan 'dp=4 tensor=4'", "", [
        "did you mean tensor_parallel?"
    ]),
    ("predict job.yaml", "model: llama-3-9b\ncluster: dgx-h100:0\nplan: dp=32 tp=2 optimizer=adamx\n", [
        "did you mean llama-3-8b, llama-30b or llama-13b? For another model, give its Hugging Face "
        "config.json, or its export (.pt2 or .onnx)",
        "write dgx-h100:8",
        "set optimizer to adamw",
    ]),
    (f"{JOB} stack.host.forward_item_s=fast", "", ['write stack.host.forward_item_s="54 us"']),
    (f"{JOB} model.vocabulary=32k", "", ["write 32000 in place of 32k"]),
    ("search llama-3-8b --gpus 64,12b --tokens '2 trilion' --objective run_cost", "", [
        "set --tokens to 2T", "set --gpus to 64,16"
    ]),
    ("sweep grid.yaml", "model: gpt2\ncluster: [dgx-h100, dgx-h300]\ngpus: [8, 12.5]\nplan: gbs=64\n", [
        "did you mean dgx-h100, dgx-h200 or dgx-b300?", "write 16 in place of 12.5"
    ]),
    ("predict llama-3-8b --gpus 96 --plan 'dp=16 tp=3 pp=2 mbs=1 gbs=512 precision=bfloat8'", "", [
        "set precision to fp8", "set tensor_parallel to 2, data_parallel to 24 and global_batch to 504"
    ]),
    ("sweep sections.yaml", "job: {model: llama-3-9b, cluster: dgx-h100}\naxes: {gpus: [8, 1x]}\n", [
        "remove the line job: and write the keys inside it without indentation",
        "did you mean llama-3-8b, llama-30b or llama-13b? For another model, give its Hugging Face "
        "config.json, or its export (.pt2 or .onnx)",
        "remove the line axes: and write the keys inside it without indentation",
        "set gpus to 1",
    ]),
    (f"{JOB} cluster.nvme.capacity_bytes=4TB", "", ["write cluster.groups.0.node.nvme.capacity_bytes=4TB"]),
    ("predict job.yaml", "model:\n  base: llama-3-8b\n  blocks: {count: 30}\ncluster: dgx-h100:2\n"
     "batch: {seq: 4096, micro: 2}\n", [
        "write blocks: {0: {count: 30}}", "set plan.micro_batch to 2 instead"
    ]),
    (f"{H200} --plan tp=3 --traffic 'prompt=2k output=200k'", "", [
        "set plan.tensor_parallel to 4", "shorten the prompt and the output to a total of 131072 tokens"
    ]),
    ("predict lora.yaml --cluster dgx-h100:1",
     "base_model: Qwen/Qwen2.5-7B-Instruct\nadapter: lora\nlora_target_modules: [q_proj, out_proj]\n"
     "sequence_len: 2048\nlora_r: 8\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\nbf16: true\n"
     "optimizer: adamw_torch\n", ["write o_proj in place of out_proj"]),
    ("search llama-3-8b --gpus 64 --plan 'tpp=2,4 gbs=512 recompute=partial'", "", [
        "did you mean tp?", "set recompute to selective"
    ]),
    ("predict run.sh --cluster dgx-h100", MEGATRON.replace("paralel", "parallel").replace(
        "hidden-size 4096", "hidden-size 4100").replace("size 50", "size 64"), [
        "change --hidden-size so that hidden is 4096"
    ]),
    (f"{JOB} --checkpoint 'lazy host every=100stps' --power-limit 1200W", "", [
        'write --power-limit "700 W"', "write every=100 in place of every=100stps"
    ]),
    ("predict job.yaml",
     "model: gpt2\ncluster: dgx-h100:1\nplan: gbs=8\nbatch: {seq: 1024, documents: [512, 256]}\n", [
        "change documents to [512, 256, 256]"
    ]),
    ("predict serve.sh --cluster dgx-h100:1",
     "python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --tp 1 "
     "--gpu-memory-utilization 0.85\n", ["did you mean --mem-fraction-static?"]),
    ("validate --runs runs.csv", LLAMA.replace(",6.9", ",6900"), [
        "write 6.9 in place of 6900 if the time is in milliseconds, or leave the row out",
    ]),
    ("validate --runs runs.csv", LLAMA.replace("step_time_s", "step_time_ms").replace(",6.9", ",6900"), [
        "write step_time_s in place of step_time_ms in line 1, and divide its values by 1,000",
    ]),
    ("run llama-3.2-1b --gpus 16 --phases phases.yaml",
     "phases:\n  - {name: main, tokens: 1T}\n  - {name: long, tokens: 50B, changes: seq_len=32768}\n", [
        "set batch.sequence_length, or --seq, to 32768 instead"
    ]),
    (f"{JOB} --stack mine.yaml", "", [
        "choose one of these names (flopcast catalog stacks lists all). Describe another "
        "under stack: in a job file",
    ]),
    ("predict job.yaml", "model: {num_layer: 6, vocab_size: 100}\ncluster: dgx-h100:2\n", [
        "add base: llama-3-8b", "did you mean num_layers?", "did you mean vocabulary?"
    ]),
    ("predict run.sh --cluster dgx-h100:1 --price 2EUR",
     "accelerate launch --num_processes x --mixed_precision bf16 sft.py --max_length 4096 "
     "--per_device_train_batch_size 1 --model_name_or_path meta-llama/Llama-3.1-9B\n", [
        "write --num_processes 8",
        "did you mean llama-3.1-8b? If not, download the model's config.json and add --model config.json, "
        "or add --model NAME",
        "convert the price to USD/h",
    ]),
    ("predict serve.sh --cluster dgx-h100:1",
     "trtllm-serve meta-llama/Llama-3.1-8B-Instruct --tp_size 2 --ep_sizee 2 --max_batch_sise 8\n", [
        "did you mean --ep_size?", "did you mean --max_batch_size?",
    ]),
    ("calibrate from-run llama-3-8b --cluster dgx-h100:1 --plan gbs=64 --observed-step 7600", "", [
        'write a value such as --observed-step "7600 ms"'
    ]),
]  # fmt: skip


@all_cases("line, text, fixes", CASES)
def test_independent_errors_are_reported_together_with_fixes_that_keep_all_settings(
    line, text, fixes, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name in re.findall(r"\w+\.(?:yaml|csv|sh|json|toml)\b", line) if text else ():
        (tmp_path / name).write_text(text)
    ended = flopcast(*shlex.split(line))

    assert ended.code == 1
    assert re.findall("fix: +(.*)", ended.err or ended.out) == fixes


@all_cases("line", [
    "diagnose llama-3.2-1b --cluster dgx-h100:1 --trace config.json",
    "calibrate from-run llama-3.2-1b --cluster dgx-h100:1 --trace config.json",
    "diagnose llama-3.2-1b --cluster dgx-h100:1 --log config.json",
])  # fmt: skip
def test_the_error_of_a_file_of_measurements_names_its_option(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text("{}")

    assert f"{line.split()[-2]} = 'config.json' is not allowed" in flopcast(*shlex.split(line)).err


def test_all_faults_of_a_row_are_reported_beside_the_rows_that_are_predicted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs.csv").write_text(TWO_RUNS)

    ended = flopcast(*shlex.split("validate --runs runs.csv"))

    assert re.findall("fix: +(.*)", ended.out) == [
        "write a unique id in id, or remove the row",
        "write llama-3-8b in the column model_name, or fill these columns of the row: layers, hidden, "
        "ffn_hidden, heads, vocab, gated_mlp",
        "write a value that is greater than 0 in step_time_s, or remove the row",
        "did you mean h100-pcie-80gb, h100-sxm5-64gb or h100-sxm5-80gb?",
    ]


def test_an_error_does_not_depend_on_earlier_errors_of_an_equal_job():
    stated, assumed = f"{JOB} --checkpoint file_system", f"{JOB} --checkpoint synchronous"

    for line, fix in [(assumed, 'write --checkpoint "nvme synchronous"'), (stated, STORAGE)] * 2:
        assert re.findall("fix: +(.*)", flopcast(*shlex.split(line)).err) == [fix]


def test_an_error_lists_only_words_that_the_rest_of_the_job_allows():
    allowed = {
        f"{JOB} --cluster dgx-a100 --plan 'tp=2 gbs=64 precision=fp7'": "fp16, bf16 or fp32",
        f"{SERVED} --plan 'tp=2,4 weights=int8'": "bf16, fp8, fp8_block, int4, mxfp4 or mxfp4_mxfp8",
        f"{JOB} --plan 'tp=4 pp=4 vpp=3 gbs=64'": "a divisor of 4 (16 blocks / pipeline_parallel): 1, 2, 4",
    }

    for line, words in allowed.items():
        assert re.findall("allowed: (.*)", flopcast(*shlex.split(line)).err) == [words]


def test_the_error_of_a_missing_job_does_not_propose_the_job_that_it_is_compared_with(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text("model: gpt2\ncluster: dgx-h100\nplan: dp=8 gbs=8\n")

    assert "fix:     check the path" in flopcast("compare", "job.yaml", "job_tp4.yaml").err
    assert "fix:     did you mean job.yaml?" in flopcast("predict", "job_tp4.yaml").err
