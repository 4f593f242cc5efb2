#!/usr/bin/env bash
ENTRYPOINT=${ENTRYPOINT:-"-m verl.trainer.sft_trainer"}
RANKS=${RANKS:-8}
OWN="\
    engine=${BACKEND:-fsdp} \
    optim=fsdp \
    engine.ulysses_sequence_parallel_size=${SP:-1} \
    engine.strategy=fsdp2"
torchrun --nnodes=1 --nproc_per_node=${RANKS} ${ENTRYPOINT} \
    data.train_files=own.parquet \
    data.train_batch_size=64 \
    data.max_length=4096 \
    data.max_token_len_per_gpu=16384 \
    model.path=Qwen/Qwen3-8B \
    model.use_remove_padding=True \
    model.enable_gradient_checkpointing=False \
    ${OWN} \
    trainer.logger=['console'] trainer.total_epochs=1
