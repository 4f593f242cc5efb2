"""Every rule is broken by an example, told as one fault with a remedy, and the remedy helps."""

import pytest
from all_cases import all_cases
from conftest import make_job
from spec_cases import DEEPSPEED, edited, edits, faults, key, mixture, model, parts, traced

from flopcast.errors import Problem
from flopcast.library import catalog
from flopcast.schedules import SCHEDULES, UNSUPPORTED
from flopcast.schedules.custom import OwnSchedule
from flopcast.spec.plan import Plan
from flopcast.workload.checks import RULES, check

OVERLAPPED = {"base": "megatron-bridge", "experts": {"exchange_overlap": "other_micro_batch"}}
ONE_NODE = {"node": {"device": "a100-sxm4-80gb", "devices": 8, "host": "epyc-7763"}, "count": 1}
BFLOAT_ONLY = {
    "name": "bfloat-only",
    "memory_bytes": "80 GB",
    "memory_bytes_per_s": "2 TB/s",
    "peak_flop_per_s": {"bf16": "300 TFLOP/s"},
    "multiprocessors": 100,
    "kernel_launch_s": "3 us",
}
BFLOAT_NODES = {
    "base": "dgx-a100",
    "groups": [{"node": {"device": BFLOAT_ONLY, "devices": 8, "host": "epyc-7763"}, "count": 1}],
}

