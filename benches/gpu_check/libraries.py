"""Where CUDA's libraries are on this machine: LD_LIBRARY_PATH for `pipec`, with all folders that may have them.

NVRTC and cuBLASLt come with a toolkit, or in the wheels that PyTorch brings (`nvidia/*/lib` among a Python's packages).
The loader, which pipec asks for them, knows neither.
"""

import glob
import os
import sys
import sysconfig

# In these packages, of a toolkit and of wheels for CUDA 13 and 12.
PLACES = ("nvidia/cu*/lib", "nvidia/cuda_nvrtc/lib", "nvidia/cublas/lib", "nvidia/nccl/lib")


def folders() -> list[str]:
    """Folders of this machine that have CUDA's libraries, those of a toolkit first."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    toolkits = [os.path.join(home, "lib64") for home in homes if home]
    packages = dict.fromkeys(
        [sysconfig.get_path("purelib"), *(path for path in sys.path if path.endswith("-packages"))]
    )
    wheels = [found for path in packages for place in PLACES for found in sorted(glob.glob(os.path.join(path, place)))]
    return [folder for folder in dict.fromkeys(toolkits + wheels) if os.path.isdir(folder)]


def environment() -> dict[str, str]:
    """This process's variables, in which the loader also looks there. Whoever names a folder with NVRTC has said where to look."""
    named = [part for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    if any(glob.glob(os.path.join(part, "libnvrtc.so*")) for part in named):
        return dict(os.environ)
    return {**os.environ, "LD_LIBRARY_PATH": ":".join([*named, *folders()])}
