NPROC_PER_NODE=$meta-llama/Llama-3.1-8B swift rlhf --rlhf_type dpo --model nproc_per_node \
nproc_per_node=4
NPROC_PER_NODE=$meta-llama/Llama-3.1-8B swift rlhf --rlhf_type dpo --model nproc_per_node \