ZERO_BUBBLE_BLOCKS = "zero bubble schedules send messages during weight gradients, and these messages block"
TABLE = {"name": "mine.csv", "tasks": ["F0 F1 B0 B1", "F0 B0 F1 B1"]}
TWO = [{"seq": 512}, {"seq": 1024}]  # micro-batches of one rank
UNEQUAL_RANKS = [{"count": 4, "micro_batches": TWO}, {"count": 4, "micro_batches": TWO[::-1]}]
BROKEN = {  # (field, because) → the job that breaks this rule alone, its value, a part of what is allowed
    ("plan.tensor_parallel", "each tensor-parallel rank holds whole attention heads"): (
        parts(model=model(heads=12, kv_heads=4), data_parallel=1, tensor_parallel=8),
        8,
        "a divisor of heads = 12: 1, 2, 3, 4, 6, 12",
    ),
    ("cluster.price.device", "a listed price is that of one device, and the cluster has another"): (
        parts(cluster={"base": "dgx-a100:1", "price": "aws-p5"}),
        "h100-sxm5-80gb",
        "a100-sxm4-80gb",
    ),
    ("site.power_limit_w", "a limit lowers the clock by its share of the board power"): (
        parts(cluster=BFLOAT_NODES, precision="bf16", site={"power_limit_w": "300 W"}),
        300,
        "none on a device whose board_power_w is not stated",
    ),
    ("site.power_limit_w", "no limit below 30 % of the board power was measured"): (
        parts(cluster="dgx-a100:1", site={"power_limit_w": "100 W"}),
        100,
        "120 W and more",
    ),
    ("site.clock_hz", "kernels are slower by the ratio of the device's highest clock to this clock"): (
        parts(cluster=BFLOAT_NODES, precision="bf16", site={"clock_hz": "1 GHz"}),
        1e9,
        "none on a device whose clock_hz is not stated",
    ),
    ("site.clock_hz", "that is the highest clock of the device"): (
        parts(cluster="dgx-a100:1", site={"clock_hz": "1.5 GHz"}),
        1.5e9,
        "at most 1410 MHz",
    ),
    ("plan.tensor_parallel", "key/value heads are split whole or repeated whole"): (
        parts(model=model(heads=24, kv_heads=6), data_parallel=2, tensor_parallel=4),
        4,
        "kv_heads = 6",
    ),
    ("plan.tensor_parallel", "the inner width of the MLP is cut evenly"): (
        parts(model=model(ffn_hidden=4095), data_parallel=4, tensor_parallel=2),
        2,
        "a divisor of ffn_hidden = 4095",
    ),
    ("model.blocks[0].mixer.heads", "without head_size, a head has hidden / heads elements"): (
        parts(model=model(heads=16) | {"hidden": 1000}),
        16,
        "a divisor of hidden = 1000: 1, 2, 4, 5, 8",
    ),
    ("model.blocks[0].mixer.kv_heads", "every key/value head serves equally many query heads"): (
        parts(model=model(heads=16, kv_heads=5)),
        5,
        "a divisor of heads = 16: 1, 2, 4, 8, 16",
    ),
    ("batch.sequence_length", "a learned table has no entry for later positions"): (
        parts(model=model() | {"learned_positions": 1024}, batch={"seq": 2048}),
        2048,
        "at most learned_positions = 1024",
    ),
    ("stack.selective_groups", "selective recompute repeats modules of this model's blocks"): (
        parts(stack={"base": "megatron-2022", "selective_groups": ["atention"]}, recompute="selective"),
        "atention",
        "core_attention",
    ),
    ("plan.recompute_modules", "selective recompute repeats modules of this model's blocks"): (
        parts(recompute="selective:core_attention,moe"),
        "moe",
        "core_attention, layernorm, mlp",
    ),
    ("plan.recompute_modules", "full recompute repeats whole blocks, and none repeats nothing"): (
        parts(recompute="full", recompute_modules=["mlp"]),
        "mlp",
        "recompute: selective",
    ),
    ("plan.recompute_method", "method and layers choose which whole blocks are recomputed"): (
        parts(recompute_method="block", recompute_layers=2),
        "block:2",
        "recompute: full",
    ),
    (
        "plan.recompute_layers",
        "blocks are counted inside the chunk of layers that a stage runs at a time",
    ): (parts(recompute="full:uniform:99", pipeline_parallel=2, data_parallel=4), 99, "1 to "),
    (
        "plan.optimizer",
        "shards are cut out of flattened tensors, which have no rows and columns to factor",
    ): (parts(optimizer="adafactor", zero=1), "adafactor", "adamw"),
    (
        "stack.optimizer.state_bytes",
        "it counts master weight and both moments of AdamW in fp32; other fields state less",
    ): (
        parts(stack={"base": "megatron-2022", "optimizer": {"state_bytes": "6 B"}}, optimizer="sgd"),
        6.0,
        "at least 8 bytes",
    ),
    (
        "stack.optimizer.moved_bytes",
        "it counts what AdamW in fp32 reads and writes; other fields state less",
    ): (
        parts(stack={"base": "megatron-2022", "optimizer": {"moved_bytes": "10 B"}}, optimizer="sgd"),
        10.0,
        "more than 16 bytes",
    ),
    ("plan.recompute_blocks", "it names entries of the model's blocks"): (
        parts(recompute="full", recompute_blocks=[0, 3]),
        "0, 3",
        "0 to 0",
    ),
    ("plan.recompute_blocks", "it chooses recomputed blocks, and there are none"): (
        parts(recompute_blocks=[0]),
        "0",
        "only with recompute",
    ),
    ("stack.gradients.returns", "parameters are gathered layer by layer during the next forward"): (
        parts(
            stack={"base": "megatron-core", "gradients": {"returns": "broadcasts", "overlap_gather": True}}
        ),
        "broadcasts",
        "gathers with overlap_gather",
    ),
    ("stack.attention_generation", "only fused attention kernels have generations"): (
        parts(stack={"base": "megatron-2022", "attention_generation": "triton"}),
        "triton",
        "newest with attention_kernel: materialised",
    ),
    ("stack.gradients.copies", "a copy is a memory-bound pass that can be priced"): (
        parts(stack={"base": "megatron-2022", "gradients": {"copies": ["flaten"]}}),
        "flaten",
        "flatten",
    ),
    (
        "model.adapters.targets",
        "adapters of experts, of latent attention and of traced blocks are not supported yet",
    ): (
        parts(model=model() | {"adapters": {"rank": 8, "targets": ["q", "gate"]}}),
        "gate",
        "q, k, v, qkv, out, down, up",
    ),
    ("model.adapters.base_dtype", "experts that are stored in 4 bits are not supported yet"): (
        parts(model=mixture() | {"adapters": {"rank": 8, "targets": ["q"], "base_dtype": "nf4"}}),
        "nf4",
        "model, where blocks have experts",
    ),
    ("plan.schedule", "zero bubble schedules need weight gradients, which frozen weights do not have"): (
        parts(
            model=model() | {"adapters": {"rank": 8, "targets": ["q"]}},
            schedule="zb_h1",
            data_parallel=4,
            pipeline_parallel=2,
        ),
        "zb_h1",
        "auto, 1f1b",
    ),
    ("model.mtp", "it is on the last stage, and this stack's rule divides all modules evenly"): (
        parts(model=model() | {"mtp": 1}, stack=DEEPSPEED),
        1,
        "0 on this stack",
    ),
    ("stack.rewrites", "flopcast has only these rewrites"): (
        parts(stack={"base": "megatron-2022", "rewrites": ["fused_sofmax"]}),
        "fused_sofmax",
        "fused_softmax",
    ),
    ("plan.sequence_parallel", "norms are cut along the sequence"): (
        parts(batch={"seq": 1023}, data_parallel=4, tensor_parallel=2, sequence_parallel=True),
        True,
        "tensor_parallel divides sequence_length",
    ),
    ("plan.pipeline_parallel", "this stack gives every chunk the same number of blocks"): (
        parts(model=model(blocks=12), data_parallel=1, pipeline_parallel=8),
        "8 stages × 1 virtual",
        "divide 12 blocks: 1, 2, 3, 4, 6, 12",
    ),
    (
        "plan.stage_layers",
        "every chunk of every stage has its number of blocks, in the order of the model",
    ): (
        parts(model=model(blocks=12), data_parallel=2, pipeline_parallel=4, stage_layers="4,4,4"),
        "3 chunks",
        "= 4 numbers",
    ),
    ("plan.stage_layers", "every block is on exactly one stage"): (
        parts(model=model(blocks=12), data_parallel=2, pipeline_parallel=4, stage_layers="3,3,3,2"),
        "11 blocks",
        "12 blocks",
    ),
    ("plan.stage_layers", "a stage needs at least one layer"): (
        parts(model=model(blocks=12), data_parallel=2, pipeline_parallel=4, stage_layers="6,0,6,0"),
        "6,0,6,0",
        "first and the last chunk",
    ),
    ("plan.pipeline_parallel", "a stage needs at least one layer"): (
        parts(model=model(blocks=2), stack=DEEPSPEED, data_parallel=1, pipeline_parallel=8),
        8,
        "at most 5",  # embedding, two blocks, final norm, head
    ),
    ("plan.virtual_stages", "chunks are interleaved over stages"): (
        parts(virtual_stages=2),
        2,
        "1 without",
    ),
    ("plan.virtual_stages", "its rule for dividing layers does not support virtual stages"): (
        parts(
            stack={"base": DEEPSPEED, "pipeline": {"transfers": "batched"}},
            data_parallel=4,
            pipeline_parallel=2,
            virtual_stages=2,
        ),
        2,
        "1 on this stack",
    ),
    (
        "plan.virtual_stages",
        "interleaved stages would deadlock if they block on one message after the other",
    ): (
        parts(
            stack={"base": "megatron-2022", "pipeline": {"transfers": "sequential"}},
            data_parallel=4,
            pipeline_parallel=2,
            virtual_stages=2,
        ),
        2,
        "1 on a stack with sequential transfers",
    ),
    ("plan.schedule", "the schedule and the number of chunks must agree"): (
        parts(schedule="interleaved_1f1b"),
        "interleaved_1f1b",
        "exactly where virtual_stages > 1",
    ),
    ("plan.pipeline_parallel", "a table lists the tasks of every stage"): (
        parts(schedule=TABLE, data_parallel=2, pipeline_parallel=4, global_batch=4),
        4,
        "2, as mine.csv lists",
    ),
    ("plan.virtual_stages", "a table lists the tasks of every chunk"): (
        parts(schedule=TABLE, data_parallel=4, pipeline_parallel=2, virtual_stages=2, global_batch=8),
        2,
        "1, as mine.csv lists",
    ),
    ("plan.global_batch", "a table lists every micro-batch"): (
        parts(schedule=TABLE, data_parallel=4, pipeline_parallel=2, global_batch=32),
        8,
        "2, as mine.csv lists",
    ),
    ("plan.schedule", "a table does not state where a stage blocks on its messages"): (
        parts(
            schedule=TABLE,
            data_parallel=4,
            pipeline_parallel=2,
            global_batch=8,
            stack={"base": "megatron-2022", "pipeline": {"transfers": "sequential"}},
        ),
        "mine.csv",
        "auto, 1f1b, gpipe",
    ),
    ("plan.schedule", "a stage cannot run ahead of one that takes its messages one by one"): (
        parts(schedule="eager_1f1b", data_parallel=4, pipeline_parallel=2, stack="gpt-neox-deepspeed"),
        "eager_1f1b",
        "auto, 1f1b, gpipe",
    ),
    ("plan.virtual_stages", "ZB-V has one chunk that goes down the stages and one that comes back up"): (
        parts(schedule="zb_v", data_parallel=4, pipeline_parallel=2, virtual_stages=4),
        4,
        "2 under zb_v",
    ),
    ("plan.schedule", "a stage that passes shards of an activation to itself is not supported yet"): (
        parts(
            schedule="zb_v",
            data_parallel=2,
            tensor_parallel=2,
            pipeline_parallel=2,
            virtual_stages=2,
            stack={"base": "megatron-2022", "pipeline": {"payload": "scattered"}},
        ),
        "zb_v",
        "sequence_parallel",
    ),
    ("plan.global_batch", "every pipeline takes whole micro-batches"): (
        parts(global_batch=36, micro_batch=2),
        36,
        "a multiple of data_parallel · micro_batch = 16",
    ),
    ("plan.global_batch", "interleaved chunks take micro-batches in groups of that size"): (
        parts(data_parallel=2, pipeline_parallel=4, virtual_stages=2, global_batch=12),
        "6 micro-batches",
        "a multiple of pipeline_parallel = 4",
    ),
    ("plan", "every device has exactly one rank"): (
        parts(data_parallel=4, tensor_parallel=1, pipeline_parallel=1),
        "4 devices",
        "dp · tp · pp · cp = 8",
    ),
    ("plan.precision", "the device has no such matrix engine"): (
        parts(cluster=BFLOAT_NODES),
        "fp16",
        "bf16",
    ),
    ("plan.partition_activations", "it cuts the checkpoints that full recompute keeps"): (
        parts(partition_activations=True, recompute="selective"),
        True,
        "recompute: full",
    ),
    ("plan.partition_activations", "sequence parallelism has cut the checkpoint already"): (
        parts(
            data_parallel=4,
            tensor_parallel=2,
            sequence_parallel=True,
            partition_activations=True,
            recompute="full",
        ),
        True,
        "false with sequence_parallel",
    ),
    ("cluster.groups", "more than one rank class is not supported yet"): (
        parts(cluster={"base": "dgx-a100", "groups": [ONE_NODE, ONE_NODE]}, data_parallel=16),
        "2 groups",
        "one group",
    ),
    ("cluster.tiers[1].in_network_reduction", "sums inside switches are not supported yet"): (
        parts(cluster={"base": "dgx-a100", "nodes": 1, "tiers": {"1": {"in_network_reduction": True}}}),
        True,
        "false",
    ),
    (
        "plan.context_parallel",
        "every rank holds equally many tokens, in zigzag order as two parts of the sequence",
    ): (
        parts(stack="megatron-core", batch={"seq": 1022}, data_parallel=4, context_parallel=2),
        2,
        "4 parts divide sequence_length = 1022",
    ),
    (
        "plan.context_parallel",
        "an all-to-all gives each rank all tokens of whole heads, of queries as of keys and values",
    ): (
        parts(
            model=model(heads=16, kv_heads=2),
            stack="megatron-core",
            data_parallel=2,
            context_parallel=4,
            context_exchange="all_to_all",
        ),
        4,
        "divides 2 key/value heads",
    ),
    ("plan.context_order", "gathered keys and queries that are not balanced are not supported yet"): (
        parts(
            stack="megatron-core",
            data_parallel=4,
            context_parallel=2,
            context_exchange="all_gather",
            context_order="contiguous",
        ),
        "contiguous",
        "zigzag with all_gather",
    ),
    (
        "stack.attention_kernel",
        "blocks of keys are merged by the log-sums that only a fused kernel keeps",
    ): (parts(data_parallel=4, context_parallel=2), "materialised", "flash with context_parallel above 1"),
    ("plan.context_exchange", "a ring whose blocks lie outside of a window is not supported yet"): (
        parts(model=model(window=128), stack="megatron-core", data_parallel=4, context_parallel=2),
        "ring",
        "all_gather or all_to_all",
    ),
    (
        "plan.context_parallel",
        "no stack gives ranks that share a sequence a square mask of the whole sequence",
    ): (
        parts(
            stack={"base": "gpt-neox-deepspeed", "attention_kernel": "flash"},
            data_parallel=4,
            context_parallel=2,
        ),
        2,
        "1 on a stack that sends its attention mask",
    ),
    ("plan.context_parallel", "slopes over keys of other ranks are not supported yet"): (
        parts(model=model(alibi=True), stack="megatron-core", data_parallel=4, context_parallel=2),
        2,
        "1 for a model with ALiBi",
    ),
    ("plan.expert_parallel", "only experts are spread over expert-parallel ranks"): (
        parts(expert_parallel=2),
        2,
        "1 for a dense model",
    ),
    ("plan.expert_parallel", "each expert-parallel rank holds equally many experts"): (
        parts(model=mixture(num_experts=6), expert_parallel=4),
        4,
        "a divisor of num_experts = 6",
    ),
    ("plan.expert_parallel", "experts are spread over ranks of one pipeline stage"): (
        parts(model=mixture(num_experts=16), expert_parallel=16),
        16,
        "a divisor of dp · cp · tp / etp = 8",
    ),
    (
        "plan.expert_tensor_parallel",
        "experts cut over other ranks than the model's other weights are not supported yet",
    ): (
        parts(model=mixture(), data_parallel=2, tensor_parallel=4, sp=True, expert_tensor_parallel=2),
        2,
        "1, or tensor_parallel = 4",
    ),
    ("plan.expert_tensor_parallel", "the inner width of an expert is cut evenly"): (
        parts(model=mixture(expert_hidden=1001), data_parallel=4, tensor_parallel=2, sp=True),
        2,
        "a divisor of expert_hidden = 1001",
    ),
    ("plan.tensor_parallel", "the inner width of shared experts is cut evenly"): (
        parts(
            model=mixture(shared_experts=1, shared_hidden=1001), data_parallel=4, tensor_parallel=2, sp=True
        ),
        2,
        "a divisor of the width of shared experts = 1001",
    ),
    (
        "plan.sequence_parallel",
        "each rank routes its own tokens; routing the same ones on all ranks is not supported yet",
    ): (parts(model=mixture(), data_parallel=4, tensor_parallel=2), False, "true for experts"),
    ("plan.rank_order", "experts on ranks in another order are not supported yet"): (
        parts(model=mixture(), rank_order="tp-cp-pp-dp"),
        "tp-cp-pp-dp",
        "tp-cp-dp-pp",
    ),
    ("plan.expert_parallel", "a rank's experts are in one group, or fill several groups"): (
        parts(model=mixture(num_experts=12, expert_groups=3, top_groups=2), expert_parallel=2),
        2,
        "a divisor or a multiple of expert_groups = 3",
    ),
    ("plan.data_shard", "replicas form groups of equal size, each of which holds every shard once"): (
        parts(data_shard=3, zero=3, stack="megatron-core"),
        3,
        "a divisor of data_parallel = 8",
    ),
    (
        "plan.data_shard",
        "zero chooses what these replicas shard: 1 states, 2 also gradients, 3 also parameters",
    ): (parts(data_shard=8), 8, "0 or 1 with zero: 0"),
    ("plan.data_shard", "each group of shards holds all experts"): (
        parts(model=mixture(), expert_parallel=8, data_shard=4, zero=1),
        4,
        "a divisor of data_shard",
    ),
    ("plan.offload", "offload is not supported yet"): (parts(offload=True), True, "False"),
    (
        "plan.schedule",
        "expert exchanges that overlap with another micro-batch (DualPipe) are not supported yet",
    ): (parts(schedule="dualpipe"), "dualpipe", "auto, 1f1b"),
    ("stack.tensor_overlap", "the messages that are cut into chunks are those of sequence parallelism"): (
        parts(
            stack={"base": "megatron-core", "tensor_overlap": "chunks"}, data_parallel=4, tensor_parallel=2
        ),
        "chunks",
        "none without sequence_parallel",
    ),
    ("stack.experts.exchange_overlap", "exchanges overlap with the kernels of another micro-batch"): (
        parts(stack=OVERLAPPED, model=mixture(), expert_parallel=8, global_batch=8, zero=1),
        "other_micro_batch",
        "none with one micro-batch",
    ),
    (
        "stack.experts.exchange_overlap",
        "two micro-batches alternate part by part, which full recompute of layers prevents",
    ): (
        parts(
            stack=OVERLAPPED, model=mixture(), expert_parallel=8, zero=1, recompute="full", global_batch=16
        ),
        "other_micro_batch",
        "none with recompute: full",
    ),
    ("plan.zero", "this stack shards nothing else"): (parts(zero=3), 3, "0, 1"),
    ("plan.zero", "sharded gradients or parameters with separate weight gradients are not supported yet"): (
        parts(zero=3, schedule="zb_h1", stack="megatron-core"),
        3,
        "0 or 1",
    ),
    ("plan.zero", "reductions of shards on the compute stream are not supported yet"): (
        parts(
            stack={"base": "megatron-core", "gradients": {"overlap_with_tensor": False}},
            data_parallel=4,
            tensor_parallel=2,
            zero=3,
        ),
        3,
        "0 or 1",
    ),
    ("plan.zero", "4-bit weights that are gathered and dequantised unit by unit are not supported yet"): (
        parts(
            model=model() | {"adapters": {"rank": 8, "targets": ["q"], "base_dtype": "nf4"}},
            zero=3,
            stack="megatron-core",
        ),
        3,
        "0, 1, 2 with adapters",
    ),
    ("stack.sharding.unit_copies", "a copy is a memory-bound pass that can be priced"): (
        parts(stack={"base": "megatron-core", "sharding": {"unit_copies": ["twice"]}}),
        "twice",
        "flatten",
    ),
    ("plan.schedule", ZERO_BUBBLE_BLOCKS): (
        parts(schedule="zb_h1", stack="gpt-neox-deepspeed"),
        "zb_h1",
        "auto, 1f1b, gpipe",
    ),
    ("plan.recompute", "zero bubble schedules with linears that are recomputed are not supported yet"): (
        parts(schedule="zb_h2", recompute="full"),
        "full",
        "none, or selective",
    ),
    ("plan.precision", "products of a recipe are cut into whole blocks of scales along all sides"): (
        parts(cluster="vista:8", precision="fp8", model=model(ffn_hidden=4104)),
        "fp8",
        "mlp.up is 4104 wide on a rank: no multiple of 16",
    ),
    (
        "plan.tensor_parallel",
        "tensor parallelism divides the heads and columns of traced products evenly",
    ): (
        parts(model=traced(), data_parallel=4, tensor_parallel=2),
        2,
        "1, as an older trace does not record which product uses which weight",
    ),
    ("plan.sequence_parallel", "a trace does not record which passes work on each token by itself"): (
        parts(model=traced(units=8), data_parallel=4, tensor_parallel=2, sequence_parallel=True),
        True,
        "false for a traced model",
    ),
    ("plan.context_parallel", "a trace does not record which axis of a tensor holds positions"): (
        parts(model=traced(), stack="megatron-core", data_parallel=4, context_parallel=2),
        2,
        "1",
    ),
    ("model.mtp", "a trace is one of the decoder without modules of multi-token prediction"): (
        parts(model=traced() | {"mtp": 1}),
        1,
        "0",
    ),
    ("plan.precision", "a weight gradient sums over tokens in whole blocks of scales"): (
        parts(cluster="vista:8", precision="fp8_blockwise", batch={"seq": 1000}),
        "fp8_blockwise",
        "1000 tokens of a micro-batch are no multiple of 16",
    ),
    ("plan.precision", "weights of QLoRA are written out in 16 bits before each product"): (
        parts(
            model=model() | {"adapters": {"rank": 8, "targets": ["q"], "base_dtype": "nf4"}},
            cluster="vista:8",
            precision="fp8",
        ),
        "fp8",
        "bf16",
    ),
    ("stack.narrow.wide_first_blocks", "the first and the last blocks must not overlap"): (
        parts(stack={"base": "megatron-2022", "narrow": {"wide_first_blocks": 5, "wide_last_blocks": 4}}),
        5,
        "at most 8",
    ),
    ("batch.packed", "the cost of attention follows the sum of the squares of these lengths"): (
        parts(batch={"seq": 1024, "packed": True}),
        True,
        "only with documents",
    ),
    ("batch.documents", "documents fill a sequence; padding is one of them"): (
        parts(batch={"seq": 1024, "documents": [1000]}),
        "1000 tokens",
        "sequence_length = 1024",
    ),
    ("batch.documents", "a kernel that writes the scores computes those between documents too"): (
        parts(batch={"seq": 1024, "documents": [24, 1000]}, stack="megatron-2022"),
        "2 documents",
        "one document",
    ),
    ("plan.context_parallel", "documents cut over context-parallel ranks are not supported yet"): (
        parts(
            batch={"seq": 1024, "documents": [24, 1000]},
            stack="megatron-core",
            data_parallel=4,
            context_parallel=2,
        ),
        2,
        "1 with several",
    ),
    ("model.blocks[0].mixer", "windows and traced blocks over several documents are not supported yet"): (
        parts(model=model(window=128), batch={"seq": 1024, "documents": [24, 1000]}, stack="megatron-core"),
        "attention",
        "without windows",
    ),
    ("batch.documents", "a listed micro-batch states its own documents"): (
        parts(batch={"seq": 1024, "documents": [1024], "micro_batches": [{"count": 2}]}),
        "1 documents",
        "none beside micro_batches",
    ),
    ("batch.ranks", "micro_batches lists those of all ranks, ranks those of each rank"): (
        parts(batch={"seq": 1024, "micro_batches": TWO, "ranks": [{"count": 8, "micro_batches": TWO}]}),
        "1 classes of ranks",
        "none beside micro_batches",
    ),
    ("batch.micro_batches", "a list holds every micro-batch of one pipeline in a step"): (
        parts(batch={"seq": 1024, "micro_batches": [{"count": 2}, {"seq": 512}]}),
        "3 micro-batches",
        "2 in all",
    ),
    ("batch.ranks", "every data-parallel rank has its micro-batches"): (
        parts(batch={"seq": 1024, "ranks": [{"count": 7, "micro_batches": TWO}]}),
        "7 ranks",
        "data_parallel = 8",
    ),
    ("batch.sequence_length", "no sequence of a step is longer"): (
        parts(batch={"seq": 1024, "micro_batches": [{"seq": 1025}, {}]}),
        1024,
        "at least 1025",
    ),
    ("batch.ranks", "different ranks that synchronise before the end of a step are not supported yet"): (
        parts(batch={"seq": 1024, "ranks": UNEQUAL_RANKS}, stack="megatron-core", zero=2),
        "2 classes of ranks",
        "zero 2 and 3",
    ),
    ("cluster", "no cluster is larger"): (
        parts(stack="megatron-core", cluster="dgx-h100:262144", data_parallel=2**21, global_batch=2**21),
        "2,097,152 devices",
        "at most 1,048,576 devices",
    ),
    ("model.blocks", "no model is deeper, and stages are divided layer by layer"): (
        parts(model={"base": "megatron-1.7b", "num_layers": 4097}),
        4097,
        "at most 4,096 layers",
    ),
    ("batch.sequence_length", "no model is trained on longer sequences"): (
        parts(batch={"seq": 2**31}, stack="megatron-core"),
        2**31,
        "at most 1,073,741,824 tokens",
    ),
    ("plan.global_batch", "every task of a step is simulated, and no step has that many"): (
        parts(global_batch=2**27),
        "16,777,216 micro-batches",
        "at most 1,048,576: times stages",
    ),
}
REASONS_OF_SCHEDULES = ("blocks_because", "chunks_because", "unsupported_because")
NAMES = [f"{field}: {because}" for field, because in BROKEN]
EXAMPLES = [(rule, *example) for rule, example in BROKEN.items()]


