"""Measures Xebec and prints one table. Called by scripts/bench.sh, inside namespaces of its own.

Each figure is the median of several runs, with the lowest and the highest beside it; what is compared is run in turn,
in one go, so that a busy machine is busy for both. Nothing is compared with figures from elsewhere.

Environment: XEBEC_BIN, BENCH_PROGRAMS (folder of bench_index), BENCH_IMAGES (folder that images.py filled), XEBEC_BUILD (test
images), REGISTRY, REGISTRY_LOG, BENCH_SCRATCH, and what scripts/bench.sh describes: BENCH_RUNS, _ONLY, _RATES, _JSON.
"""

import ctypes
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request

import network

XEBEC = os.environ["XEBEC_BIN"]
PROGRAMS = os.environ["BENCH_PROGRAMS"]
IMAGES = os.environ["BENCH_IMAGES"]
BUILT = os.environ["XEBEC_BUILD"]
REGISTRY = os.environ["REGISTRY"]
REGISTRY_LOG = os.environ["REGISTRY_LOG"]
SCRATCH = os.environ["BENCH_SCRATCH"]
RUNS = int(os.environ.get("BENCH_RUNS", "7"))
BIG_SIZE = 10**9
MS_RDONLY = 1
LIBC = ctypes.CDLL(None, use_errno=True)
SYS_CACHESTAT = 451
VALUES = {}


# --- the table -------------------------------------------------------------------------------------------------------


def heading(text):
    print(f"\n{text}\n  {'':52} {'median':>9} {'lowest':>9} {'highest':>9}  runs")


def figure(name, values, unit, digits=1):
    """Prints a row and returns the median."""
    VALUES[name] = {"unit": unit, "values": values}
    numbers = [f"{number:9.{digits}f}" for number in (statistics.median(values), min(values), max(values))]
    print(f"  {name:52} {' '.join(numbers)}  {len(values):4} {unit}", flush=True)
    return statistics.median(values)


def keep_values():
    """Writes every single value, if that is asked for."""
    if path := os.environ.get("BENCH_JSON"):
        with open(path, "w") as file:
            json.dump(VALUES, file, indent=1)


def verdict(text, met):
    print(f"  {text}: {'met' if met else 'NOT MET'}", flush=True)


def note(text):
    print(f"  {text}", flush=True)


# --- doing things ----------------------------------------------------------------------------------------------------


def run(*command, **options):
    """Runs a command; its output is shown if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, **options)
    if done.returncode != 0:
        sys.stderr.write(done.stdout.decode() + done.stderr.decode())
        raise RuntimeError(f"{command[0]} failed with status {done.returncode}: {' '.join(command)}")
    return done.stdout.decode()


def xebec(*arguments):
    return run(XEBEC, *arguments)


def milliseconds(work):
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def publish(layout, name):
    """Pushes an image and its indexes, then forgets everything on this host."""
    image = f"{REGISTRY}/{name}:latest"
    run("skopeo", "copy", "-q", "--dest-tls-verify=false", f"oci:{layout}:latest", f"docker://{image}")
    took = milliseconds(lambda: xebec("index", "--push", image))
    forget()
    return image, took


def forget():
    """As on a host that never saw an image."""
    xebec("daemon", "stop", "--force")
    for directory in (os.environ["XEBEC_ROOT"], os.environ["XEBEC_RUN"]):
        shutil.rmtree(directory, ignore_errors=True)
        if os.path.exists(directory):
            raise RuntimeError(f"{directory} is still in use")


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")


def status():
    return json.loads(xebec("daemon", "status", "--json"))["counters"]


def mount(source, target, kind, flags, options=None):
    """Not mount(8), which would put a loop device in between for EROFS; xebec's views have none either."""
    options = options.encode() if options else None
    if LIBC.mount(source.encode(), target.encode(), kind.encode(), flags, options) != 0:
        raise OSError(ctypes.get_errno(), f"mount {target}: {os.strerror(ctypes.get_errno())}")


def unmount(target):
    LIBC.umount2(target.encode(), 0)


def mount_directory():
    directory = os.path.join(SCRATCH, "mounted")
    os.makedirs(directory, exist_ok=True)
    return directory


