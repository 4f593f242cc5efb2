"""As key_changes.py, for Megatron-Bridge and NeMo, and for the flags that scripts of Megatron-LM give."""

BRIDGE = """
@ llama31_8b_pretrain.yaml gpus=16
model.num_layers 16
model.hidden_size 2048
model.ffn_hidden_size 8192
model.num_attention_heads 16
model.num_query_groups 4
model.kv_channels 64
model.normalization LayerNorm
model.hidden_dropout 0.1
model.attention_dropout 0.1
model.rotary_percent 0.5
model.make_vocab_size_divisible_by 1000
model.vocab_size 32000
model.position_embedding_type none
model.seq_length 4096
model.tensor_model_parallel_size 2
model.pipeline_model_parallel_size 2
model.context_parallel_size 4
model.cp_comm_type a2a
model.recompute_granularity full
model.softmax_type learnable
model.qk_layernorm true
model.add_bias_linear true
model.add_qkv_bias true
model.share_embeddings_and_output_weights true
model.gradient_accumulation_fusion false
model.apply_rope_fusion false
model.bias_activation_fusion false
model.bias_dropout_fusion false
model.activation_func gelu
model.activation_func._target_ torch.nn.functional.gelu
model.gated_linear_unit false
model.mtp_num_layers 1
model.multi_latent_attention true
model.num_moe_experts 8
train.micro_batch_size 2
train.global_batch_size 256
train.rampup_batch_size [16, 16, 1000]
ddp.overlap_grad_reduce false
ddp.overlap_param_gather false
ddp.average_in_collective false
ddp.check_for_nan_in_grad true
ddp.bucket_size 1000000
optimizer.optimizer sgd
optimizer.optimizer_cpu_offload true
optimizer.use_precision_aware_optimizer true
comm_overlap.overlap_grad_reduce false
comm_overlap.overlap_param_gather false
comm_overlap.bucket_size 1000000
mixed_precision bf16_with_fp8_current_scaling_mixed
@ llama31_8b_pretrain.yaml gpus=16 model.context_parallel_size=1
model.window_size [127, 0]
model.attention_backend unfused
model.attention_backend._args_ [3]
model.transformer_impl local
@ llama31_8b_pretrain.yaml gpus=16 model.position_embedding_type=learned_absolute
model.max_position_embeddings 16384
@ llama31_8b_pretrain.yaml gpus=16 model.context_parallel_size=1 model.attention_backend=local
model.masked_softmax_fusion false
@ llama31_8b_pretrain.yaml gpus=16 ddp.use_distributed_optimizer=false
  optimizer.use_distributed_optimizer=false ddp.overlap_param_gather=false
ddp.use_distributed_optimizer true
optimizer.use_distributed_optimizer true
@ llama31_8b_pretrain.yaml gpus=16 ddp.data_parallel_sharding_strategy=optim_grads_params
ddp.use_megatron_fsdp true
@ llama31_8b_pretrain.yaml gpus=16 ddp.use_distributed_optimizer=false
  ddp.overlap_param_gather=false optimizer.use_distributed_optimizer=false
dist.use_torch_fsdp2 true
@ llama31_8b_pretrain.yaml gpus=16 ddp.use_megatron_fsdp=true
  ddp.data_parallel_sharding_strategy=optim_grads_params
ddp.data_parallel_sharding_strategy optim
@ llama31_8b_pretrain.yaml gpus=16 optimizer.optimizer=sgd
optimizer.sgd_momentum 0.0
@ llama31_8b_pretrain.yaml gpus=16 optimizer.use_precision_aware_optimizer=true
optimizer.exp_avg_dtype bf16
optimizer.exp_avg_dtype._target_ torch.bfloat16
optimizer.exp_avg_sq_dtype bf16
optimizer.exp_avg_sq_dtype._target_ torch.bfloat16
@ llama31_8b_pretrain.yaml gpus=16 mixed_precision=fp16_mixed
  optimizer.use_precision_aware_optimizer=true
optimizer.main_params_dtype fp16
optimizer.main_params_dtype._target_ torch.float16
@ llama31_8b_pretrain.yaml gpus=16 model.context_parallel_size=1 model.window_size=[127,0]
model.window_attn_skip_freq 2
@ llama31_8b_pretrain.yaml gpus=16 model.tensor_model_parallel_size=2
  model.recompute_granularity=full
model.recompute_method block
model.recompute_num_layers 4
model.distribute_saved_activations true
@ llama31_8b_pretrain.yaml gpus=16 model.recompute_granularity=selective
model.recompute_modules [mlp]
@ llama31_8b_pretrain.yaml gpus=16 model.tensor_model_parallel_size=4
model.sequence_parallel true
@ llama31_8b_pretrain.yaml gpus=16 model.tensor_model_parallel_size=4 model.sequence_parallel=true
model.tp_comm_overlap true
comm_overlap.tp_comm_overlap true
@ llama31_8b_pretrain.yaml gpus=16 mixed_precision=null
ddp.grad_reduce_in_fp32 false
model.bf16 false
model.fp16 true
model.fp8 hybrid
model.fp4 e2m1
@ llama31_8b_pretrain.yaml gpus=16 mixed_precision=null model.fp8=hybrid model.fp8_recipe=delayed
model.fp8_recipe tensorwise
model.fp8_param_gather true
model.first_last_layers_bf16 true
@ llama31_8b_pretrain.yaml gpus=16 mixed_precision=null model.fp8=hybrid
  model.first_last_layers_bf16=true
model.num_layers_at_start_in_bf16 3
model.num_layers_at_end_in_bf16 3
@ llama31_8b_pretrain.yaml gpus=16 mixed_precision=null mixed_precision.bf16=true
mixed_precision.bf16 false
mixed_precision.fp16 true
mixed_precision.fp8 hybrid
mixed_precision.fp4 e2m1
mixed_precision.grad_reduce_in_fp32 false
@ llama31_8b_pretrain.yaml gpus=16 mixed_precision=null mixed_precision.bf16=true
  mixed_precision.fp8=hybrid mixed_precision.fp8_recipe=delayed
mixed_precision.fp8_recipe tensorwise
mixed_precision.fp8_param_gather true
mixed_precision.first_last_layers_bf16 true
@ llama31_8b_pretrain.yaml gpus=16 mixed_precision=null mixed_precision.bf16=true
  mixed_precision.fp8=hybrid mixed_precision.first_last_layers_bf16=true
mixed_precision.num_layers_at_start_in_bf16 3
mixed_precision.num_layers_at_end_in_bf16 3
@ llama31_8b_pretrain.yaml gpus=16 cluster=dgx-b200 mixed_precision=null model.fp4=e2m1
  model.fp4_recipe=nvfp4
model.fp4_recipe other
@ llama31_8b_pretrain.yaml gpus=16 cluster=dgx-b200 mixed_precision=null mixed_precision.bf16=true
  mixed_precision.fp4=e2m1 mixed_precision.fp4_recipe=nvfp4
mixed_precision.fp4_recipe other
@ llama3_70b_fp8.yaml gpus=32
model.virtual_pipeline_model_parallel_size 4
model.overlap_p2p_comm false
comm_overlap.overlap_p2p_comm false
dist.use_tp_pp_dp_mapping true
@ llama3_70b_fp8.yaml gpus=32 model.virtual_pipeline_model_parallel_size=null
model.num_layers_in_first_pipeline_stage 17
model.num_layers_in_last_pipeline_stage 17
model.pipeline_model_parallel_layout Et*18|t*21|t*21|t*20L
model.account_for_embedding_in_pipeline_split true
model.account_for_loss_in_pipeline_split true
@ mixtral_ep8.yaml gpus=16
model.expert_model_parallel_size 4
model.moe_layer_freq 2
model.moe_router_topk 4
model.moe_ffn_hidden_size 7168
model.moe_shared_expert_intermediate_size 1024
model.moe_router_score_function sigmoid
model.moe_router_dtype fp32
model.moe_token_dispatcher_type flex
model.moe_router_load_balancing_type none
model.moe_aux_loss_coeff 0.0
model.moe_expert_capacity_factor 1.0
model.moe_router_force_load_balancing true
model.moe_router_enable_expert_bias true
model.moe_grouped_gemm false
model.overlap_moe_expert_parallel_comm true
model.moe_router_fusion true
model.num_moe_experts 16
@ mixtral_ep8.yaml gpus=16 model.moe_router_num_groups=4
model.moe_router_num_groups 2
model.moe_router_group_topk 2
@ mixtral_ep8.yaml gpus=16 model.moe_expert_capacity_factor=1.0
model.moe_pad_expert_input_to_capacity true
@ mixtral_ep8.yaml gpus=16 model.moe_token_dispatcher_type=flex
model.moe_flex_dispatcher_backend hybridep
@ mixtral_ep8.yaml gpus=16 model.moe_shared_expert_intermediate_size=1024
model.moe_shared_expert_gate true
@ mixtral_ep8.yaml gpus=16 model.tensor_model_parallel_size=2 model.sequence_parallel=true
model.expert_tensor_parallel_size 1
@ llama31_8b_pretrain.yaml gpus=16 model.multi_latent_attention=true model.qk_layernorm=true
model.q_lora_rank 1536
model.kv_lora_rank 512
model.qk_head_dim 64
model.v_head_dim 64
model.qk_pos_emb_head_dim 32
@ llama31_8b_lora.yaml gpus=8
peft._target_ megatron.bridge.peft.dora.DoRA
peft.target_modules [linear_qkv]
peft.dim 8
peft.dropout 0.1
"""

