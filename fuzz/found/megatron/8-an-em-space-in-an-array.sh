#!/bin/bash
set -euo pipefail

MODEL_ARGS=(
     --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 11008
    --num-attention-heads 32
    --seq-length 4096
    --max-position-embeddings 4096
    --make-vocab-size-di