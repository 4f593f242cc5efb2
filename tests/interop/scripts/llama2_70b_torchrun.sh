#!/usr/bin/env bash
TP=8
PP=4
NNODES=16
GPUS=8
GBS=512

llama2() {
  echo --num-layers 80
}

OPTS=""
OPTS+=" --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64"
OPTS+=" --group-query-attention --num-query-groups 8"
OPTS+=" --seq-length 4096 --max-position-embeddings 4096"
OPTS+=" --use-rotary-position-embeddings --no-position-embedding --normalization RMSNorm --swiglu"
OPTS+=" --disable-bias-linear --untie-embeddings-and-output-weights"
OPTS+=" --attention-dropout 0 --hidden-dropout 0 --no-masked-softmax-fusion"
OPTS+=" --tokenizer-type Llama2Tokenizer --tokenizer-model models/llama-2/tokenizer.model"
OPTS+=" --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size ${PP} --sequence-parallel"
OPTS+=" --micro-batch-size 1 --global-batch-size ${GBS} --bf16 --use-distributed-optimizer"
OPTS+=" --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"

torchrun --nproc-per-node=${GPUS} --nnodes=${NNODES} --rdzv-endpoint=$HEAD:29400 pretrain_gpt.py ${OPTS} 2>&1 | tee train.log
