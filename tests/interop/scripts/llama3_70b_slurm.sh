#!/bin/bash
#SBATCH --job-name=llama3-70b
#SBATCH -N 64
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=1
#SBATCH --time=24:00:00

export NCCL_DEBUG=WARN NCCL_IB_TIMEOUT=22
export CUDA_DEVICE_MAX_CONNECTIONS=1
nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
head_node=${nodes[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)

NETWORK="--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 \
  --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm \
  --position-embedding-type rope --rotary-base 500000 --disable-bias-linear \
  --untie-embeddings-and-output-weights --attention-dropout 0.0 --hidden-dropout 0.0"
TOKENS="--tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Meta-Llama-3-70B \
  --seq-length 8192 --max-position-embeddings 8192"
STEP="--micro-batch-size 1 --global-batch-size 1024 --train-samples 1000000 --optimizer adam --lr 1.5e-4"
SPLIT="--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 5 \
  --sequence-parallel --use-distributed-optimizer --overlap-grad-reduce --tp-comm-overlap"

srun --container-image=nemo.sqsh bash -c "
  torchrun --nnodes=\$SLURM_NNODES --nproc_per_node=8 --node_rank=\$SLURM_NODEID --master_addr=$head_node_ip \
  pretrain_gpt.py $NETWORK $TOKENS $STEP $SPLIT --bf16 --transformer-impl transformer_engine"
