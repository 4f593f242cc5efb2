NNODES=2 NODE_RANK=0 NPROC_PER_NODE=8 swift pt --model Qwen/Qwen2.5-7B --train_type full \
    --dataset own --torch_dtype bfloat16 --max_length 65536 --sequence_parallel_size 4 \
    --padding_free true --attn_impl flash_attn --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 2 --deepspeed zero3
