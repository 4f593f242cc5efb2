"""What a person types first: options of other tools, an option twice, a file of another format.

Each ends with exit code 1 and an edit that helps, and nothing that was typed is ignored silently.
"""

import re
import shlex

from all_cases import all_cases
from command_line import flopcast

JOB = "predict llama-3.2-1b --gpus 16"
FEW_SEARCH = "search bloom-560m --gpus 2 --tokens 1T --plan 'mbs=1 gbs=16 cp=1 zero=1 vpp=1 dp_shard=0'"
FIXES = {  # a command line → the fix of its error; of several causes, those of its errors
    f"{JOB} --gpus 32": "leave out all but one --gpus",
    f"{JOB} --plan tp=2 --plan pp=2": 'write --plan "tp=2 pp=2"',
    "calibrate constants --out one.json --out other.json": "leave out all but one --out",
    "trace run.json": "write flopcast diagnose JOB --trace",
    "import trace run.json": "write flopcast import kineto",
    "calibrate job.yaml": "write from-run before job.yaml",
    "validate runs.csv": "write --runs runs.csv",
    "predict llama-3.2-1b gpus 16": "write --gpus in place of gpus",
    "predict gpus 16 --model llama-3.2-1b": "write --gpus in place of gpus",
    "compare llama-3.2-1b gpt2 gpus 16": "write --gpus in place of gpus",
    f"{JOB} nodes 2": "remove nodes 2; --gpus is already given",
    f"{JOB} every=2x": 'write --checkpoint "nvme every=10min"',
    f"{JOB} --tokens 2X": "set --tokens to a value such as 2T",
    f"{JOB} --plan gbs=64,128": "set global_batch to 64",
    "predict llama-3.2-1b --gpus 8,128": "run flopcast search with --gpus 8,128",
    "predict https://huggingface.co/meta-llama/Llama-3.2-1B --gpus 8": "write meta-llama/Llama-3.2-1B",
    "search llama-3.2-1b --gpus 8 --tokens 1T --deadline '30 dayz'": 'write --deadline "30 d"',
    "calibrate from-run llama-3.2-1b --gpus 8 --cluster dgx-h100 --observed-step '1 minute 3'": (
        'write a value such as --observed-step "1 min"'
    ),
    "explain gemm llama-3.2-1b --gpus 8": "did you mean gemm_level[h100-sxm5-80gb]?",
    "sweep grid.yaml --precison fp8": [
        "remove it, and add precision=fp8 to the plan in the file",
        "check the path",
    ],
    f"{JOB} --tensor-parallel-size 2": 'write --plan "tp=2", or add tp=2 to the plan',
    f"{JOB} --zero_stage=3": 'write --plan "zero=3", or add zero=3 to the plan',
    "predict llama-3.2-1b --nodes 4 --gpus-per-node 8": (
        "write --gpus 32 in place of --nodes 4 --gpus-per-node 8"
    ),
    f"{JOB} --nproc_per_node=8 --nnodes=4": (
        "remove --nnodes 4 --nproc_per_node 8; --gpus is already given"
    ),
    "search llama-3.2-1b --gpus 16 --plan 'tp=<=8'": "set tensor_parallel to 1..8",
    "search llama-3.2-1b --gpus 16 --plan 'tp=<8'": "set tensor_parallel to 1..7",
    "search --model llama-3.2-1b --gpus 16 --pareto cost": "write --pareto",
    f"{JOB} --plan 'pp=2 layers=8,8'": "write stage_layers=8,8 in place of layers=8,8",
    f"{JOB} --plan recompute=selective:all": "write recompute=full, which recomputes all activations",
    f"{JOB} --plan recompute=selectve:atention": [
        "set recompute to selective",
        "write attention in place of atention",
    ],
    f"{JOB} --plan 'tp2pp2 gbs=64'": 'write "tp=2 pp=2 gbs=64"',
    f"{JOB} --plan 'tp=max gbs=64'": "set tensor_parallel to 8",
    f"{JOB} --price '20 cents/h'": 'write --price "0.2 USD/h"',
    f"{JOB} --engine vllm --plan pp=40": "set plan.pipeline_parallel to 16",
    f"{JOB} batch.documents=4k,x": "set documents to a value such as 8192",
    f"{JOB} --plan 'recompte=ful'": "write recompute=full",
    f"{JOB} --slow device=3:80": "write device=3:0.8 in place of device=3:80",
    f"{JOB} --slow 'host 1 at 70%'": "write host=1:70% in place of host 1 at 70%",
    f"{JOB} --power-limit '50 %'": 'write --power-limit "350 W"',
    f"{JOB} --plan 'gbs=64 precision=float8_e4m3fn'": "set precision to fp8",
    f"{JOB} --plan 'gbs=64 recompute=full:every:0'": "set recompute to full:every:1",
    f"{JOB} plan.recompute=[full]": "set recompute to full",
    f"{JOB} cluster.node.devices=8.0": "write cluster.groups.0.node.devices=8",
    f"{JOB} --lora 16 --targets q_proj,v_proj": "add model.adapters.targets=[q,v]",
    f"{JOB} --price '1.99 per GPU hour'": 'write --price "1.99 USD/hour"',
    f"{JOB} --loader 'decode=9ms workers=8'": "write decode=9ms:8 in place of decode=9ms workers=8",
    f"{JOB} --offload opt:cpu:50%": "set --offload to optimizer:host:50%",
    f"{JOB} --engine vllm --traffic 'rate=4/s prompt=1k:50,2k output=300'": "write 1k:50,2k:50",
    f"{JOB} --engine vllm --slo 'ttft<=500ms@p95'": "write ttft_p95=500ms in place of ttft<=500ms@p95",
    f"{JOB} --engine vllm --slo itl=50ms": "write tpot_p99=50ms in place of itl=50ms",
    f"{JOB} --engine vllm --slo 'ttft: 2s, tpot: 50ms'": "write ttft_p99=2s tpot_p99=50ms",
    f"{JOB} --engine vllm --traffic '4 rps, 2k in, 300 out'": (
        'write --traffic "rate=4/s prompt=2k output=300"'
    ),
    f"{JOB} --engine vllm --traffic log.jsonl": 'write --traffic "trace=log.jsonl"',
    f"{JOB} --checkpoint 'nvme lustre'": "leave out lustre",
    f"{JOB} --loader 'tokenize=9ms,pack'": "write pack=9ms in place of pack",
    f"{JOB} plan.tp 2": "write plan.tp=2",
    f'{JOB} --plan \'{{"tp": 2, "gbs": 64}}\'': 'write "tp=2 gbs=64"',
    f"{JOB} --plan 'pp=2 gbs=64 stage_layers=16/16'": "set stage_layers to 8,8",
    f"{JOB} cluster.reliability.restart_s=5min30s": 'write cluster.reliability.restart_s="330 s"',
    f"{JOB} site.power_limit=350": 'write site.power_limit_w="350 W"',
    f"{JOB} --tokens '2 trilion'": "set --tokens to 2T",
    "validate runs runs.csv": "write --runs runs.csv",
    "checkpoint llama-3.2-1b --gpus 16 --every 30min": 'write --checkpoint "nvme every=30min"',
    "search llama-3.2-1b --gpus 16 --plan 'gbs=64 tp>=2'": "write tp=2..8 in place of tp>=2",
    "search llama-3.2-1b --gpus 16 --objective 'min cost' --tokens 1T": "remove min",
    "contention gpt2": ("write a second job, such as flopcast contention gpt2 gpt2 for equal jobs"),
    "compare llama-3.2-1b --gpus 16 gpus=32": "write cluster=dgx-h100:4 in place of gpus=32",
    "memory llama-3.2-1b --engine vllm --gpus 1 seq=4096": (
        "remove seq, or remove --engine to predict training"
    ),
    "compare llama-3.2-1b seq=4096": "write batch.sequence_length=4096 in place of seq=4096",
    "explain allreduce llama-3.2-1b --gpus 8": "did you mean dp_communication?",
    "compare gpt2": "add a second job, or write flopcast compare gpt2 plan.micro_batch=2",
    "calibrate fit measured --out curves": "write --data measured in place of measured",
    "calibrate fit --out curves": "add the path of a folder, such as --data my_folder",
    f"{JOB} --nnodes 2": "remove --nnodes 2; --gpus is already given",
    "predict llama-3.2-1b --nnodes 2": "write --cluster NAME:2 for two nodes, or --gpus 16",
    "predict llama-3.2-1b --gpu 16": "write --gpus 16",
    "predict llama-3.2-1b --num_gpus 32": "write --gpus 32",
    f"{JOB} --device k80": "write --cluster dgx-h100, or another name from flopcast catalog clusters",
    f"{JOB} --device t4": "write --cluster gcp-n1 or aws-g4dn",
    "export llama-3.2-1b --format megatron": (
        "write the format before the job: flopcast export megatron JOB"
    ),
    f"{JOB} --report page.pdf": "write --report page.html",
    f"{JOB} --batch 64 --plan gbs=128": "leave out one of them",
    f"{JOB} --plan 'dp=10 gbs=20'": "set data_parallel to 4",
    f"{JOB} --engine vllm --traffic '10 requests/s'": (
        'write --traffic "rate=10/s prompt=2000 output=300"'
    ),
    f"{JOB} --engine vllm --slo 'ttft below 500 ms'": "write ttft_p99=500ms",
    f"{JOB} --plan 'tp: 2, pp: 2'": 'write "tp=2 pp=2"',
    f"{JOB} --offload weights:host": (
        "choose --stack torch-fsdp2 and set --offload to parameters:host, "
        "or remove parameters:host from offload"
    ),
    f"{JOB} --offload optimizer=ssd": (
        "choose --stack deepspeed-zero and set --offload to optimizer:nvme, "
        "or set --offload to optimizer:host"
    ),
    "predict llama-2-7b --cluster rtx-4090-8 --gpus 1 --seq 2048 --offload optimizer:nvme": (
        "set --offload to optimizer:host"
    ),
    f"{JOB} --stack deepspeed-zero --plan 'zero=3 pp=2 dp=4 gbs=128'": (
        "set zero to 1, or use a single pipeline stage"
    ),
    f"{JOB} --engine vllm --slo ttft_p101=2s": "write ttft_p99=2s",
    f"{JOB} --engine vllm --plan 'tp=4 draft=eagle drafted=3 accepted=9'": "write accepted=4",
    f"{JOB} --checkpoint 'fast host'": "leave out fast",
    f"{JOB} model.dropout=x": "set dropout in the mixer of blocks, or model.embedding_dropout, instead",
    "predict llama-3-8b --gpus 16 --seq 8k5": "write 8704 in place of 8k5",
    "import deepspeed /dev/null": "check the path",
    f"{JOB} --tokens 15 trillion": "join it to its number: write --tokens 15T",
    f"{JOB} --tokens 1.5.2T": "set --tokens to a value such as 1T",
    f"{JOB} --tokens 100GB": "set --tokens to 100B",
    f"{JOB} --tokens '100 MB'": "set --tokens to 100M",
    f"{JOB} --tokens '1.5 Gtokens'": "set --tokens to 1.5B",
    f"{JOB} --tokens '100 tok/s'": "set --tokens to a value such as 1T",
    f"{JOB} --engine vllm --traffic 'rate=4/s prompt=2000 output=0'": "write 1",
    f"{JOB} --seq '8 KiB'": "write 8192 in place of 8 KiB",
    f"{JOB} --seq '8 GB'": "write a number such as --seq 4096",
    f"{JOB} --plan 'tp=2 gbs=4M tokens'": "set global_batch to 512",
    f"{JOB} --batch 4Mtok --seq 3000": "set --batch to 1328",
    "search llama-3.2-1b --gpus 16 --plan 'gbs=4M tokens'": "set global_batch to 512",
    f"{JOB} --batch 256,512": 'run flopcast search with --plan "gbs=256,512" --objective tokens_per_s',
    f"{JOB} --plan 'gbs=64 precision=fp4'": "set precision to fp8",
    "predict llama-3.2-1b --cluster dgx-h100x2": "write dgx-h100:2",
    "predict llama-3.2-1b --cluster 'dgx-h100 : 2'": "write dgx-h100:2",
    "predict llama-3.2-1b --cluster dgx-a100-40": (
        "did you mean a100-pcie-40gb-8, azure-nd-a100-v4, aws-p4d, polaris or perlmutter-40gb?"
    ),
    "predict llama-3.2-1b --cluster dgx-h100:1,dgx-a100:1": (
        "describe the groups under cluster: in a job file, as docs/howto/unequal.md does"
    ),
    "predict llama-3.2-1b --gpus 8 --seq=-5": "write a number such as --seq 4096",
    f"{JOB} --lora 8,16,64": "run flopcast sweep with a file that contains lora: [8, 16, 64]",
    f"{JOB} --plan 'tp=<8'": "set tensor_parallel to 4",
    f"{JOB} --tokens 1e30": "set --tokens to a value such as 1T",
    "predict llama-3.2-1b --cluster dgx-a100 --plan precision=fp8": "set precision to bf16",
    "search llama-3.2-1b --gpus 8 --power-limit 500": 'write --power-limit "500 W"',
    f"{JOB} --engine vllm --plan 'tp=1 precision=fp8'": 'write "weights=fp8"',
    f"{JOB} --engine vllm --plan 'tp=1 drafting=eagle'": 'write "draft=eagle"',
    f"{JOB} --engine vllm --plan 'prefill=1'": 'write "prefill.tp=2 decode.tp=4"',
    f"{JOB} --gpu 16": "remove --gpu 16; --gpus is already given",
    f"{JOB} --gpus 1.5": "leave out all but one --gpus",
    f"{JOB} --plan 'dp=64'": "set data_parallel to 16, or use --gpus 64",
    f"{JOB} --plan fsdp": "write zero=3, which shards all states as FSDP does",
    f"{JOB} --plan fsdp=8": "write data_parallel=8 and zero=3",
    f"{JOB} --plan 'fsdp=8 dp=2'": "write zero=3, which shards all states as FSDP does",
    f"{JOB} cluster.price=2.10": 'write cluster.price="2.1 USD/h"',
    f"{JOB} --plan recompute=full:7": "set recompute to full:block:7",
    f"{JOB} --offload optimizer=cpu": "set --offload to optimizer:host",
    f"{JOB} --epochs 3": "add --samples 52000",
    f"{JOB} --loader decode=9ms:0": "write decode=9ms:1",
    f"{JOB} model.vocabulary=0": "set vocabulary to 128256, the value of llama-3.2-1b",
    f"{JOB} --engine vllm --slo tpot_p99=50": "write tpot_p99=50ms",
    "predict llama-3.2-1b --gpus 1 --engine vllm --plan dp=8": "use --gpus 8, or choose smaller degrees",
    "predict deepseek-v3 --gpus 8 model.blocks.0.mixer.kv_heads=3": "remove kv_heads",
    "predict mixtral-8x7b --gpus 8 model.blocks.0.feed_forward.top_k=9": (
        "set top_k to 2, the value of mixtral-8x7b"
    ),
    "run llama-3.2-1b --gpus 8 --tokens 1B traffic.rate=4": (
        "remove traffic, or use flopcast predict, which predicts serving jobs, too"
    ),
    "compare llama-3-8b llama-3-8b plan.precision=fp8": (
        "run flopcast compare llama-3-8b plan.precision=fp8"
    ),
    f"{FEW_SEARCH} --budget '0 USD'": 'write --budget "2M USD"',
    f"{JOB} plan.stages=[8,8]": "did you mean stage_layers?",
    f"{JOB} --plan 'tp = 2'": 'write "tp=2"',
    f"{JOB} tp=2": "write plan.tp=2",
    f"{JOB} price='2 USD/h'": "write --price in place of price",
    f"{JOB} dgx-h100:2": "write --cluster dgx-h100:2",
    f"{JOB} --stack vllm": "write --engine vllm",
    f"{JOB} --power 500": 'write --power-limit "500 W"',
    f"{JOB} --power '500 W'": 'write --power-limit "500 W"',
    f"{JOB} --format json": "write --json",
    f"{JOB} --seq 8kb": "write 8192 in place of 8kb",
    f"{JOB} --plan 'pp=2 schedule=zero-bubble'": "set schedule to zb_h1",
    f"{JOB} --plan zero=fsdp": "write zero=3, which shards all states as FSDP does",
    f"{JOB} --slow node=1:0.8": "write host in place of node",
    f"{JOB} --checkpoint async": 'write --checkpoint "nvme asynchronous"',
    f"{JOB} --checkpoint 'asyn nvme every=30'": "write asynchronous in place of asyn",
    f"{JOB} --checkpoint 'every 30 minutes to nvme mode=async'": (
        'write "every=30minutes nvme asynchronous"'
    ),
    f"{JOB} --checkpoint 'nvme every=10m'": "write every=10min in place of every=10m",
    f"{JOB} --slow 'gpu3:0.8, host=1:80pct'": (
        "write device=3:0.8,host=1:80% in place of gpu3:0.8, host=1:80pct"
    ),
    f"{JOB} --plan recompute=selective:attn:mlp": "set recompute to selective:attention,mlp",
    f"{JOB} --plan 'tp=2 tensor_paralel=4'": "remove tensor_paralel, because tp is given",
    f"{JOB} --tokens 1 T": "join it to its number: write --tokens 1T",
    f"{JOB} --power-limit 50W": "set --power-limit to 210 W",
    f"{JOB} stack.derate=1.1": "set derate to {ratio: 1.1}",
    f"{JOB} --plan 'tp=2 gbs=64' stack.tensor_overlap=yes": (
        "set tensor_overlap to chunks, and set sequence_parallel to true, or stack.tensor_overlap to none"
    ),
    f"{JOB} --engine vllm --slo 'ttft=500 tpot<50ms'": [
        "write ttft=500ms",
        "write tpot_p99=50ms in place of tpot<50ms",
    ],
    f"{JOB} --engine vllm --plan 'tp=2 pp=16'": "use --gpus 32, or choose smaller degrees",
    "checkpoint llama-3.2-1b --gpus 64 --mtbf 5000h": (
        'write cluster.reliability.device_time_between_failures_s="5000 h"'
    ),
    "search llama-3.2-1b --gpus 8 --objective time": "write step_time in place of time",
    f"{JOB} --engine vllm --traffic 'rate=4/s, output=300'": 'write "rate=4/s output=300"',
    f"{JOB} cluster.reliability.mtbf=1": ('write cluster.reliability.device_time_between_failures_s="1 s"'),
    f"{JOB} model.layers=40": "did you mean num_layers?",
    "checkpoint llama-3.2-1b --to dp=4": "did you mean --to-plan?",
    "export llama-3.2-1b deepspeed": "flopcast export deepspeed llama-3.2-1b",
    f"{JOB} plan.tensor_parallel=[2]": "set tensor_parallel to 2",
    "search bloom-560m --gpus 2 --slow link=12:0": "write link=12:0.5 in place of link=12:0",
    f"{JOB} --engine vllm engine.tensor_parallel=3": "set plan.tensor_parallel instead",
    f"{JOB} --engine vllm --batch 7": "remove --batch, or remove --engine to predict training",
    f"{JOB} --engine vllm --slo 1e9}}": "write ttft_p99=2s",
    f"{JOB} --lora 0": "set --lora to a value such as 16, or remove --lora to train without adapters",
    f"{JOB} --plan 'dp=17 mbs=1 gbs=64'": "set data_parallel to 16",
    f"{JOB} --engine vllm --lora 0": "remove --lora, or remove --engine to predict training",
    f"{JOB} --plan 'dp=16 mbs=1 gbs=64 recompute=full:block:99'": "set recompute to full:block:16",
    f"{JOB} --plan recompute=maybe": "set recompute to selective",  # none would switch it off
    "explain foo llama-3.2-1b --gpus 8": "write step in place of foo",
    "calibrate fit --data nothing --out x": "choose the path of a folder",
    "calibrate constants --runs nothing.csv": "check the path",
    f"{JOB} --plan none": "leave out the plan; flopcast then chooses one",
    "llama-3-8b --gpus 16": "write predict before llama-3-8b",
    "catalog gpus h100": "run flopcast catalog devices h100",
    "validate --precision int8": "choose one of these values, such as --precision amp",
    "predict llama-3.2-1b --gpus 60 --plan 'dp=5 gbs=60'": "set --gpus to 56 or 64",
    "predict llama-3.2-1b --cluster 16xH100": "write dgx-h100:2",
    "predict llama-3.2-1b --cluster dgx-h100-4": "write dgx-h100:4",
    f"{JOB} --seq 8kk": "write 8192 in place of 8kk",
    f"{JOB} --tokens 1,5T": "set --tokens to 1.5T",
    f"{JOB} --slow device=99:0.8": 'write --slow "device=15:0.8"',
    f"{JOB} --checkpoint 'nvme every=0'": 'write --checkpoint "nvme every=1000"',
    f"{JOB} --checkpoint every=500": 'write --checkpoint "nvme every=500"',
    f"{JOB} --loader copy=600KB": "write copy=600kB@link in place of copy=600KB",
    f"{JOB} --plan 'tp=2;pp=2'": 'write "tp=2 pp=2"',
    f"{JOB} --plan '--tp 2'": 'write "tp=2"',
    f"{JOB} --plan zero=on": "set zero to 1",
    f"{JOB} --plan zero=true": "set zero to 1",
    f"{JOB} --lora rank=8": "write a number such as --lora 8",
    f"{JOB} --plan 'dp=auto gbs=64'": "leave out data_parallel",
    f"{JOB} --plan recompute=full:blocks:4": "set recompute to full:block:4",
    f"{JOB} --plan 'pp=4 gbs=64 schedule=zb'": "set schedule to zb_h1",
    f"{JOB} --plan 'vpp=3 pp=4 gbs=64 schedule=zb'": ["set schedule to zb_v", "set virtual_stages to 2"],
    f"{JOB} --plan 'stage_layers=10,10,10 pp=4 gbs=64'": "set stage_layers to 4,4,4,4",
    f"{JOB} model.hidden=2047": "set hidden to 2048",
    "predict llama-3.2-1b cluster.base=dgx-h100 cluster.nodes=four": "set nodes to 4",
    f"{JOB} lora=16": "write --lora in place of lora",
    f"{JOB} --engine vllm --traffic 'prompt=2k-4k'": "write uniform(2048, 4096)",
    f"{JOB} --engine vllm --slo 'ttft<2s tpot<50ms'": "write ttft_p99=2s tpot_p99=50ms",
    f"{FEW_SEARCH} --headroom 90": "set --headroom to 0.9",
    "search bloom-560m --gpus 8-64 --plan gbs=64": "set --gpus to 8..64",
    "search bloom-560m --gpus 8 --plan 'gbs=64 zero=on'": "set zero to 1",
    "search bloom-560m --gpus 8 --plan 'gbs=64 zero=1,4'": "set zero to 1,3",
    "search bloom-560m --gpus 8 --plan 'gbs=64 peers=2,4'": "set peers to 2",
    "predict llama-3.2-1b --gpus 2x8": "write 16 in place of 2x8",
    "contention llama-3.2-1b gpt2 --gpus 8 --oversubscription 4:1": "write 4 in place of 4:1",
    "search bloom-560m --gpus 8 --objective mfu": "write tokens_per_s_per_device in place of mfu",
    "search bloom-560m --gpus 8 --objective cheapest": "write cost in place of cheapest",
    "search llama-3.2-1b --gpus 1 --engine vllm --objective p99_ttft": "write ttft",
    "search bloom-560m --gpus 8 --plan 'gbs=64 tp<=4'": "write tp=1..4 in place of tp<=4",
    "explain llama-3.2-1b mfu_ratio --gpus 8": "flopcast explain mfu llama-3.2-1b --gpus 8",
    f"{JOB} --loader decode=9ms*8": "write decode=9ms:8 in place of decode=9ms*8",
    f"{JOB} --offload parameters:host --plan zero=1": (
        "choose --stack deepspeed-zero and set zero to 3, or remove parameters:host from offload"
    ),
    f"{JOB} cluster.reliability.device_time_between_failures_s=50khours": (
        'write cluster.reliability.device_time_between_failures_s="50000 h"'
    ),
    f"{JOB} --plan 'gbs=64 zero=stage3'": "write 3 in place of stage3",
    f"{JOB} --plan 'gbs=64 sp=2'": "set sequence_parallel to true",
    f"{JOB} --plan 'gbs=64 recompute=all'": "set recompute to full",
    f"{JOB} --checkpoint 'nvme every 100 steps'": 'write "nvme every=100steps"',
    f"{JOB} --slow device=3:1.25": "write device=3:0.8 in place of device=3:1.25",
    f"{JOB} --loader workers=8": "write decode=9ms:8 in place of workers=8",
    f"{JOB} --loader a=1ms,a=2ms": "write a2 in place of the second a",
    f"{JOB} cluster.power_limit=500W": "set site.power_limit_w to 500W instead",
    f"{JOB} model.blocks.0.mixer.heads=33": "set heads to 32, or give head_size",
    f"{JOB} --engine vllm --traffic 'rate=4/s prompt=2k output=300 prefix=0.5'": (
        "did you mean prefix_hit_share?"
    ),
    f"{JOB} --engine vllm --slo latency=2s": "write end_to_end_p99=2s in place of latency=2s",
    "search llama-3.2-1b --gpus 8 --power-limit 500,600": ("write --power-limit 500W --power-limit 600W"),
    "shard llama-3.2-1b --tp 2": ("write --ranks 2", "check the path"),
    "checkpoint llama-3.2-1b --gpus 8 --to-plan tp": "write tp=2",
    "export nemo2 llama-3.2-1b": "choose one of these formats, such as megatron",
    f"{JOB} --offload 'optimizer host; activations host'": (
        "set --offload to optimizer:host,activations:host"
    ),
    f"{JOB} --offload 'optimizer:host 0.5; acts host'": (
        "set --offload to optimizer:host:0.5,activations:host"
    ),
    f"{JOB} --offload 'optimizer:host:0.5;activations:host'": (
        "set --offload to optimizer:host:0.5,activations:host"
    ),
    f"{JOB} --checkpoint to=nvme": "write nvme in place of to=nvme",
    f"{JOB} stack.offload=cpu": "set plan.offload to optimizer:host instead",
    f"{JOB} --plan zero=full": "write zero=3",
    f"{JOB} model.kv_heads=4": "write model.blocks.0.mixer.kv_heads=4",
    f"{JOB} --plan 'gbs=64 dp_shard=5 zero=3'": "set data_shard to 4",
    f"{JOB} job2.yaml": "check the path job2.yaml, or remove it",
    "run llama-3.2-1b --gpus 8 --steps 1000": ("write --tokens with the steps times --batch times --seq"),
    f"{JOB} --sequence-parallel": 'write --plan "sp=true", or add sp=true to the plan',
    "search llama-3.2-1b --gpus 8 --objective max_throughput": (
        "write tokens_per_s in place of max_throughput"
    ),
    "import config.json": "write hf before config.json",
    "predict llama-3.2-1b.yaml --gpus 8": "write llama-3.2-1b, the model of the catalogue",
    f"{JOB} --plan 'zero_stage=4 gradient_checkpointing=true gbs=64'": [
        "write zero=3",
        "write recompute=full",
    ],
    "search bloom-560m --gpus 8 --objective throughput,dollars --deadline 30days": [
        "write tokens_per_s in place of throughput",
        "write cost in place of dollars",
        "add --tokens 2e12, or --samples",
    ],
    "predict llama-3.2-1b --gpus 64 --cluster dgx-h100:-1 --plan 'tp=3 gbs=512'": [
        "write dgx-h100:1",
        "set tensor_parallel to 2",
    ],
    "search llama-3.2-1b --gpus 64..32 --plan 'tp=2,5 gbs=512'": [
        "set --gpus to 32..64",
        "set tensor_parallel to 2",
    ],
    f"{JOB} --tokens 1T --price 2 USD/h": 'write --price "2 USD/h"',
    f"{JOB} --power-limit 500 W --batch 64x": ['write --power-limit "500 W"', "write 64 in place of 64x"],
    f"{JOB} site.host=1.3": """write site.factors='[{"name": "host", "ratio": 1.3}]'""",
    f"{JOB} site.factors.hots=1.3": 'write site.factors="[{name: host, ratio: 1.3}]"',
    f"{JOB} --max-model-len 1Q": "write --seq 8192 in place of --max-model-len 1Q",
    f"{JOB} cluster.nodes=3": "remove --gpus 16, or cluster.nodes=3",
    "calibrate fit --output curves --data .": "did you mean --out?",
    f"{JOB} plan.peers=3 plan.inner_steps=0 plan.outer=bits:5,topk:4096/64": [
        "set inner_steps to 1, the default",
        "write 64/4096 in place of 4096/64",
        "set peers to 2",
    ],
}