def test_every_rule_has_an_example_that_breaks_it():
    by_rule = [rule.because for rule in RULES if isinstance(rule.because, str)]
    known = {type(schedule) for schedule in (*SCHEDULES.values(), *UNSUPPORTED.values())} | {OwnSchedule}
    by_schedule = {getattr(one, name) for one in known for name in REASONS_OF_SCHEDULES} - {""}

    assert sorted([*by_rule, *by_schedule]) == sorted(because for _, because in BROKEN)


@all_cases(("rule", "whole", "value", "allowed"), EXAMPLES)
def test_an_example_is_told_as_the_fault_of_its_rule_and_as_nothing_else(rule, whole, value, allowed):
    told = faults(whole)

    assert [key(problem) for problem in told] == [rule]


@all_cases(("rule", "whole", "value", "allowed"), EXAMPLES)
def test_a_fault_shows_the_value_and_what_would_be_allowed(rule, whole, value, allowed):
    (problem,) = faults(whole)

    assert problem.value == value
    assert allowed in problem.allowed


@all_cases(("rule", "whole", "value", "allowed"), EXAMPLES)
def test_the_first_advised_edit_keeps_the_rule(rule, whole, value, allowed):
    (problem,) = faults(whole)
    advised = edits(problem)[:1]

    for edit in advised:
        assert rule not in [key(left) for left in faults(edited(whole, edit))], edit
    assert advised or problem.fix.split()[0] in ("choose", "describe", "change", "remove")