class Requests:
    """What the registry answered since this was made."""

    def __init__(self):
        self.mark = os.path.getsize(REGISTRY_LOG)

    def answers(self):
        time.sleep(0.05)  # the registry logs an answer after it was sent
        with open(REGISTRY_LOG) as file:
            file.seek(self.mark)
            return [(path, int(size)) for path, size in re.findall(r'"GET (\S+) [^"]*" \d+ (\d+)', file.read())]

    def count(self):
        answers = self.answers()
        return len(answers), sum(size for _, size in answers)


# --- 1. indexing -----------------------------------------------------------------------------------------------------


def largest_layer(name):
    blobs = os.path.join(BUILT, "oci", name, "blobs", "sha256")
    return max((entry.path for entry in os.scandir(blobs)), key=os.path.getsize)


def index():
    layer = largest_layer("python")
    output = run(os.path.join(PROGRAMS, "bench_index"), layer, str(RUNS))
    rows = re.findall(r"^(\S.*?) +(\d+) MB/s  \((\d+) to (\d+), (\d+) runs\) +([\d.]+) ms", output, re.M)
    plain = int(re.search(r"plain (\d+)", output)[1])
    heading(f"1. Indexing a gzip layer ({os.path.getsize(layer) / 1e6:.1f} MB, {plain / 1e6:.1f} MB plain; in memory)")
    medians, busy = {}, {}
    for name, median, low, high, runs, processor in rows:
        VALUES[name] = {"unit": "MB/s", "median": float(median), "low": float(low), "high": float(high)}
        medians[name], busy[name] = float(median), float(processor)
        unit = "MB/s of the blob" if name == "sha256" else "MB/s"
        print(f"  {name:52} {median:>9} {low:>9} {high:>9}  {runs:>4} {unit}; {processor} ms of processor per MB")
    zlib = "zlib index (soci ztoc style)"
    ratio = medians["xebec index"] / medians[zlib]
    verdict(f"xebec index / {zlib} = {ratio:.2f} (goal 1.5)", ratio >= 1.5)
    note(f"by processor time: {busy[zlib] / busy['xebec index']:.2f}")


# --- 2. the view -----------------------------------------------------------------------------------------------------


def view():
    image, took = publish(os.path.join(IMAGES, "many", "oci"), "many")
    heading(f"2. View of 100,000 files in 30 layers (all 30 indexed and pushed in {took / 1e3:.1f} s)")
    target = mount_directory()
    stages = {"cold": [], "warm": []}
    for _ in range(RUNS):
        forget()
        for kind in ("cold", "warm"):
            # Files that an earlier view left must not spare this one the work.
            for old in os.scandir(os.path.join(os.environ["XEBEC_ROOT"], "views")) if kind == "warm" else ():
                os.unlink(old.path)
            start = time.perf_counter()
            mounted = json.loads(xebec("mount", "--require-lazy", "--json", image, target))["stages_ms"]
            mounted["command"] = (time.perf_counter() - start) * 1e3
            stages[kind].append(mounted)
            xebec("umount", target)
    both = lambda kind, *names: [sum(run[name] for name in names) for run in stages[kind]]
    figure("cold: indexes fetched and decoded", both("cold", "index"), "ms")
    figure("warm: indexes read and decoded", both("warm", "index"), "ms")
    figure("merge, write EROFS metadata (warm)", both("warm", "view"), "ms")
    figure("mount (warm)", both("warm", "mount"), "ms")
    built = figure("view built and mounted, indexes known to the host", both("warm", "index", "view", "mount"), "ms")
    cold = figure("view built and mounted, indexes over the network", both("cold", "index", "view", "mount"), "ms")
    figure("`xebec mount`, whole command, warm", both("warm", "command"), "ms")
    figure("`xebec mount`, whole command, cold, daemon too", both("cold", "command"), "ms")
    verdict(f"view built and mounted in {built:.0f} ms (goal 300; {cold:.0f} with an empty cache)", built <= 300)
    forget()


# --- 3. reading complete files ---------------------------------------------------------------------------------------


def cached_pages(descriptor):
    """How many pages of a file the page cache holds (cachestat, Linux 6.5)."""
    whole = (ctypes.c_uint64 * 2)(0, 0)
    counts = (ctypes.c_uint64 * 5)()
    if LIBC.syscall(SYS_CACHESTAT, descriptor, whole, counts, 0) != 0:
        raise OSError(ctypes.get_errno(), "cachestat")
    return counts[0]


