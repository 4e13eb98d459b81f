"""Logs written for the tests, one of each format that SGLang has had."""

V059 = """\
[2026-01-02 10:00:00] server_args=ServerArgs(model_path='/m', port=30000)
[2026-01-02 10:00:05 TP0] Load weight begin. avail mem=90.00 GB
[2026-01-02 10:00:05 TP1] Load weight begin. avail mem=90.10 GB
\rLoading safetensors checkpoint shards:   0% Completed | 0/4 [00:00<?, ?it/s]\
\rLoading safetensors checkpoint shards:  50% Completed | 2/4 [00:03<00:03,  1.60s/it]
[2026-01-02 10:00:15 TP1] Load weight end. elapsed=10.02 s, type=ToyForCausalLM, \
dtype=torch.bfloat16, avail mem=80.10 GB, mem usage=10.00 GB.
[2026-01-02 10:00:15 TP0] Load weight end. elapsed=10.01 s, type=ToyForCausalLM, \
dtype=torch.bfloat16, avail mem=80.00 GB, mem usage=10.00 GB.
[2026-01-02 10:00:16 TP1] KV Cache is allocated. #tokens: 1000, K size: 1.50 GB, V size: 1.50 GB
[2026-01-02 10:00:16 TP0] Using KV cache dtype: torch.float8_e4m3fn
[2026-01-02 10:00:16 TP0] KV Cache is allocated. #tokens: 1000, K size: 1.50 GB, V size: 1.50 GB
[2026-01-02 10:00:16 TP0] Memory pool end. avail mem=70.00 GB
[2026-01-02 10:00:17 TP0] Capture cuda graph begin. This can take up to several minutes.
\rCapturing batches (bs=8 avail_mem=69.00 GB):   0%|          | 0/3 [00:00<?, ?it/s]\
[2026-01-02 10:00:18 TP1] Registering 10 cuda graph addresses
\rCapturing batches (bs=4 avail_mem=68.90 GB):  66%|######    | 2/3 [00:01<00:00,  1.90it/s]
"""

V0523 = """\
[2026-11-30 08:00:00] server_args={'model_path': '/m', 'port': 30000}
[2026-11-30 08:00:01] Ignore import error when loading sglang.srt.models.x: No module named 'y'
[2026-11-30 08:00:02] Load weight begin. avail mem=21.60 GB
[2026-11-30 08:00:04] Load weight end. elapsed=1.27 s, type=ToyForCausalLM, avail mem=21.39 GB, \
mem usage=0.22 GB.
[2026-11-30 08:00:05] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 16384, \
K size: 0.18 GB, V size: 0.18 GB
[2026-11-30 08:00:05] Memory pool end. avail mem=20.90 GB
[2026-11-30 08:00:05] max_total_num_tokens=16384, chunked_prefill_size=4096, \
max_prefill_tokens=16384, max_running_requests=2048, context_len=8192, available_cpu_mem=20.90 GB
"""

READY = "[2026-11-30 08:00:09] The server is fired up and ready to roll!\n"

POOLS = """\
[2026-11-30 08:00:00 DP0 TP0] Use sliding window memory pool. full_layer_tokens=900, \
swa_layer_tokens=300
[2026-11-30 08:00:01 DP0 TP0] Mamba Cache is allocated. max_mamba_cache_size: 82, \
conv_state size: 0.13GB, ssm_state size: 7.29GB intermediate_ssm_state_cache size: 0.50GB
[2026-11-30 08:00:02 DP0 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 300, \
K size: 1.00 GB, V size: 1.25 GB
[2026-11-30 08:00:02 DP0 TP0] Full KV Cache is allocated. dtype: torch.bfloat16, #tokens: 900, \
K size: 2.00 GB, V size: 2.00 GB
[2026-11-30 08:00:02 DP1 TP4] KV Cache VA upper bound. dtype: torch.float8_e5m2, #tokens: 900, \
KV size: 2.92 GB
[2026-11-30 08:00:03 DP0 TP0] Memory pool end. avail mem=8.79 GB
[2026-11-30 08:00:04 DP0 TP0] KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 900, \
K size: 0.10 GB, V size: 0.10 GB
"""

CRASH = """\
[2026-11-30 08:00:06] Scheduler hit an exception: Traceback (most recent call last):
  File "/r/sglang/srt/managers/scheduler.py", line 1, in run
    raise ValueError("address already in use is only source text here")
{error}

[2026-11-30 08:00:06] Received sigquit from a child process. It usually means the child failed.
Traceback (most recent call last):
  File "/r/sglang/srt/entrypoints/engine.py", line 2, in wait
RuntimeError: Rank 0 scheduler died during initialization (exit code: -9).
Killed
"""