@all_cases(("rule", "whole", "value", "allowed"), EXAMPLES)
def test_a_fault_prints_field_value_allowed_reason_and_fix(rule, whole, value, allowed):
    (problem,) = faults(whole)

    lines = str(problem).splitlines()

    assert len(lines) == 4
    assert rule[0] in lines[0]
    assert repr(value) in lines[0]
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["allowed", "because", "fix"]
    assert all(line.partition(":")[2].strip() for line in lines[1:])


@pytest.mark.parametrize(
    "unbuilt",
    [
        {"model": mixture(), "rank_order": "tp-cp-pp-dp"},
        {"model": mixture(), "data_parallel": 4, "tensor_parallel": 2},
        {
            "model": mixture(),
            "data_parallel": 2,
            "tensor_parallel": 4,
            "sp": True,
            "expert_tensor_parallel": 2,
        },
        {"zero": 2, "schedule": "zb_h2", "stack": "megatron-core"},
        {"schedule": "zb_h1", "recompute": "full"},
        {"offload": True},
        {
            "batch": {"seq": 1024, "documents": [24, 1000]},
            "stack": "megatron-core",
            "data_parallel": 4,
            "context_parallel": 2,
        },
        {"batch": {"seq": 1024, "ranks": UNEQUAL_RANKS}, "stack": "megatron-core", "zero": 2},
        {"cluster": {"base": "dgx-a100", "groups": [ONE_NODE, ONE_NODE]}, "data_parallel": 16},
    ],
    ids=str,
)
def test_what_is_not_built_is_refused_rather_than_ignored(unbuilt):
    told = faults(parts(**unbuilt))

    assert any(p.because.endswith(("not supported yet", "are not supported yet")) for p in told)


