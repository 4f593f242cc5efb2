"""As key_changes.py, for flags of Megatron-LM's scripts: a line "@ FLAGS" is a script with more flags."""

CHANGES = """
@
--num-layers 12
--hidden-size 2048
--num-attention-heads 8
--ffn-hidden-size 8192
--kv-channels 128
--seq-length 512
--max-position-embeddings 2048
--vocab-size 32000
--padded-vocab-size 64000
--pad-vocab-size-to 64000
--make-vocab-size-divisible-by 1000
--attention-dropout 0.0
--hidden-dropout 0.0
--normalization RMSNorm
--glu-activation swiglu
--swiglu
--squared-relu
--quick-geglu
--disable-bias-linear
--untie-embeddings-and-output-weights
--embed-layernorm
--qk-layernorm
--position-embedding-type rope
--use-rotary-position-embeddings
--no-position-embedding
--micro-batch-size 1
--global-batch-size 32
--rampup-batch-size 16 16 1000
--tensor-model-parallel-size 2
--pipeline-model-parallel-size 2
--context-parallel-size 2
--ds-sequence-parallel-size 2
--recompute-activations
--checkpoint-activations
--recompute-granularity full
--checkpoint-granularity full
--activations-checkpoint-method uniform
--num-key-value-heads 4
--use-distributed-optimizer
--use-torch-fsdp2
--deepspeed
--optimizer sgd
--optimizer-cpu-offload
--cpu-optimizer
--checkpoint-in-cpu
--cpu-offloading-num-layers 2
--use-legacy-models
--synchronize-each-layer
--overlap-grad-reduce
--mtp-num-layers 1
--DDP-impl local
--window-size 127,0
--softmax-type learnable
--multi-latent-attention
--num-experts 4
@ --recompute-activations
--use-mcore-models
@ --use-mcore-models
--transformer-impl local
--attention-backend unfused
--no-bias-gelu-fusion
--no-bias-dropout-fusion
--no-gradient-accumulation-fusion
--no-rope-fusion
--grad-reduce-in-bf16
--ddp-bucket-size 1000000
--ddp-average-in-collective
--no-check-for-nan-in-loss-and-grad
--use-precision-aware-optimizer
--fp8-format hybrid
--fp8-hybrid
--fp8-e4m3
--tp-comm-overlap
@ --use-mcore-models --transformer-impl local
--use-flash-attn
--use-flash-attn-v1
--use-flash-attn-v2
--use-flash-attn-v3
--no-masked-softmax-fusion
@ --group-query-attention
--num-query-groups 4
@ --num-query-groups 4
--group-query-attention
@ --disable-bias-linear
--add-qkv-bias
@ --position-embedding-type rope
--rotary-percent 0.5
@ --window-size 127,0
--window-attn-skip-freq 2
@ --tensor-model-parallel-size 4
--sequence-parallel
@ --tensor-model-parallel-size 4 --recompute-granularity full
--distribute-saved-activations
--distribute-checkpointed-activations
--partition-activations
@ --recompute-granularity full --recompute-method uniform
--recompute-method block
--recompute-num-layers 2
@ --checkpoint-activations
--activations-checkpoint-method block
--activations-checkpoint-num-layers 2
--checkpoint-method block
--checkpoint-num-layers 2
@ --recompute-granularity selective
--recompute-modules mlp
@ --pipeline-model-parallel-size 2
--num-layers-per-virtual-pipeline-stage 6
--num-virtual-stages-per-pipeline-rank 2
--decoder-first-pipeline-num-layers 10
--decoder-last-pipeline-num-layers 10
--pipeline-model-parallel-layout Et*10|t*14L
--use-tp-pp-dp-mapping
--account-for-embedding-in-pipeline-split
--account-for-loss-in-pipeline-split
@ --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --use-mcore-models
--no-overlap-p2p-communication
@ --pipeline-model-parallel-size 2 --tensor-model-parallel-size 2 --DDP-impl local
--no-scatter-gather-tensors-in-pipeline
@ --context-parallel-size 2
--cp-comm-type a2a
@ --use-distributed-optimizer
--overlap-param-gather
@ --use-megatron-fsdp
--data-parallel-sharding-strategy optim_grads_params
@ --data-parallel-sharding-strategy optim_grads_params
--use-megatron-fsdp
--use-custom-fsdp
@ --deepspeed
--zero-stage 2
@ --optimizer sgd
--sgd-momentum 0.0
@ --use-precision-aware-optimizer --use-distributed-optimizer --use-mcore-models
--main-grads-dtype bf16
--exp-avg-dtype bf16
--exp-avg-sq-dtype bf16
@ fp16 --use-precision-aware-optimizer --use-distributed-optimizer --use-mcore-models
--main-params-dtype fp16
@ fp16
--accumulate-allreduce-grads-in-fp32
@ --fp8-format hybrid
--fp8-recipe tensorwise
--fp8-param-gather
--first-last-layers-bf16
@ --fp8-format hybrid --first-last-layers-bf16
--num-layers-at-start-in-bf16 3
--num-layers-at-end-in-bf16 3
@ cluster=dgx-b200
--fp4-format e2m1
@ cluster=dgx-b200 --fp4-format e2m1
--fp4-recipe other
@ --num-experts 8 --use-mcore-models
--expert-model-parallel-size 4
--moe-router-topk 4
--moe-ffn-hidden-size 512
--moe-shared-expert-intermediate-size 512
--moe-layer-freq 2
--moe-router-score-function sigmoid
--moe-router-dtype fp32
--moe-router-enable-expert-bias
--moe-router-force-load-balancing
--moe-expert-capacity-factor 1.0
--moe-token-dispatcher-type flex
--moe-grouped-gemm
--moe-aux-loss-coeff 0.01
--overlap-moe-expert-parallel-comm
--moe-router-fusion
@ --num-experts 8 --moe-aux-loss-coeff 0.01
--moe-router-load-balancing-type none
@ --num-experts 8 --expert-interval 2
--topk 2
--expert-interval 1
--moe-expert-parallel-size 4
--mlp-type residual
--moe-train-capacity-factor 2.0
--moe-loss-coeff 0.0
--disable-moe-token-dropping
@ --num-experts 8 --topk 1 --tensor-model-parallel-size 2 --sequence-parallel
--enable-expert-tensor-parallelism
@ --num-experts 8 --use-mcore-models
--first-k-dense-replace 2
--n-shared-experts 2
--moe-intermediate-size 512
@ --use-mcore-models
--noop-layers 3
@ --num-experts 8 --moe-router-num-groups 4
--moe-router-num-groups 2
--moe-router-group-topk 2
@ --num-experts 8 --moe-expert-capacity-factor 1.0
--moe-pad-expert-input-to-capacity
@ --num-experts 8 --moe-token-dispatcher-type flex
--moe-flex-dispatcher-backend hybridep
@ --num-experts 8 --moe-shared-expert-intermediate-size 512
--moe-shared-expert-gate
@ --num-experts 8 --tensor-model-parallel-size 2 --sequence-parallel --expert-tensor-parallel-size 2
--expert-tensor-parallel-size 1
@ --multi-latent-attention --position-embedding-type rope
--q-lora-rank 256
--kv-lora-rank 64
--qk-head-dim 64
--v-head-dim 64
--qk-pos-emb-head-dim 32
@ tokenizer --tokenizer-type GPT2BPETokenizer
--tokenizer-type Llama2Tokenizer
@ tokenizer --tokenizer-type HuggingFaceTokenizer
--tokenizer-model meta/llama-3
--tokenizer-name-or-path meta/llama-3
@ layers
--encoder-num-layers 12
@ length
--encoder-seq-length 512
@ neither
--bf16
--fp16
"""
LEFT_OUT = {  # a word of a context → flags of the small script that it goes without
    "tokenizer": ("--vocab-size",),
    "layers": ("--num-layers",),
    "length": ("--seq-length",),
    "neither": ("--bf16",),
    "fp16": ("--bf16",),
}
