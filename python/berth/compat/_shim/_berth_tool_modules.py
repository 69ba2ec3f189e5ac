"""Makes Python import the modules of older tools from berth.compat; sitecustomize.py imports it.

Modules with the tools' names in this folder would not be sufficient: the script's own folder comes before PYTHONPATH, and
may contain a copy of the original. Nothing of berth is imported until the script imports one of the names, so that other
Python processes do not start more slowly.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False  # importing typing would take longer than the rest of this module
if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from typing import Optional, Sequence

TOOL_MODULES = ("safe_gpu", "gpu_lock", "gpuselect", "grn")
# Modules inside of the original packages, and the module here that has their names.
SUBMODULES = {"gpu_lock.gpu_lock": "gpu_lock", "gpuselect.nvmlgpuselect": "gpuselect", "grn.core": "grn", "grn.core.job": "grn"}
PACKAGE_FOLDER = os.path.abspath(__file__)
for _ in range(4):  # berth/compat/_shim/_berth_tool_modules.py
    PACKAGE_FOLDER = os.path.dirname(PACKAGE_FOLDER)


class ToolModuleFinder:
    """Finds and loads the tools' modules and their submodules: each is the same module object as in berth.compat."""

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        if name.partition(".")[0] not in TOOL_MODULES or not is_module_here(name):
            return None
        return ModuleSpec(name, self)  # type: ignore[arg-type]  # importing the loader's base class would take long

    def create_module(self, spec: ModuleSpec) -> None:
        """Returns None: Python then creates a module, which exec_module() replaces. The import system allows that."""

    def exec_module(self, module: ModuleType) -> None:
        try:
            served = importlib.import_module(module_here(module.__name__))
        except ImportError:
            wrong_python = describe_wrong_python(module.__name__)
            if wrong_python is None:
                raise
            raise wrong_python from None
        if not hasattr(served, "__path__"):
            setattr(served, "__path__", [])  # the import system looks for submodules of packages only
        sys.modules[module.__name__] = served

    def get_code(self, name: str) -> Optional[CodeType]:
        """For `python -m NAME`."""
        import importlib.util

        spec = importlib.util.find_spec(module_here(name))
        return spec.loader.get_code(spec.name) if spec else None  # type: ignore[union-attr]


def module_here(name: str) -> str:
    return "berth.compat." + SUBMODULES.get(name, name)


def is_module_here(name: str) -> bool:
    """False for a module inside of an original that berth does not have. Its package is imported already."""
    import importlib.util

    try:
        return name in TOOL_MODULES or importlib.util.find_spec(module_here(name)) is not None
    except ImportError:
        return False


def describe_wrong_python(name: str) -> Optional[ImportError]:
    """The error if the package berth was built for another version of Python; None if it was built for this one."""
    import importlib.machinery

    package = os.path.join(PACKAGE_FOLDER, "berth")
    if any(os.path.exists(os.path.join(package, "_native" + suffix)) for suffix in importlib.machinery.EXTENSION_SUFFIXES):
        return None
    built_for = [file.split("-")[1] for file in os.listdir(package) if file.startswith("_native.cpython-")]
    return ImportError("berth's version of %s cannot be imported in Python %d.%d (%s), because berth was built for Python %s; "
                       "start the script with that Python, or install berth for this one" %
                       (name, sys.version_info[0], sys.version_info[1], sys.executable,
                        ", ".join(number[:1] + "." + number[1:] for number in built_for) or "?"))


class BerthPackageFinder:
    """Finds the package berth to which this file belongs, for a Python in which it is not installed."""

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        return PathFinder.find_spec(name, [PACKAGE_FOLDER]) if name == "berth" else None


sys.meta_path.insert(0, ToolModuleFinder())
sys.meta_path.append(BerthPackageFinder())
