#!/bin/bash
# One row of a weak-scaling table: choose the size here.
MODEL_SIZE=1T

if [ ${MODEL_SIZE} == "39.1B" ]; then
    TP=8; PP=4; NLS=48; HS=8192; NAH=64; GBS=1536; NNODES=64
elif [ ${MODEL_SIZE} == "310.1B" ]; then
    TP=8; PP=16; NLS=96; HS=16384; NAH=128; GBS=2160; NNODES=240
elif [ ${MODEL_SIZE} == "1T" ]; then
    TP=8; PP=64; NLS=128; HS=25600; NAH=160; GBS=3072; NNODES=384
else
    echo "Invalid configuration"
    exit 1
fi

MEGATRON_PARAMS="--checkpoint-activations --DDP-impl local"

CMD="pretrain_gpt.py --tensor-model-parallel-size ${TP} \
     --pipeline-model-parallel-size ${PP} \
     --num-layers ${NLS} --hidden-size ${HS} --num-attention-heads ${NAH} \
     --micro-batch-size 1 --global-batch-size ${GBS} \
     --seq-length 2048 --max-position-embeddings 2048 \
     --fp16 --vocab-size 51200 ${MEGATRON_PARAMS}"

srun -N ${NNODES} --ntasks-per-node=8 python -u ${CMD}
