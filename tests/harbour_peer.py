#!/usr/bin/env python3
"""Takes part in berth's queue from plain Python; written from docs/harbour-protocol.md, to prove that it is enough.

    python3 tests/harbour_peer.py [-n COUNT] [--timeout SECONDS] -- CMD...

Left out: making the directory, leases within leases, restoring a deleted lease, housekeeping, and the
exceptions to the reservation."""
import contextlib, errno, fcntl, getopt, json, os, pathlib, random, re, select, signal, stat, subprocess, sys, termios, time

MIB, WHOLE, START, PID_NAMESPACE = 1 << 20, float("inf"), os.getcwd(), os.stat("/proc/self/ns/pid").st_ino
RECORD = re.compile(r"(?:lease|ticket-([0-9]{15}))-([a-kmnp-z2-9]{8})")

def snapshot():
    """The GPUs by UUID as `berth status` sees them, without the lost ones. Never called under the lock."""
    status = json.loads(subprocess.run(["berth", "status", "--json"], stdout=-1, cwd=START, check=True).stdout)
    gpus = {gpu["uuid"]: gpu for gpu in status["gpus"] if gpu["uuid"] and gpu["state"] != "lost"}
    for gpu in gpus.values():
        ours = sum(process["memory_mib"] or 0 for process in gpu["processes"] if process["lease"])
        gpu["foreign_mib"] = max((gpu["memory_used_mib"] or 0) - ours, 0)
        # A free GPU may show a display. A leased one may be free by the time we have the lock: look closer.
        foreign = sum(process["lease"] is None for process in gpu["processes"])
        gpu["strangers"] = max(foreign, gpu["foreign_mib"] > 256, gpu["state"] == "stranger") * (gpu["state"] != "free")
        gpu["held"] = []  # the MiB of each lease on it, or WHOLE
    return gpus

def could_have(gpu, request):
    memory, used = request.get("memory_bytes"), sum(gpu["held"]) + gpu["foreign_mib"]
    limits = [(gpu[load], request.get("max_" + load)) for load in ("utilization_pct", "memory_utilization_pct")]
    if (gpu["uuid"] not in (request.get("gpus") or [gpu["uuid"]])
            or (request.get("name") or "").lower() not in (gpu["name"] or "").lower()
            or max(memory or 0, request.get("min_memory_bytes") or 0) > (gpu["memory_total_mib"] or 0) * MIB):
        return None  # nor ever
    if (gpu["state"] in ("drained", "unknown") or gpu["strangers"] > (request.get("max_processes") or 0)
            or any(limit is not None and (load is None or load > limit) for load, limit in limits)):
        return False
    return memory / MIB + used + 256 * (used > 0) <= gpu["memory_total_mib"] if memory else not gpu["held"]

def judge(tickets, gpus):
    """Notes in each ticket the GPUs it is granted; [] if it may be granted some, which is for itself to say."""
    closed = set()  # all that the first ticket that must wait could use
    for ticket in [one for one in tickets if not one["stopped"]]:
        try:
            request, count = ticket["request"], int(ticket["request"]["count"])
            answers = {uuid: could_have(gpu, request) for uuid, gpu in gpus.items()}
        except (TypeError, KeyError, ValueError, AttributeError):
            ticket["granted"], closed = [], set(gpus)  # who cannot be judged is not passed
            continue
        matching = {uuid for uuid, answer in answers.items() if answer is not None}
        chosen = [uuid for uuid, answer in answers.items() if answer and uuid not in closed][:count]
        if len(chosen) == count:
            ticket["granted"] = chosen
            for uuid in chosen:
                gpus[uuid]["held"].append(ticket["size"])
        elif len(matching) >= count:  # else it is impossible, and in nobody's way
            closed = closed or matching
            if sum(map(bool, answers.values())) >= count and (request.get("memory_bytes") or request.get("time_ms")):
                ticket["granted"] = []  # only the reservation stops it, and the exceptions may allow it

def ring(tickets):
    for ticket in tickets:
        with contextlib.suppress(BrokenPipeError):  # it died: who stands behind it sees that
            if not any(fcntl.ioctl(ticket["bell"], termios.FIONREAD, bytes(4))):
                os.write(ticket["bell"], b"!")

