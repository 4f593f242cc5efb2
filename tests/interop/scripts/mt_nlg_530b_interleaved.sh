#!/bin/bash
#SBATCH --nodes=35
#SBATCH --gres=gpu:8

TENSOR=8
PIPELINE=35
LAYERS=105

GPT="--num-layers $LAYERS --hidden-size 20480 --num-attention-heads 128 --seq-length 2048 --max-position-embeddings 2048"
BATCH="--micro-batch-size 1 --global-batch-size 280"
PARALLEL="--tensor-model-parallel-size $TENSOR --pipeline-model-parallel-size $PIPELINE"
PARALLEL="$PARALLEL --num-layers-per-virtual-pipeline-stage $((LAYERS / PIPELINE / 3)) --sequence-parallel"
MEMORY="--recompute-activations"
OTHER="--fp16 --vocab-size 51200 --train-iters 100"

srun --ntasks-per-node=1 python -m torch.distributed.run \
  --nnodes $SLURM_NNODES --nproc_per_node $SLURM_GPUS_ON_NODE \
  --rdzv_id $RANDOM --rdzv_backend c10d --rdzv_endpoint $(hostname):29500 \
  pretrain_gpt.py $GPT $BATCH $PARALLEL $MEMORY $OTHER
