"""Axolotl's YAML as a job: fine-tuning with adapters or without.

Answers: which model, plan and stack does a file of Axolotl ask for?
Elsewhere: what it has in common with other trainers (tuning.py).

References
----------
axolotl-ai-cloud/axolotl: docs/config-reference.qmd, src/axolotl/utils/schemas (names and defaults).
"""

from flopcast.io.foreign.keys import Keys
from flopcast.io.foreign.names import read_model
from flopcast.io.foreign.sheet import Asked, Sheet
from flopcast.io.foreign.tuning import FREE, Names, read_adapters, read_training, tell_lengths, write_scores
from flopcast.io.yaml_text import Document

NAMES = Names(
    micro="micro_batch_size",
    steps="gradient_accumulation_steps",
    optimizer="optimizer",
    tensor=("tensor_parallel_size",),
    context=("context_parallel_size", "sequence_parallel_degree"),
)
ADAPTERS = {"lora": "lora", "qlora": "qlora", "": ""}
CHECKPOINTS = {
    "true": "full",
    "false": "",
    "unsloth": "full",
    "offload": "offload",
    "offload_disk": "offload",
}
LIGER = "fused kernels of Liger are counted as the stack's own"

KEYS = Keys(
    program="Axolotl",
    read="""
    base_model sequence_len micro_batch_size gradient_accumulation_steps optimizer adapter lora_r
    lora_dropout
    lora_target_modules lora_target_linear load_in_4bit load_in_8bit bf16 bfloat16 fp16 float16 fp8
    gradient_checkpointing activation_offloading deepspeed deepspeed.* fsdp dp_shard_size
    dp_replicate_size
    fsdp_config.fsdp_offload_params fsdp_config.offload_params fsdp_config.fsdp_sharding_strategy
    fsdp_config.sharding_strategy fsdp_config.fsdp_reshard_after_forward
    fsdp_config.reshard_after_forward
    fsdp_config.fsdp_activation_checkpointing fsdp_config.activation_checkpointing
    tensor_parallel_size context_parallel_size sequence_parallel_degree torch_compile sample_packing
    eager_attention attn_implementation
    """,
    free=FREE | {
        "who made the model and its words": """
        base_model_config base_model_ignore_patterns revision_of_model tokenizer_config tokenizer_type
        tokenizer_use_fast tokenizer_legacy model_type processor_type is_llama_derived_model
        is_mistral_derived_model is_falcon_derived_model is_qwen_derived_model special_tokens
        special_tokens.*
        tokens added_tokens_overrides.* resize_token_embeddings_to_32x chat_template chat_template_jinja
        default_system_message model_kwargs.* overrides_of_model_config.* plugins strict
        lora_fan_in_fan_out
        lora_model_dir lora_alpha lora_modules_to_save peft.* bnb_config_kwargs.* rope_theta""",
        "what is learnt from": """
        datasets test_datasets pretraining_dataset dataset_prepared_path val_set_size dataset_processes
        dataset_keep_in_memory dataset_exact_deduplication shuffle_merged_datasets streaming
        push_dataset_to_hub
        train_on_inputs roles_to_train train_on_eos pretrain_multipack_buffer_size eval_sample_packing
        sample_packing_group_size sample_packing_bin_size sample_packing_sequentially
        sample_packing_eff_est
        pad_to_sequence_len excess_length_strategy skip_prepare_dataset max_packed_sequence_len
        total_num_tokens
        curriculum_sampling eval_table_size eval_max_new_tokens eval_causal_lm_metrics""",
        "how fast it learns": """
        cosine_min_lr_ratio cosine_constant_lr_ratio lr_quadratic_warmup gradient_clipping
        eval_batch_size
        early_stopping_patience torchdistx_path embedding_lr lr_groups tf32""",
        "what is printed, saved and watched": """
        wandb_project wandb_entity wandb_watch wandb_name wandb_run_id wandb_log_model wandb_mode
        mlflow_tracking_uri mlflow_experiment_name mlflow_run_name use_mlflow use_wandb use_comet
        use_tensorboard
        comet_api_key comet_workspace comet_project_name comet_experiment_key comet_mode comet_online
        evals_per_epoch saves_per_epoch save_first_step auto_resume_from_checkpoints hf_use_auth_token
        flash_attn_cross_entropy xformers_attention flash_attention flex_attention sdp_attention
        s2_attention
        flex_attn_compile_kwargs.* flash_attn_rms_norm device device_map max_memory gpu_memory_limit
        world_size
        ddp_timeout ddp_bucket_cap_mb ddp_broadcast_buffers profiler_steps low_cpu_mem_usage gc_steps
        use_ray
        ray_num_workers ray_run_name resources_per_worker.* num_workers ddp
        gradient_checkpointing_kwargs
        gradient_checkpointing_kwargs.* torch_compile_backend torch_compile_mode heads_k_stride
        ring_attn_func""",
        "how FSDP wraps and saves": """
        fsdp_version fsdp_final_state_dict_type fsdp_config.fsdp_version
        fsdp_config.fsdp_limit_all_gathers
        fsdp_config.fsdp_sync_module_states fsdp_config.fsdp_use_orig_params
        fsdp_config.fsdp_state_dict_type
        fsdp_config.fsdp_cpu_ram_efficient_loading fsdp_config.fsdp_auto_wrap_policy
        fsdp_config.fsdp_transformer_layer_cls_to_wrap fsdp_config.fsdp_backward_prefetch
        fsdp_config.fsdp_final_state_dict_type fsdp_config.fsdp_forward_prefetch
        fsdp_config.state_dict_type
        fsdp_config.cpu_ram_efficient_loading fsdp_config.auto_wrap_policy
        fsdp_config.final_state_dict_type
        fsdp_config.transformer_layer_cls_to_wrap fsdp_config.sync_module_states
        fsdp_config.limit_all_gathers
        fsdp_config.use_orig_params fp8_enable_fsdp_float8_all_gather""",
    },
    left_out={
        "lora_mlp_kernel": "adapters are counted as products of their own",
        "lora_qkv_kernel": "adapters are counted as products of their own",
        "lora_o_kernel": "adapters are counted as products of their own",
        "liger_rope": LIGER, "liger_rms_norm": LIGER, "liger_glu_activation": LIGER,
        "liger_layer_norm": LIGER, "liger_swiglu": LIGER, "liger_cross_entropy": LIGER,
        "liger_fused_linear_cross_entropy": "logits are counted as written out, and the loss behind them",
        "cut_cross_entropy": "logits are counted as written out, and the loss behind them",
        "chunked_cross_entropy": "logits are counted as written out, and the loss behind them",
        "unsloth_lora_mlp": "adapters are counted as products of their own",
        "unsloth_cross_entropy_loss": "the loss is counted as the stack's own",
        "peft_use_dora": "DoRA is counted as LoRA",
        "peft_use_rslora": "it changes a scale alone",
        "neftune_noise_alpha": "noise on embeddings is left out",
        "lisa_n_layers": "all layers are counted as trained",
    },
    refused={
        "rl": "preference tuning and reinforcement learning",
        "reward_model": "training of a reward model",
        "process_reward_model": "training of a reward model",
        "relora": "ReLoRA, whose adapters are merged while it trains",
        "relora_steps": "ReLoRA, whose adapters are merged while it trains",
        "unfrozen_parameters": "training of some of a model's weights",
        "qat.*": "training that imitates quantisation",
        "diffusion.*": "diffusion language models",
        "gptq": "weights of GPTQ", "load_in_gptq": "weights of GPTQ",
        "trl.*": "preference tuning and reinforcement learning",
        "kd_trainer": "distillation", "noisy_embedding_alpha": "noise on embeddings",
        "llmcompressor.*": "sparse weights",
    },
)  # fmt: skip


