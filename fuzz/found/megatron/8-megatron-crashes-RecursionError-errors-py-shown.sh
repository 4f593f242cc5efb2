#!/bin/bash
# Megatron-DeepSpeed, data parallel only.
TP=1
PP=1
NLAYERS=GLOBAL_BATCH
HIDDEN=2048
HEADS=16
SEQ=2048
MICRO_BATCH=4
GLOBAL_BATCH=256
ZERO_STAGE=1
DS_CONFIG=ds_config.json

cat <<EOT > $DS_CONFIG
{
  "train_batch_size": $GLOBAL_BATCH,
  "train_micro_batch_size_per_gpu": $MICRO_BATCH,
  "zero_optimization": {"stage": $ZERO_STAGE},
  "fp16": {"enabled": true}
}
EOT

ds_args=""
ds_args=" --deepspeed ${ds_args}"
ds_args=" --no-pipeline-parallel ${ds_args}"
ds_args=" --deepspeed_config=$DS_CONFIG ${ds_args}"
ds_args=" --zero-stage=$ZERO_STAGE ${ds_args}"
ds_args=" --deepspeed-activation-checkpointing ${ds_args}"
    --vocab-file gpt2-vocab.json \
deepspeed --num_nodes 2 --num_gpus 8 pretrain_gpt.py \
    --tensor-model-parallel-size $TP \
    --pipeline-model-parallel-size $PP \
    --num-layers $NLAYERS \
    --hidden-size $HIDDEN \
    --num-attention-heads $HEADS \
    --seq-length $SEQ \
    --max-position-embeddings $SEQ \
    --micro-batch-size $MICRO_BATCH \
    --global-batch-size $24 \
    --train-iters 1000 \

    --merge-file gpt2-merges.txt \
    --fp16 \
    --checkpoint-activations \
    --tensorboard-dir output \
    $ds_args \
    --exit-interval 5000 | tee output/log
