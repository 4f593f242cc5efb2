"""Faults in files of other programs: each is told with the line and the key that are to blame."""

from collections import Counter

import broken_files
import pytest
from foreign_cases import FOREIGN, faults_in, files, replaced, rows
from megatron_cases import SCRIPTS

from flopcast.interop.configs.formats import KINDS

SAID = {"deepspeed": {"model": "llama-2-7b"}, "maxtext": {"cluster": "dgx-h100:2"}}
SAID["gpt-neox"] = {"cluster": "selene", "gpus": 96}
SAID["nemo"] = {"cluster": "dgx-h100:4"}
SAID["megatron"] = {"cluster": "dgx-h100"}
BROKEN = {  # a right file → what stands there -> what is put there instead -> the field that is blamed
    "deepspeed/zero3_bf16.json": """
"train_batch_size": 128 -> "train_batch_size": 127 -> train_batch_size
"train_batch_size": 128 -> "train_batch_size": "many" -> train_batch_size
"train_batch_size": 128 -> "train_batch_size": 0 -> train_batch_size
"train_batch_size": 128 -> "train_batch_size": 12.5 -> train_batch_size
"train_batch_size": 128 -> "train_batch_size": true -> train_batch_size
"train_batch_size": 128 -> "train_batch_size": 1e20 -> train_batch_size
"train_batch_size": 128 -> "train_batch_sizes": 128 -> train_batch_sizes
"train_batch_size": 128 -> "train_batch_size": "${BATCH}" -> train_batch_size
_gpu": 4 -> _gpu": [4] -> train_micro_batch_size_per_gpu
"gradient_accumulation_steps": 4 -> "gradient_accumulation_steps": -1 -> gradient_accumulation_steps
"type": "AdamW" -> "type": "OneBitAdam" -> optimizer.type
"type": "AdamW" -> "type": 7 -> optimizer.type
"stage": 3 -> "stage": 4 -> zero_optimization.stage
"stage": 3 -> "stage": "three" -> zero_optimization.stage
"stage": 3 -> "stage": 3, "mics_shard_sise": 4 -> zero_optimization.mics_shard_sise
"stage": 3 -> "stage": 3, "mics_shard_size": 3 -> plan.data_shard
"stage": 3 -> "stage": 3, "offload_param": {"device": "tape"} -> zero_optimization.offload_param.device
"overlap_comm": true -> "overlap_comm": "maybe" -> zero_optimization.overlap_comm
"reduce_bucket_size": 5e8 -> "reduce_bucket_size": "5 GB" -> zero_optimization.reduce_bucket_size
"gradient_clipping": 1.0 -> "gradient_clipping": 1.0, "gradient_clipping": 2.0 -> gradient_clipping
"gradient_clipping": 1.0 -> "gradient_clipping": !!python/object:os.system 1.0 -> tag
"gradient_clipping": 1.0 -> "gradient_clipping": &a 1.0 -> anchor
"gradient_clipping": 1.0 -> "gradient_clipping" 1.0 -> text
"gradient_clipping": 1.0 -> "elasticity": {"enabled": true} -> elasticity.enabled
"steps_per_print": 10 -> "fp16": {"enabled": true} -> fp16.enabled
"steps_per_print": 10 -> "communication_data_type": "int8" -> communication_data_type
"steps_per_print": 10 -> "sequence_parallel_size": 3 -> sequence_parallel_size
"steps_per_print": 10 -> "tensor_parallel": {"autotp_size": 3} -> tensor_parallel.autotp_size
""",
    "axolotl/qwen25_7b_qlora.yml": """
base_model: Qwen/Qwen2.5-7B-Instruct -> base_model: Qwen/Qwen9-7B -> base_model
base_model: Qwen/Qwen2.5-7B-Instruct -> base_model: [a, b] -> base_model
base_model: Qwen/Qwen2.5-7B-Instruct -> base_model: ${oc.env:MODEL} -> base_model
sequence_len: 2048 -> sequence_len: 0 -> sequence_len
sequence_len: 2048 -> sequence_len: long -> sequence_len
sequence_len: 2048 -> sequence_lenn: 2048 -> sequence_lenn
sequence_len: 2048 -> sequence_len: !!int "2048" -> tag
sequence_len: 2048 -> sequence_len: &n 2048 -> anchor
load_in_8bit: false -> load_in_8bit: true -> load_in_8bit
load_in_8bit: false -> load_in_8bit: sure -> load_in_8bit
adapter: qlora -> adapter: dora -> adapter
load_in_4bit: true -> load_in_4bit: false -> load_in_4bit
lora_r: 32 -> lora_r: 0 -> lora_r
lora_r: 32 -> lora_r: 2.5 -> lora_r
lora_dropout: 0.05 -> lora_dropout: 5 -> lora_dropout
lora_target_linear: true -> lora_target_linear: maybe -> lora_target_linear
micro_batch_size: 2 -> micro_batch_size: -2 -> micro_batch_size
micro_batch_size: 2 -> micro_batch_size: 2; gradient: 4 -> text
micro_batch_size: 2 -> micro_batch_sise: 2 -> micro_batch_sise
gradient_accumulation_steps: 4 -> gradient_accumulation_steps: true -> gradient_accumulation_steps
fp16: false -> fp16: true -> fp16
gradient_checkpointing: true -> gradient_checkpointing: offload -> gradient_checkpointing
deepspeed: -> deepspeed: conf/mine.json -> deepspeed
deepspeed: -> deepspeed: conf/zero3.json -> plan.zero
deepspeed: -> deepspeed: conf/zero1_offload.json -> plan.offload
mascot: llama -> rl: grpo -> rl
mascot: llama -> tensor_parallel_size: 3 -> tensor_parallel_size
mascot: llama -> mascot: } -> text
""",
    "llama-factory/llama3_qlora_bnb.yaml": """
model_name_or_path: meta-llama/Meta-Llama-3-8B -> model_name_or_path: models/own -> model_name_or_path
model_name_or_path: meta-llama/Meta-Llama-3-8B -> model_name_or_path: 8 -> model_name_or_path
quantization_bit: 4 -> quantization_bit: 8 -> quantization_bit
quantization_bit: 4 -> quantization_bit: four -> quantization_bit
quantization_method: bnb -> quantization_method: hqq -> quantization_method
stage: sft -> stage: rm -> stage
stage: sft -> stage: tuning -> stage
do_train: true -> do_train: false -> do_train
do_train: true -> do_train: yes -> do_train
finetuning_type: lora -> finetuning_type: oft -> finetuning_type
finetuning_type: lora -> finetuning_type: LoRAX -> finetuning_type
lora_rank: 16 -> lora_rank: -1 -> lora_rank
lora_rank: 16 -> lora_rank: 16 ranks -> lora_rank
lora_target: q_proj,v_proj -> lora_target: q_proj,wte -> lora_target
lora_target: q_proj,v_proj -> lora_target: "" -> lora_target
lora_target: q_proj,v_proj -> lora_target: [1, 2] -> lora_target
lora_dropout: 0.1 -> lora_dropout: some -> lora_dropout
cutoff_len: 1024 -> cutoff_len: 0 -> cutoff_len
cutoff_len: 1024 -> cutof_len: 1024 -> cutof_len
cutoff_len: 1024 -> cutoff_len: 1024: -> text
per_device_train_batch_size: 4 -> per_device_train_batch_size: auto -> per_device_train_batch_size
per_device_train_batch_size: 4 -> per_device_train_batch_size: *n -> anchor
gradient_accumulation_steps: 1 -> gradient_accumulation_steps: 0 -> gradient_accumulation_steps
bf16: true -> bf16: half -> bf16
bf16: true -> flash_attn: fa9 -> flash_attn
disable_gradient_checkpointing: true -> disable_gradient_checkpointing: 2 -> disable_gradient_checkpointing
disable_gradient_checkpointing: true -> use_badam: true -> use_badam
""",
    "nanotron/tiny_llama.yaml": """
dtype: bfloat16 -> dtype: float8 -> model.dtype
ddp_bucket_cap_mb: 25 -> ddp_bucket_cap_mb: 0 -> model.ddp_bucket_cap_mb
hidden_size: 2048 -> hidden_size: -2048 -> hidden_size
hidden_size: 2048 -> hidden_size: wide -> hidden_size
num_attention_heads: 32 -> num_attention_heads: 0 -> num_attention_heads
num_hidden_layers: 16 -> num_hidden_layers: 1.5 -> num_hidden_layers
num_key_value_heads: 8 -> num_key_value_heads: 5 -> num_key_value_heads
hidden_act: silu -> hidden_act: swirl -> hidden_act
vocab_size: 49152 -> vocab_size: -5 -> vocab_size
accumulate_grad_in_fp32: true -> accumulate_grad_in_fp32: 32 -> optimizer.accumulate_grad_in_fp32
zero_stage: 0 -> zero_stage: 3 -> optimizer.zero_stage
zero_stage: 0 -> zero_stage: one -> optimizer.zero_stage
name: adamW -> name: lamb -> optimizer.optimizer_factory.name
dp: 2 -> dp: 0 -> parallelism.dp
dp: 2 -> dp: 2.5 -> parallelism.dp
tp: 2 -> tp: ${TP} -> parallelism.tp
tp_mode: REDUCE_SCATTER -> tp_mode: BROADCAST -> parallelism.tp_mode
pp_engine: 1f1b -> pp_engine: zb -> parallelism.pp_engine
pp_engine: 1f1b -> pp_engnie: 1f1b -> parallelism.pp_engnie
micro_batch_size: 2 -> micro_batch_size: -1 -> tokens.micro_batch_size
micro_batch_size: 2 -> micro_batch_size: !!int 2 -> tag
_replica: 4 -> _replica: four -> tokens.batch_accumulation_per_replica
sequence_length: 4096 -> sequence_length: 4k -> tokens.sequence_length
sequence_length: 4096 -> sequence_length: *n -> anchor
profiler: null -> profiler: } -> text
""",
    "maxtext/llama2_7b_gpu.yml": """
per_device_batch_size: 4 -> per_device_batch_size: 0 -> per_device_batch_size
per_device_batch_size: 4 -> per_device_batch_size: 0.3 -> per_device_batch_size
per_device_batch_size: 4 -> per_device_batch_size: four -> per_device_batch_size
per_device_batch_size: 4 -> per_device_batch_sise: 4 -> per_device_batch_sise
max_target_length: 4096 -> max_target_length: -1 -> max_target_length
max_target_length: 4096 -> max_target_length: 4096; -> max_target_length
max_target_length: 4096 -> max_target_length: [4096] -> max_target_length
model_name: "llama2-7b" -> model_name: "llama9-7b" -> model_name
model_name: "llama2-7b" -> model_name: 7 -> model_name
model_name: "llama2-7b" -> model_name: "llama2-7b" 7 -> text
attention: "cudnn_flash_te" -> attention: "ring" -> attention
ici_fsdp_parallelism: 8 -> ici_fsdp_parallelism: 0 -> ici_fsdp_parallelism
ici_fsdp_parallelism: 8 -> ici_fsdp_parallelism: -3 -> ici_fsdp_parallelism
ici_fsdp_parallelism: 8 -> ici_fsdp_parallelism: all -> ici_fsdp_parallelism
ici_tensor_parallelism: 1 -> ici_tensor_parallelism: 3 -> ici_tensor_parallelism
ici_tensor_parallelism: 1 -> ici_tensor_paralelism: 1 -> ici_tensor_paralelism
ici_tensor_parallelism: 1 -> ici_fsdp_transpose_parallelism: 2 -> ici_fsdp_transpose_parallelism
dcn_fsdp_parallelism: 1 -> quantization: "int2" -> quantization
dcn_fsdp_parallelism: 1 -> dtype: "float32" -> dtype
dcn_fsdp_parallelism: 1 -> opt_type: "lion" -> opt_type
dcn_fsdp_parallelism: 1 -> use_dpo: True -> use_dpo
dcn_fsdp_parallelism: 1 -> optimizer_memory_host_offload: True -> plan.offload
remat_policy: "minimal_flash" -> remat_policy: "minimal_offloaded" -> remat_policy
remat_policy: "minimal_flash" -> remat_policy: "some" -> remat_policy
steps: 30 -> steps: !!python/name:os.system -> tag
steps: 30 -> gradient_accumulation_steps: 0 -> gradient_accumulation_steps
""",
    "megatron-bridge/llama31_8b_pretrain.yaml": r"""
mixed_precision: bf16_mixed -> mixed_precision: bf9_mixed -> mixed_precision
_target_: torch.nn.functional.silu -> _target_: torch.nn.functional.mish -> model.activation_func._target_
attention_dropout: 0.0 -> attention_dropout: 3 -> model.attention_dropout
attention_dropout: 0.0 -> attention_dropout: high -> model.attention_dropout
context_parallel_size: 2 -> context_parallel_size: 0 -> model.context_parallel_size
ffn_hidden_size: 14336 -> ffn_hidden_size: -1 -> model.ffn_hidden_size
gated_linear_unit: true -> gated_linear_unit: 1 -> model.gated_linear_unit
hidden_size: 4096\n -> hidden_size: wide\n -> model.hidden_size
hidden_size: 4096\n -> hidden_size: 40.5\n -> model.hidden_size
normalization: RMSNorm -> normalization: BatchNorm -> model.normalization
num_attention_heads: 32 -> num_attention_heads: 0 -> model.num_attention_heads
num_layers: 32 -> num_layers: ${layers} -> model.num_layers
num_layers: 32 -> num_layers: &l 32 -> anchor
num_query_groups: 8 -> num_query_groups: eight -> model.num_query_groups
position_embedding_type: rope -> position_embedding_type: spiral -> model.position_embedding_type
recompute_granularity: null -> recompute_granularity: half -> model.recompute_granularity
rotary_percent: 1.0 -> rotary_percent: 50 -> model.rotary_percent
sequence_parallel: false -> sequence_parallel: maybe -> model.sequence_parallel
  tensor_model_parallel_size: 1 -> tensor_model_parallel_size: 3 -> model.tensor_model_parallel_size
window_size: null -> window_size: [127, 5] -> model.window_size
seq_length: 8192\n -> seq_length: -8\n -> model.seq_length
global_batch_size: 512 -> global_batch_size: 0 -> train.global_batch_size
micro_batch_size: 1 -> micro_batch_size: 1.5 -> train.micro_batch_size
average_in_collective: true -> average_in_collective: 7 -> ddp.average_in_collective
train_iters: 100 -> train_iters: !!python/object/apply:os.system [ls] -> tag
scale_factor: 8.0 -> is_hybrid_model: true -> model.is_hybrid_model
bucket_size: null -> bucket_size: huge -> ddp.bucket_size
""",
    "nemo/llama2_70b.yaml": r"""
num_nodes: 4 -> num_nodes: 0 -> trainer.num_nodes
devices: 8 -> devices: -1 -> trainer.devices
devices: 8 -> devices: ${oc.env:GPUS} -> trainer.devices
accelerator: gpu -> accelerator: tpu -> trainer.accelerator
precision: bf16-mixed -> precision: 32 -> trainer.precision
precision: bf16-mixed -> precision: bf61 -> trainer.precision
micro_batch_size: 1 -> micro_batch_size: 1.5 -> model.micro_batch_size
micro_batch_size: 1 -> micro_batch_sise: 1 -> model.micro_batch_sise
global_batch_size: 128 -> global_batch_size: 0 -> model.global_batch_size
global_batch_size: 128 -> global_batch_size: 127 -> plan.global_batch
  tensor_model_parallel_size: 4 -> tensor_model_parallel_size: 3 -> model.tensor_model_parallel_size
  pipeline_model_parallel_size: 4 -> pipeline_model_parallel_size: x -> model.pipeline_model_parallel_size
context_parallel_size: 1 -> context_parallel_size: 0 -> model.context_parallel_size
encoder_seq_length: 4096 -> encoder_seq_length: long -> model.encoder_seq_length
max_position_embeddings: 4096 -> max_position_embeddings: 1024 -> model.max_position_embeddings
num_layers: 80 -> num_layers: ${layers} -> model.num_layers
num_layers: 80 -> num_layers: &l 80 -> anchor
num_layers: 80 -> num_layers: !!int "80" -> tag
  hidden_size: 8192 -> hidden_size: wide -> model.hidden_size
ffn_hidden_size: 28672 -> ffn_hidden_size: ${multiply:4, ${.depth}} -> model.ffn_hidden_size
ffn_hidden_size: 28672 -> ffn_hidden_size: ${eval:os.system} -> model.ffn_hidden_size
num_query_groups: 8 -> num_query_groups: eight -> model.num_query_groups
attention_dropout: 0.0 -> attention_dropout: 3 -> model.attention_dropout
normalization: rmsnorm -> normalization: batchnorm -> model.normalization
bias: false -> bias: perhaps -> model.bias
activation: fast-swiglu -> activation: reglu -> model.activation
headscale: false -> headscale: true -> model.headscale
transformer_block_type: pre_ln -> transformer_block_type: normformer -> model.transformer_block_type
position_embedding_type: rope -> position_embedding_type: sandwich -> model.position_embedding_type
rotary_percentage: 1.0 -> rotary_percentage: 50 -> model.rotary_percentage
attention_type: multihead -> attention_type: sparse -> model.attention_type
checkpoint_granularity: full -> checkpoint_granularity: half -> model.activations_checkpoint_granularity
checkpoint_method: block -> checkpoint_method: ring -> model.activations_checkpoint_method
checkpoint_num_layers: 1 -> checkpoint_num_layers: -1 -> model.activations_checkpoint_num_layers
  sequence_parallel: true -> sequence_parallel: maybe -> model.sequence_parallel
  fp8: true -> fp8: sure -> model.fp8
name: mcore_distributed_optim -> name: novograd -> model.optim.name
grad_sync_dtype: bf16 -> grad_sync_dtype: int8 -> model.optim.grad_sync_dtype
bucket_cap_mb: 125 -> ddp_bucket_size: big -> model.optim.ddp_bucket_size
ub_tp_comm_overlap: false -> fsdp: true -> model.fsdp
ub_tp_comm_overlap: false -> cpu_offloading: true -> model.cpu_offloading
ub_tp_comm_overlap: false -> use_emha: true -> model.use_emha
""",
    "torchtitan/llama3_8b_fsdp.toml": r"""
flavor = "8B" -> flavor = "7B" -> model.flavor
flavor = "8B" -> flavor = "9B" -> model.flavor
flavor = "8B" -> flavor = 8 -> model.flavor
flavor = "8B" -> flavour = "8B" -> model.flavour
flavor = "8B" -> flavor = "8B", -> text
name = "AdamW" -> name = "Lion" -> optimizer.name
name = "AdamW" -> name = 3 -> optimizer.name
local_batch_size = 1 -> local_batch_size = 0 -> training.local_batch_size
local_batch_size = 1 -> local_batch_size = 1.5 -> training.local_batch_size
local_batch_size = 1 -> local_batch_size = "one" -> training.local_batch_size
local_batch_size = 1 -> local_batch_sise = 1 -> training.local_batch_sise
seq_len = 8192 -> seq_len = -8192 -> training.seq_len
seq_len = 8192 -> seq_len = true -> training.seq_len
seq_len = 8192 -> seq_len = 8192; seq_len = 4096 -> text
max_norm = 1.0 -> global_batch_size = 31 -> training.global_batch_size
max_norm = 1.0 -> mixed_precision_param = "float32" -> training.mixed_precision_param
max_norm = 1.0 -> enable_cpu_offload = "maybe" -> training.enable_cpu_offload
max_norm = 1.0 -> data_parallel_type = "zero" -> training.data_parallel_type
_shard_degree = -1 -> _shard_degree = 0 -> parallelism.data_parallel_shard_degree
_shard_degree = -1 -> _shard_degree = "all" -> parallelism.data_parallel_shard_degree
tensor_parallel_degree = 1 -> tensor_parallel_degree = 3 -> parallelism.tensor_parallel_degree
pipeline_parallel_degree = 1 -> pipeline_parallel_degree = x -> text
[checkpoint] -> module_fqns_per_model_part = ["a"]\n[checkpoint] -> parallelism.module_fqns_per_model_part
[checkpoint] -> fsdp_reshard_after_forward = "often"\n[checkpoint] -> parallelism.fsdp_reshard_after_forward
mode = "selective" -> mode = "some" -> activation_checkpoint.mode
selective_ac_option = "op" -> selective_ac_option = "every" -> activation_checkpoint.selective_ac_option
selective_ac_option = "op" -> selective_ac_option = 0.5 -> activation_checkpoint.selective_ac_option
[job] -> fault_tolerance.enable = true\n[job] -> fault_tolerance.enable
""",
    "megatron/llama2_7b_arrays.sh": """
--num-layers 32 -> --num-layers 0 -> --num-layers
--num-layers 32 -> --num-layers many -> --num-layers
--num-layers 32 -> --num-layer 32 -> --num-layer
--hidden-size 4096 -> --hidden-size 4096.5 -> --hidden-size
--hidden-size 4096 -> --hidden-size $WIDTH -> --hidden-size
--ffn-hidden-size 11008 -> --ffn-hidden-size -1 -> --ffn-hidden-size
--num-attention-heads 32 -> --num-attention-heads -> --num-attention-heads
--num-attention-heads 32 -> --num-attention-heads 0 -> --num-attention-heads
--seq-length 4096 -> --seq-length 4k -> --seq-length
--max-position-embeddings 4096 -> --max-position-embeddings 2048 -> --max-position-embeddings
--position-embedding-type rope -> --position-embedding-type spiral -> --position-embedding-type
--normalization RMSNorm -> --normalization BatchNorm -> --normalization
--swiglu -> --swiglu --squared-relu -> --swiglu
--swiglu -> --swiglu 3 -> --swiglu
--disable-bias-linear -> --hybrid-override-pattern M-M- -> --hybrid-override-pattern
--disable-bias-linear -> --window-size 128 -> --window-size
--attention-dropout 0.0 -> --attention-dropout 3 -> --attention-dropout
--hidden-dropout 0.0 -> --hidden-dropout high -> --hidden-dropout
--make-vocab-size-divisible-by 1 -> --make-vocab-size-divisible-by 0 -> --make-vocab-size-divisible-by
--micro-batch-size 1 -> --micro-batch-size 1.5 -> --micro-batch-size
--micro-batch-size 1 -> --batch-size 1 -> --batch-size
--global-batch-size 1024 -> --global-batch-size 0 -> --global-batch-size
--global-batch-size 1024 -> --global-batch-size 1000 -> plan.global_batch
--bf16 -> --bf16 --fp16 -> --fp16
--use-flash-attn -> --attention-backend flush -> --attention-backend
--tensor-model-parallel-size 2 -> --tensor-model-parallel-size 3 -> --tensor-model-parallel-size
--tensor-model-parallel-size 2 -> --tensor-model-parallel-size two -> --tensor-model-parallel-size
--sequence-parallel -> --sequence-parallel 1 -> --sequence-parallel
--use-distributed-optimizer -> --use-distributed-optimizer --use-torch-fsdp2 -> --use-distributed-optimizer
""",
}
BROKEN |= broken_files.BROKEN
CASES = [(file, *row) for file, table in BROKEN.items() for row in rows(table)]


