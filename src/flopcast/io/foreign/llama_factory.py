"""LLaMA-Factory's YAML as a job: supervised tuning and pre-training, with adapters or without.

Answers: which model, plan and stack does a file of LLaMA-Factory ask for?
Elsewhere: what it has in common with other trainers (tuning.py).

References
----------
hiyouga/LLaMA-Factory: src/llamafactory/hparams (names, defaults), examples/ (files); gradient checkpointing
is on unless switched off (model/model_utils/checkpointing.py).
"""

from flopcast.io.foreign.keys import Keys
from flopcast.io.foreign.names import read_model
from flopcast.io.foreign.sheet import Asked, Sheet
from flopcast.io.foreign.tuning import FREE, Names, read_adapters, read_training, tell_lengths, write_scores
from flopcast.io.yaml_text import Document

NAMES = Names(
    micro="per_device_train_batch_size",
    steps="gradient_accumulation_steps",
    optimizer="optim",
    default_micro=8,
)
STAGES = {"sft": "sft", "pt": "pt"}
OTHER_STAGES = ("rm", "ppo", "dpo", "kto", "orpo", "simpo", "bco")
KINDS = {"lora": "lora", "full": "full"}
ATTENTION = {"auto": "flash", "fa2": "flash", "fa3": "flash", "sdpa": "flash", "disabled": "materialised"}

KEYS = Keys(
    program="LLaMA-Factory",
    read="""
    model_name_or_path stage finetuning_type cutoff_len per_device_train_batch_size
    gradient_accumulation_steps
    optim lora_rank lora_target lora_dropout quantization_bit quantization_method bf16 fp16 pure_bf16
    fp8
    disable_gradient_checkpointing deepspeed deepspeed.* fsdp fsdp_config.fsdp_offload_params
    fsdp_config.fsdp_sharding_strategy flash_attn packing neat_packing torch_compile do_train do_predict
    """,
    free=FREE | {
        "what is learnt from": """
        dataset dataset_dir eval_dataset template media_dir max_samples overwrite_cache
        preprocessing_num_workers
        preprocessing_batch_size tokenized_path val_size train_on_prompt mask_history streaming
        buffer_size
        mix_strategy interleave_probs ignore_pad_token_for_loss image_max_pixels video_max_pixels
        tool_format
        default_system enable_thinking data_shared_file_system""",
        "who made the model and its words": """
        adapter_name_or_path adapter_folder cache_dir use_fast_tokenizer resize_vocab
        split_special_tokens
        new_special_tokens add_tokens add_special_tokens model_revision hf_hub_token ms_hub_token
        low_cpu_mem_usage use_cache infer_dtype additional_target create_new_adapter rope_scaling
        quantization_type double_quantization quantization_device_map print_param_status
        upcast_layernorm upcast_lmhead_output compute_accuracy""",
        "what is printed, saved and watched": """
        use_swanlab swanlab_project swanlab_run_name swanlab_mode ray_run_name ray_num_workers
        ray_storage_path
        resources_per_worker.* placement_strategy do_predict predict_with_generate use_reentrant_gc
        ddp_backend max_new_tokens top_p temperature include_mfu include_effective_tokens_per_second""",
        "how 8 bits are scaled": "fp8_backend fp8_enable_fsdp_float8_all_gather",
    },
    left_out={
        "enable_liger_kernel": "fused kernels of Liger are counted as the stack's own",
        "use_unsloth": "kernels of Unsloth are counted as the stack's own",
        "use_unsloth_gc": "recomputation is counted on the device alone",
        "use_dora": "DoRA is counted as LoRA",
        "use_rslora": "it changes a scale alone",
        "pissa_init": "how adapters begin changes no step",
        "use_llama_pro": "all layers are counted as trained",
        "use_galore": "the update of AdamW is counted, not of GaLore",
        "use_apollo": "the update of AdamW is counted, not of APOLLO",
        "use_adam_mini": "the update of AdamW is counted, not of Adam-mini",
        "use_muon": "the update of AdamW is counted, not of Muon",
        "shift_attn": "attention is counted as whole, not in shifted groups",
        "mixture_of_depths": "every token is counted in every layer",
    },
    refused={
        "use_badam": "training of one block of weights after the other (BAdam)",
        "freeze_trainable_layers": "training of some of a model's weights",
        "use_kt": "experts on the host (KTransformers)",
        "dpo_beta": "preference tuning", "pref_beta": "preference tuning", "pref_loss": "preference tuning",
        "reward_model": "reinforcement learning",
        "use_asft_loss": "a loss beside a frozen copy of the model",
        "oft_block_size": "orthogonal adapters (OFT)", "oft_rank": "orthogonal adapters (OFT)",
        "freeze_vision_tower": "models that see", "image_resolution": "models that see",
    },
    fine={"flash_attn": ("auto",)},
)  # fmt: skip


