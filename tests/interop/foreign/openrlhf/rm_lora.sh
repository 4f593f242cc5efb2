deepspeed --include localhost:0,1,2,3 --module openrlhf.cli.train_rm \
   --pretrain mistralai/Mistral-7B-v0.1 \
   --train_batch_size 64 --micro_train_batch_size 4 --max_len 2048 \
   --zero_stage 2 --lora_rank 16 --lora_dropout 0.1 \
   --target_modules q_proj v_proj --load_in_4bit
