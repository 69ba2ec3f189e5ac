"""Writes a history like that of a busy lab: LINES lines, of 20 users, of the last 12 months.

Usage: make_history.py ARCHIVE [LINES]
"""

import calendar
import json
import os
import pathlib
import random
import sys
import time

USERS = 20
MONTHS = 12
GPUS = [(f"GPU-{i:08x}-2ff4-c3d1-e2a1-{i:012x}", str(i), "NVIDIA RTX A6000") for i in range(8)]
LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"
SCRIPTS = ["train.py", "evaluate.py", "finetune.py", "sweep.py", "preprocess.py", "infer.py"]


def months_before(now):
    """The last months, the oldest first: the name of the file, the begin and the end in ms of each."""
    year, month = time.gmtime(now)[:2]
    found = []
    for _ in range(MONTHS):
        begin = calendar.timegm((year, month, 1, 0, 0, 0))
        end = calendar.timegm((year + month // 12, month % 12 + 1, 1, 0, 0, 0))
        found.append((f"history-{year}-{month:02}.jsonl", 1000 * begin, 1000 * min(end, int(now))))
        year, month = (year, month - 1) if month > 1 else (year - 1, 12)
    return found[::-1]


def lease_lines(uid, chance, begin, end):
    """The two history lines of a lease in that time; one line if the lease was short."""
    lasted = min(int(chance.lognormvariate(12, 1.5)), end - begin - 2000)
    granted = chance.randrange(begin, end - lasted)
    asked = granted - int(chance.expovariate(1 / 300_000)) if chance.random() < 0.4 else granted - 3
    job = chance.choice(SCRIPTS)
    line = {"id": "".join(chance.choices(LETTERS, k=8)), "uid": uid,
            "command": f"python {job} --config configs/run_{chance.randrange(500)}.yaml --seed {chance.randrange(9)}",
            "label": "" if chance.random() < 0.8 else "ablation 3", "job": job if chance.random() < 0.7 else "",
            "within": "" if chance.random() < 0.95 else "aaaaaaaa"}
    gpus = [{"uuid": uuid, "index": index, "name": name}
            for uuid, index, name in chance.sample(GPUS, 1 if chance.random() < 0.8 else 2)]
    memory = 8 << 30 if chance.random() < 0.2 else None
    rest = {"memory": memory, "asked_ms": asked, "granted_ms": granted}
    lines = []
    if lasted > 1000:
        lines.append({**line, "gpus": gpus, **rest, "ended_ms": granted + 1000, "ending": "running", "code": 0})
    code = 0 if chance.random() < 0.9 else 1
    last = {**line, "gpus": gpus, **rest, "ended_ms": granted + lasted, "ending": "exited", "code": code}
    if lasted > 1000 and chance.random() < 0.9:  # its use was measured
        idle = chance.random() ** 3
        last["gpus"] = [{**gpu, "peak": chance.randrange(48 << 30), "utilization_pct": int(95 * (1 - idle)),
                         "power_mw": int(60_000 + 240_000 * (1 - idle))}
                        for gpu in gpus]
        last["idle_ms"] = int(idle * lasted)
    return lines + [last]


def write(archive, lines, seed=1):
    """Returns the number of bytes written. Only root can write for many users; else all leases are the caller's."""
    chance = random.Random(seed)
    archive = pathlib.Path(archive)
    archive.mkdir(mode=0o1777, parents=True, exist_ok=True)
    root = os.geteuid() == 0
    months = months_before(time.time())
    files = USERS * len(months)
    written = done = size = 0
    for user in range(USERS):
        uid = 60_000 + user if root else os.geteuid()
        folder = archive / str(uid)
        folder.mkdir(mode=0o755, exist_ok=True)
        for name, begin, end in months:
            done += 1
            made = []
            while written < lines * done // files:
                lease = lease_lines(uid, chance, begin, end)
                made += [json.dumps(line, separators=(",", ":")) + "\n" for line in lease]
                written += len(lease)
            text = "".join(made)
            size += len(text)
            with open(folder / name, "a") as file:
                file.write(text)
        if root:
            os.chown(folder, uid, uid)
    return size


if __name__ == "__main__":
    print(f"{write(sys.argv[1], int((sys.argv[2:] or ['1000000'])[0])) / 1e6:.0f} MB")
