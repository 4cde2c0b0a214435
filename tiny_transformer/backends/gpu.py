"""Is there an NVIDIA GPU? Asked of the driver, because asking torch costs two seconds of import."""

import ctypes
import sys


def has_nvidia_gpu() -> bool:
    """Whether the CUDA driver is installed and shows at least one device."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(name)
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
