#!/bin/bash
set -ex
BASE_PATH=./tmp
DS_CONFIG=${BASE_PATH}/deepspeed.json
TP=2
PP=2
ZERO_STAGE=0
HIDDEN_SIZE=4096
NUM_KV_HEADS=32
activation_checkpoint="true"

cat <<EOT > $DS_CONFIG
{"bf16": {"enabled": true}, "zero_optimization": {"stage": $ZERO_STAGE}}
EOT

ds_args=""
ds_args=" --deepspeed ${ds_args}"
ds_args=" --deepspeed_config=$DS_CONFIG ${ds_args}"
ds_args=" --zero-stage=$ZERO_STAGE ${ds_args}"
if [ "${activation_checkpoint}" = "true" ]; then
  ds_args="--checkpoint-activations --deepspeed-activation-checkpointing ${ds_args}"
fi

torchrun --nproc_per_node 8 --nnodes 1 \
       pretrain_gpt.py \
       --tensor-model-parallel-size $TP \
       --pipeline-model-parallel-size $PP \
       --num-layers 32 \
       --hidden-size $HIDDEN_SIZE \
       --ffn-hidden-size 11008 \
       --num-attention-heads 32 \
       --num-key-value-heads $NUM_KV_HEADS \
       --micro-batch-size 4 \
       --global-batch-size 32 \
       --seq-length 2048 \
       --max-position-embeddings 2048 \
       --tokenizer-type GPTSentencePieceTokenizer \
       --tokenizer-model ./llama2/tokenizer.model \
       --attention-dropout 0.0 --hidden-dropout 0.0 \
       --no-query-key-layer-scaling \
       --bf16 \
       --use-rotary-position-embeddings \
       --untie-embeddings-and-output-weights \
       --swiglu \
       --normalization rmsnorm \
       --disable-bias-linear \
       $ds_args
