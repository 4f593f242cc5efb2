#!/bin/bash
TRAIN=$(cat <<'EOS'
  anything here is a text
EOS
)
ARGS='--use-legacy-models --ckpt-format torch --transformer-impl local
  --num-layers 30 --hidden-size 3072 --num-attention-heads 32
  --seq-length 2048 --max-position-embeddings 2048
  --micro-batch-size 8 --fp16
  --vocab-size 50257'
python -m torch.distributed.run --standalone --nproc_per_node=8 pretrain_gpt.py $ARGS
