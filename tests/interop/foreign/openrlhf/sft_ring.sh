deepspeed --num_nodes 2 --num_gpus 8 --hostfile hosts --module openrlhf.cli.train_sft \
   --pretrain meta-llama/Llama-3.1-8B --max_len 32768 \
   --train_batch_size 32 --micro_train_batch_size 1 \
   --ring_attn_size 4 --ring_head_stride 2 --zero_stage 3 --overlap_comm \
   --attn_implementation flash_attention_2 --packing_samples --gradient_checkpointing