def test_a_rule_is_asked_about_every_kind_of_micro_batch_and_names_the_first_that_breaks_it():
    wrong = {"documents": [24, 1000], "seq": 1000}
    (problem,) = faults(
        parts(batch={"seq": 1024, "micro_batches": [{}, wrong]}, stack="megatron-core", global_batch=16)
    )

    assert problem.field == "batch.micro_batches[1].documents"
    assert problem.value == "1024 tokens"


def test_a_rule_of_the_plan_says_for_which_micro_batch_it_fails():
    (problem,) = faults(
        parts(
            batch={"seq": 1024, "micro_batches": [{"count": 3}, {"seq": 513}]},
            data_parallel=4,
            tensor_parallel=2,
            sequence_parallel=True,
        )
    )

    assert problem.field == "plan.sequence_parallel"
    assert "batch.micro_batches[1]" in problem.allowed


def test_the_plain_job_keeps_every_rule():
    assert faults(parts()) == ()


def test_all_faults_of_a_job_are_told_at_once():
    whole = parts(
        batch={"seq": 1023, "packed": True},
        tensor_parallel=3,
        pipeline_parallel=5,
        sequence_parallel=True,
        global_batch=17,
        zero=2,
        offload=True,
        schedule="interleaved_1f1b",
        partition_activations=True,
    )

    fields = {problem.field for problem in faults(whole)}

    assert fields == {  # edits of these make degrees and batch right too
        "batch.packed",
        "plan.offload",
        "plan.partition_activations",
        "plan.pipeline_parallel",
        "plan.schedule",
        "plan.tensor_parallel",
        "plan.zero",
    }


