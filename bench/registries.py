"""Registries as bench/registry.py measures them: CNCF distribution, xebec-registry as one node with its own engines, and as two nodes with
PostgreSQL and an S3 server. Each keeps its data between its runs, logs to a file, and has the settings that it has by itself.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time

import processes
import s3_address

PATIENCE_S = 120
KEY, SECRET, BUCKET = "xebec", "for-tests-only", "blobs"
NOBODY = 65534


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until(what, is_so, process=None, log=None, seconds=PATIENCE_S):
    if not processes.holds(is_so, seconds, process, 0.005):
        ended = process is not None and process.poll() is not None
        said = open(log).read()[-2000:] if log else ""
        raise RuntimeError(f"{what}: not so, {'the process ended' if ended else 'in time'}; {said}")


def answers(address):
    """Whether a registry answers there."""
    try:
        with socket.create_connection(address.split(":"), timeout=5) as stream:
            stream.sendall(b"GET /v2/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return b" 200 " in stream.recv(200)
    except OSError:
        return False


class Process:
    def __init__(self, command, log, **options):
        self.log = log
        with open(log, "ab") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **options)

    def stop(self):
        processes.end(self.process, seconds=20)


def pss_bytes(pid):
    """What a process takes of the memory; pages that it shares count by its share."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return int(re.search(r"^Pss:\s+(\d+) kB", file.read(), re.MULTILINE).group(1)) * 1024