def is_stopped(ticket):
    rung = any(fcntl.ioctl(ticket["bell"], termios.FIONREAD, bytes(4)))
    if ticket["version"] > 1 or rung and time.time() - os.fstat(ticket["bell"]).st_mtime > 1:
        return True
    with contextlib.suppress(OSError, KeyError, TypeError, ValueError):
        state = pathlib.Path(f"/proc/{int(ticket['pid'])}/stat").read_bytes().rpartition(b")")[2].split()[0]
        return state == b"T" and ticket["pid_namespace"] == PID_NAMESPACE

class Client:
    def __init__(self, count, command):
        self.folder = os.environ.get("BERTH_DIR") or (
            os.environ["BERTH_SIM_STATE"] + ".harbour" if os.environ.get("BERTH_SIM") else "/tmp/berth")
        self.id = "".join(random.SystemRandom().choices("abcdefghijkmnpqrstuvwxyz23456789", k=8))
        self.record = {"version": 1, "id": self.id, "state": "waiting", "uid": os.getuid(), "pid": os.getpid(),
                       "pid_namespace": PID_NAMESPACE, "holder": "job", "command": " ".join(command),
                       "since_ms": int(time.time() * 1000), "request": {"count": count}}
        self.number, self.first_since, self.bells = 0, None, set()
        os.chdir(self.folder)  # all names below are relative to it
        self.make_bell()

    def make_bell(self):
        os.mkfifo(f"bell-{self.id}", 0o600)
        self.bell = os.open(f"bell-{self.id}", os.O_RDWR | os.O_NONBLOCK)
        os.fchmod(self.bell, 0o622)

    def write(self, name, **more):
        with open(name, "x") as file:
            os.fchmod(file.fileno(), 0o644)
            json.dump({**self.record, **more}, file)

    def read(self, name, id):
        """The record, with the writing end of its bell and the kernel's word for its owner and age, if it counts."""
        number, known = RECORD.fullmatch(name)[1], {}
        try:
            about, bell = os.lstat(name), os.lstat(f"bell-{id}")
            if not stat.S_ISFIFO(bell.st_mode) or bell.st_uid != about.st_uid:
                return None
            self.bells.add(bell := os.open(f"bell-{id}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW))
            known = {"bell": bell, "uid": about.st_uid, "key": (max(int(number or 0), about.st_ctime_ns // 100_000), id)}
            if stat.S_ISREG(about.st_mode) and about.st_size <= 65536:
                record = {**json.loads(pathlib.Path(name).read_bytes()), **known}
                if about.st_mode & stat.S_ISVTX and (number or record["holder"] == "shell"):
                    return None  # told to end
                memory = record["request"].get("memory_bytes") if record["version"] == 1 else None
                if (record["id"], record.get("order", int(number or 0))) == (id, int(number or 0)) and record["version"] >= 1:
                    return {**record, "size": (memory or WHOLE) / MIB}
        except OSError as error:
            if error.errno not in (errno.ENXIO, errno.ENOENT, errno.EACCES, errno.ELOOP, errno.EAGAIN):
                raise SystemError("it is not known which clients live") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        # A lease whose bell is alive and that cannot be understood may hold any GPU.
        return {**known, "id": id, "version": 1, "gpus": None, "size": WHOLE} if known and not number else None

    def decide(self, gpus):
        """Called under the lock. Returns the GPUs granted, or None; the bells to watch; and for how long."""
        os.read(self.bell, int.from_bytes(fcntl.ioctl(self.bell, termios.FIONREAD, bytes(4)), sys.byteorder))
        ticket = f"ticket-{self.number or 0:015}-{self.id}"
        if os.path.lexists(ticket) and os.lstat(ticket).st_mode & stat.S_ISVTX:
            os.unlink(ticket)
            sys.exit("harbour_peer: told to end")
        if not os.path.lexists(f"bell-{self.id}"):  # it was deleted
            os.close(self.bell)
            self.make_bell()
        leases, tickets = {}, {}
        for name in sorted(os.listdir()):  # the leases first, then the tickets in their order
            found = RECORD.fullmatch(name)
            record = found and found[2] not in (*leases, *tickets, self.id) and self.read(name, found[2])
            if record:
                record.update(name=name, stopped=is_stopped(record), granted=None)
                (tickets if found[1] else leases)[found[2]] = record
        for lease in leases.values():
            listed = lease["gpus"] if isinstance(lease.get("gpus"), list) else gpus
            outer = leases.get(lease.get("within"), {})  # it takes up nothing inside a lease of the same user
            inside = outer.get("uid") == lease["uid"] and {*listed} <= {*(outer.get("gpus") or [])}
            for gpu in gpus.values() if not inside else ():
                seen = sum(one["memory_mib"] or 0 for one in gpu["processes"] if one["lease"] == lease["id"])
                gpu["held"] += [max(lease["size"], seen)] if gpu["uuid"] in listed else []
        tickets = sorted(tickets.values(), key=lambda ticket: ticket["key"])
        self.number = self.number or time.time_ns() // 100_000
        name = f"ticket-{self.number:015}-{self.id}"
        key = max(self.number, os.lstat(name).st_ctime_ns // 100_000 if os.path.lexists(name) else 0)
        me = {**self.record, "size": WHOLE, "name": name, "key": (key, self.id), "stopped": False, "granted": None}
        before, behind = ([one for one in tickets if (one["key"] < me["key"]) == side] for side in (True, False))
        awake_before, awake_behind = ([one for one in side if not one["stopped"]] for side in (before, behind))
        judge([*before, me, *behind], gpus)
        ring(one for one in tickets if one["granted"] is not None)
        if me["granted"]:  # the first two must know the lease, to watch it; who slept must find a ring
            ring(awake_before[:2] + awake_behind[:1] + [one for one in tickets if one["stopped"]])
            self.write(f"lease-{self.id}", state="holding", gpus=me["granted"], granted_ms=int(time.time() * 1000))
            pathlib.Path(me["name"]).unlink(missing_ok=True)
            return me["granted"], set(), 0
        if not os.path.lexists(me["name"]):
            self.write(me["name"], order=self.number)
        now, patience = time.monotonic(), [random.uniform(30, 60), *(1 for one in before if one["granted"])]
        patience += [2 + len(before) for gpu in gpus.values() if gpu["strangers"] and not gpu["held"]]  # (ring nobody)
        if not awake_before:
            self.first_since = self.first_since or now
            ring(awake_behind[:now >= self.first_since + 5])  # so that there is a second who watches
            patience.append(5 if now < self.first_since + 5 else 60)
        front = len(awake_before) < 2 or not any(one["uid"] == os.getuid() and one["pid_namespace"] == PID_NAMESPACE
                                                 for one in awake_before)
        watched = [*before[-1:], *awake_before[-1:], *(leases.values() if front else [])]
        return None, {record["bell"] for record in watched}, min(patience)

    def wait(self, deadline):
        while True:
            gpus, poll = snapshot(), select.poll()
            if self.record["request"]["count"] > len(gpus):
                sys.exit(69)
            os.chdir(self.folder)
            lock = os.open(".", os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not os.path.samestat(os.fstat(lock), os.stat(self.folder)):
                    raise SystemError("the directory was replaced")
                granted, watched, patience = self.decide(gpus)
            except SystemError:
                granted, watched, patience = None, self.bells, 1  # unknown is not dead: nothing is decided
            finally:
                os.close(lock)
            for bell in self.bells:
                poll.register(bell, 0) if bell in watched else os.close(bell)
            self.bells = watched
            if granted or time.monotonic() >= deadline:
                return granted
            poll.register(self.bell, select.POLLIN)
            poll.poll(1000 * min(patience, max(0, deadline - time.monotonic())))

flags, command = getopt.getopt(sys.argv[1:], "n:", ["timeout="])
count, timeout = int(dict(flags).get("-n", 1)), float(dict(flags).get("--timeout", "inf"))
client, job = Client(count, command), None
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: job.send_signal(number) if job else sys.exit(128 + number))
try:
    uuids = client.wait(time.monotonic() + timeout) or sys.exit(75)
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(uuids), "BERTH_LEASE": client.id}
    job = subprocess.Popen(command, env=env, cwd=START, pass_fds=[client.bell])
    sys.exit(job.wait() if job.wait() >= 0 else 128 - job.returncode)
finally:
    os.close(client.bell)
    try:
        os.close(os.open(f"bell-{client.id}", os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:  # else processes of the job live on, and the lease is theirs
        for kind in ("bell", f"ticket-{client.number:015}", "lease") if error.errno == errno.ENXIO else ():
            pathlib.Path(f"{kind}-{client.id}").unlink(missing_ok=True)
