"""Makes Python import the modules of older tools from berth.compat, if this folder is in its PYTHONPATH.

Python imports a module named sitecustomize when it starts, before the script. This one runs in every version of Python:
a script may start a Python 2.7. There the tools' modules cannot be imported, and the original modules must not be
imported instead, since they lease nothing.
"""

import os
import sys

SHIM_FOLDER = os.path.dirname(os.path.abspath(__file__))


class OldPythonFinder(object):
    """Refuses to import the tools' modules."""

    def find_module(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name.partition(".")[0] in ("safe_gpu", "gpu_lock", "gpuselect", "grn"):
            raise ImportError("berth's version of %s needs Python 3.9 or later; this is Python %d.%d (%s)"
                              % (name, sys.version_info[0], sys.version_info[1], sys.executable))

    find_spec = find_module  # its name since Python 3.4


if sys.version_info >= (3, 7):
    import _berth_tool_modules  # type: ignore[import-not-found]  # noqa: F401
else:
    sys.meta_path.insert(0, OldPythonFinder())  # type: ignore[unreachable]

# The script sees the same sys.path as without Berth.
sys.path[:] = [folder for folder in sys.path if folder != SHIM_FOLDER]
# Another sitecustomize of the host or the environment, which this file hides, still runs.
this_module = sys.modules.pop("sitecustomize")
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
except ImportError as problem:
    if getattr(problem, "name", "sitecustomize") != "sitecustomize":
        raise
    sys.modules["sitecustomize"] = this_module
