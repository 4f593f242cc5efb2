#!/bin/bash
# Started by Open MPI: ranks are counted by -np.
NP=64
FLAGS=(
  --tensor-model-parallel-size 4 --pipeline-model-parallel-size 4
  --num-layers 44 --hidden-size 6144 --num-attention-heads 64
  --seq-length 2048 --max-position-embeddings 2048
  --micro-batch-size 2 --global-batch-size 512
  --tokenizer-type GPT2BPETokenizer --vocab-file v.json --merge-file m.txt
  --bf16 --checkpoint-activations --no-bias-gelu-fusion
)
mpirun -np $NP --hostfile hosts -x NCCL_DEBUG -x PATH --bind-to none \
  python -u pretrain_gpt.py "${FLAGS[@]}" "$@"
