#!/bin/bash
# The scheduler says how many nodes there are.
torchrun --nproc_per_node 8 --nnodes $NNODES --node_rank $RANK pretrain_gpt.py \
  --mock-data --tokenizer-type NullTokenizer --vocab-size 131071 \
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --swiglu --normalization RMSNorm \
  --position-embedding-type rope --disable-bias-linear --add-qkv-bias \
  --attention-dropout 0 --hidden-dropout 0 \
  --seq-length 4096 --max-position-embeddings 4096 \
  --tensor-model-parallel-size 4 --micro-batch-size 2 --global-batch-size 256 \
  --bf16 --use-mcore-models --use-distributed-optimizer --overlap-grad-reduce --optimizer adam
