#!/bin/bash
for LAYERS in 24 36 48; do
  accelerate launch --num_machines 2 --num_processes 16 --machine_rank 0 pretrain_gpt.py \
    --num-layers $LAYERS --hidden-size 1536 --num-attention-heads 16 \
    --seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 8 \
    --global-batch-size 256 --fp16 --accumulate-allreduce-grads-in-fp32 \
    --recompute-granularity full --recompute-method block --recompute-num-layers 12
done
