#!/bin/bash
# A small GPT on one device, for a first try.

DATA=data/text_document
SAVED=checkpoints/gpt-345m

GPT_ARGS="
    --num-layers 24 \
    --hidden-size 1024 \
    --num-attention-heads 16 \
    --seq-length 1024 \
    --max-position-embeddings 1024 \
    --micro-batch-size 4 \
    --global-batch-size 8 \
    --lr 0.00015 \
    --train-iters 500000 \
    --lr-decay-style cosine \
    --weight-decay 1e-2 \
    --clip-grad 1.0 \
    --fp16
"

DATA_ARGS="
    --data-path $DATA \
    --vocab-file gpt2-vocab.json \
    --merge-file gpt2-merges.txt \
    --data-impl mmap \
    --split 949,50,1
"

CUDA_DEVICE_MAX_CONNECTIONS=1 python pretrain_gpt.py \
    $GPT_ARGS \
    $DATA_ARGS \
    --log-interval 100 \
    --save $SAVED \
    --load $SAVED
