"""What is asked of the hardware: the only place of NVML outside the training processes."""
