"""What is asked of the hardware: the only home of NVML outside the training processes."""
