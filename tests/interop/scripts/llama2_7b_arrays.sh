#!/bin/bash
set -euo pipefail

MODEL_ARGS=(
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 11008
    --num-attention-heads 32
    --seq-length 4096
    --max-position-embeddings 4096
    --position-embedding-type rope
    --normalization RMSNorm      # eps below
    --norm-epsilon 1e-5
    --swiglu
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --tokenizer-type Llama2Tokenizer
    --tokenizer-model tokenizer.model
    --make-vocab-size-divisible-by 1
)
TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 1024
    --bf16
    --use-mcore-models
    --use-flash-attn
    --lr 3e-4
)
PARALLEL_ARGS=(
    --tensor-model-parallel-size 2
    --sequence-parallel
    --use-distributed-optimizer
)
PARALLEL_ARGS+=(--overlap-grad-reduce --overlap-param-gather)

torchrun --nproc_per_node 8 --nnodes 8 --node_rank ${NODE_RANK:-0} --master_addr ${MASTER_ADDR:-localhost} \
    pretrain_gpt.py "${MODEL_ARGS[@]}" "${TRAINING_ARGS[@]}" "${PARALLEL_ARGS[@]}"
