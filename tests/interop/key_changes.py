"""For every key that a reader counts as read: a file, and another value that the key may have.

A line "@ FILE gpus=N KEY=VALUE …" names a right file with what is put into it; the lines below give a key
and its other value, both as YAML. A key may stand several times. What is set in goes on from the line
before. Of the Megatron family: key_changes_megatron.py.
"""

CHANGES = {
    "deepspeed": """
@ zero3_bf16.json gpus=8
train_batch_size 64
train_micro_batch_size_per_gpu 2
zero_optimization.stage 2
zero_optimization.overlap_comm false
zero_optimization.reduce_bucket_size 1000000
zero_optimization.stage3_prefetch_bucket_size 0
zero_optimization.mics_shard_size 4
zero_optimization.offload_optimizer.device cpu
zero_optimization.offload_param.device nvme
zero_optimization.cpu_offload true
zero_optimization.cpu_offload_params true
optimizer.type SGD
communication_data_type fp32
tensor_parallel.autotp_size 2
@ ulysses_mics.json gpus=16
gradient_accumulation_steps 8
sequence_parallel_size 2
@ zero3_bf16.json gpus=8 bf16.enabled=false fp16.enabled=true
fp16.enabled false
@ zero3_bf16.json gpus=8
bf16.enabled false
@ zero3_bf16.json gpus=8 bf16=null bfloat16.enabled=true
bfloat16.enabled false
@ zero3_bf16.json gpus=8 zero_optimization.stage=1
zero_optimization.use_multi_rank_bucket_allreduce false
@ zero3_bf16.json gpus=8 zero_optimization.stage=1 zero_optimization.use_multi_rank_bucket_allreduce=false
zero_optimization.reduce_scatter false
data_types.grad_accum_dtype fp32
""",
    "torchtitan": """
@ llama3_8b_fsdp.toml gpus=8
model.name llama2
model.flavor 70B
model.converters [float8]
optimizer.name SGD
training.local_batch_size 2
training.global_batch_size 32
training.seq_len 4096
training.mixed_precision_param float32
training.enable_cpu_offload true
training.enable_fp8_linear true
training.enable_float8_linear true
training.compile true
float8.enable_float8_linear true
compile.enable true
activation_checkpoint.mode full
activation_checkpoint.selective_ac_option 3
parallelism.tensor_parallel_degree 2
parallelism.context_parallel_degree 2
parallelism.pipeline_parallel_degree 2
parallelism.data_parallel_replicate_degree 2
parallelism.fsdp_reshard_after_forward never
@ llama3_8b_fsdp.toml gpus=0 parallelism.data_parallel_shard_degree=8
parallelism.data_parallel_shard_degree 4
@ llama3_8b_fsdp.toml gpus=0 parallelism=null training.data_parallel_shard_degree=8
training.data_parallel_shard_degree 4
@ llama3_8b_fsdp.toml gpus=0 parallelism=null experimental.data_parallel_shard_degree=8
experimental.data_parallel_shard_degree 4
@ llama3_8b_fsdp.toml gpus=8 parallelism=null
experimental.tensor_parallel_degree 2
experimental.context_parallel_degree 2
experimental.pipeline_parallel_degree 2
experimental.data_parallel_replicate_degree 2
experimental.fsdp_reshard_after_forward never
training.context_parallel_degree 2
training.pipeline_parallel_degree 2
training.data_parallel_replicate_degree 2
training.fsdp_reshard_after_forward never
@ llama3_8b_fsdp.toml gpus=8
training.data_parallel_type ddp
@ llama2_7b_ddp.toml gpus=0
training.batch_size 4
training.data_parallel_degree 2
training.tensor_parallel_degree 4
@ llama3_8b_fsdp.toml gpus=8 compile.enable=true
compile.components [loss]
@ llama3_8b_fsdp.toml gpus=8 compile.enable=true parallelism.tensor_parallel_degree=4
parallelism.enable_async_tensor_parallel true
experimental.enable_async_tensor_parallel true
training.enable_async_tensor_parallel true
@ llama3_8b_hsdp_cp.toml gpus=64
parallelism.context_parallel_rotate_method allgather
parallelism.context_parallel_load_balancer none
@ llama3_8b_hsdp_cp.toml gpus=64 parallelism.context_parallel_rotate_method=null
experimental.context_parallel_rotate_method alltoall
experimental.context_parallel_load_balancer none
training.context_parallel_rotate_method alltoall
training.context_parallel_load_balancer none
@ llama3_8b_fsdp.toml gpus=8 model.name=deepseek_v3 model.flavor=16B activation_checkpoint.mode=full
parallelism.expert_parallel_degree 4
parallelism.expert_tensor_parallel_degree 2
experimental.expert_parallel_degree 4
experimental.expert_tensor_parallel_degree 2
training.expert_parallel_degree 4
training.expert_tensor_parallel_degree 2
@ llama3_70b_interleaved.toml gpus=64
parallelism.pipeline_parallel_schedule 1F1B
parallelism.pipeline_parallel_split_points [layers.12,layers.22,layers.32,layers.42,layers.52,
  layers.62,layers.72]
parallelism.pipeline_parallel_layers_per_stage 5
parallelism.pipeline_parallel_microbatch_size 2
parallelism.pipeline_parallel_first_stage_less_layers 4
parallelism.pipeline_parallel_last_stage_less_layers 4
@ llama3_70b_interleaved.toml gpus=64 parallelism=null experimental.data_parallel_shard_degree=2
  experimental.tensor_parallel_degree=8 experimental.pipeline_parallel_degree=4
  experimental.pipeline_parallel_schedule=Interleaved1F1B
experimental.pipeline_parallel_schedule 1F1B
experimental.pipeline_parallel_split_points [layers.12,layers.22,layers.32,layers.42,layers.52,
  layers.62,layers.72]
experimental.pipeline_parallel_layers_per_stage 5
experimental.pipeline_parallel_microbatch_size 2
experimental.pipeline_parallel_first_stage_less_layers 4
experimental.pipeline_parallel_last_stage_less_layers 4
@ llama3_70b_interleaved.toml gpus=64 parallelism=null training.data_parallel_shard_degree=2
  training.tensor_parallel_degree=8 training.pipeline_parallel_degree=4
  training.pipeline_parallel_schedule=Interleaved1F1B
training.pipeline_parallel_schedule 1F1B
training.pipeline_parallel_split_points [layers.12,layers.22,layers.32,layers.42,layers.52,
  layers.62,layers.72]
training.pipeline_parallel_layers_per_stage 5
training.pipeline_parallel_microbatch_size 2
training.pipeline_parallel_first_stage_less_layers 4
training.pipeline_parallel_last_stage_less_layers 4
@ llama3_8b_registry.json gpus=8
model_spec.name llama2
model_spec.flavor 70B
model_converters.converters []
@ llama3_8b_fsdp.toml gpus=8 model.converters=[float8]
float8.recipe_name rowwise
quantize.linear.float8.recipe_name rowwise
@ llama3_8b_fsdp.toml gpus=8 cluster=dgx-b200 model.converters=[mx]
mx.recipe_name tensorwise
quantize.linear.mx.recipe_name tensorwise
""",
    "axolotl": """
@ llama31_8b_full_fsdp.yaml gpus=8
base_model meta-llama/Llama-2-7b-hf
sequence_len 2048
micro_batch_size 1
gradient_accumulation_steps 2
optimizer adafactor
fsdp_config.fsdp_offload_params true
fsdp_config.fsdp_sharding_strategy NO_SHARD
fsdp_config.fsdp_reshard_after_forward false
fsdp_config.reshard_after_forward false
dp_shard_size 4
dp_replicate_size 2
tensor_parallel_size 2
context_parallel_size 2
sequence_parallel_degree 2
torch_compile true
sample_packing false
eager_attention true
attn_implementation eager
gradient_checkpointing false
activation_offloading true
fp8 true
deepspeed zero3.json
@ llama31_8b_full_fsdp.yaml gpus=8 fsdp_config.fsdp_sharding_strategy=null
  fsdp_config.fsdp_offload_params=null
fsdp_config.sharding_strategy NO_SHARD
fsdp_config.offload_params true
fsdp [shard_grad_op]
@ llama31_8b_full_fsdp.yaml gpus=8 gradient_checkpointing=false
fsdp_config.fsdp_activation_checkpointing true
fsdp_config.activation_checkpointing true
@ qwen25_7b_qlora.yml gpus=8
lora_r 8
lora_dropout 0.0
load_in_4bit false
load_in_8bit true
lora_target_linear false
@ mistral_lora_zero2.yml gpus=8
lora_target_modules [q_proj]
@ mistral_lora_zero2.yml gpus=8 load_in_4bit=null
adapter qlora
@ llama3_70b_zero3_inline.yaml gpus=32
deepspeed.zero_optimization.stage 2
deepspeed.zero_optimization.reduce_bucket_size 1000000
deepspeed.zero_optimization.overlap_comm false
deepspeed.zero_optimization.mics_shard_size 8
deepspeed.train_batch_size 128
deepspeed.train_micro_batch_size_per_gpu 2
deepspeed.gradient_accumulation_steps 4
deepspeed.optimizer.type SGD
deepspeed.communication_data_type fp32
deepspeed.bf16.enabled false
deepspeed.fp16.enabled true
deepspeed.sequence_parallel_size 2
deepspeed.tensor_parallel.autotp_size 2
@ llama31_8b_full_fsdp.yaml gpus=8 bf16=false
fp16 true
float16 true
@ llama31_8b_full_fsdp.yaml gpus=8 bf16=null
bfloat16 true
@ llama31_8b_full_fsdp.yaml gpus=8 bf16=true
bf16 false
""",
    "llama-factory": """
@ llama3_lora_sft.yaml gpus=8
model_name_or_path Qwen/Qwen2.5-7B
stage pt
stage dpo
finetuning_type full
cutoff_len 1024
per_device_train_batch_size 2
gradient_accumulation_steps 4
optim adafactor
lora_rank 16
lora_target q_proj
lora_dropout 0.1
quantization_bit 4
fp8 true
disable_gradient_checkpointing true
deepspeed ds_z2_config.json
flash_attn disabled
packing true
neat_packing true
do_train false
bf16 false
@ llama3_qlora_bnb.yaml gpus=8
quantization_method hqq
@ llama3_lora_sft.yaml gpus=8 bf16=null
fp16 true
pure_bf16 true
@ llama3_lora_sft.yaml gpus=8 do_train=null
do_predict true
@ qwen25_full_ds3.yaml gpus=8 deepspeed.zero_optimization.stage=3
deepspeed.zero_optimization.stage 2
deepspeed.zero_optimization.overlap_comm false
@ gemma2_fsdp.yaml gpus=8
fsdp shard_grad_op
torch_compile true
fsdp_config.fsdp_offload_params true
fsdp_config.fsdp_sharding_strategy NO_SHARD
""",
    "nanotron": """
@ tiny_llama.yaml gpus=0
parallelism.dp 4
@ tiny_llama.yaml gpus=8
parallelism.tp 4
parallelism.pp 1
parallelism.context_parallel_size 2
parallelism.pp_engine afab
parallelism.tp_mode ALL_REDUCE
parallelism.recompute_layer true
parallelism.recompute_granularity selective
tokens.micro_batch_size 1
tokens.batch_accumulation_per_replica 8
tokens.sequence_length 2048
optimizer.zero_stage 1
optimizer.accumulate_grad_in_fp32 false
optimizer.optimizer_factory.name sgd
model.dtype float16
model.ddp_bucket_cap_mb 50
model.make_vocab_size_divisible_by 1000
model.model_config.hidden_size 1024
model.model_config.vocab_size 32000
@ qwen2_windows.yaml gpus=8
parallelism.expert_parallel_size 4
model.model_config.sliding_window_size 4096
model.model_config.attention_bias false
model.model_config.moe_config {num_experts: 8}
""",
    "maxtext": """
@ llama2_7b_gpu.yml gpus=16
model_name llama3-8b
hardware tpu
per_device_batch_size 2
gradient_accumulation_steps 2
max_target_length 2048
dtype float16
quantization fp8
remat_policy full
remat_policy save_dot_except_mlp
attention dot_product
opt_type sgd
optimizer_memory_host_offload true
parameter_memory_host_offload true
ici_tensor_parallelism 2
ici_tensor_sequence_parallelism 2
ici_pipeline_parallelism 2
ici_context_parallelism 2
ici_fsdp_parallelism 4
dcn_tensor_parallelism 2
dcn_tensor_sequence_parallelism 2
dcn_pipeline_parallelism 2
dcn_context_parallelism 2
@ llama2_7b_gpu.yml gpus=16 dcn_data_parallelism=1
dcn_fsdp_parallelism 2
@ llama2_7b_gpu.yml gpus=0
ici_data_parallelism 2
dcn_data_parallelism 4
@ mixtral_named.yml gpus=16
ici_expert_parallelism 4
dcn_expert_parallelism 2
@ llama2_7b_gpu.yml gpus=16 override_model_config=true base_num_decoder_layers=16
override_model_config false
@ llama2_7b_gpu.yml gpus=32 ici_context_parallelism=2
context_parallel_load_balance false
@ custom_pipeline.yml gpus=64
base_emb_dim 2048
base_num_query_heads 16
base_num_kv_heads 16
base_mlp_dim 11008
base_num_decoder_layers 16
head_dim 64
vocab_size 32000
mlp_activations [gelu]
logits_via_embedding true
decoder_block mixtral
global_parameter_scale 2
num_experts 8
num_pipeline_microbatches 8
""",
}
