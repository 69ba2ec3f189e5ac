"""The older tools as their authors published them: downloaded once with pip, and unpacked in build/public-packages.

Nothing of them is installed. `./dev test` runs this file, so that the tests find all of them there.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SAFE_GPU = "safe-gpu==2.0.0"
GPUSELECT = "gpuselect==0.1.4"
GRN = "gpu-resource-negotiator==0.2.4"
FOLDER = pathlib.Path(__file__).parents[2] / "build" / "public-packages"
DOWNLOAD_SECONDS = 300


def public_package(requirement):
    """The folder with the files of a package."""
    target = FOLDER / requirement
    if target.exists():
        return target
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest",
                        folder, requirement], check=True, timeout=DOWNLOAD_SECONDS)
        [archive] = os.listdir(folder)
        unpacked = f"{folder}/unpacked"
        shutil.unpack_archive(f"{folder}/{archive}", unpacked, "zip" if archive.endswith(".whl") else None)
        with contextlib.suppress(OSError):  # another process was faster
            os.rename(unpacked, target)
    return target


if __name__ == "__main__":
    for one in (SAFE_GPU, GPUSELECT, GRN):
        public_package(one)
