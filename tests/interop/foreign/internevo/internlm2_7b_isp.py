JOB_NAME = "own"
model_type = "INTERNLM2"
SEQ_LEN = 4096
HIDDEN_SIZE = 4096
NUM_LAYER = 32
CHECKPOINT_EVERY = 50

ckpt = dict(
    enable_save_ckpt=False,
    save_ckpt_folder=f"local:{JOB_NAME}",
    checkpoint_every=CHECKPOINT_EVERY,
    oss_snapshot_freq=int(CHECKPOINT_EVERY / 2),
)
data = dict(seq_len=SEQ_LEN, micro_num=4, micro_bsz=2, total_steps=50000, train_folder=None)
grad_scaler = dict(fp16=dict(initial_scale=2**16, min_scale=1, growth_interval=1000), growth_factor=2)
hybrid_zero_optimizer = dict(
    overlap_sync_grad=True,
    overlap_sync_param=False,
    reduce_bucket_size=512 * 1024 * 1024,
    clip_grad_norm=1.0,
)
lr_scheduler = dict(total_steps=data["total_steps"], warmup_ratio=0.01)
model = dict(
    checkpoint=False,
    num_attention_heads=32,
    num_kv_attention_heads=8,
    vocab_size=103168,
    hidden_size=HIDDEN_SIZE,
    num_layers=NUM_LAYER,
    no_bias=True,
    mlp_ratio=8 / 3,
    dtype="torch.bfloat16",
    norm_type="rmsnorm",
    use_flash_attn=True,
    num_chunks=1,
)
parallel = dict(
    zero1=dict(size=-1),
    tensor=dict(size=2, mode="isp"),
    pipeline=dict(size=1, interleaved_overlap=True),
    weight=dict(size=4, overlap=True, launch_allgather_before="wo", forward_overlap_per="layer"),
    sequence_2D=dict(enable=False, head_size=2, context_size=4),
)