def read_through(path):
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(1 << 20)
        size = 0
        while count := file.readinto(buffer):
            size += count
    return size


def cold_read(path, backing):
    """MB/s of a sequential read by 1 MiB: nothing of the file cached, all of what lies below it cached."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    if cached_pages(descriptor) != 0:
        raise RuntimeError(f"{path}: pages stay in the cache")
    read_through(backing)  # the kernel may have taken some of it away meanwhile
    below = os.open(backing, os.O_RDONLY)
    if cached_pages(below) < BIG_SIZE // 4096 * 0.999:
        raise RuntimeError(f"{backing}: not all of it is cached")
    os.close(below)
    os.close(descriptor)
    start = time.perf_counter()
    size = read_through(path)
    seconds = time.perf_counter() - start
    if size != BIG_SIZE:
        raise RuntimeError(f"{path}: {size} bytes")
    return size / 1e6 / seconds


def warm_below(backing):
    """Reads a file into the page cache in the same way for both, so that both lie there in the same folios."""
    os.sync()
    descriptor = os.open(backing, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    read_through(backing)


def backing_devices():
    """Nothing leads from an EROFS without a block device to its bdi `erofs-N` but that it appears with the mount."""
    return {name for name in os.listdir("/sys/class/bdi") if name.startswith("erofs-")}


def set_read_ahead(device, kib, zero=False):
    """Gives what it was. Nothing is changed by 0, unless that is meant (`zero`)."""
    path = f"/sys/class/bdi/{device}/read_ahead_kb"
    with open(path) as file:
        before = int(file.read())
    if kib or zero:
        with open(path, "w") as file:
            file.write(str(kib))
    return before


def read():
    image, _ = publish(os.path.join(IMAGES, "big", "oci"), "big")
    plain_image, plain_target = os.path.join(SCRATCH, "plain.erofs"), os.path.join(SCRATCH, "plain")
    run("mkfs.erofs", plain_image, os.path.join(IMAGES, "big", "tree"))
    os.makedirs(plain_target)
    target = mount_directory()
    xebec("pull", "--complete", image)
    devices = [backing_devices()]
    xebec("mount", image, target)
    devices.append(backing_devices())
    mount(plain_image, plain_target, "erofs", MS_RDONLY)
    devices.append(backing_devices())
    devices = [name for before, after in zip(devices, devices[1:]) for name in after - before]
    heading("3. Reading a complete file of 10^9 bytes, cold in EROFS and warm below (sequential, 1 MiB reads)")
    try:
        data = [os.path.join(folder, "data") for folder, _, names in os.walk(os.environ["XEBEC_ROOT"]) if "data" in names]
        ours, plain = (os.path.join(directory, "big.bin") for directory in (target, plain_target))
        compare_reads(ours, data[0], plain, plain_image, devices)
    finally:
        unmount(plain_target)
        xebec("umount", target)
        forget()
        os.unlink(plain_image)


def compare_reads(ours, data, plain, plain_image, devices):
    events = status()["events"]
    warm_below(data)
    warm_below(plain_image)
    for kib in (None, 1024):
        before = [set_read_ahead(device, kib) for device in devices]
        label = f"read-ahead {kib or before[0]} KiB"
        if kib is None and before[0] != before[-1]:
            label += f" and {before[-1]}"
        rates = {ours: [], plain: []}
        for number in range(max(RUNS, 10) if kib is None else RUNS):
            order = (ours, plain) if number % 2 else (plain, ours)
            for path in order:
                rates[path].append(cold_read(path, data if path is ours else plain_image))
        view_rate = figure(f"through a view ({label})", rates[ours], "MB/s", 0)
        plain_rate = figure(f"through a plain mkfs.erofs image ({label})", rates[plain], "MB/s", 0)
        pairs = [a / b for a, b in zip(rates[ours], rates[plain])]
        figure(f"view / plain, pair by pair ({label})", pairs, "", 2)
        if kib is None:
            ratio = view_rate / plain_rate
            verdict(f"view / plain = {ratio:.2f} (goal 0.9)", ratio >= 0.9)
    note(f"events raised by these reads: {status()['events'] - events}")


# --- 4. the first byte -----------------------------------------------------------------------------------------------


def first_byte():
    image, _ = publish(os.path.join(IMAGES, "big", "oci"), "big")
    blobs = os.path.join(IMAGES, "big", "oci", "blobs", "sha256")
    heading("4. One byte from the middle of a file of 10^9 bytes in a gzip layer, nothing cached")
    target = mount_directory()
    layer = os.path.basename(max(os.scandir(blobs), key=lambda entry: entry.stat().st_size).path)
    names = ("index", "window", "span", "mount", "read", "again", "mounting", "requests")
    found = {name: [] for name in names}
    for number in range(RUNS):
        forget()  # the page cache stays: the disk of the registry is not what is measured
        requests = Requests()
        found["mount"].append(milliseconds(lambda: xebec("mount", "--require-lazy", image, target)))
        found["mounting"].append(requests.count()[1] / 1e3)
        found["index"].append(max(size for _, size in requests.answers()) / 1e3)
        requests = Requests()
        descriptor = os.open(os.path.join(target, "big.bin"), os.O_RDONLY)
        # Two thirds of the way; each time in another span.
        place = BIG_SIZE * 2 // 3 + number * 7_000_000
        found["read"].append(milliseconds(lambda: os.pread(descriptor, 1, place)))
        answers = requests.answers()
        # From another span, over a connection that is open.
        found["again"].append(milliseconds(lambda: os.pread(descriptor, 1, place // 2)))
        os.close(descriptor)
        spans = [size for path, size in answers if path.endswith(layer)]
        windows = [size for path, size in answers if not path.endswith(layer)]
        found["span"].append(sum(spans) / 1e3)
        found["window"].append(sum(windows) / 1e3)
        found["requests"].append(len(answers))
        xebec("umount", target)
    figure("to mount: all bytes (manifests, config, index)", found["mounting"], "kB")
    figure("  of it the index (tree and span table)", found["index"], "kB")
    figure("for the byte: windows", found["window"], "kB")
    figure("for the byte: spans", found["span"], "kB")
    figure("for the byte: requests", found["requests"], "", 0)
    figure("time of the first byte (first request of all)", found["read"], "ms")
    figure("time of a byte in another span", found["again"], "ms")
    figure("`xebec mount`, whole command, daemon too", found["mount"], "ms")
    forget()


# --- 5. cold starts --------------------------------------------------------------------------------------------------


def wait_for(url, process):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.002)
    raise RuntimeError(f"no answer from {url}")


def full_pull(image, wait):
    """skopeo, umoci, runc; returns milliseconds by stage. `wait(process)` returns when the service answers."""
    pulled, bundle = os.path.join(SCRATCH, "pulled"), os.path.join(SCRATCH, "bundle")
    stages = {}
    source = f"docker://{image}"
    stages["pull"] = milliseconds(
        lambda: run("skopeo", "copy", "-q", "--src-tls-verify=false", source, f"oci:{pulled}:latest")
    )
    stages["unpack"] = milliseconds(lambda: run("umoci", "unpack", "--image", f"{pulled}:latest", bundle))
    path = os.path.join(bundle, "config.json")
    with open(path) as file:
        config = json.load(file)
    # The network of this namespace, no terminal, and the capabilities that umoci's template lacks.
    config["process"]["terminal"] = False
    spaces = config["linux"]["namespaces"]
    config["linux"]["namespaces"] = [space for space in spaces if space["type"] != "network"]
    # Volumes are made as a tmpfs of root's; the files that the image has there will do.
    usual = ("/dev", "/etc", "/proc", "/run", "/sys")
    config["mounts"] = [mount for mount in config["mounts"] if mount["destination"].startswith(usual)]
    for granted in config["process"]["capabilities"].values():
        granted += ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_SETGID", "CAP_SETUID"]
    with open(path, "w") as file:
        json.dump(config, file)
    with open(os.path.join(SCRATCH, "runc.log"), "w") as log:
        name = "xebec-bench-full"
        process = subprocess.Popen(
            ["runc", "run", "--bundle", bundle, name], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            stages["ready"] = milliseconds(lambda: wait(process))
        except RuntimeError as error:
            with open(log.name) as output:
                raise RuntimeError(f"{error}; its output: {output.read()[-2000:]}") from error
        finally:
            subprocess.run(["runc", "kill", name, "KILL"], stdout=log, stderr=log)
            process.wait()
            subprocess.run(["runc", "delete", "--force", name], stdout=log, stderr=log)
    stages["total"] = sum(stages.values())
    shutil.rmtree(pulled)
    shutil.rmtree(bundle)
    return stages


def lazy_start(image, url):
    path = os.path.join(SCRATCH, "stats.json")
    xebec("run", "--rm", "--require-lazy", "--net", "host", "--probe", url, "--exit-on-ready", "--stats", path, image)
    with open(path) as file:
        return json.load(file)


def start(name, url, rates, runs):
    image, _ = publish(os.path.join(BUILT, "oci", name), name)
    for rate in rates:
        heading(f"5. Cold start of {name}, {f'{rate} Mbit/s' if rate else 'network as fast as memory'}")
        ways = {"full": [], "cold": [], "warm": []}
        for _ in range(runs):
            for way in ways:
                if way != "warm":
                    forget()
                drop_caches()
                with network.shaped(rate):
                    requests = Requests()
                    wait = lambda process: wait_for(url, process)
                    result = full_pull(image, wait) if way == "full" else lazy_start(image, url)
                result["requests"], result["bytes"] = requests.count()
                ways[way].append(result)
        print_start(name, rate, ways)
        forget()


def print_start(name, rate, ways):
    label = f"{name}, {rate or 'unlimited'}"
    full = figure(f"full pull until HTTP 200 ({label})", [run["total"] for run in ways["full"]], "ms", 0)
    for stage in ("pull", "unpack", "ready"):
        figure(f"  {stage} (full, {label})", [run[stage] for run in ways["full"]], "ms", 0)
    cold = figure(f"lazy, nothing cached, until HTTP 200 ({label})", [run["total_ms"] for run in ways["cold"]], "ms", 0)
    for stage in ("resolve", "index", "view", "mount", "create", "ready"):
        figure(f"  {stage} (lazy, {label})", [run["stages_ms"][stage] for run in ways["cold"]], "ms", 1)
    warm = figure(f"lazy, warm ({label})", [run["total_ms"] for run in ways["warm"]], "ms", 0)
    note(f"full / lazy cold = {full / cold:.1f}; lazy cold / lazy warm = {cold / warm:.1f}")
    figure(f"bytes moved, full ({label})", [run["bytes"] / 1e6 for run in ways["full"]], "MB", 2)
    moved = figure(f"bytes moved, lazy ({label})", [run["bytes"] / 1e6 for run in ways["cold"]], "MB", 2)
    figure(f"requests, full ({label})", [run["requests"] for run in ways["full"]], "", 0)
    figure(f"requests, lazy ({label})", [run["requests"] for run in ways["cold"]], "", 0)
    written = [run["fills"]["pages_written"] * 4096 / 1e6 for run in ways["cold"]]
    written = figure(f"plain bytes decoded and kept, lazy ({label})", written, "MB", 2)
    touched = [run["touched"]["pages"] * 4096 / 1e6 for run in ways["cold"]]
    touched = figure(f"bytes touched, lazy ({label})", touched, "MB", 2)
    for count in ("events", "spans"):
        figure(f"{count}, lazy ({label})", [run["fills"][count] for run in ways["cold"]], "", 0)
    note(f"bytes moved / bytes touched = {moved / touched:.2f}; plain decoded / touched = {written / touched:.2f}")


RATES = [int(rate) or None for rate in os.environ.get("BENCH_RATES", "0 1000 100").split() if rate.isdigit()]
SECTIONS = {
    "index": index,
    "view": view,
    "read": read,
    "first_byte": first_byte,
    "nginx": lambda: start("nginx", "http://127.0.0.1:8080/", RATES, min(5, RUNS)),
    "python": lambda: start("python", "http://127.0.0.1:8081/", RATES, min(5, RUNS)),
}


def main():
    chosen = os.environ.get("BENCH_ONLY", "").split() or list(SECTIONS)
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} processors, Linux {os.uname().release}, load {load:.1f} before; {RUNS} runs, medians")
    for name in chosen:
        before = time.monotonic()
        SECTIONS[name]()
        note(f"(section {name}: {time.monotonic() - before:.0f} s, load now {os.getloadavg()[0]:.1f})")
    keep_values()


if __name__ == "__main__":
    main()