FEWEST_CONFIGS, FEWEST_BROKEN = 40, 20


def place_of(file):
    """The path of a file of a format; scripts of Megatron-LM have a folder of their own."""
    kind, _, name = file.partition("/")
    return SCRIPTS / name if kind == "megatron" else FOREIGN / file


@pytest.mark.parametrize(("file", "old", "new", "field"), CASES)
def test_a_fault_is_told_with_its_line_and_field(file, old, new, field, tmp_path):
    old, new = (part.replace("\\n", "\n") for part in (old, new))
    text, line = replaced(place_of(file).read_text(encoding="utf-8"), old, new)
    spoiled = tmp_path / file.split("/")[1]
    spoiled.write_text(text, encoding="utf-8")

    assert (line, field) in faults_in(spoiled, **SAID.get(file.split("/")[0], {}))


@pytest.mark.parametrize("file", BROKEN)
def test_a_file_to_be_broken_is_right_as_it_is(file):
    assert faults_in(place_of(file), **SAID.get(file.split("/")[0], {})) == []


def test_forty_files_are_read_and_of_each_format_twenty_broken_ones_are_refused():
    formats = {*KINDS, "megatron"}
    found = Counter(file.partition("/")[0] for file in files())
    found["megatron"] = len(list(SCRIPTS.iterdir()))
    broken = {file.partition("/")[0]: len({*rows(table)}) for file, table in BROKEN.items()}

    assert found.keys() == broken.keys() == formats
    assert found.total() >= FEWEST_CONFIGS
    assert min(found.values()) >= 5
    assert {kind: number for kind, number in broken.items() if number < FEWEST_BROKEN} == {}
