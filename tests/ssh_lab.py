"""Hosts for the tests: each a network, a host name and a mount table of its own, with a real sshd. Needs root."""

import contextlib
import os
import pathlib
import pwd
import signal
import subprocess

import pytest
from conftest import BERTH, wait_until
from waiting import LIMIT

NAMESPACES = ["--net", "--uts", "--mount"]


class Host:
    """Lives as long as its first process does; what it has made in the kernel goes with that."""

    def __init__(self, lab, name, number):
        self.lab, self.name, self.address = lab, name, f"10.83.7.{number}"
        self.folder = lab.folder / name
        self.home = self.folder / "home"
        self.harbour = self.folder / "harbour"
        for folder in (self.folder, self.home, self.harbour, self.home / ".ssh"):
            folder.mkdir(mode=0o755)
        self.harbour.chmod(0o1777)
        self.processes = [subprocess.Popen(["unshare", *NAMESPACES, "sleep", "infinity"])]
        self.pid = self.processes[0].pid
        here = os.readlink("/proc/self/ns/mnt")
        wait_until(lambda: os.readlink(f"/proc/{self.pid}/ns/mnt") != here, "a host of its own")
        self.inside("hostname", name)
        self.inside("ip", "link", "set", "lo", "up")
        self.env = {"PATH": f"{BERTH.parent}:{os.environ['PATH']}", "LANG": "C.UTF-8", "HOME": str(self.home),
                    "BERTH_HOST": name, "BERTH_DIR": str(self.harbour),
                    "BERTH_SIM_STATE": str(self.folder / "sim.state"),
                    **{key: value for key, value in lab.server.env.items() if key == "ASAN_OPTIONS"}}

    def plug_in(self, switch):
        """A cable to the switch, which is another host."""
        port = f"p{self.address.rsplit('.', 1)[1]}"
        switch.inside("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(self.pid))
        switch.inside("ip", "link", "set", port, "master", "switch", "up")
        self.inside("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.inside("ip", "link", "set", "eth0", "up")

    def mount_own_files(self, hosts):
        """Names and homes, as ssh looks for them: by the user's entry, whatever HOME says."""
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{one.address} {one.name}\n" for one in hosts))
        self.inside("mount", "--bind", str(self.folder / "hosts"), "/etc/hosts")
        self.inside("mount", "--bind", str(self.home), pwd.getpwuid(os.getuid()).pw_dir)
        self.inside("mount", "-t", "tmpfs", "tmpfs", "/run")
        self.inside("mkdir", "-m", "755", "/run/sshd")

    def processes_inside(self):
        """Every process in its network, whoever has started it."""
        def network(pid):
            with contextlib.suppress(OSError):
                return os.readlink(f"/proc/{pid}/ns/net")
        own = network(self.pid)
        return [int(pid) for pid in os.listdir("/proc") if own and pid.isdigit() and network(pid) == own]

    def prefix(self):
        return ["nsenter", f"--target={self.pid}", *NAMESPACES, f"--wd={self.lab.folder}"]

    def inside(self, *command):
        subprocess.run([*self.prefix(), *command], check=True)

    def serve(self, gpus):
        """GPUs, and a way in by ssh."""
        self.env["BERTH_SIM"] = gpus
        config = self.folder / "sshd_config"
        settings = " ".join(f'"{name}={self.env[name]}"' for name in self.env if name != "HOME")
        config.write_text(f"""
            HostKey {self.lab.key('host')}
            AuthorizedKeysFile {self.lab.key('user')}.pub
            StrictModes no
            UsePAM no
            PermitRootLogin yes
            PidFile none
            SetEnv {settings}
        """)
        sshd = subprocess.Popen([*self.prefix(), "/usr/sbin/sshd", "-D", "-e", "-f", str(config)],
                                stdin=subprocess.DEVNULL, stderr=open(self.folder / "sshd.log", "w"))
        self.processes.append(sshd)
        wait_until(lambda: "listening" in (self.folder / "sshd.log").read_text(), "sshd listens")

    def run(self, *command, **options):
        """Runs a command there to its end."""
        env = {**self.env, **self.lab.common, **options.pop("env", {})}
        return subprocess.run([*self.prefix(), *map(str, command)], env=env, text=True, capture_output=True, timeout=LIMIT,
                              **{"stdin": subprocess.DEVNULL, **options})

    def start(self, *command, **options):
        env = {**self.env, **self.lab.common, **options.pop("env", {})}
        process = subprocess.Popen([*self.prefix(), *map(str, command)], env=env, text=True,
                                   **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                                      "stderr": subprocess.STDOUT, **options})
        self.processes.append(process)
        return process

    def stop(self):
        # What goes by itself does not where its network ends first: sshd would wait for its client for ever.
        for pid in self.processes_inside():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in reversed(self.processes):
            process.kill()
            process.wait()
            for stream in filter(None, (process.stdin, process.stdout, process.stderr)):
                with contextlib.suppress(OSError):
                    stream.close()


class Lab:
    """A head without GPUs, from which people start their jobs, and hosts that have some."""

    def __init__(self, server, gpus):
        self.server, self.folder = server, pathlib.Path(server.folder)
        self.common = {"BERTH_URL": server.env["BERTH_URL"], "BERTH_SITE_FILE": str(self.folder / "berth.toml")}
        (self.folder / "berth.toml").write_text(f"hosts = {list(gpus)}\n")
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key(name)], check=True)
        self.all = []
        try:
            switch = self.add("switch", 254)
            switch.inside("ip", "link", "add", "switch", "type", "bridge")
            switch.inside("ip", "link", "set", "switch", "up")
            self.head = self.add("head", 1)
            self.hosts = {name: self.add(name, number) for number, name in enumerate(gpus, 2)}
            for host in self.all[1:]:
                host.plug_in(switch)
                host.mount_own_files(self.all[1:])
                host_key = (self.folder / "host.pub").read_text()
                (host.home / ".ssh" / "config").write_text(
                    f"IdentityFile {self.key('user')}\nUserKnownHostsFile {self.folder}/known_hosts\n")
            (self.folder / "known_hosts").write_text("".join(f"{one.name},{one.address} {host_key}" for one in self.all[1:]))
            for name, host in self.hosts.items():
                host.serve(gpus[name])
                assert host.run(BERTH, "status").returncode == 0  # it has told of itself
        except BaseException:
            self.stop()
            raise

    def key(self, name):
        return str(self.folder / name)

    def add(self, name, number):
        host = Host(self, name, number)
        self.all.append(host)
        return host

    def stop(self):
        for host in reversed(self.all):
            host.stop()


@pytest.fixture
def lab(server):
    one = Lab(server, {"gpu-a": "1x24GiB", "gpu-b": "2x80GiB"})
    yield one
    one.stop()
