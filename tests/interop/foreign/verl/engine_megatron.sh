torchrun --nproc_per_node=8 -m verl.trainer.sft_trainer \
    data.train_files=own.parquet data.train_batch_size=96 data.max_length=2048 \
    data.use_dynamic_bsz=False data.micro_batch_size_per_gpu=2 \
    model.path=Qwen/Qwen3-30B-A3B \
    engine=megatron optim=megatron optim.lr=2e-5 \
    engine.tensor_model_parallel_size=2 engine.pipeline_model_parallel_size=2 \
    engine.virtual_pipeline_model_parallel_size=null \
    engine.expert_model_parallel_size=4 engine.expert_tensor_parallel_size=1 \
    +engine.override_transformer_config.recompute_granularity=full \
    +engine.override_transformer_config.recompute_method=block \
    +engine.override_transformer_config.recompute_num_layers=3
