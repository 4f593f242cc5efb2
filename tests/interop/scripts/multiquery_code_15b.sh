#!/bin/bash
while [[ $# -gt 0 ]]; do
  case $1 in
    --nodes) NNODES=$2; shift 2 ;;
    --tp) TENSOR=$2; shift 2 ;;
    *) shift ;;
  esac
done
NNODES=${NNODES:-32}
TENSOR=4
PIPE=4

gpt_options="--num-layers 40 --hidden-size 6144 --num-attention-heads 48 \
--group-query-attention --seq-length 8192 --max-position-embeddings 8192 \
--attention-dropout 0.1 --hidden-dropout 0.1 --use-flash-attn"

torchrun --nproc_per_node=8 --nnodes=16 pretrain_gpt.py \
  --tensor-model-parallel-size=$TENSOR \
  --pipeline-model-parallel-size=$PIPE \
  --micro-batch-size=1 --global-batch-size=512 \
  --tokenizer-type=HuggingFaceTokenizer --tokenizer-model=code-tokenizer --vocab-size=49152 \
  --bf16 ${gpt_options}
