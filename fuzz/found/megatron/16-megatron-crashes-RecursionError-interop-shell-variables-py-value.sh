#!/bin/bash
while [[ $# -gt 0 ]]; do
  case $1 in
    --nodes) NNODES=$2; "shift" 2 ;;
EOT
    NUM_ATTN_HEADS=32
    INTERMEDIATE_SIZE=11008
    ;;
13B)
    NUM_LAYERS=40
    HIDDEN_SIZE=5120
    NUM_ATTN_HEADS=40
    INTERMEDIATE_SIZE=13824
    ;;
esac

if [ $AC = full ]; then
    activation_checkpoint_options=" --recompute-method uniform --recompute-granularity full"
elif [ $AC = sel ]; then
    activation_checkpoint_options=" --recompute-activations"
elif [ $AC = none ]; then
    activation_checkpoint_options=""
fi
if [ $PR = fp16 ]; then
    pr_options=" --fp16"
elif [ $PR = bf16 ]; then
    pr_options=" --bf16"
fi
if [ $DO = true ]; then do_options=" --use-distributed-optimizer"; fi
if [ $FL = true ]; then flash_options=" --use-flash-attn"; fi
if [ $SP = true ] && [ $TP -gt 1 ]; then
    sp_options=" --sequence-parallel"
else
    sp_options=" "
fi

megatron_options=" \
    --micro-batch-size ${BATCH_SIZE} \
    --global-batch-size ${GLOBAL_BATCH_SIZE} \
    --num-layers ${NUM_LAYERS} \
    --hidden-size ${HIDDEN_SIZE} \
    --num-attention-heads ${NUM_ATTN_HEADS} \
    --ffn-hidden-size ${INTERMEDIATE_SIZE} \
    --seq-length ${SEQ_LEN} \
    --max-position-embeddings ${SEQ_LEN} \
    --max-padding-length ${SEQ_LEN} \
    --tensor-model-parallel-size ${TP} \
    --pipeline-model-parallel-size ${PP} \
    --patch-tokenizer-type LLamaTokenizer \
    --vocab-size 32000 \
    --extra-vocab-size 0 \
    --swiglu \
    --normalization RMSNorm \
    --use-llama2-rotary-position-embeddings \
    --position-embedding-type rope \
    --untie-embeddings-and-output-weights \
    --disable-bias-linear \
    --attention-dropout 0.0 \
    --hidden-dropout 0.0
    "
run_cmd="torchrun $DISTRIBUTED_ARGS pretrain_llama.py
 ${megatron_options} ${activation_checkpoint_options} ${do_options} ${pr_options} ${sp_options} ${flash_options}"

echo ${run_cmd}
eval ${run_cmd}
set +x
