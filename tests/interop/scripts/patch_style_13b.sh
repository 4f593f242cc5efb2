#!/bin/bash
# sh patch_style_13b.sh ENV MODEL_SIZE BATCH_SIZE GLOBAL_BATCH_SIZE ...
ENV=dsw
MODEL_SIZE=13B
BATCH_SIZE=${3:-1}
GLOBAL_BATCH_SIZE=${4:-256}
SEQ_LEN=4096
PR=bf16
TP=4
PP=2
AC=sel
DO=true
FL=true
SP=true

if [ $ENV = dsw ]; then
    NNODES=2
    GPUS_PER_NODE=8
elif [ $ENV = dlc ]; then
    NNODES=${WORLD_SIZE}
    GPUS_PER_NODE=${KUBERNETES_CONTAINER_RESOURCE_GPU}
fi
DISTRIBUTED_ARGS="--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --master_port 6001"

case $MODEL_SIZE in
7B)
    NUM_LAYERS=32
    HIDDEN_SIZE=4096
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
