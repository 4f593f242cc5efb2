deepspeed --num_gpus 8 --module openrlhf.cli.train_sft \
   --model.model_name_or_path Qwen/Qwen2.5-3B \
   --data.dataset own --data.max_len 2048 --data.packing_samples \
   --train.batch_size 64 --train.micro_batch_size 2 --train.max_epochs 1 \
   --ds.zero_stage 3 --ds.param_dtype bf16 --ds.adam_offload \
   --ds.attn_implementation flash_attention_2 \
   --model.gradient_checkpointing_enable --ckpt.output_dir out --adam.lr 1e-5