@all_cases("line", list(FIXES))
def test_a_wrong_guess_is_one_error_with_an_edit_that_helps(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = flopcast(*shlex.split(line))

    assert ended.code == 1
    fixes = FIXES[line]
    assert re.findall("fix: +(.*)", ended.err) == ([fixes] if isinstance(fixes, str) else [*fixes])
    assert not list(tmp_path.iterdir())


RL_STEP = (
    "rollout: {model: llama-3.1-8b, cluster: dgx-h100:1, engine: vllm, plan: {tp: 1}}\n"
    "training: {model: llama-3.1-8b, cluster: dgx-h100:1, batch: {seq: 2048}, plan: auto gbs=256}\n"
    "prompts: 128\nsamples: 8\n"
)
AXOLOTL = (
    "base_model: meta-llama/Meta-Llama-3-8B\nsequence_len: 2048\nmicro_batch_size: 1\nlora_r: 16\n"
    "lora_target_linear: true\nbf16: true\n"
)
IN_FILES = {  # a command line → a file, and the fix of its error; of several causes, those of its errors
    "sweep job.yaml": (
        "model: llama-3-8b\nplan: {tp: 2}\n",
        "run flopcast search job.yaml, or give a file that lists the values of each axis",
    ),
    "diagnose train.log": (
        "iteration 1\n", "write --log train.log, which flopcast predict and flopcast diagnose read"
    ),
    "import graph job.yaml": ("a: 1\n", "give a .onnx or .pt2 file, or export the model again"),
    "export vllm job.yaml": (
        "{model: llama-3.2-1b, cluster: dgx-h100:1, stack: torch-fsdp2, batch: {seq: 64}}\n",
        "run flopcast export vllm llama-3.2-1b --cluster dgx-h100 --gpus 8, which serves llama-3.2-1b, or "
        "write megatron, or another of these formats, in place of vllm",
    ),
    "import internevo job.py --cluster dgx-h100 --gpus 7": (
        "data = dict(seq_len=4096, micro_bsz=1, micro_num=1)\n"
        "model = dict(num_layers=2, hidden_size=64, num_attention_heads=4, vocab_size=64, mlp_ratio=2)\n"
        "parallel = dict(zero1=dict(size=4))\n",
        "set --gpus to 8, or set parallel.zero1.size to 7",
    ),
    "predict blocks.yaml": (
        "model: llama-3.2-1b\ncluster: dgx-h100:1\nplan: {recompute: [1, 2]}\n",
        "set recompute to full, or to full:block:N for the first N blocks of each chunk",
    ),
    f"{JOB} --site job.yaml": ("model: llama-3-8b\ncluster: dgx-h100\n", "choose a site file for --site"),
    "sweep grid.yaml": ("gpus: 8\n", "add a line such as model: llama-3-8b"),
    "predict list.yaml": (
        "a:\n  - {b: 1}\nc: 2\n  - {b: 2}\n", "remove line 3, or move it above or below the list"
    ),
    "predict traffic.yaml": (
        "model: llama-3.2-1b\ncluster: dgx-h100\nengine: vllm\n"
        "traffic: {rate: 4, prompt: 2000, output: null}\n",
        "write output: 300",
    ),
    "import torchtitan b.toml --cluster dgx-h100 --gpus 7 --model llama-3-8b": (
        "[parallelism]\ntensor_parallel_degree = 2\ndata_parallel_shard_degree = 8\n",
        "set parallelism.tensor_parallel_degree to 1, or --gpus to 16, as the file states",
    ),
    "predict keys.yaml": ("a:\n  b: 1\nc: 2\n  d: 2\n", "indent line 3 with 2 spaces, or remove it"),
    "import torchtitan a.toml": ("[a]\nb = null\n", "remove line 2, so that b has its default"),
    "predict model.yaml": (
        "name: a\nhidden: 64\nvocabulary: 64\n"
        "block: [{count: 2, mixer: {heads: 2}, feed_forward: {ffn_hidden: 8}}]\ncontext_length: 8\n",
        "did you mean blocks?",
    ),
    "memory llama-3.2-1b --gpus 8 --plan 'pp=2 mbs=1 gbs=16 schedule=s.csv'": (
        "kind,micro_batch\nF,0\n", "add stage to the first line, and the values to each row"
    ),
    "run llama-3.2-1b --gpus 8 --phases phases.yaml": (
        "- {name: ramp, tokens: 100B}\n", "write phases: in a line above the list"
    ),
    "predict plan.yaml": (
        "model: llama-3.2-1b\ncluster: dgx-h100:1\nplan: [dp=8, gbs=64]\n", 'set plan to "dp=8 gbs=64"'
    ),
    "predict size.yaml": (
        "model: llama-3.2-1b\ncluster: dgx-h100:1\nbatch: {seq: 64, batch_size: 64}\n",
        "set plan.global_batch to 64 instead",
    ),
    "predict family.yaml --gpus 8": (
        "{hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 2}\n",
        'add "model_type": "llama" to family.yaml, if the layers are those of Llama',
    ),
    "predict weights.yaml": (
        "{metadata: {}, weight_map: {a: b}}\n",
        "give the config.json beside weights.yaml, which lists only files of weights",
    ),
    "predict llama-3.2-1b --gpus 16 cluster.tiers.1.links.file=links.csv": (
        "node,n0,n1\nn0,0,19600\nn1,19100,0\n", "remove line 1 and the names in column 1"
    ),
    "predict unit.yaml": (
        "model: llama-3.2-1b\ncluster: {base: dgx-h100:2, tiers: {1: {links: {rows: [[0, 9], [9, 0]], "
        "unit: Gbps}}}}\n",
        "set unit to Gb/s",
    ),
    "run llama-3.2-1b --gpus 8 --phases shares.yaml": (
        "phases:\n- {name: main, tokens: 95%}\n", "set tokens to 950B"
    ),
    "run llama-3.2-1b --gpus 8 --phases units.yaml": (
        "phases:\n- {name: main, tokens: 100G B}\n", "set tokens to 100B"
    ),
    "sweep blank.yaml": ("model: llama-3.2-1b\nseq: [4 KiB]\n", "write 4096"),
    "predict blank.yaml": (
        "model: llama-3.2-1b\ncluster: dgx-h100:1\nbatch: {sequence_length: 8 KiB}\n",
        "write 8192 in place of 8 KiB",
    ),
    "predict eight.yml --cluster dgx-h100:1": (
        f"{AXOLOTL}adapter: qlora\nload_in_8bit: true\n",
        "write load_in_4bit: true in place of load_in_8bit: true",
    ),
    "predict sixteen.yml --cluster dgx-h100:1": (
        f"{AXOLOTL}adapter: qlora\n", "add load_in_4bit: true, or write adapter: lora"
    ),
    "sweep long.yaml": ("model: llama-3.2-1b\nseq: [4kb]\n", "write 4096"),
    "predict node.yaml": (
        "model: gpt2\ncluster: {base: dgx-h100, node: {device: h100-pcie-80gb, devices: 8}}\n",
        "write groups: {0: {node: {device: h100-pcie-80gb, devices: 8}}} in place of it, for the nodes of "
        "the first group",
    ),
    "predict flat.yaml": (
        "hidden_size: 64\nnum_layers: 2\nvocab: 128\nheads: 2\nplan: dp=8 gbs=8\ncluster: dgx-h100:1\n",
        "write model: {model_type: llama, hidden_size: 64, vocab_size: 128, num_hidden_layers: 2, "
        "num_attention_heads: 2, intermediate_size: 11008} in place of these lines",
    ),
    "predict one.yaml": (
        "model: gpt2\nheads: 8\nplan: dp=8 gbs=8\ncluster: dgx-h100:1\n",
        "write model: {base: gpt2, blocks: {0: {mixer: {heads: 8}}}} in place of it",
    ),
    "predict plans.yaml": (
        "model: gpt2\ncluster: dgx-h100:1\nparallelism: {tp: 2}\nplan: dp=4 gbs=8\n",
        "write tp=2 in plan in place of it",
    ),
    "predict wide.yaml": (
        "model: {base: gpt2, hidden: 769}\ncluster: dgx-h100:1\nplan: dp=8 gbs=64\n",
        "set hidden to 768",
    ),
    "predict offload.yaml": (
        "model: gpt2\ncluster: dgx-h100:1\noffload: {optimizer: host}\nplan: {dp: 8, gbs: 8}\n",
        "move offload to plan (line 4)",
    ),
    "predict hyphens.yaml": ("- model: gpt2\n- plan: dp=8\n", "remove the hyphens before the keys"),
    "predict equals.yaml": (
        "model = gpt2\ncluster = dgx-h100:1\n",
        'write "model: " in place of "model = ", and the same for the other keys',
    ),
    "predict one_line.yaml": (
        "model: gpt2\ncluster: dgx-h100:1\nplan: tp: 8 pp: 4\n", "write plan: {tp: 8, pp: 4} in line 3"
    ),
    "predict period.yaml": (
        "model: gpt2\ncluster: dgx-h100:1\ncheckpoint: {every: 30 min, to: nvme}\n", "did you mean every_s?"
    ),
    "predict gpt2 --gpus 8 --site factors.yaml": (
        "factors: {gemm_level: 0.9}\n", "write factors: [{name: gemm_level, ratio: 0.9}]"
    ),
    "sweep plan.yaml": ("model: gpt2\ngpus: 8\nplan: {gbs: 64, mbs: 1}\n", 'write plan: "gbs=64 mbs=1"'),
    "predict llama-3.2-1b --gpus 8 --log own.csv": (
        "step,time\n1,2.5\n",
        "in the header, write seconds or milliseconds in place of the name of this column",
    ),
    "sweep soon.yaml": ("model: gpt2\ngpus: 8\ndeadline: 30 d\n", "add tokens: 2e12, or samples"),
    "predict heads.yaml": (
        "model: {base: llama-3.2-1b, num_attention_heads: 16}\ncluster: dgx-h100:1\n",
        "write blocks: {0: {mixer: {heads: 16}}} in place of it",
    ),
    "predict rl.yaml": (
        RL_STEP.replace("samples", "rollouts_per_prompt"),
        "did you mean samples?",
    ),
    "predict handoff.yaml": (
        f"{RL_STEP}handoff_over: nfs\n",
        "set handoff_over to link, or describe rollout.cluster.file_system and set handoff_over to "
        "file_system",
    ),
    "predict answers.yaml": (RL_STEP.replace("gbs=256", "gbs=300"), "set global_batch to 256"),
    "predict rank.yml --cluster dgx-h100 --gpus 8": (
        "base_model: Qwen/Qwen2.5-7B-Instruct\nadapter: lora\nlora_r: thirty-two\n"
        "lora_target_linear: true\n"
        "sequence_len: 2048\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\n",
        "write 32 in place of thirty-two",
    ),
    "predict gigs.yaml": (
        "model: gpt2\nplan: dp=8 gbs=64\ncluster: {base: dgx-h100:1, groups: {0: {node: {device: "
        "{base: h100-sxm5-80gb, memory_bytes: 96 gigs}}}}}\n",
        "write memory_bytes: 96 GB",
    ),
    "calibrate from-run step.yaml --observed-step -7.6": (
        "model: gpt2\ncluster: dgx-h100:1\nplan: dp=8 gbs=64\n",
        'write a value such as --observed-step "7.6 s"',
    ),
    "validate --runs unmeasured.csv": (
        "id,source_key,kind,model_name,gpu_model,num_gpus,seq_len,dp,tp,pp,micro_batch,global_batch,precision,"
        "framework,year\nmine-1,mine,train,Llama 3 8B,H100,64,8192,32,2,1,1,512,bf16,Megatron-LM,2025\n",
        "write the time in seconds in the column step_time_s",
    ),
    "predict server.yaml --kind sglang --cluster dgx-h100:1": (
        "model-path: meta-llama/Llama-3.1-8B\nmem-fraction-static: 88\n", "write 0.88 in place of 88"
    ),
    "validate --runs semicolons.csv": (
        "id;model_name;step_time_s\n1;gpt2;6,9\n",
        "write decimal points, and write commas in place of the semicolons",
    ),
    "validate --runs mine.csv": (
        "model,gpu,gpus,seq,source_key,kind\nllama,h100,8,64,mine,train\n",
        "write model_name in place of model, write gpu_model in place of gpu, "
        "write num_gpus in place of gpus, write seq_len in place of seq in line 1",
    ),
    "predict sft.sh --cluster dgx-a100": (
        "torchrun --nproc_per_node 8 run_sft.py --model_name_or_path meta-llama/Llama-2-7b-hf \\\n"
        "  --max_seq_length 2048 --per_device_train_batch_size four \\\n"
        "  --gradient_checkpointing yess --bf16 true --fsdp 'full_shrad auto_wrap' --optim adamw_torchh\n",
        [
            "write 4 in place of four",
            "write full_shard in place of full_shrad",
            "write true",
            "did you mean adamw_torch?",
        ],
    ),
    "predict units.yaml": (
        "model: llama-3.2-1b\nplan: dp=8 tp=2 mbs=1 gbs=128\ncluster:\n  base: dgx-h100\n  nodes: 2\n"
        "  tiers:\n    - {name: nvlink, devices: 8, bytes_per_s: 450 GHz, latency_s: 5 GB}\n"
        "    - {name: ib, devices: 0, bytes_per_s: 400 Gbit, latency_s: 5 us}\n",
        ["write bytes_per_s: 450 GB/s", "write latency_s: 5 us", "write bytes_per_s: 400 Gbit/s"],
    ),
    "sweep models.yaml": (
        "models: [lama-2-70b, gpt2]\ncluster: [dgx-h100, dgx-h300]\ngpus: 8\nplan: gbs=64 mbs=1\n",
        [
            "did you mean model?",
            "did you mean llama-2-70b, llama-2-7b or llama-3-70b? For another model, give its Hugging Face "
            "config.json, or its export (.pt2 or .onnx)",
            "did you mean dgx-h100, dgx-h200 or dgx-b300?",
        ],
    ),
    "predict serve.sh --cluster dgx-h100:1": (
        "python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B --tp 8 --dp-size 2\n",
        "change --dp-size so that replicas is 1, or use --gpus 16",
    ),
    "diagnose gpt2 --gpus 8 plan.pp=5 --log train.log --trace missing.json": (
        "iteration 1\n",
        [
            "check the path",
            'write the steps to a CSV file: first the line "step,seconds", then lines such as "10,7.05", '
            "or give the output of the rank that prints steps, which is often the last rank",
            "set pipeline_parallel to 4",
            "add --cluster NAME, the machine of the run",
        ],
    ),
    "predict epochs.yml --cluster dgx-h100:1": (
        "base_model: Qwen/Qwen2.5-7B\nsequence_len: 2048\nmicro_batch_size: 2\nnum_epochs: three\n",
        "write 3",
    ),
    "predict reliable.yaml": (
        "model: llama-3-8b\nplan: dp=64 gbs=64 zero=1 recompute=full\n"
        'cluster: {base: dgx-h100, nodes: 8, reliability: {device_time_between_failures_s: "3 yers"}}\n',
        "write device_time_between_failures_s: 1095 d",
    ),
    "sweep axes.yaml": (
        "model: gpt2\ngpus: 8\nplan: gbs=64\nprecision: [bf16, fp9]\n",
        ["write precision=bf16,fp9 in plan in place of it", "write fp8 in place of fp9"],
    ),
    "validate --runs late.csv": (
        "id,source_key,kind,model_name,gpu_model,num_gpus,seq_len,dp,tp,pp,micro_batch,global_batch,precision,"
        "framework,year,step_time_s\nmine-1,mine,train,Llama 3 8B,H100,64,8192,32,2,1,1,512,bf16,"
        "Megatron-LM,20255,\n",
        [
            "write 2025 in place of 20255",
            "write the time in seconds in the column step_time_s",
        ],
    ),
    "predict gpt2 --gpus 8 --site twice.yaml": (
        "factors: [{name: host, ratio: 1.1}, {name: host, ratio: 1.2}]\n",
        "leave out all but one entry of host",
    ),
    "predict nested.yaml": (
        "job:\n  model: gpt2\n  cluster: dgx-h100:1\n  plan: tp=2\n",
        "remove the key job, and write the keys below it at the top level",
    ),
    "predict kinds.yaml": (
        "model: {hidden: 512, vocabulary: 512, blocks: [{count: 2, mixer: {heads: 8, kind: attnetion}, "
        "feed_forward: {num_experts: 8, top_k: 2, ffn_hidden: 512}}]}\ncluster: dgx-h100:1\n",
        ["set kind to attention", "did you mean expert_hidden?"],
    ),
    "predict machine.yaml": (
        "model: gpt2\ncluster:\n  nodes: 2\n  gpu: h100\n  price: 2\n",
        ["write base: dgx-h100 in place of gpu: h100", "write price: 2 USD/h"],
    ),
    "predict price.yaml": (
        "model: gpt2\ncluster: dgx-h100:2\nprice: 2 USD\n",
        "move price to cluster (line 2), as in cluster: {base: dgx-h100:2, price: 2 USD/h}",
    ),
    "predict zero.yaml --model gpt2 --kind deepspeed --cluster dgx-h100:1": (
        '{"train_batch_size": 64, "zero_optimization": 3, "bf16": true}',
        [
            'write {"enabled": true} in place of true',
            'write {"stage": 3} in place of 3',
        ],
    ),
    "predict stages.yaml --model gpt2 --kind deepspeed --cluster dgx-h100:1": (
        '{"train_batch_size": 64, "micro_batch_size": 2, "bf16": {"enabled": true}, "zero_optimization": '
        '{"stage": 2, "offload_param": {"device": "cpu"}}}',
        [
            "did you mean train_micro_batch_size_per_gpu?",
            "set zero_optimization.stage to 3, or remove zero_optimization.offload_param.device",
        ],
    ),
    "predict llama-3.2-1b --engine vllm --gpus 1 --traffic trace=trace.csv": (
        "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,100,10\n1.0,200,x\n",
        [
            "write arrival_s in place of arrived_at in the header",
            "write prompt_tokens in place of num_prefill_tokens in the header",
            "write output_tokens in place of num_decode_tokens in the header",
            "write a whole number in this cell, or remove the line",
        ],
    ),
    "run llama-3.2-1b --gpus 8 --phases lengths.yaml": (
        "phases: [{name: a, tokens: 1B, sequence_length: 8k}]\n",
        "write changes: batch.sequence_length=8k in place of it",
    ),
    "predict types.yaml --model gpt2 --kind deepspeed --cluster dgx-h100:1": (
        '{"train_batch_size": 64, "zero_optimization": {"stage": 4}, "fp16": {"enabled": "yes"}, '
        '"bf16": {"enabled": true}}',
        ["set fp16.enabled to false", "write 3"],
    ),
    "predict quantised.yml --cluster dgx-h100:1": (
        "base_model: Qwen/Qwen2.5-7B-Instruct\nload_in_4bit: true\nadapter: lroa\nlora_r: -32\n"
        "lora_target_linear: true\nsequence_len: 2048\nmicro_batch_size: 2\nbf16: auto\n"
        "gradient_accumulation_steps: 4\noptimizer: adamw_bnb_8bits\n",
        ["did you mean lora?", "write 32 in place of -32", "did you mean adamw_bnb_8bit?"],
    ),
    "predict visible.sh --cluster dgx-h100:1 --traffic 'rate=2/s prompt=100 output=20'": (
        "export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5\n"
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 6\n",
        ["write --tensor-parallel-size 4"],
    ),
    "predict degrees.toml --cluster dgx-h100 --gpus 8": (
        '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n'
        "[parallelism]\ndata_parallel_shard_degree = 8\ntensor_parallel_degree = 2\n",
        ["write -1, or use --gpus 16"],
    ),
    "predict stages.sh --cluster dgx-h100": (
        "torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --tensor-model-parallel-size 4 --bf16 "
        "--pipeline-model-parallel-size 4 --num-layers 30 --hidden-size 4096 --num-attention-heads 32 "
        "--seq-length 4096 --max-position-embeddings 4096 --vocab-size 32000 --micro-batch-size 2 "
        "--global-batch-size 128\n",
        [
            "add --decoder-first-pipeline-num-layers 6, or write --pipeline-model-parallel-size 2"
        ],
    ),
}  # fmt: skip


@all_cases("line", list(IN_FILES))
def test_a_file_with_a_slip_has_one_error_with_an_edit_that_helps(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, fix = IN_FILES[line]
    (name,) = re.findall(r"[\w]+\.(?:ya?ml|toml|csv|py|log|sh)", line)
    (tmp_path / name).write_text(text)
    ended = flopcast(*shlex.split(line))

    assert ended.code == 1
    assert re.findall("fix: +(.*)", ended.err or ended.out) == ([fix] if isinstance(fix, str) else [*fix])


def test_only_a_file_with_a_similar_name_is_taken_for_a_missing_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text("a: 1\n")
    fixes = {"nothing.yaml": "check the path", "jbo.yaml": "did you mean job.yaml?"}

    for name, fix in {**fixes, "job.yml": "did you mean job.yaml?", "job_2.csv": "check the path"}.items():
        assert re.findall("fix: +(.*)", flopcast("sweep", name).err) == [fix]


def test_options_that_are_lists_may_stand_twice():
    line = "search bloom-560m --gpus 2 --plan 'mbs=1 gbs=16 cp=1 zero=1 vpp=1 dp_shard=0'"
    ended = flopcast(*shlex.split(line), "--objective", "cost", "--objective", "step_time", "--pareto")

    assert ended.code == 0, ended.err


def test_flags_may_stand_twice():
    assert flopcast(*shlex.split("memory llama-3.2-1b --gpus 8 --json --json")).code == 0


def test_an_error_that_assumes_the_correction_of_another_value_says_so(tmp_path):
    """No file states hidden = 4, so no fix may leave it out."""
    job = tmp_path / "job.yaml"
    job.write_text("model: {base: llama-3-8b, hidden: -4, heads: 31}\ncluster: dgx-h100\n")

    text = flopcast("predict", job).err

    assert "model.hidden = -4 is not allowed" in text
    assert "(hidden is 4 after its correction)" in text
    assert "leave out hidden" not in text
