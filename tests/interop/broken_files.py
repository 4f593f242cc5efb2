"""As BROKEN of test_foreign_faults.py, of GPT-NeoX and of trainers that were added after it."""

BROKEN = {
    "gpt-neox/neox_20b.yml": """
"pipe-parallel-size": 4 -> "pipe-parallel-size": -1 -> pipe_parallel_size
"model-parallel-size": 2 -> "model-parallel-size": 5 -> model_parallel_size
"pipe-parallel-size": 4 -> "pipe-paralel-size": 4 -> pipe_paralel_size
"model-parallel-size": 2 -> "model-parallel-size": two -> model_parallel_size
"model-parallel-size": 2 -> "model-parallel-size": 2, "row_parallel_size": 2 -> row_parallel_size
"model-parallel-size": 2 -> "model-parallel-size": 2, "model_parallel_size": 2 -> model_parallel_size
"num-layers": 44 -> "num-layers": 0 -> num_layers
"num-layers": 44 -> "num-layers": 44, "num_unique_layers": 11 -> num_unique_layers
"hidden-size": 6144 -> "hidden-size": wide -> hidden_size
"num-attention-heads": 64 -> "num-attention-heads": 6.4 -> num_attention_heads
"max-position-embeddings": 2048 -> "max-position-embeddings": 1024 -> max_position_embeddings
"norm": "layernorm" -> "norm": "scalenorm" -> norm
"norm": "layernorm" -> "norm": "batchnorm" -> norm
"pos-emb": "rotary" -> "pos-emb": "rpe" -> pos_emb
"pos-emb": "rotary" -> "pos-emb": "spiral" -> pos_emb
"rotary_pct": 0.25 -> "rotary_pct": 25 -> rotary_pct
"no-weight-tying": true -> "no-weight-tying": 2 -> no_weight_tying
"init_method": "small_init" -> "attention-config": [[["mamba"], 44]] -> attention_config
"init_method": "small_init" -> "attention-config": [[["flash"], 11]] -> attention_config
"init_method": "small_init" -> "attention-config": [[["flash", "global"], 22]] -> attention_config
"init_method": "small_init" -> "moe_num_experts": 8 -> moe_num_experts
"init_method": "small_init" -> "te_mha": true -> te_mha
"init_method": "small_init" -> "activation": "sine" -> activation
"type": "Adam" -> "type": "OneBitAdam" -> optimizer.type
"type": "Adam" -> "type": "Adamm" -> optimizer.type
"stage": 1 -> "stage": 4 -> zero_optimization.stage
"stage": 1 -> "stage": 1, "zero_quantized_weights": true -> zero_optimization.zero_quantized_weights
"train_micro_batch_size_per_gpu": 4 -> "train_micro_batch_size_per_gpu": 0 -> train_micro_batch_size_per_gpu
"gradient_accumulation_steps": 32 -> "gradient_accumulation_steps": few -> gradient_accumulation_steps
"gradient_accumulation_steps": 32 -> "train_batch_size": 100 -> plan.global_batch
"checkpoint-num-layers": 1 -> "checkpoint-num-layers": 0 -> checkpoint_num_layers
"checkpoint-num-layers": 1 -> "checkpoint-in-cpu": true -> checkpoint_in_cpu
"hidden-dropout": 0 -> "hidden-dropout": 2 -> hidden_dropout
"fp16": true, "enabled": true -> "fp16": true, "enabled": false -> fp16.enabled
"fp16": true, "enabled": true -> "fp16": true, "enabled": maybe -> fp16.enabled
"train-iters": 150000 -> "train_impl": "dpo" -> train_impl
""",
    "trl/qwen25_7b_lora.yaml": """
Qwen/Qwen2.5-7B-Instruct -> Qwen/Qwen9-7B -> model_name_or_path
max_length: 4096 -> max_length: 0 -> max_length
max_length: 4096 -> max_lenght: 4096 -> max_lenght
packing: true -> packing: maybe -> packing
packing: true -> activation_offloading: true -> activation_offloading
packing: true -> loss_type: dpo -> loss_type
packing: true -> beta: 0.1 -> beta
packing: true -> packing: &p true -> anchor
packing: true -> deepspeed: mine.json -> deepspeed
packing: true -> load_in_8bit: true -> load_in_8bit
packing: true -> attn_implementation: fast -> attn_implementation
packing: true -> bf16: half -> bf16
packing: true -> sequence_parallel_size: 4 -> sequence_parallel_size
per_device_train_batch_size: 2 -> per_device_train_batch_size: 0 -> per_device_train_batch_size
gradient_accumulation_steps: 8 -> gradient_accumulation_steps: few -> gradient_accumulation_steps
gradient_checkpointing: false -> gradient_checkpointing: perhaps -> gradient_checkpointing
use_peft: true -> use_peft: 3 -> use_peft
lora_r: 32 -> lora_r: 0 -> lora_r
[q_proj, k_proj, v_proj, o_proj] -> [q_proj, side_proj] -> lora_target_modules
[q_proj, k_proj, v_proj, o_proj] -> [] -> lora_target_modules
""",
    "torchtune/llama3_8b_full.yaml": """
torchtune.models.llama3.llama3_8b -> torchtune.models.llama9.llama9_8b -> model._component_
max_seq_len: 8192 -> max_seq_len: 0 -> tokenizer.max_seq_len
max_seq_len: 8192 -> max_seq_len: long -> tokenizer.max_seq_len
packed: True -> packed: perhaps -> dataset.packed
batch_size: 2 -> batch_size: 0 -> batch_size
batch_size: 2 -> batch_size: two -> batch_size
batch_size: 2 -> batch_sise: 2 -> batch_sise
gradient_accumulation_steps: 1 -> gradient_accumulation_steps: -1 -> gradient_accumulation_steps
gradient_accumulation_steps: 1 -> kd_ratio: 0.5 -> kd_ratio
gradient_accumulation_steps: 1 -> tensor_parallel_dim: 3 -> tensor_parallel_dim
gradient_accumulation_steps: 1 -> data_parallel_shard_dim: 3 -> data_parallel_shard_dim
gradient_accumulation_steps: 1 -> expert_parallel_dim: 2 -> expert_parallel_dim
gradient_accumulation_steps: 1 -> fsdp_cpu_offload: maybe -> fsdp_cpu_offload
gradient_accumulation_steps: 1 -> max_new_tokens: 300 -> max_new_tokens
compile: False -> compile: fast -> compile
_checkpointing: True -> _checkpointing: 2 -> enable_activation_checkpointing
enable_activation_offloading: False -> enable_activation_offloading: True -> enable_activation_offloading
dtype: bf16 -> dtype: fp32 -> dtype
dtype: bf16 -> dtype: int8 -> dtype
device: cuda -> quantizer: {groupsize: 256} -> quantizer.groupsize
device: cuda -> device: !!str cuda -> tag
""",
    "llm-foundry/mpt_7b.yaml": """
max_seq_len: 2048 -> max_seq_len: 0 -> max_seq_len
max_seq_len: 2048 -> max_seq_len: ${length} -> max_seq_len
max_seq_len: 2048 -> max_seq_lenn: 2048 -> max_seq_lenn
name: mpt_causal_lm -> name: gpt_causal_lm -> model.name
d_model: 4096 -> d_model: wide -> model.d_model
n_heads: 32 -> n_heads: 0 -> model.n_heads
n_layers: 32 -> n_layers: 3.5 -> model.n_layers
expansion_ratio: 4 -> ffn_config: {ffn_type: mptglu} -> model.ffn_config.ffn_type
vocab_size: 50368 -> vocab_size: -1 -> model.vocab_size
attn_impl: triton -> attn_impl: ring -> model.attn_config.attn_impl
attn_impl: triton -> kv_n_heads: 8 -> model.attn_config.kv_n_heads
alibi: true -> alibi: maybe -> model.attn_config.alibi
alibi: true -> num_hidden_groups: 4 -> model.attn_config.num_hidden_groups
global_train_batch_size: 1024 -> global_train_batch_size: many -> global_train_batch_size
global_train_batch_size: 1024 -> global_train_batch_size: 1000 -> plan.global_batch
microbatch_size: 8 -> microbatch_size: auto -> device_train_microbatch_size
microbatch_size: 8 -> microbatch_size: 0 -> device_train_microbatch_size
precision: amp_bf16 -> precision: fp32 -> precision
precision: amp_bf16 -> precision: amp_bf61 -> precision
sharding_strategy: FULL_SHARD -> sharding_strategy: HALF_SHARD -> fsdp_config.sharding_strategy
mixed_precision: PURE -> mixed_precision: FULL -> fsdp_config.mixed_precision
activation_checkpointing: true -> activation_checkpointing: some -> fsdp_config.activation_checkpointing
activation_cpu_offload: false -> activation_cpu_offload: true -> fsdp_config.activation_cpu_offload
limit_all_gathers: true -> data_parallel_shard_degree: 3 -> fsdp_config.data_parallel_shard_degree
""",
}
