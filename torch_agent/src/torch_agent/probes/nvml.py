"""Real GPUs, through NVIDIA's management library."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from libs.contracts.cluster import GpuInfo
from torch_agent.probes.gpus import NO_OTHERS, GpuReading, Others


class NoNvidiaGpus(Exception):
    """There is no usable NVIDIA driver or no GPU; the message says which."""


class NvmlGpus:
    """The GPUs that the driver shows."""

    virtual = False

    def __init__(self) -> None:
        """Open the library.

        Raises:
            NoNvidiaGpus: no driver, or no GPU.
        """
        try:
            import pynvml

            pynvml.nvmlInit()
        except (ImportError, OSError) as error:
            raise NoNvidiaGpus(f"NVML cannot be loaded: {error}") from error
        except Exception as error:  # pynvml's errors have no common base that can be imported without the module
            raise NoNvidiaGpus(f"no usable NVIDIA driver: {error}") from error
        self._nvml: Any = pynvml
        self._handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        if not self._handles:
            raise NoNvidiaGpus("the NVIDIA driver shows no GPU")

    def inventory(self) -> list[GpuInfo]:
        """See `GpuFacts`."""
        return [
            GpuInfo(
                index=index,
                gpu_type=short_type(_text(self._nvml.nvmlDeviceGetName(handle))),
                memory_bytes=int(self._nvml.nvmlDeviceGetMemoryInfo(handle).total),
                uuid=_text(self._nvml.nvmlDeviceGetUUID(handle)),
            )
            for index, handle in enumerate(self._handles)
        ]

    def read(self, holders: Mapping[int, Sequence[int]], others: Others = NO_OTHERS) -> list[GpuReading]:
        """See `GpuFacts`; the tasks are not asked: NVML sees the whole GPU."""
        return [self._read_one(index, handle) for index, handle in enumerate(self._handles)]

    def _read_one(self, index: int, handle: Any) -> GpuReading:
        nvml = self._nvml
        try:
            memory = int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
            utilisation = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
        except nvml.NVMLError as error:
            return GpuReading(index=index, utilisation_ratio=0.0, memory_used_bytes=0, fault=f"not reachable: {error}")
        temperature = None
        with contextlib.suppress(nvml.NVMLError):
            temperature = float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        return GpuReading(
            index=index,
            utilisation_ratio=utilisation,
            memory_used_bytes=memory,
            temperature_c=temperature,
            fault=self._ecc_fault(handle),
        )

    def _ecc_fault(self, handle: Any) -> str:
        """Uncorrected memory errors since the last reset; most consumer GPUs do not count them."""
        nvml = self._nvml
        with contextlib.suppress(nvml.NVMLError):
            errors = nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
            if errors:
                return f"{errors} uncorrected ECC errors"
        return ""


def short_type(name: str) -> str:
    """`NVIDIA A100-SXM4-80GB` as users type it: `a100`."""
    words = name.replace("-", " ").lower().split()
    kept = [word for word in words if word not in ("nvidia", "tesla", "geforce", "quadro")]
    return "-".join(kept[:2]) if kept and kept[0] in ("rtx", "gtx", "titan") else (kept[0] if kept else "gpu")


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
