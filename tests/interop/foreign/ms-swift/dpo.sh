nproc_per_node=4
NPROC_PER_NODE=$nproc_per_node swift rlhf --rlhf_type dpo --model meta-llama/Llama-3.1-8B \
    --train_type full --dataset own/pairs --torch_dtype bfloat16 \
    --per_device_train_batch_size 1 --gradient_accumulation_steps 8 \
    --max_length 2048 --deepspeed zero3_offload --gradient_checkpointing true --beta 0.1
