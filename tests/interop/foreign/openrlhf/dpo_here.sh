set -x

read -r -d '' training_commands <<EOF
openrlhf.cli.train_dpo \
   --max_len 4096 \
   --dataset own/pairs \
   --chosen_key chosen \
   --rejected_key rejected \
   --train_batch_size 128 \
   --micro_train_batch_size 1 \
   --pretrain Qwen/Qwen2.5-7B \
   --zero_stage 3 \
   --adam_offload \
   --beta 0.1 \
   --gradient_checkpointing
EOF

if [[ ${1} != "slurm" ]]; then
    deepspeed --module $training_commands
fi