def read(document: Document, asked: Asked) -> Document:
    """The job of a file of LLaMA-Factory.

    Examples
    --------
    >>> job = read(Document("sft.yaml", {"model_name_or_path": "Qwen/Qwen2.5-7B-Instruct", "stage": "sft",
    ...     "finetuning_type": "full", "bf16": True, "per_device_train_batch_size": 1,
    ...     "deepspeed": "examples/deepspeed/ds_z3_config.json"}, {}), Asked(devices=8))
    >>> job.data["plan"]["zero"], job.data["plan"]["recompute"], job.data["batch"]["sequence_length"]
    (3, 'full', 2048)
    """
    sheet = Sheet(document, KEYS, asked)
    _stage(sheet)
    read_model(sheet, "model_name_or_path")
    sheet.put(("batch", "sequence_length"), sheet.count("cutoff_len", 2048), "cutoff_len")
    packed = sheet.flag("packing", sheet.text("stage") == "pt") or sheet.flag("neat_packing")
    tell_lengths(sheet, "packing" if sheet.has("packing") else "cutoff_len", packed)
    read_training(sheet, NAMES)
    _method(sheet)
    if not sheet.flag("disable_gradient_checkpointing"):
        sheet.assume("recompute full, LLaMA-Factory's default", "disable_gradient_checkpointing")
        sheet.put(("plan", "recompute"), "full", "disable_gradient_checkpointing")
    if sheet.choice("flash_attn", ATTENTION, "flash") == "materialised":
        write_scores(sheet, "flash_attn")
    return sheet.made()


def _stage(sheet: Sheet) -> None:
    """Only what trains on the next token; a file that predicts trains nothing."""
    if str(sheet.raw("stage")) in OTHER_STAGES:
        sheet.refuse("stage", "training on preferences or rewards", "write stage: sft")
    else:
        sheet.choice("stage", STAGES, "sft")
    trains = sheet.flag("do_train", default=not sheet.flag("do_predict"))
    if not trains:
        because = "a forecast is of training"
        sheet.fault(
            "do_train" if sheet.has("do_train") else "do_predict",
            "do_train: true",
            because,
            "add do_train: true",
        )


def _method(sheet: Sheet) -> None:
    """Adapters, over weights of 16 or of 4 bits; or all weights."""
    key = "finetuning_type"
    if str(sheet.raw(key)) in ("freeze", "oft"):
        sheet.refuse(key, f"finetuning_type {sheet.raw(key)}", "write lora or full")
        return
    kind = sheet.choice(key, KINDS, "lora")
    bits = sheet.count("quantization_bit", 0) if sheet.has("quantization_bit") else 0
    if bits and bits != 4:
        sheet.refuse("quantization_bit", f"frozen weights in {bits} bits", "write 4")
    if bits and sheet.raw("quantization_method") not in (None, "bnb", "bitsandbytes"):
        sheet.refuse(
            "quantization_method", "weights that are stored quantised otherwise than as nf4", "write bnb"
        )
    if kind == "full":
        if bits:
            because = "weights in 4 bits are frozen, and nothing else is trained"
            sheet.fault("quantization_bit", "only with finetuning_type: lora", because, "remove it")
        return
    every = sheet.raw("lora_target") in (None, "all")
    read_adapters(sheet, "lora_rank", "lora_target", every, "quantization_bit" if bits else "")
