"""As key_changes.py, of GPT-NeoX and of trainers that were added after it."""

CHANGES = {
    "gpt-neox": """
@ gpt_13b.yml gpus=0 cluster=dgx-h100 world_size=32
world_size 64
global_num_gpus 64
@ gpt_13b.yml gpus=0 cluster=dgx-h100 num_nodes=4 num_gpus=8
num_nodes 2
num_gpus 16
@ gpt_13b.yml gpus=64
pipe_parallel_size 2
model_parallel_size 4
sequence_parallel true
num_layers 44
hidden_size 4096
num_attention_heads 80
num_kv_heads 8
intermediate_size 16384
expansion_factor 2
mlp_multiple_of 3000
mlp_type llama
seq_length 1024
norm rmsnorm
use_qk_layernorm true
pos_emb alibi
rotary_pct 0.25
no_weight_tying false
attention_config [[[flash], 40]]
activation swiglu
gpt_j_residual true
use_bias_in_norms false
use_bias_in_attn_linear false
use_bias_in_mlp false
make_vocab_size_divisible_by 64
padded_vocab_size 32000
tokenizer_type HFTokenizer
vocab_file llama-2/tokenizer.model
attention_dropout 0.1
hidden_dropout 0.1
scaled_upper_triang_masked_softmax_fusion true
scaled_masked_softmax_fusion true
bias_gelu_fusion true
bias_dropout_fusion true
rope_fusion true
layernorm_fusion true
checkpoint_activations false
checkpoint_num_layers 4
partition_activations false
synchronize_each_layer false
checkpoint_in_cpu true
train_micro_batch_size_per_gpu 2
gradient_accumulation_steps 16
fp32_allreduce false
communication_data_type fp16
optimizer.type SGD
use_bnb_optimizer true
zero_optimization.stage 2
zero_optimization.reduce_bucket_size 1260000000
zero_optimization.cpu_offload true
zero_optimization.cpu_offload_params true
zero_optimization.offload_optimizer.device cpu
zero_optimization.offload_param.device cpu
zero_optimization.mics_shard_size 2
precision fp32
bf16.enabled false
@ gpt_13b.yml gpus=64 fp32_allreduce=false
data_types.grad_accum_dtype fp32
@ gpt_13b.yml gpus=64
fp16.enabled true
@ gpt_13b.yml gpus=64 bf16.enabled=false precision=bfloat16
precision fp16
@ gpt_13b.yml gpus=64 bf16.enabled=false fp16.enabled=true
fp16.type bfloat16
@ gpt_13b.yml gpus=64 pos_emb=learned
max_position_embeddings 4096
opt_pos_emb_offset 2
@ gpt_13b.yml gpus=64 gpt_j_residual=true
gpt_j_tied true
@ gpt_13b.yml gpus=64 norm=rmsnorm
rmsnorm_fusion true
@ gpt_13b.yml gpus=64 activation=swiglu
use_flashattn_swiglu true
@ gpt_13b.yml gpus=64 attention_config=[[[flash],40]]
sliding_window_width 512
@ gpt_6_7b.yml gpus=64
train_batch_size 256
zero_optimization.overlap_comm false
@ gpt_6_7b.yml gpus=64 zero_optimization.stage=3
zero_optimization.stage3_prefetch_bucket_size 0
""",
    "trl": """
@ zephyr_7b_full.yaml gpus=8
model_name_or_path meta-llama/Llama-2-7b-hf
max_seq_length 1024
max_length 512
packing true
per_device_train_batch_size 8
gradient_accumulation_steps 2
optim adafactor
bf16 full
fp16 true
gradient_checkpointing false
attn_implementation eager
deepspeed ds_config_zero2.json
deepspeed.zero_optimization.stage 2
fsdp full_shard
fsdp_config.fsdp_sharding_strategy FULL_SHARD
fsdp_config.sharding_strategy SHARD_GRAD_OP
load_in_4bit true
load_in_8bit true
accelerate.mixed_precision fp8
accelerate.distributed_type MEGATRON_LM
dp_shard_size 4
@ zephyr_7b_full.yaml gpus=0 accelerate.distributed_type=MULTI_GPU accelerate.num_processes=8
accelerate.num_processes 16
@ llama2_13b_fsdp.yaml gpus=8
fsdp_config.fsdp_offload_params true
fsdp_config.offload_params true
fsdp_config.fsdp_reshard_after_forward false
fsdp_config.reshard_after_forward false
torch_compile false
@ llama2_13b_fsdp.yaml gpus=16 dp_shard_size=4 dp_replicate_size=4
dp_replicate_size 2
@ llama2_13b_fsdp.yaml gpus=8 gradient_checkpointing=false
fsdp_config.fsdp_activation_checkpointing true
fsdp_config.activation_checkpointing true
@ qwen25_7b_lora.yaml gpus=8
use_peft false
lora_r 8
lora_dropout 0.1
lora_target_modules all-linear
load_in_4bit true
""",
    "torchtune": """
@ llama3_8b_full.yaml gpus=8
model._component_ torchtune.models.llama2.llama2_7b
tokenizer.max_seq_len 4096
dataset.packed false
batch_size 4
gradient_accumulation_steps 2
optimizer._component_ torch.optim.SGD
dtype fp16
compile true
compile.model true
enable_activation_checkpointing false
enable_activation_offloading true
fsdp_cpu_offload true
fsdp.cpu_offload true
fsdp_reshard_after_forward false
tensor_parallel_dim 2
context_parallel_dim 2
data_parallel_replicate_dim 2
data_parallel_shard_dim 4
@ llama31_70b_lora.yaml gpus=8
model.lora_attn_modules [q_proj]
model.apply_lora_to_mlp false
model.apply_lora_to_output true
model.lora_rank 8
model.lora_dropout 0.1
model.quantize_base true
""",
    "llm-foundry": """
@ mpt_7b.yaml gpus=8
max_seq_len 1024
train_loader.dataset.max_seq_len 512
model.name hf_causal_lm
model.d_model 2048
model.n_heads 64
model.n_layers 16
model.expansion_ratio 2
model.vocab_size 32000
model.no_bias false
model.tie_word_embeddings false
model.resid_pdrop 0.1
model.emb_pdrop 0.1
model.attn_config.attn_impl torch
model.attn_config.alibi false
model.attn_config.attn_pdrop 0.1
global_train_batch_size 512
device_train_microbatch_size 4
precision amp_fp16
optimizer.name decoupled_sgdw
fsdp_config.sharding_strategy SHARD_GRAD_OP
fsdp_config.mixed_precision DEFAULT
fsdp_config.activation_checkpointing false
fsdp_config.cpu_offload true
fsdp_config.data_parallel_shard_degree 4
fsdp_config.data_parallel_replicate_degree 2
compile_config {}
@ mpt_125m.yaml gpus=8
model.max_seq_len 4096
model.learned_pos_emb false
@ llama2_13b_hybrid.yaml gpus=0
n_gpus 32
model.pretrained_model_name_or_path meta-llama/Llama-2-7b-hf
""",
}