@pytest.mark.parametrize("tensor", [1, 2, 4, 8, 16])
def test_key_value_heads_may_be_repeated_over_ranks(tensor):
    whole = parts(
        model=model(heads=16, kv_heads=4),
        cluster="selene:2",
        tensor_parallel=tensor,
        data_parallel=16 // tensor,
    )

    assert faults(whole) == ()


def test_a_uniform_deepspeed_pipeline_need_not_divide_the_blocks():
    whole = parts(model=model(blocks=10), stack=DEEPSPEED, data_parallel=2, pipeline_parallel=4)

    assert faults(whole) == ()


@pytest.mark.parametrize(("stages", "empty"), [(44, 1), (47, 1), (25, 0), (24, 0), (4, 0)])
def test_a_stage_that_would_hold_a_module_without_weights_alone_is_refused(stages, empty):
    """GPT-NeoX lists 44 blocks between two functions: one or two of 49 modules a stage leave one alone."""
    whole = parts(
        model=model(blocks=44),
        stack=DEEPSPEED,
        cluster=f"dgx-a100:{stages}",
        data_parallel=8,
        global_batch=8,
    )
    whole["plan"] |= {"pipeline_parallel": stages}

    told = faults(whole)

    assert [problem.because for problem in told] == ["a stage needs at least one layer"] * empty


