#!/bin/bash
#SBATCH --nodes=48 --ntasks-per-node=8 --gpus-per-node=8

options=" \
    --sequence-parallel \
    --use-flash-attn \
    --tensor-model-parallel-size 8 \
    --apply-layernorm-1p \
    --untie-embeddings-and-output-weights \
    --disable-bias-linear \
    --position-embedding-type rope \
    --rotary-percent 0.5 \
    --squared-relu \
    --group-query-attention \
    --num-query-groups 8 \
    --attention-dropout 0.0 \
    --hidden-dropout 0.0 \
    --num-layers 32 \
    --hidden-size 6144 \
    --num-attention-heads 48 \
    --seq-length 4096 \
    --max-position-embeddings 4096 \
    --micro-batch-size 4 \
    --global-batch-size 1152 \
    --tokenizer-type GPTSentencePieceTokenizer \
    --tokenizer-model nemotron.model \
    --vocab-size 256000 \
    --lr 4.5e-4 \
    --bf16 \
    --use-distributed-optimizer \
    --overlap-grad-reduce \
    --manual-gc \
    --log-throughput"

run_cmd="cd workspace && python -u pretrain_gpt.py ${options}"
srun -l --container-image img.sqsh --container-mounts "$MOUNTS" sh -c "${run_cmd}"
