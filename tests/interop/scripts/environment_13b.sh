#!/bin/sh
: ${TP:=2} ${PP:=2}
NODES=4
GPUS=8
DP=$(( NODES * GPUS / (TP * PP) ))
MBS=2
ACCUMULATE=16
GBS=$((DP * MBS * ACCUMULATE))

MODEL="--num-layers 40 --hidden-size 5120 --num-attention-heads 40 --seq-length 2048 --max-position-embeddings 2048"
[ -n "$DEBUG" ] && set -x
OMP_NUM_THREADS=4 CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nnodes $NODES --nproc_per_node $GPUS \
  pretrain_gpt.py $MODEL --micro-batch-size $MBS --global-batch-size $GBS --bf16 \
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --use-mcore-models \
  --attention-backend unfused --no-bias-dropout-fusion --no-gradient-accumulation-fusion \
  --qk-layernorm --ddp-bucket-size 100000000 > out.log 2> err.log < /dev/null &
wait
