"""The flags of Megatron-LM's training programs: what each of them is to a forecast.

Answers: is this flag modelled, without effect on a step's time, not supported yet, or not known?
Elsewhere: what the modelled ones say (launch_script.py, stack.py), how words become flags
(arguments.py).

Names are those of `arguments.py` in NVIDIA/Megatron-LM, releases v2.5 (2021) to core v0.15 (2025), of
microsoft/Megatron-DeepSpeed and of bigscience-workshop/Megatron-DeepSpeed. A flag that names where data
lie, how often something is logged or saved, or how fast a model learns changes no kernel.
"""

from collections.abc import Mapping

from flopcast.files.unknown_keys import costly_part


def _names(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


SWITCHES = _names(  # modelled, without a value
    """
    --multi-latent-attention --moe-router-enable-expert-bias --moe-pad-expert-input-to-capacity
    --moe-grouped-gemm --moe-router-force-load-balancing --moe-shared-expert-gate
    --overlap-moe-expert-parallel-comm --moe-router-fusion
    --group-query-attention --use-rotary-position-embeddings --no-position-embedding --swiglu
    --squared-relu --quick-geglu --disable-bias-linear --add-qkv-bias
    --untie-embeddings-and-output-weights --sequence-parallel --recompute-activations
    --checkpoint-activations --distribute-saved-activations --distribute-checkpointed-activations
    --partition-activations --use-distributed-optimizer --deepspeed --use-torch-fsdp2
    --use-megatron-fsdp --use-custom-fsdp --fp16 --bf16 --fp8-hybrid --fp8-e4m3 --fp8-param-gather
    --use-tp-pp-dp-mapping
    --optimizer-cpu-offload --cpu-optimizer --checkpoint-in-cpu --use-mcore-models --use-legacy-models
    --use-flash-attn --use-flash-attn-v1 --use-flash-attn-v2 --use-flash-attn-v3 --no-masked-softmax-fusion
    --no-bias-gelu-fusion --no-bias-dropout-fusion --no-gradient-accumulation-fusion --no-rope-fusion
    --overlap-grad-reduce --overlap-param-gather --accumulate-allreduce-grads-in-fp32
    --grad-reduce-in-bf16 --no-scatter-gather-tensors-in-pipeline --no-overlap-p2p-communication
    --tp-comm-overlap --no-check-for-nan-in-loss-and-grad --ddp-average-in-collective
    --synchronize-each-layer --first-last-layers-bf16
    --enable-expert-tensor-parallelism --disable-moe-token-dropping
    --embed-layernorm --qk-layernorm --use-precision-aware-optimizer
    --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split
    """
)

VALUED = _names(  # modelled, with one value
    """
    --topk --expert-interval --moe-expert-parallel-size --mlp-type --moe-train-capacity-factor
    --moe-loss-coeff --first-k-dense-replace --n-shared-experts --moe-intermediate-size --noop-layers
    --moe-router-topk --moe-ffn-hidden-size --moe-shared-expert-intermediate-size
    --moe-layer-freq --moe-router-score-function --moe-router-dtype --moe-router-num-groups --window-size
    --window-attn-skip-freq --softmax-type --moe-flex-dispatcher-backend
    --moe-router-group-topk --moe-expert-capacity-factor --moe-token-dispatcher-type --q-lora-rank
    --kv-lora-rank --qk-head-dim --qk-pos-emb-head-dim --v-head-dim --mtp-num-layers
    --num-layers --encoder-num-layers --hidden-size --ffn-hidden-size --num-attention-heads
    --num-query-groups --num-key-value-heads --kv-channels --seq-length --encoder-seq-length
    --max-position-embeddings --position-embedding-type --rotary-percent --normalization
    --glu-activation --vocab-size --padded-vocab-size --pad-vocab-size-to --make-vocab-size-divisible-by
    --tokenizer-type --tokenizer-model --tokenizer-name-or-path --attention-dropout --hidden-dropout
    --micro-batch-size --global-batch-size --tensor-model-parallel-size --pipeline-model-parallel-size
    --num-layers-per-virtual-pipeline-stage --num-virtual-stages-per-pipeline-rank
    --decoder-first-pipeline-num-layers --decoder-last-pipeline-num-layers
    --pipeline-model-parallel-layout
    --context-parallel-size --ds-sequence-parallel-size --expert-model-parallel-size
    --expert-tensor-parallel-size --recompute-granularity --recompute-method --recompute-num-layers
    --checkpoint-granularity --checkpoint-method --checkpoint-num-layers
    --activations-checkpoint-method --activations-checkpoint-num-layers --zero-stage
    --data-parallel-sharding-strategy --fp8-format --fp8-recipe --fp4-format --fp4-recipe
    --num-layers-at-start-in-bf16 --num-layers-at-end-in-bf16 --cpu-offloading-num-layers --transformer-impl
    --attention-backend --ddp-bucket-size --DDP-impl --optimizer
    --main-grads-dtype --main-params-dtype --exp-avg-dtype --exp-avg-sq-dtype --sgd-momentum
    """
)

LISTED = _names(
    "--rampup-batch-size --recompute-modules --cp-comm-type --num-experts"
    " --moe-router-load-balancing-type --moe-aux-loss-coeff"
)  # modelled, several values

REFUSED: Mapping[str, str] = {  # flag → what it asks for; values that ask for nothing are in `MEANS_NONE`
    "--is-hybrid-model": "a hybrid of attention and state-space layers",
    "--hybrid-override-pattern": "a hybrid of attention and state-space layers",
    "--hybrid-attention-ratio": "a hybrid of attention and state-space layers",
    "--hybrid-mlp-ratio": "a hybrid of attention and state-space layers",
    "--mamba-state-dim": "a state-space layer (Mamba)",
    "--mamba-head-dim": "a state-space layer (Mamba)",
    "--mamba-num-groups": "a state-space layer (Mamba)",
    "--mamba-num-heads": "a state-space layer (Mamba)",
    "--heterogeneous-layers-config-path": "layers of unequal shape",
    "--heterogeneous-layers-config-encoded-json": "layers of unequal shape",
    "--decoder-num-layers": "an encoder and a decoder",
    "--decoder-seq-length": "an encoder and a decoder",
    "--vision-pretraining": "a vision model",
    "--retro-add-retriever": "retrieval",
    "--cpu-offloading": "offload of activations",
    "--fine-grained-activation-offloading": "offload of activations",
    "--offload-modules": "offload of activations",
    "--hybrid-context-parallel": "a context-parallel degree that changes with the length of a sequence",
    "--max-seqlen-per-dp-cp-rank": "a context-parallel degree that changes with the length of a sequence",
    "--dsa-indexer-head-dim": "sparse attention (DSA)",
    "--dsa-indexer-n-heads": "sparse attention (DSA)",
    "--fp8-quantizer-factory": "a quantisation of one's own",
    "--fp4-quantizer-factory": "a quantisation of one's own",
    "--quant-recipe": "a quantisation of one's own",
    "--perform-rl-step": "reinforcement learning",
    "--yaml-cfg": "flags in another file",
    "--batch-size": "a flag that Megatron-LM replaced by --micro-batch-size",
    "--model-parallel-size": "a flag that Megatron-LM replaced by --tensor-model-parallel-size",
}
MEANS_NONE = ("0", "0.0", "1", "none", "None")  # --num-experts 1 is a dense model
ONLY_ZERO_MEANS_NONE = ("--hybrid-attention-ratio", "--hybrid-mlp-ratio")

NOT_MODELLED: Mapping[str, str] = {  # flag → what it changes that a forecast does not show yet
    "--overlap-param-gather-with-optimizer-step": "the first gather of parameters is counted as exposed",
    "--no-async-tensor-model-parallel-allreduce": "no overlap of it with the weight gradient was counted",
    "--qk-l2-norm": "two small norms a block, of queries and keys, are left out",
    "--no-bias-swiglu-fusion": "bias and SwiGLU are counted as one kernel",
    "--no-persist-layer-norm": "norms are counted at the speed of the persistent kernel",
    "--fp32-residual-connection": "the residual stream is counted in 16 bits",
    "--cross-entropy-loss-fusion": "the loss is counted as separate kernels",
    "--fp4-param-gather": "weights are counted in 16 bits beside their 4-bit copies, and gathered in 16",
    "--no-fp8-wgrad": "weight gradients are counted in 8 bits",
    "--fp8-dot-product-attention": "the core of attention is counted in 16 bits",
    "--fp8-multi-head-attention": "the core of attention is counted in 16 bits",
    "--defer-embedding-wgrad-compute": "the head's weight gradient is counted where it arises",
    "--delay-wgrad-compute": "weight gradients are counted where they arise",
    "--enable-cuda-graph": "launches are counted one by one",
    "--external-cuda-graph": "launches are counted one by one",
    "--cuda-graph-impl": "launches are counted one by one",
    "--use-nccl-ub": "user-buffer registration of NCCL is not counted",
    "--use-sharp": "reductions inside the network are not counted",
    "--deterministic-mode": "kernels are counted at their usual speed",
    "--num-distributed-optimizer-instances": "optimizer states are counted as shared by all replicas",
    "--empty-unused-memory-level": "emptying the allocator's cache is not counted",
    "--log-params-norm": "one more pass over the parameters is left out",
    "--log-num-zeros-in-grad": "one more pass over the gradients is left out",
    "--num-layers-in-first-pipeline-stage": "stages are counted as equally full",
    "--num-layers-in-last-pipeline-stage": "stages are counted as equally full",
    "--standalone-embedding-stage": "the embedding is counted on the first stage",
    "--reset-attention-mask": "documents of a sequence are counted as one",
    "--extra-vocab-size": "the vocabulary is counted without it",
    "--pp-partition-method": "layers are dealt out to stages as the stack does",
    "--microbatch-group-size-per-virtual-pipeline-stage": "groups are as large as the pipeline is deep",
    "--overlap-p2p-communication-warmup-flush": "transfers overlap as in the steady state",
    "--use-ring-exchange-p2p": "transfers are counted as sends and receives",
    "--no-pipeline-parallel": "the step is counted as that of DeepSpeed's pipeline engine",
    "--curriculum-learning": "every sequence is counted at its full length",
    "--curriculum-learning-legacy": "every sequence is counted at its full length",
    "--data-efficiency-curriculum-learning": "every sequence is counted at its full length",
    "--random-ltd": "every sequence is counted at its full length",
    "--sft": "every sequence is counted at its full length",
    "--kd": "the teacher's forward pass is left out",
    "--spec": "the layers are counted as Megatron-LM's own",
    "--use-checkpoint-args": "flags that a checkpoint holds are not read",
    "--apply-residual-connection-post-layernorm": "residuals are counted as taken before the norm",
    "--sync-tp-duplicated-parameters": "its messages are left out",
    "--train-sync-interval": "waits of the host are left out",
    "--nccl-communicator-config-path": "NCCL is counted with its defaults",
    "--moe-use-upcycling": "the model is counted as dense",
    "--moe-shared-expert-overlap": "shared experts are counted behind the others",
    "--moe-layer-recompute": "experts are counted as computed once",
    "--moe-z-loss-coeff": "a pass over the router's scores is left out",
    "--moe-input-jitter-eps": "a pass over the router's input is left out",
    "--moe-apply-probs-on-input": "rows are counted as weighed behind their experts",
    "--moe-use-legacy-grouped-gemm": "products of experts are counted at their usual speed",
    "--moe-extended-tp": "experts are counted as cut over --expert-tensor-parallel-size ranks",
    "--remote-device": "parameters are counted on the device",
    "--ddp-num-buckets": "buckets of gradients are counted at their usual size",
    "--ddp-reduce-scatter-with-fp32-accumulation": "the reduce-scatter is counted as NCCL's own",
    "--zero-reduce-bucket-size": "buckets of gradients are counted at the stack's size",
    "--zero-allgather-bucket-size": "gathers of parameters are counted at the stack's size",
    "--fp16-lm-cross-entropy": "the loss is counted in fp32, after a cast of the logits",
    "--disable-bf16-reduced-precision-matmul": "GEMMs are counted at the speed of PyTorch's defaults",
    "--split-transformers": "a layer is counted with one checkpoint of recompute, not with two",
    "--scattered-embeddings": "the output of the embedding is counted whole on every rank",
    "--memory-centric-tiled-linear": "linears are counted whole",
}

SILENT = _names(  # without effect on the time and memory of a step
    """
    --accelerator --adam-beta1 --adam-beta2 --adam-eps --adlr-autoresume --adlr-autoresume-interval
    --abort-on-unmet-fused-kernel-constraints --aml-data-download-path --app-tag-run-name
    --app-tag-run-version --apply-layernorm-1p --apply-query-key-layer-scaling --async-save
    --attention-softmax-in-fp32 --auto-detect-ckpt-format --bert-no-binary-head
    --calculate-per-token-loss --check-for-large-grads --check-for-spiky-loss
    --check-weight-hash-across-dp-replicas-interval --clip-grad --codecarbon-dir --config-logger-dir
    --contigious-checkpointing --cp --cuda-graph-scope --cuda-graph-warmup-steps
    --data-args-path --data-cache-path --data-impl --data-parallel-random-init --data-path
    --dataloader-type --ddp-pad-buckets-for-high-nccl-busbw
    --decoupled-lr --decoupled-min-lr
    --decrease-batch-size-if-needed --deepscale --deepscale_config --deepspeed-activation-checkpointing
    --deepspeed_config --deepspeed_mpi
    --disable-gloo-process-groups --disable-msc --disable-straggler-on-startup
    --distributed-backend --distributed-timeout-minutes --distributed-timeout-seconds-after-init
    --embedding-init-method-std --enable-experimental --enable-ft-package --calc-ft-timeouts
    --end-weight-decay --eod-mask-loss --error-injection-rate --error-injection-type
    --exit-duration-in-mins --exit-interval --exit-on-missing-checkpoint --exit-signal-handler
    --finetune --full-validation
    --hierarchical-context-parallel-sizes --high-priority-stream-groups --hysteresis --init-method-std
    --init-method-xavier-uniform --initial-loss-scale --iterations-to-skip --kill-switch-path
    --layernorm-epsilon --lazy-mpu-init --legacy-tokenizer --load --load-main-params-from-ckpt
    --local-rank --local_rank --logging-level --loss-on-targets-only --loss-scale --loss-scale-window
    --lr --make-vocab-size-divisible --manual-gc --manual-gc-interval --mask-prob --memory-snapshot-path
    --merge-file --mid-level-dataset-surplus --min-loss-scale --min-lr --mmap-warmup --mock-data
    --multiple-validation-sets --no-align-grad-reduce --no-align-param-gather
    --no-barrier-with-level-1-timing --no-clone-scatter-output-in-embedding
    --no-contiguous-buffers-in-local-ddp --no-create-attention-mask-in-dataloader --no-data-sharding
    --no-gradient-reduce-div-fusion --no-initialization --no-load-lr-state --no-load-optim --no-load-rng
    --no-manual-gc-eval --no-mmap-bin-files --no-one-logger --no-query-key-layer-scaling --no-save-optim
    --no-save-rng --norm-epsilon --num-channels --num-classes --num-dataset-builder-threads
    --num-workers --object-storage-cache-path
    --onnx-safe --openai-gelu --optimizer-offload-fraction --override-lr-scheduler
    --override-opt-param-scheduler --override-opt_param-scheduler --per-split-data-args-path
    --persistent-save-interval --pipeline-model-parallel-comm-backend --pipeline-model-parallel-split-rank
    --pretrained-checkpoint --record-memory-history --relative-attention-max-distance
    --relative-attention-num-buckets --repeated-dataloader --rerun-mode
    --reset-position-ids --reset-progress --result-rejected-tracker-filename --return-data-index
    --reweight-loss-based-on-position-frequency --rope-scaling-factor --rope-type --rotary-base
    --rotary-interleaved --rotary-seq-len-interpolation-factor --run-workload-inspector-server
    --sample-rate --save --save-interval --save-retain-interval --seed
    --sharp-enabled-group --short-seq-prob --skip-train --skip-train-iteration-range
    --skipped-train-samples --split --start-weight-decay --straggler-ctrlr-port
    --straggler-minmax-count --suggested-communication-unit-size --te-rng-tracker --test-data-path
    --test-mode --tile-factor --timing-log-level --timing-log-option --tokenizer-metadata
    --tp-comm-bootstrap-backend --tp-comm-overlap-cfg --tp-comm-overlap-rs-dgrad
    --train-data-exact-num-epochs --train-data-path --train-iters --train-samples --train-tokens
    --train-weighted-split-paths-path --trust-remote-code --universal-checkpoint
    --use-checkpoint-lr-scheduler --use-checkpoint-opt-param-scheduler
    --use-checkpoint-opt_param-scheduler --use-cpu-initialization
    --use-dist-ckpt --use-mp-args-from-checkpoint-args --use-persistent-ckpt-worker --use-pin-memory
    --use-pytorch-profiler --use-rope-scaling --use-te-activation-func
    --use-torch-optimizer-for-cpu-offload --valid-data-path --vocab-extra-ids --vocab-file --warmup
    --weight-decay --weight-decay-incr-style --wgrad-deferral-limit
    --zero-contigious-gradients --zero-reduce-scatter --cpu_torch_adam
    --apply-wd-to-qk-layernorm --async-tensor-model-parallel-allreduce --ckpt-fully-parallel-load
    --ckpt-fully-parallel-load-exchange-algo --ckpt-fully-parallel-save
    --no-ckpt-fully-parallel-save --dist-ckpt-save-pre-mcore-014 --dino-freeze-last-layer
    --dino-head-hidden-size --dino-norm-last-layer --ict-head-size --inprocess-max-rank-faults
    --linear-key-head-dim --linear-num-key-heads --linear-num-value-heads --linear-value-head-dim
    --min-offloaded-tensor-size --moe-deepep-num-sms --moe-eval-capacity-factor
    --moe-expert-rank-capacity-factor --moe-hybridep-num-sms --moe-min-capacity
    --moe-per-layer-logging --moe-permute-fusion --moe-router-bias-update-rate
    --moe-router-padding-for-fp8 --moe-router-padding-for-quantization --moe-router-pre-softmax
    --moe-router-topk-scaling-factor --moe-token-drop-policy --moe-token-dropping --create-moe-param-group
    --moe-upcycling-granularity --mtp-loss-scaling-factor --output-layer-init-method
    --persist-layer-norm --profile-ranks --random-ltd-layer-num --retro-encoder-attention-dropout
    --retro-encoder-hidden-dropout --retro-encoder-layers
    """
)

SILENT_PREFIXES = (  # prefixes of such flags, except names with words for sizes and degrees
    "--log-", "--no-log-", "--wandb-", "--tensorboard-", "--lr-", "--eval-", "--ckpt-", "--no-ckpt-",
    "--dist-ckpt-", "--distrib-optim-", "--inprocess-", "--one-logger-", "--retro-", "--rl-", "--grpo-",
    "--langrl-", "--inference-", "--fp8-", "--no-fp8-", "--fp4-", "--dino-", "--tiktoken-",
    "--profile", "--replication", "--non-persistent-", "--muon-", "--disable-tp-comm-", "--kd-", "--img-",
    "--vision-", "--biencoder-", "--bert-", "--ict-", "--indexer-", "--retriever-", "--sft-",
    "--rotary-scaling", "--mscale", "--random-ltd-", "--curriculum-",
)  # fmt: skip

MODELLED = SWITCHES | VALUED | LISTED
KNOWN = MODELLED | SILENT | REFUSED.keys() | NOT_MODELLED.keys()

VOCABULARIES: Mapping[str, tuple[int, str]] = {  # tokenizer type → tokens, and where the number stands
    "GPT2BPETokenizer": (50257, "vocab_size of GPT-2's configuration"),
    "Llama2Tokenizer": (32000, "arXiv:2302.13971, section 2.1: LLaMA's and Llama 2's tokenizer"),
    "TikTokenizer": (131072, "Megatron-LM's limit of a tiktoken vocabulary, 2**17"),
}
TOKENIZER_NAMES: Mapping[str, tuple[int, str]] = {  # a part of the name of a tokenizer's file or repository
    "llama-3": (128256, "vocab_size of Llama 3's configuration"),
    "llama3": (128256, "vocab_size of Llama 3's configuration"),
    "llama-2": (32000, "vocab_size of Llama 2's configuration"),
    "llama2": (32000, "vocab_size of Llama 2's configuration"),
    "mistral-7b-v0.1": (32000, "vocab_size of Mistral 7B's configuration"),
    "gpt2": (50257, "vocab_size of GPT-2's configuration"),
}


def is_silent(flag: str) -> bool:
    """Return whether a flag is known to change neither the time nor the memory of a step.

    A prefix does not cover a name with a word for a size or a degree (`unknown_keys.costly_part`).

    >>> is_silent("--lr-warmup-iters"), is_silent("--num-layers"), is_silent("--rl-experts")
    (True, False, False)
    """
    if flag in SILENT:
        return True
    starts = [start for start in SILENT_PREFIXES if flag.startswith(start)]
    return flag not in KNOWN and any(not costly_part(flag.removeprefix(start)) for start in starts)


def is_known(flag: str) -> bool:
    """Return whether any release of Megatron-LM, or of its forks listed above, has such a flag."""
    return flag in KNOWN or is_silent(flag)
