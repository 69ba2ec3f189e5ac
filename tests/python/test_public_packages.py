"""What the published packages of safe-gpu and GRN define and show in their documents, on Berth's modules."""

import ast
import re

import pytest
from compat_scripts import lines, scripts, states  # noqa: F401
from compat_tools import compat, good, python_in_path, script, tools  # noqa: F401
from conftest import ROOT
from leasing import jobs  # noqa: F401
from public_packages import GRN, SAFE_GPU, public_package

pytestmark = pytest.mark.release_only

COMPAT = ROOT / "python" / "berth" / "compat"


def parameters(function):
    """The names of the parameters, and how many of them have a default."""
    arguments = function.args
    return [one.arg for one in arguments.args], len(arguments.defaults)


def public_functions(path):
    """The parameters of each public function, and of each method of a public class, that a file defines."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = parameters(node)
        if isinstance(node, ast.ClassDef):
            for one in node.body:
                if isinstance(one, ast.FunctionDef):
                    found[f"{node.name}.{one.name}"] = parameters(one)
    return found


# What only the original's own mechanism needs: its lock file, and its reading of nvidia-smi.
INTERNALS = ("SafeLock", "SafeUmask", "get_nvidia_smi_value", "is_single_gpu_display_mode", "GPUOwner.allocate_gpus")
PLACEHOLDERS = ("PytorchPlaceholder", "TensorflowPlaceholder", "PyCudaPlaceholder")


def test_safe_gpu_has_the_functions_of_the_original():
    original = public_functions(public_package(SAFE_GPU) / "safe_gpu" / "safe_gpu.py")
    ours = public_functions(COMPAT / "safe_gpu" / "safe_gpu.py")
    assert "claim_gpus" in original and "GPUOwner.__init__" in original
    for name, signature in original.items():
        if name.startswith(INTERNALS):
            continue
        kind, _, method = name.partition(".")
        found = ours.get(name) or kind in PLACEHOLDERS and ours[f"_ToolkitPlaceholder.{method}"]
        assert found == signature, name


def test_the_package_of_safe_gpu_exports_the_same():
    def exported(path):
        [names] = [node.names for node in ast.parse(path.read_text()).body
                   if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("safe_gpu")]
        return {one.name for one in names}
    assert exported(public_package(SAFE_GPU) / "safe_gpu" / "__init__.py") == exported(COMPAT / "safe_gpu" / "__init__.py")


def test_the_document_of_safe_gpu(server, scripts):
    [document] = public_package(SAFE_GPU).glob("*.dist-info/METADATA")
    blocks = re.findall(r"^```\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE)
    [first] = [block for block in blocks if block.startswith("from safe_gpu import safe_gpu\n")]
    [handled] = [block for block in blocks if "except safe_gpu.NvidiasmiError" in block]
    start = "from safe_gpu import safe_gpu\nnb_gpus = 2\n"
    taken = [lines(scripts.hold(f"{text}print(safe_gpu.gpu_owner.devices_taken)")) for text in (first, start + handled)]
    assert taken == [["[0]"], ["[1, 2]"]]
    assert states(server) == ["leased"] * 3 + ["free"]


@pytest.fixture
def document():
    [folder] = public_package(GRN).iterdir()
    text = (folder / "README.md").read_text()
    return [block for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE) if "def " in block]


def test_grn_has_the_parameters_of_the_original():
    [folder] = public_package(GRN).iterdir()
    assert parameters_of_job(folder / "grn" / "core" / "job.py") == parameters_of_job(COMPAT / "grn.py")


def parameters_of_job(path):
    return public_functions(path)["job"]


def test_the_document_of_grn(tools, document):
    """Its three scripts: a plain one, which grn-run runs; one with a job; one with a job and a profile."""
    (tools.folder / "modules" / "torch.py").write_text(
        "import os\ndef randn(count, device): print(count, device, os.environ['CUDA_VISIBLE_DEVICES'], flush=True)\n")
    plain, with_job, with_profile = document
    folder = script(tools, "job.py", plain).parent
    commands = ["python job.py"] * 3 + ["python job.py --wait 0.1"]
    result = tools.run("grn-run", *commands, cwd=folder)
    assert result.returncode == 0 and re.fullmatch(r"(1024 cuda:0 [0-3]\n){4}", result.stdout), result
    script(tools, "job.py", with_job)
    assert good(compat(tools, "job.py", cwd=folder)) == "1024 cuda:0 0\n"
    script(tools, "long_job.py", with_profile.replace("long_job(10)", "long_job(0)"))
    assert good(compat(tools, "long_job.py", cwd=folder)) == "1024 cuda:0 0\n" * 2
