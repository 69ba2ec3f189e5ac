"""A simulated lab that is worth a picture: several users, jobs, a queue, a stranger, and a week of history."""

import calendar
import math
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from conftest import BUILD, Server, remove  # noqa: E402
from leftovers import kill_all_of  # noqa: E402
from test_report import Archive  # noqa: E402
from waiting import wait_until  # noqa: E402

HOST = "gpu-lab"
USERS = {"maria": 20001, "ines": 20002, "chen": 20003, "tom": 20004, "oluwaseun": 20005, "dave": 20006}
SERVER = {"driver_version": "570.86.15", "gpus": [
    {"name": "NVIDIA A100-SXM4-80GB", "memory": "80GiB", "count": 4, "idle_power_w": 54, "power_limit_w": 400},
    {"name": "NVIDIA RTX 6000 Ada Generation", "memory": "48GiB", "count": 4, "idle_power_w": 21}]}
# Who, with which flags, what, its memory, its utilization, how many hours ago it began.
JOBS = [
    ("maria", ["--gpu", "0,1", "-n", "2", "--label", "ViT large", "--time", "9h"],
     "python train.py --config vit-large.yaml --epochs 300", "61GiB", 96, 2.22),
    ("ines", ["--gpu", "2", "--label", "diffusion", "--time", "12h"], "python train_unet.py --batch 48", "44GiB", 88, 5.7),
    ("chen", ["--gpu", "3", "--mem", "24GiB", "--time", "1h"], "python evaluate.py --split test", "19GiB", 34, 0.28),
    ("oluwaseun", ["--gpu", "3", "--mem", "32GiB", "--label", "ablation 7", "--time", "4h"], "python ablate.py --drop-path 0.2", "27GiB",
     31, 1.1),
    ("tom", ["--gpu", "4", "--label", "notebook"], "jupyter lab --no-browser", "2GiB", 0, 8.3),
]
WAITING = [("ines", ["-n", "4", "--name", "A100", "--label", "pretraining", "--time", "10h"], "python pretrain.py --shards 4", 0.4),
           ("chen", ["--gpu", "0", "--mem", "8GiB", "--time", "45m"], "python sweep.py --lr 3e-4", 0.3),
           ("dave", ["--name", "A100", "--time", "2h", "--label", "baseline"], "python train.py --config resnet50.yaml", 0.2),
           ("maria", ["-n", "2", "--name", "A100", "--time", "3h", "--label", "ViT evaluation"], "python evaluate.py --checkpoint last.pt", 0.1),
           ("oluwaseun", ["--name", "A100", "--mem", "40GiB", "--time", "1h"], "python ablate.py --drop-path 0.3", 0.05)]


