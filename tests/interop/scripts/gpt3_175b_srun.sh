#!/bin/bash
#SBATCH -A account -p batch
#SBATCH --nodes=128 --exclusive --mem=0 --overcommit --ntasks-per-node=8
#SBATCH --job-name=gpt3-175b

DIR=`pwd`
DATETIME=`date +'date_%y-%m-%d_time_%H-%M-%S'`
mkdir -p $DIR/logs

options=" \
	--tensor-model-parallel-size 8 \
	--pipeline-model-parallel-size 16 \
        --num-layers 96 \
        --hidden-size 12288 \
        --num-attention-heads 96 \
        --seq-length 2048 \
        --max-position-embeddings 2048 \
	--micro-batch-size 1 \
	--global-batch-size 1536 \
	--rampup-batch-size 16 16 5859375 \
	--train-samples 146484375 \
	--lr 6.0e-5 \
	--min-lr 6.0e-6 \
        --log-interval 10 \
        --eval-interval 1000 \
	--data-path <path to the data> \
	--vocab-file vocab.json \
	--split 98,2,0 \
	--init-method-std 0.006 \
	--tensorboard-dir runs \
	--fp16 \
	--activations-checkpoint-method uniform "

run_cmd="python -u ${DIR}/pretrain_gpt.py $@ ${options}"

srun -l \
     --container-image "a container" \
     --output=$DIR/logs/%x_%j_$DATETIME.log sh -c "${run_cmd}"

set +x