NEMO = """
@ llama2_70b.yaml gpus=0
trainer.devices 4
trainer.num_nodes 8
trainer.precision 16-mixed
model.num_layers 160
model.hidden_size 4096
model.ffn_hidden_size 14336
model.num_attention_heads 32
model.num_query_groups 16
model.kv_channels 64
model.normalization layernorm
model.hidden_dropout 0.1
model.attention_dropout 0.1
model.make_vocab_size_divisible_by 1000
model.position_embedding_type none
model.rotary_percentage 0.5
model.tensor_model_parallel_size 2
model.pipeline_model_parallel_size 2
model.virtual_pipeline_model_parallel_size 10
model.context_parallel_size 2
model.micro_batch_size 2
model.global_batch_size 64
model.rampup_batch_size [16, 16, 1000]
model.num_moe_experts 8
model.mtp_num_layers 1
model.window_size [127, 0]
model.sequence_parallel false
model.qk_layernorm true
model.bias true
model.add_qkv_bias true
model.multi_latent_attention true
model.use_tp_pp_dp_mapping true
model.share_embeddings_and_output_weights true
model.gradient_accumulation_fusion false
model.encoder_seq_length 2048
model.override_vocab_size 64000
model.activation gelu
model.activations_checkpoint_granularity selective
model.activations_checkpoint_method uniform
model.activations_checkpoint_num_layers 2
model.fp8 false
model.fp8_params false
model.fp8_hybrid false
model.optim.name fused_adam
model.optim.grad_sync_dtype fp32
model.optim.overlap_grad_sync false
model.optim.overlap_param_sync false
model.optim.ddp_bucket_size 1000000
model.optim.average_in_collective false
model.optim.check_for_nan_in_grad true
model.ub_tp_comm_overlap true
model.overlap_p2p_comm false
model.apply_rope_fusion false
model.bias_activation_fusion false
model.bias_dropout_add_fusion false
model.tokenizer.model llama3.model
@ llama2_70b.yaml gpus=0 model.position_embedding_type=learned_absolute
model.max_position_embeddings 8192
@ llama2_70b.yaml gpus=0 model.fp8_hybrid=false model.fp8_e4m3=true
model.fp8_e4m3 false
@ llama2_70b.yaml gpus=0 model.optim.name=distributed_fused_adam
model.optim.bucket_cap_mb 50
@ llama2_70b.yaml gpus=0 model.context_parallel_size=2
model.cp_comm_type a2a
@ llama2_70b.yaml gpus=0 model.virtual_pipeline_model_parallel_size=null
model.num_layers_in_first_pipeline_stage 17
model.num_layers_in_last_pipeline_stage 17
model.pipeline_model_parallel_layout Et*18|t*21|t*21|t*20L
model.account_for_embedding_in_pipeline_split true
model.account_for_loss_in_pipeline_split true
@ gpt3_126m_samples.yaml gpus=0 trainer.precision=bf16 model.megatron_amp_O2=true
model.grad_allreduce_chunk_size_mb 50
model.async_grad_allreduce false
model.megatron_amp_O2 false
model.tokenizer.type Llama2Tokenizer
@ gpt3_126m_samples.yaml gpus=0 model.tokenizer.model=llama3
model.tokenizer.library sentencepiece
@ llama2_70b.yaml gpus=0 model.num_moe_experts=8
model.expert_model_parallel_size 2
model.expert_tensor_parallel_size 1
model.moe_layer_freq 2
model.moe_router_topk 4
model.moe_ffn_hidden_size 7168
model.moe_shared_expert_intermediate_size 1024
model.moe_router_score_function sigmoid
model.moe_router_dtype fp32
model.moe_token_dispatcher_type flex
model.moe_aux_loss_coeff 0.01
model.moe_expert_capacity_factor 1.0
model.moe_router_force_load_balancing true
model.moe_router_enable_expert_bias true
model.moe_grouped_gemm true
@ llama2_70b.yaml gpus=0 model.num_moe_experts=8 model.moe_aux_loss_coeff=0.01
model.moe_router_load_balancing_type none
@ llama2_70b.yaml gpus=0 model.num_moe_experts=8 model.moe_router_num_groups=4
model.moe_router_num_groups 2
model.moe_router_group_topk 2
@ llama2_70b.yaml gpus=0 model.num_moe_experts=8 model.moe_expert_capacity_factor=1.0
model.moe_pad_expert_input_to_capacity true
@ llama2_70b.yaml gpus=0 model.multi_latent_attention=true
model.q_lora_rank 1536
model.kv_lora_rank 512
model.qk_head_dim 64
model.v_head_dim 64
model.qk_pos_emb_head_dim 32
@ llama2_70b.yaml gpus=0 model.transformer_engine=false model.mcore_gpt=false
model.transformer_engine true
model.mcore_gpt true
"""

CHANGES = {"megatron-bridge": BRIDGE, "nemo": NEMO}