def cpu_s(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Registry:
    """What all have: `running` starts it, and measures how long that takes."""

    name, nodes, host = None, 1, "127.0.0.1"

    def __init__(self, top):
        self.top = os.path.join(top, self.name.replace(" ", "-").replace(",", ""))
        os.makedirs(self.top, exist_ok=True)
        self.addresses, self.running_processes = [], []
        self.start_ms = None

    def command(self, node, address):
        raise NotImplementedError

    def environment(self):
        return {}

    @contextlib.contextmanager
    def running(self):
        self.addresses = [f"{self.host}:{free_port()}" for _ in range(self.nodes)]
        self.running_processes = []
        try:
            for node, address in enumerate(self.addresses):
                command = self.command(node, address)
                log = os.path.join(self.top, f"log-{node}")
                open(log, "w").close()
                began = time.perf_counter()
                # distribution takes settings from such variables.
                kept = {name: value for name, value in os.environ.items() if not name.startswith("REGISTRY")}
                started = Process(command, log, env={**kept, "OTEL_TRACES_EXPORTER": "none", **self.environment()})
                self.running_processes.append(started)
                wait_until(f"{self.name} answers", lambda: answers(address), started.process, log)
                self.start_ms = (time.perf_counter() - began) * 1e3
            yield self
        finally:
            for process in self.running_processes:
                process.stop()

    def complaints(self):
        """The last lines of its logs that are no news of every day."""
        lines = []
        for node in range(self.nodes):
            with open(os.path.join(self.top, f"log-{node}")) as log:
                lines += [line for line in log if "WARN" in line or "ERROR" in line or "level=error" in line][-5:]
        return "".join(lines)

    def forget(self):
        """Everything, so that each run begins with an empty store and little of the disk is used."""
        for name in ("storage", *(f"data-{node}" for node in range(self.nodes))):
            shutil.rmtree(os.path.join(self.top, name), ignore_errors=True)

    def pids(self):
        return [running.process.pid for running in self.running_processes]

    def cpu_s(self):
        return sum(cpu_s(pid) for pid in self.pids())

    def pss_bytes(self):
        return max(pss_bytes(pid) for pid in self.pids())


class Distribution(Registry):
    name = "distribution"

    def command(self, node, address):
        configuration = os.path.join(self.top, "config.yml")
        storage = os.path.join(self.top, "storage")
        os.makedirs(storage, exist_ok=True)
        with open(configuration, "w") as file:
            file.write(
                f"version: 0.1\nstorage:\n  filesystem: {{rootdirectory: {storage}}}\n  delete: {{enabled: true}}\n"
                f'http: {{addr: "{address}"}}\n'
            )
        return ["registry", "serve", configuration]


class Xebec(Registry):
    name = "Xebec"

    def configuration(self, node):
        return ""

    def command(self, node, address):
        file = os.path.join(self.top, f"registry-{node}.toml")
        with open(file, "w") as output:
            output.write(self.configuration(node))
        root = os.path.join(self.top, f"data-{node}")
        return [os.environ["XEBEC_REGISTRY_BIN"], "serve", "--listen", address, "--root", root, "--config", file]


class XebecFull(Xebec):
    """With the large store, whose manifests have nothing to index."""

    name = "Xebec, large"

    def configuration(self, node):
        return "[indexing]\nenabled = false\n"


class DistributionFull(Distribution):
    name = "distribution, large"


class XebecOne(Xebec):
    """One node once more, beside two."""

    name = "Xebec, one node"


class XebecNodes(Xebec):
    """Two nodes that share PostgreSQL and an S3 server, which run until `end`."""

    name, nodes = "Xebec, two nodes", 2

    def __init__(self, top):
        super().__init__(top)
        self.servers = []
        self.sockets = os.path.join(self.top, "postgres")
        self.s3 = f"127.0.0.1:{free_port()}"
        self.s3_log = os.path.join(self.top, "s3-requests")

    def begin(self):
        self.begin_postgres()
        bucket = os.path.join(self.top, "s3", BUCKET)
        os.makedirs(bucket)
        self.servers.append(Process(
            ["versitygw", "--access", KEY, "--secret", SECRET, "--port", self.s3, "--access-log", self.s3_log, "--quiet", "posix",
             os.path.dirname(bucket)], os.path.join(self.top, "s3.log")))
        wait_until("versitygw listens", self.listens)

    def listens(self):
        try:
            host, port = self.s3.split(":")
            socket.create_connection((host, int(port)), timeout=5).close()
            return True
        except OSError:
            return False

    def begin_postgres(self):
        programs = max(
            (os.path.join("/usr/lib/postgresql", version, "bin") for version in os.listdir("/usr/lib/postgresql")), default=None
        )
        os.makedirs(self.sockets)
        os.chown(self.sockets, NOBODY, NOBODY)
        # PostgreSQL does not run as root, and its way leads through these.
        for directory in (os.environ["BENCH_SCRATCH"], os.path.dirname(self.top), self.top):
            os.chmod(directory, 0o711)
        nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
        data = os.path.join(self.sockets, "data")
        subprocess.run(
            [*nobody, os.path.join(programs, "initdb"), "--auth=trust", "--username=xebec", "--encoding=UTF8", "--pgdata", data],
            check=True, stdout=subprocess.DEVNULL)
        log = os.path.join(self.top, "postgres.log")
        self.servers.append(Process(
            [*nobody, os.path.join(programs, "postgres"), "-D", data, "-k", self.sockets, "-c", "listen_addresses="], log))
        wait_until("PostgreSQL answers", lambda: self.sql("SELECT 1") == "1", self.servers[-1].process, log)

    def sql(self, text):
        done = subprocess.run(["psql", "-h", self.sockets, "-U", "xebec", "-d", "postgres", "-Atqc", text],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return done.stdout.decode().strip()

    def end(self):
        for server in self.servers:
            server.stop()

    def environment(self):
        return {
            "BENCH_DATABASE": f"host={self.sockets} user=xebec dbname=postgres", "BENCH_S3_KEY": KEY, "BENCH_S3_SECRET": SECRET,
        }

    def configuration(self, node):
        return (
            '[storage.postgres]\nurl_env = "BENCH_DATABASE"\n'
            f'[storage.s3]\nendpoint = "http://{self.s3}"\nbucket = "{BUCKET}"\n'
            'access_key_env = "BENCH_S3_KEY"\nsecret_key_env = "BENCH_S3_SECRET"\n'
        )

    def signed(self, method, key):
        """The path by which anybody may do that with an object."""
        return s3_address.signed(method, self.s3, f"/{BUCKET}/{key}", KEY, SECRET)

    def forget(self):
        """Both nodes' store is one, which is kept until the end."""

    def asked(self):
        """What was put to the S3 server, other requests to it, and transactions of the database, so far."""
        lines = []
        with contextlib.suppress(FileNotFoundError), open(self.s3_log) as log:
            lines = log.readlines()
        puts = sum("s3_PutObject" in line for line in lines)
        # The counts of a connection are known to others a second later.
        time.sleep(1.2)
        commits = int(self.sql("SELECT sum(xact_commit) FROM pg_stat_database WHERE datname = 'postgres'"))
        return puts, len(lines) - puts, commits