class Lab:
    """Needs root, in namespaces of its own (see screenshots.py): it becomes the users."""

    def __init__(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="berth-lab-"))
        folder.chmod(0o1777)
        self.server = Server(folder).use(SERVER)
        # What other users can reach, wherever the repository lies; python and jupyter are what uses simulated memory.
        self.build = folder / "copy"
        for part in ("bin", "lib/sim"):
            shutil.copytree(BUILD / part, self.build / part, symlinks=True)
        shims = folder / "shims"
        shims.mkdir()
        for name in ("python", "jupyter"):
            shutil.copy(self.build / "bin/berth-sim-job", self.build / "bin" / name)
            script = shims / name
            script.write_text(f'#!/bin/sh\nexec {self.build}/bin/{name} --quiet --mem "$SIM_MEM" --util "$SIM_UTIL"\n')
            script.chmod(0o755)
        self.server.env["PATH"] = f"{shims}:{self.build / 'bin'}:{os.environ['PATH']}"
        self.berth = str(self.build / "bin/berth")

    def start(self, user, *command, **env):
        return self.server.start("setpriv", f"--reuid={USERS[user]}", f"--regid={USERS[user]}", "--clear-groups", *command,
                                 env=env)

    def fill(self):
        """Everybody comes; then their clocks are put back, so that it looks like the middle of a day."""
        self.write_history()
        for user, flags, command, memory, utilization, hours in JOBS:
            self.start(user, self.berth, "run", *flags, "--", *command.split(), SIM_MEM=memory, SIM_UTIL=str(utilization))
            wait_until(lambda: any(process["memory_mib"] for process in self.of_lease(command)), command)
            self.put_back("lease", command, hours)
        self.start("dave", self.build / "bin/python", "--quiet", "--mem", "18GiB", "--util", "45",
                   CUDA_DEVICE_ORDER="PCI_BUS_ID", CUDA_VISIBLE_DEVICES="5")
        self.server.run(self.berth, "drain", "7", "--reason", "new fan on Thursday")
        for number, (user, flags, command, hours) in enumerate(WAITING, 1):
            self.start(user, self.berth, "run", *flags, "--", *command.split(), SIM_MEM="1GiB", SIM_UTIL="0")
            wait_until(lambda: len(self.status()["queue"]) == number, command)
            self.put_back("ticket", command, hours)
        wait_until(lambda: self.status()["gpus"][5]["state"] == "stranger", "the stranger")
        tom = next(self.server.harbour.glob(f"lease-{self.lease_of('jupyter lab --no-browser')['id']}"))
        os.utime(tom, (time.time() - 9400,) * 2)

    def status(self):
        return self.server.status()

    def lease_of(self, command):
        return next((lease for gpu in self.status()["gpus"] for lease in gpu["leases"] if lease["command"] == command), None)

    def of_lease(self, command):
        lease = self.lease_of(command)
        return [process for gpu in self.status()["gpus"] for process in gpu["processes"]
                if lease and process["lease"] == lease["id"]]

    def put_back(self, kind, command, hours):
        """As if it had come so many hours ago."""
        for path in self.server.harbour.glob(f"{kind}-*"):
            text = path.read_text()
            if command not in text:
                continue
            for key in ("since_ms", "granted_ms"):
                text = moved(text, key, hours)
            path.write_text(text)

    def write_history(self):
        """A week, as a lab that works by day and trains by night has it."""
        archive = Archive(self.server)
        chance = random.Random(4)
        busy_until = {0: 2.22, 1: 2.22, 2: 5.7, 3: 1.3, 4: 8.3, 5: 2, 6: 0.4, 7: 40}
        for gpu in self.status()["gpus"]:
            known = {key: gpu[key] if key != "index" else str(gpu[key]) for key in ("uuid", "index", "name")}
            left = 7 * 24.0
            while True:
                left -= chance.expovariate(1 / 2.5)
                lasted = min(chance.choice([0.7, 2, 4, 9, 14]) * chance.uniform(0.6, 1.3), left - busy_until[gpu["index"]])
                if lasted < 0.1:
                    break
                user = chance.choice(["maria", "maria", "ines", "ines", "chen", "tom", "oluwaseun"])
                utilization = chance.randint(2, 12) if user == "tom" else chance.randint(55, 97)
                archive.add(left, lasted, uid=USERS[user], gpus=[{**known, "utilization_pct": utilization}],
                            asked_ms=archive.now - int((left + chance.expovariate(1 / 0.2)) * 3_600_000),
                            idle_ms=int(lasted * 3_600_000 * (0.8 if user == "tom" else 0.03)))
                left -= lasted

    def stop(self):
        kill_all_of(self.server.harbour)
        self.server.stop()
        remove(self.server.folder)


def moved(text, key, hours):
    """The record with this time some hours earlier."""
    before, mark, rest = text.partition(f'"{key}":')
    if not mark:
        return text
    digits = rest[:len(rest) - len(rest.lstrip("0123456789 "))]
    return f"{before}{mark}{int(digits) - int(hours * 3_600_000)}{rest[len(digits):]}"


def last_hour(gpu):
    """Measurements that may have led to what a GPU shows now: a server that was just started has none."""
    chance = random.Random(str(gpu["index"]))
    began = max((time.time() - calendar.timegm(time.strptime(lease["since"], "%Y-%m-%dT%H:%M:%SZ"))
                 for lease in gpu["leases"]), default=3600)
    utilization, memory = [], []
    for step in range(360):
        runs = (360 - step) * 10 <= began
        load = gpu["utilization_pct"] or 0
        wave = 7 * math.sin(step / 7 + gpu["index"]) + chance.gauss(0, 4)
        utilization.append(round(min(100, max(0, load + wave))) if runs and load else 0)
        memory.append(round((gpu["memory_used_mib"] or 0) * (min(1, 0.8 + step / 900) if runs else 0)))
    return {"uuid": gpu["uuid"], "utilization_pct": utilization, "memory_used_mib": memory}


def set_names():
    """Gives this mount namespace the users' names, and this host a name."""
    passwd = pathlib.Path(tempfile.mkstemp(prefix="berth-lab-passwd-")[1])
    lines = [f"{name}:x:{uid}:{uid}::/:/bin/sh\n" for name, uid in USERS.items()]
    passwd.write_text(pathlib.Path("/etc/passwd").read_text() + "".join(lines))
    passwd.chmod(0o644)
    subprocess.run(["mount", "--bind", passwd, "/etc/passwd"], check=True)
    subprocess.run(["hostname", HOST], check=True)
    passwd.unlink()