def read(document: Document, asked: Asked) -> Document:
    """The job of a file of Axolotl.

    Examples
    --------
    >>> job = read(Document("lora.yml", {"base_model": "Qwen/Qwen3-8B", "sequence_len": 2048, "bf16": True,
    ...     "micro_batch_size": 2, "adapter": "lora", "lora_r": 16, "lora_target_linear": True}, {}),
    ...     Asked(devices=4))
    >>> job.data["plan"]["global_batch"], job.data["model"]["adapters"]["rank"], job.data["stack"]
    (8, 16, 'pytorch-ddp')
    """
    sheet = Sheet(document, KEYS, asked)
    read_model(sheet, "base_model")
    sheet.put(("batch", "sequence_length"), sheet.count("sequence_len", 512), "sequence_len")
    tell_lengths(
        sheet,
        "sample_packing" if sheet.has("sample_packing") else "sequence_len",
        sheet.flag("sample_packing"),
    )
    read_training(sheet, NAMES)
    _adapter(sheet)
    _recompute(sheet)
    eager = sheet.flag("eager_attention") or sheet.text("attn_implementation") == "eager"
    if eager:
        write_scores(sheet, "eager_attention", "attn_implementation")
    return sheet.made()


def _adapter(sheet: Sheet) -> None:
    """Adapters, over weights of 16 or of 4 bits; all weights where there are none."""
    kind = sheet.choice("adapter", ADAPTERS, "")
    four, eight = sheet.flag("load_in_4bit"), sheet.flag("load_in_8bit")
    if eight:
        sheet.refuse("load_in_8bit", "frozen weights in 8 bits", "write load_in_8bit: false")
    if kind == "":
        if four:
            because = "weights in 4 bits are frozen, and nothing else is trained"
            sheet.fault("load_in_4bit", "only with an adapter", because, "add adapter: qlora")
        return
    if kind == "qlora" and not four and sheet.has("load_in_4bit"):
        sheet.fault("load_in_4bit", "true with adapter: qlora", "its weights are in 4 bits", "write true")
    quantised = "load_in_4bit" if four else "adapter" if kind == "qlora" else ""
    every = sheet.flag("lora_target_linear") or sheet.raw("lora_target_modules") == "all-linear"
    if not sheet.has("lora_r"):
        sheet.fault("lora_r", "a whole number", "an adapter has a width", "add lora_r: 16", "is missing")
    read_adapters(sheet, "lora_r", "lora_target_modules", every, quantised)


def _recompute(sheet: Sheet) -> None:
    """Whole blocks run again where checkpointing is on, the trainer's or FSDP's."""
    key = "gradient_checkpointing"
    mode = sheet.choice(key, CHECKPOINTS, "")
    inner = sheet.first("fsdp_config.fsdp_activation_checkpointing", "fsdp_config.activation_checkpointing")
    if mode == "offload" or sheet.flag("activation_offloading"):
        sheet.refuse(
            "activation_offloading" if mode != "offload" else key, "offload of activations", "write true"
        )
    if mode == "full" or sheet.flag(inner):
        sheet.put(("plan", "recompute"), "full", key, inner)
