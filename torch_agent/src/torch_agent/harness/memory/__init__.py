"""A limit for what a training process has on its device, kept to at mini-batch boundaries; the rest lies on the host.

limiting.py (when, and what the page says) ─> device.py (the protocol)
                                                  ├─ virtual GPUs: preloaded.py + allocator.c
                                                  └─ real ones: cuda.py ─> activations.py, host_pool.py
"""