def test_the_advised_pipeline_leaves_no_stage_empty():
    whole = parts(model=model(blocks=44), stack=DEEPSPEED, cluster="dgx-a100:47", pipeline_parallel=47)
    valid = make_job(**whole | {"plan": {"data_parallel": 376, "global_batch": 376, "precision": "fp16"}})

    (broken,) = check(valid.model_copy(update={"plan": Plan(**whole["plan"])}))
    (told,) = faults(whole)

    assert broken.fix == "set pipeline_parallel to 25"  # two modules a stage, the last but one stage apart
    assert faults(edited(whole, edits(told)[0])) == ()  # 25 stages would leave devices without a rank


@pytest.mark.parametrize("plan", [{}, {"zero": 1}, {"data_parallel": 1, "tensor_parallel": 8}], ids=str)
def test_a_stack_that_scatters_gradients_of_sharded_states_takes_plans_without_them(plan):
    scattered = {"base": "megatron-2022", "gradients": {"collective": "reduce_scatter"}}

    assert faults(parts(stack=scattered, **plan)) == ()


@pytest.mark.parametrize("schedule", ["auto", "1f1b"])
def test_a_pipeline_of_one_chunk_may_name_its_schedule_or_not(schedule):
    assert faults(parts(data_parallel=4, pipeline_parallel=2, schedule=schedule)) == ()


def test_plain_1f1b_is_refused_with_virtual_stages():
    told = faults(
        parts(data_parallel=2, pipeline_parallel=4, virtual_stages=2, global_batch=32, schedule="1f1b")
    )

    assert [problem.field for problem in told] == ["plan.schedule"]


def test_heads_that_differ_between_runs_of_blocks_are_all_cut_whole():
    runs = model(heads=16)
    runs["blocks"] = [model(heads=heads)["blocks"][0] for heads in (16, 12)]
    runs["hidden"] = 48 * 16

    told = faults(parts(model=runs, tensor_parallel=8, data_parallel=1))

    assert "a divisor of heads = 4: 1, 2, 4" in [problem.allowed for problem in told]


