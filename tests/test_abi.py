"""berth's descriptions of NVIDIA's interfaces, and the stand-ins, compared with NVIDIA's own headers.

The headers come from the Python registry, and are kept under build/; they are never part of this repository.
"""

import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from conftest import BUILD, ROOT, SIM_LIBRARIES
from waiting import LONG_LIMIT

pytestmark = pytest.mark.release_only

TOOLS = ROOT / "tests" / "tools"
GIB = 1024**3

# What is pinned of each generation of headers: an old one and a new one, since layouts must be right for both.
PACKAGES = {
    "cuda12": ["nvidia-nvml-dev-cu12==12.9.79", "nvidia-cuda-runtime-cu12==12.9.79"],
    "cuda13": ["nvidia-nvml-dev==13.4.92", "nvidia-cuda-runtime==13.4.92"],
}


def fetch_headers(folder, packages):
    """Puts nvml.h and cuda.h into `folder`."""
    work = folder.with_name(f"{folder.name}-download")
    shutil.rmtree(work, ignore_errors=True)
    result = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
                             "--no-deps", "--only-binary=:all:", "--dest", work, *packages],
                            stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode != 0:
        pytest.skip(f"NVIDIA's headers cannot be had from the Python registry: {result.stderr.splitlines()[-1]}")
    found = work / "include"
    found.mkdir()
    for wheel in work.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(("/nvml.h", "/cuda.h")):
                    (found / name.rsplit("/", 1)[1]).write_bytes(archive.read(name))
    assert sorted(path.name for path in found.iterdir()) == ["cuda.h", "nvml.h"]
    shutil.rmtree(folder, ignore_errors=True)
    found.rename(folder)
    shutil.rmtree(work)


@pytest.fixture(scope="module", params=PACKAGES)
def headers(request):
    """A folder with one generation of NVIDIA's headers; kept for the next run."""
    packages = PACKAGES[request.param]
    folder = BUILD / "headers" / "-".join([request.param, packages[0].rsplit("=", 1)[1]])
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        fetch_headers(folder, packages)
    return folder


def compile_and_run(server, source, folder, *flags, env=None):
    program = folder / source.stem
    built = server.run("g++", "-std=c++20", "-Wall", "-Wno-deprecated-declarations", *flags, source, "-o", program,
                       "-ldl", timeout=LONG_LIMIT)
    assert built.returncode == 0, built.stderr
    return server.run(program, env=env)


def stand_in_functions(server, prefix):
    """name -> its declaration, of each function that the sources of a stand-in define for its users."""
    sources = sorted((ROOT / "sim").glob(f"{prefix}_*.cpp"))
    whole = "".join(f'#include "{path}"\n' for path in sources if not path.stem.endswith("_test"))
    result = subprocess.run(["g++", "-std=c++20", "-E", "-P", f"-I{ROOT}", f"-I{ROOT / 'src'}", "-x", "c++", "-"],
                            input=whole, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    found = re.findall(r'extern "C" __attribute__\(\(visibility\("default"\)\)\)\s+([\w:\s*]+?)(\w+)\(([^)]*)\)\s*\{',
                       result.stdout)
    return {name: f"{answer.strip()} {name}({parameters});" for answer, name, parameters in found
            if not name.startswith("berth_sim_")}


@pytest.mark.parametrize("prefix, library", [("nvml", "libnvidia-ml.so.1"), ("cuda", "libcuda.so.1")])
def test_every_export_is_found_in_the_sources(server, prefix, library):
    """So that the comparison of signatures leaves no function out."""
    symbols = subprocess.run(["nm", "-D", "--defined-only", SIM_LIBRARIES / library], capture_output=True, text=True,
                             check=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in symbols.splitlines()}
    functions = stand_in_functions(server, prefix)
    assert len(functions) > 20
    assert set(functions) == {name for name in exported if not name.startswith("berth_sim_")}


def test_the_tables_are_complete():
    """Each code, constant, structure, field and call that berth's headers describe is compared."""
    tables = (TOOLS / "abi_check.cc").read_text()
    missing = []
    for header in ["nvml_abi.h", "cuda_abi.h", "nvml_api.h"]:
        text = re.sub(r"//.*", "", (ROOT / "src" / "devices" / header).read_text())
        structs = dict(re.findall(r"^struct (\w+) \{(.*?)^\};", text, re.MULTILINE | re.DOTALL))
        calls = re.findall(r"\(\*(\w+)(?:\[\d\])?\)\(", structs.pop("Api", ""))
        fields = [(name, field) for name, body in structs.items()
                  for field in re.findall(r"(\w+)(?:\[\d+\])?;", body)]
        enumerators = [name for body in re.findall(r"^enum \w+ : int \{(.*?)\};", text, re.MULTILINE | re.DOTALL)
                       for name in re.findall(r"(\w+) = ", body)]
        constants = re.findall(r"^constexpr \S+ (k\w+) =", text, re.MULTILINE)
        assert calls or (fields and enumerators)
        missing += [name for name in structs if f"STRUCT({name}," not in tables]
        missing += [f"{name}.{field}" for name, field in fields if f"FIELD({name}, {field}," not in tables]
        missing += [name for name in enumerators if f"VALUE({name}," not in tables]
        missing += [name for name in constants if not re.search(rf"(VALUE\({name},|check\({name} >=)", tables)]
        missing += [name for name in calls if not re.search(rf"CALL\(\*?Api::{name},", tables)
                    and not name.startswith("sim_")]
    assert missing == []


def test_layouts_codes_and_signatures(server, headers, tmp_path):
    nvml, cuda = stand_in_functions(server, "nvml"), stand_in_functions(server, "cuda")
    (tmp_path / "stand_ins.h").write_text("".join([
        "namespace stand_in {\nusing namespace berth;\n", *[f"{text}\n" for text in [*nvml.values(), *cuda.values()]],
        "}\n",
        "#define NVML_STAND_INS ", " ".join(f"STAND_IN({name})" for name in nvml), "\n",
        "#define CUDA_STAND_INS ", " ".join(f"STAND_IN({name})" for name in cuda), "\n"]))
    result = compile_and_run(server, TOOLS / "abi_check.cc", tmp_path, f"-I{headers}", f"-I{ROOT / 'src'}",
                             f"-I{tmp_path}")
    assert result.returncode == 0, result.stdout
    checks = int(re.fullmatch(r"(\d+) checks, 0 differences\n", result.stdout)[1])
    assert checks > 200


def test_a_program_built_with_the_header_can_use_the_stand_in(server, headers, tmp_path):
    job = server.use("2x24GiB").start_job("--mem", "3GiB", "--util", "60", gpu=1)
    result = compile_and_run(server, TOOLS / "abi_calls.cc", tmp_path, f"-I{headers}",
                             env={"LD_LIBRARY_PATH": str(SIM_LIBRARIES)})
    assert result.returncode == 0, result.stdout
    gpu = server.status()["gpus"][1]
    assert result.stdout.splitlines() == [
        "count 2",
        "name Simulated 24 GiB GPU",
        f"uuid {gpu['uuid']}",
        f"memory {24 * GIB} {21 * GIB} {3 * GIB}",
        f"memory_v2 {24 * GIB} 0 {21 * GIB} {3 * GIB}",
        f"utilization {gpu['utilization_pct']} {gpu['memory_utilization_pct']}",
        f"process {job.pid} {3 * GIB} ffffffff ffffffff",
        f"detail 1 {job.pid} {3 * GIB}",
        "pci 00000000:02:00.0 0000:02:00.0 0 2 0",
        "level 40",
        f"temperature {gpu['temperature_c']}",
        "after 1 Uninitialized",
    ]
