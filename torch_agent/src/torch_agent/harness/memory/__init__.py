"""A limit for what a training process has on its device, kept to at mini-batch boundaries; the rest lies on the host.

limiting.py (when, and what the page says) ─> device.py (the protocol) <─ preloaded.py + allocator.c (virtual GPUs)
                                                      device.py <─ cuda.py (real ones) ─> activations.py, host_pool.py
"""