def test_the_width_that_cannot_be_cut_is_the_one_that_is_named():
    runs = model(ffn_hidden=4096)
    runs["blocks"] += model(ffn_hidden=4095)["blocks"]

    (told,) = faults(parts(model=runs, tensor_parallel=2, data_parallel=4))

    assert "4095" in told.allowed


def test_the_key_value_heads_that_cannot_be_cut_are_the_ones_that_are_named():
    runs = model(heads=24, kv_heads=4)
    runs["blocks"] += model(heads=24, kv_heads=6)["blocks"]

    (told,) = faults(parts(model=runs, tensor_parallel=4, data_parallel=2))

    assert "kv_heads = 6" in told.allowed


@all_cases("device", catalog.names("devices"))
def test_every_precision_that_is_called_allowed_can_be_chosen(device):
    node = {"device": device, "devices": 8, "host": "epyc-7763"}
    cluster = {"base": "dgx-a100", "groups": [{"node": node, "count": 1}]}
    wholes = [parts(cluster=cluster, precision=name) for name in ("bf16", "fp8", "nvfp4")]
    refused = [(whole, problem) for whole in wholes for problem in faults(whole)]

    pairs = [(whole, word) for whole, problem in refused for word in problem.allowed.split(", ")]

    assert refused or "fp4" in catalog.device(device).peak_flop_per_s
    for whole, precision in pairs:
        assert "plan.precision" not in [p.field for p in faults(edited(whole, {"precision": precision}))]


def test_heads_that_do_not_divide_the_width_are_refused():
    odd = model(heads=16) | {"hidden": 1000}  # 62.5 elements a head

    told = faults(parts(model=odd))

    assert any("heads" in problem.field for problem in told)


def test_more_heads_than_width_are_refused():
    empty = model(heads=2048) | {"hidden": 1024}  # a head of no elements: every time would be 0/0

    told = faults(parts(model=empty))

    assert any("heads" in problem.field for problem in told)


def test_query_heads_that_cannot_share_key_value_heads_are_refused():
    told = faults(parts(model=model(heads=16, kv_heads=5)))

    assert any("kv_heads" in problem.field for problem in told)


def test_a_sequence_longer_than_the_learned_positions_is_refused():
    short = model() | {"learned_positions": 1024}  # Megatron-LM: max_position_embeddings >= seq_length

    told = faults(parts(model=short, batch={"seq": 2048}))

    assert any("sequence_length" in p.field or "learned_positions" in p.field for p in told)


def test_a_rewrite_that_does_not_exist_is_refused():
    told = faults(parts(stack={"base": "megatron-2022", "rewrites": ["fused_sofmax"]}))

    assert any("rewrites" in problem.field for problem in told)


def test_a_gradient_copy_that_does_not_exist_is_refused():
    told = faults(parts(stack={"base": "megatron-2022", "gradients": {"copies": ["flaten"]}}))

    assert any("copies" in problem.field for problem in told)


def test_a_group_to_recompute_that_does_not_exist_is_refused():
    told = faults(
        parts(stack={"base": "megatron-2022", "selective_groups": ["atention"]}, recompute="selective")
    )

    assert any("selective_groups" in problem.field for problem in told)


def test_a_problem_shows_only_the_beginning_of_a_huge_value():
    problem = Problem(field="f", value="x" * 10_000, allowed="less", because="of its size", fix="cut it")

    assert len(str(problem).splitlines()[0]) < 120


@pytest.mark.parametrize("name", ["gpipe", "zb_h1", "zb_h2"])
def test_schedules_without_chunks_are_refused_by_name_with_virtual_stages(name):
    told = faults(parts(schedule=name, pipeline_parallel=4, virtual_stages=2, data_parallel=2))

    assert [(problem.field, problem.value) for problem in told] == [("plan.schedule", name)]


def test_blocks_of_128_may_be_cut_short_as_in_deepseek_v3():
    # arXiv:2412.19437, section 3.3.2: blocks of 128; 512 + 64 columns of the projection down to latents
    whole = parts(
        model="deepseek-v3", cluster="hgx-h800:8", data_parallel=64, expert_parallel=64, global_batch=64
    )

    told = faults(whole | {"plan": whole["plan"] | {"precision": "fp8_blockwise"}})

    assert [problem for problem in told if problem.field == "plan.precision"] == []


def test_the_stage_advised_beside_4_bit_weights_is_one_that_the_stack_has():
    adapters = {"rank": 16, "targets": ["qkv", "out"], "base_dtype": "nf4"}
    for stack, advised in (("torch-fsdp2", 0), ("composer-llm-foundry", 0), ("deepspeed-zero", 2)):
        job = {
            "model": {"base": "llama-3-8b", "adapters": adapters},
            "cluster": "dgx-h100:1",
            "stack": stack,
            "batch": {"sequence_length": 4096},
        }

        told = {zero: faults(job | {"plan": f"dp=8 mbs=1 gbs=64 zero={zero}"}) for zero in (3, advised)}

        assert [problem.fix.partition(",")[0] for problem in told[3]] == [f"set zero to {advised}"], stack
        assert not told[advised], stack
