"""Hugging Face architectures that are refused, and keys that do not affect the cost.

Answers: why is this architecture not imported, which keys ask for another, which change neither time nor
memory?
Elsewhere: the families that are imported (families.py).
"""

EXPERTS = (  # keys of a mixture of experts; 0, 1 and null make a dense model
    "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_experts_per_tok",
)  # fmt: skip
LATENT = ("kv_lora_rank", "q_lora_rank")
LEFT_OUT = {  # a share above 0 → what is counted in spite of it
    "layerdrop": "a step is counted with all layers",
    "activation_dropout": "dropout between the linears of an MLP is not counted",
}

_REASONS = {
    "mixtures of experts of this family are not supported yet": (
        "arctic", "deepseek", "minimax", "jetmoe", "flex_olmo", "longcat_flash", "exaone_moe", "afmoe",
        "glm4_moe_lite", "solar_open", "lfm2_moe",
    ),
    "attention or norms of this family are not supported": (
        "bitnet", "diffllama", "doge", "persimmon", "nanochat", "gemma3n", "gemma3n_text", "jais2", "blt",
        "xglm", "biogpt", "codegen", "ctrl", "cpmant", "openai-gpt", "gpt_neox_japanese", "cwm", "xlnet",
        "reformer", "moshi", "aria_text", "emu3", "fuyu", "git", "got_ocr2", "mllama", "phi4_multimodal",
        "modernbert-decoder", "chatglm",
    ),
    "latent attention of this family is not supported yet": (
        "deepseek_v32", "minicpm3", "glm_moe_dsa", "youtu",
    ),
    "encoder-decoders are not supported yet": (
        "t5", "mt5", "umt5", "longt5", "bart", "mbart", "pegasus", "blenderbot", "marian", "led", "whisper",
        "prophetnet", "m2m_100", "switch_transformers", "encoder-decoder",
    ),
    "encoders are not supported: they have no next token to predict": (
        "bert", "roberta", "xlm-roberta", "distilbert", "albert", "electra", "deberta", "deberta-v2",
        "mpnet", "modernbert", "camembert", "ernie", "longformer", "clip", "vit",
    ),
    "state-space and recurrent layers are not supported yet": (
        "mamba", "mamba2", "falcon_mamba", "falcon_h1", "jamba", "zamba", "zamba2", "bamba", "rwkv",
        "recurrent_gemma", "qwen3_next", "granitemoehybrid", "nemotron_h", "lfm2",
        "olmo_hybrid", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "xlstm",
    ),
}  # fmt: skip
ELSEWHERE = {name: because for because, names in _REASONS.items() for name in names}
NO_DECODER = tuple(name for name, because in ELSEWHERE.items() if because.startswith("encoder"))
OTHERWISE = {  # a key that is true → why a dense decoder has it false
    "is_encoder_decoder": ELSEWHERE["t5"],
    "add_cross_attention": "cross-attention is not supported yet: it reads the output of an encoder",
    "use_bidirectional_attention": ELSEWHERE["bert"],
}

_WITHOUT_COST = """
    model_type architectures auto_map transformers_version _name_or_path _commit_hash torch_dtype dtype
    _attn_implementation attn_implementation _attn_implementation_autoset _flash_attn_2_enabled
    is_decoder cross_attention_hidden_size tie_encoder_decoder
    bos_token_id eos_token_id pad_token_id sep_token_id decoder_start_token_id forced_bos_token_id
    forced_eos_token_id image_token_id image_token_index unk_token_id suppress_tokens begin_suppress_tokens
    prefix tokenizer_class tokenizer_name initializer_range initializer_factor init_std init_config
    init_device layer_norm_eps layer_norm_epsilon rms_norm_eps norm_eps norm_epsilon use_cache
    cache_implementation use_return_dict return_dict return_dict_in_generate output_attentions
    output_hidden_states output_scores torchscript use_bfloat16 pruned_heads chunk_size_feed_forward
    temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size
    encoder_no_repeat_ngram_size diversity_penalty num_beams num_beam_groups num_return_sequences do_sample
    early_stopping max_length min_length max_new_tokens remove_invalid_values bad_words_ids
    exponential_decay_length_penalty task_specific_params problem_type finetuning_task id2label label2id
    num_labels summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj
    classifier_dropout rope_theta rope_scaling rope_parameters rope_local_base_freq rotary_emb_base rotary
    no_rope_layer_interval qk_head_dim rope_interleave swiglu_alpha is_causal
    original_max_position_embeddings position_embedding_type pretraining_tp slow_but_exact
    masked_softmax_fusion offset_alibi skip_bias_add skip_bias_add_qkv bias_dropout_fusion unk_token
    apply_residual_connection_post_layernorm attention_softmax_in_fp32 scale_attention_softmax_in_fp32
    scale_attn_weights scale_attn_by_inverse_layer_idx reorder_and_upcast_attn gradient_checkpointing
    max_window_layers layer_types sliding_window_pattern _sliding_window_pattern query_pre_attn_scalar
    attn_config.attn_impl attn_config.softmax_scale attn_config.prefix_lm attn_config.alibi_bias_max
    attn_config.attn_uses_sequence_id attn_config.model_type attn_config._name_or_path
    attn_config.chunk_size_feed_forward attn_config.id2label attn_config.label2id
    attn_config.is_encoder_decoder attn_config.output_attentions attn_config.output_hidden_states
    attn_config.return_dict embedding_fraction learned_pos_emb norm_type
    vision_config video_token_id vision_start_token_id vision_end_token_id vision_token_id
    ffn_config.ffn_act_fn ffn_config.moe_jitter_eps ffn_config.moe_normalize_expert_weights
    ffn_config.model_type eod_token_id moe_norm_min input_jitter_noise
    verbose quantization_config compression_config z_loss_weight norm_topk_prob output_router_logits
       router_jitter_noise attn_scale attn_temperature_tuning floor_scale for_llm_compressor swiglu_limit
    experts_per_token initial_context_length output_multiplier_scale embedding_multiplier_scale
    attn_output_multiplier routed_scaling_factor ep_size seq_aux
"""
SILENT = frozenset(_WITHOUT_COST.split())
