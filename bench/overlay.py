"""Warm starts and their memory, ours against overlayfs on the unpacked image. Part of `make bench-runtime`.

Both run the same container: the configuration is the one that Xebec wrote, with another root. Ours is the whole of
`xebec run` (asking the daemon, mounting the view, overlay, runc); theirs is the overlay and `runc run`, with nobody who
finds, mounts or cleans up. Neither is probed but by what measures it. Run in turn, in changing order, and compared pair by pair.

Memory is counted when the service has answered, after a start with a page cache that was empty before: pages of the view
and of the data files below it (or of the unpacked files) by `cachestat`, what the container's control group was charged
with, and the anonymous memory of Xebec's own processes.
"""

import os
import shutil
import statistics
import subprocess
import time

import bench
import services

GOAL = 1.05
# Starts from memory are quick, and their medians must tell less than the goal apart.
TIMES_AS_MANY = 4
MEMORY_CGROUP = "/sys/fs/cgroup/memory"


class Overlay:
    """An unpacked image, and a bundle that is started on it."""

    def __init__(self, service, image):
        self.service = service
        self.top = os.path.join(bench.SCRATCH, "overlay")
        self.name = f"overlay-{service.image}"
        os.makedirs(self.top)
        pulled = os.path.join(self.top, "pulled")
        bench.run("skopeo", "copy", "-q", "--src-tls-verify=false", f"docker://{image}", f"oci:{pulled}:latest")
        unpacked = os.path.join(self.top, "unpacked")
        bench.run("umoci", "unpack", "--image", f"{pulled}:latest", unpacked)
        shutil.rmtree(pulled)
        self.rootfs = os.path.join(unpacked, "rootfs")
        self.merged = os.path.join(self.top, "merged")
        os.makedirs(self.merged)

    def take_configuration(self):
        """Of our container, which is running."""
        name = f"bench-{self.service.image}"
        theirs = os.path.join(os.environ["XEBEC_RUN"], "bundles", name)
        with open(os.path.join(theirs, "config.json")) as file:
            text = file.read().replace(theirs, self.top).replace(name, self.name)
        with open(os.path.join(self.top, "config.json"), "w") as file:
            file.write(text)
        shutil.copytree(os.path.join(theirs, "etc"), os.path.join(self.top, "etc"), dirs_exist_ok=True)

    def begin(self):
        log = open(os.path.join(bench.SCRATCH, "overlay.log"), "w")
        began = time.perf_counter()
        layers = {name: os.path.join(self.top, name) for name in ("upper", "work")}
        for path in layers.values():
            os.mkdir(path)
        # The root as the image has it.
        state = os.stat(self.rootfs)
        os.chmod(layers["upper"], state.st_mode & 0o7777)
        options = f"lowerdir={self.rootfs},upperdir={layers['upper']},workdir={layers['work']},volatile"
        bench.mount("overlay", self.merged, "overlay", 0, options)
        process = subprocess.Popen(
            ["runc", "run", "--bundle", self.top, self.name], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )

        def stop():
            subprocess.run(["runc", "kill", self.name, "KILL"], stdout=log, stderr=log)
            process.wait()
            subprocess.run(["runc", "delete", "--force", self.name], stdout=log, stderr=log)
            bench.unmount(self.merged)
            for path in layers.values():
                shutil.rmtree(path)

        started = services.Started(process, stop)
        try:
            started.milliseconds = self.service.wait(began, process)
        except BaseException:
            stop()
            raise
        return started

    def remove(self):
        shutil.rmtree(self.top)


def pairs(service, image, overlay, runs, drop):
    """Milliseconds of both, pair by pair."""
    times = {"ours": [], "overlay": []}
    for number in range(runs):
        order = ("ours", "overlay") if number % 2 else ("overlay", "ours")
        for way in order:
            if drop:
                bench.drop_caches()
            with services.begin_unwatched(service, image) if way == "ours" else overlay.begin() as started:
                times[way].append(started.milliseconds)
    return times


def print_pairs(name, label, times, goal):
    ratios = [ours / theirs for ours, theirs in zip(times["ours"], times["overlay"])]
    ours, theirs = statistics.median(times["ours"]), statistics.median(times["overlay"])
    spread = lambda values, digits: (
        f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"
    )
    print(
        f"{name:8} warm, {label}: ours {spread(times['ours'], 0)} ms, overlayfs {spread(times['overlay'], 0)} ms;"
        f" pair by pair {spread(ratios, 2)}; ours / overlayfs {ours / theirs:.2f}"
        + (f" (goal {GOAL}: {'met' if ours / theirs <= GOAL else 'NOT MET'})" if goal else ""),
        flush=True,
    )


# --- memory ----------------------------------------------------------------------------------------------------------


def cached_below(directory):
    """Pages of regular files that the page cache holds, over a whole tree of one file system."""
    pages, device = 0, os.lstat(directory).st_dev
    for folder, names, files in os.walk(directory):
        names[:] = [name for name in names if os.lstat(os.path.join(folder, name)).st_dev == device]
        for name in files:
            path = os.path.join(folder, name)
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            except OSError:
                continue  # a symbolic link, a socket
            try:
                pages += bench.cached_pages(descriptor)
            except OSError:
                pass  # no regular file
            finally:
                os.close(descriptor)
    return pages


def data_files():
    layers = os.path.join(os.environ["XEBEC_ROOT"], "layers")
    return [os.path.join(folder, "data") for folder, _, names in os.walk(layers) if "data" in names]


def cached(paths):
    pages = 0
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        pages += bench.cached_pages(descriptor)
        os.close(descriptor)
    return pages


def views():
    folder = os.path.join(os.environ["XEBEC_RUN"], "views")
    return [entry.path for entry in os.scandir(folder) if entry.is_dir()]


def charged(name):
    """What a container's control group was charged with, in bytes: page cache, anonymous memory."""
    with open(os.path.join(MEMORY_CGROUP, "xebec", name, "memory.stat")) as file:
        found = dict(line.split() for line in file)
    return {"cache": int(found["total_cache"]), "anonymous": int(found["total_rss"])}


def anonymous_of_xebec():
    """Keeper, worker and `xebec run`, in bytes."""
    total = 0
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            if os.readlink(f"/proc/{entry}/exe").removesuffix(" (deleted)") != os.path.realpath(bench.XEBEC):
                continue
            with open(f"/proc/{entry}/smaps_rollup") as file:
                found = dict(line.split()[:2] for line in file.readlines()[1:])
            total += int(found["Pss_Anon:"]) * 1024
        except (OSError, KeyError):
            continue
    return total


def memory_of_ours(service, image, name):
    with services.begin(service, image):
        return {
            "view": sum(cached_below(path) for path in views()),
            "data": cached(data_files()),
            **charged(name),
            "xebec": anonymous_of_xebec(),
        }


def memory(service, image, overlay, runs):
    found = {"cold": [], "warm": [], "overlay": []}
    name = f"bench-{service.image}"
    for _ in range(runs):
        services.fresh_host()
        bench.drop_caches()
        found["cold"].append(memory_of_ours(service, image, name))
        bench.drop_caches()
        found["warm"].append(memory_of_ours(service, image, name))
        bench.drop_caches()
        with overlay.begin():
            found["overlay"].append({"files": cached_below(overlay.rootfs), **charged(overlay.name)})
    return found


def print_memory(name, found):
    def of(way, what, unit=1e6):
        return f"{statistics.median(run[what] for run in found[way]) / unit:.1f}"

    pages = 1e6 / 4096
    for way, label in (("cold", "with runtime image"), ("warm", "warm from disk")):
        twice = [min(run["view"], run["data"]) for run in found[way]]
        theirs = statistics.median(run["files"] for run in found["overlay"])
        ours = statistics.median(run["view"] + run["data"] for run in found[way])
        print(
            f"{name:8} memory in MB, {label}: view {of(way, 'view', pages)}, data files {of(way, 'data', pages)}, held"
            f" twice {statistics.median(twice) / pages:.1f}; container charged with {of(way, 'cache')} page cache,"
            f" {of(way, 'anonymous')} anonymous; Xebec's processes {of(way, 'xebec')} anonymous;"
            f" page cache ours / overlayfs {ours / max(theirs, 1):.2f}",
            flush=True,
        )
    print(
        f"{name:8} memory in MB, overlayfs: files {of('overlay', 'files', pages)}; container charged with"
        f" {of('overlay', 'cache')} page cache, {of('overlay', 'anonymous')} anonymous",
        flush=True,
    )


def compare(service, image, runs):
    """All of it for one image, whose runtime image is published."""
    overlay = Overlay(service, image)
    services.fresh_host()
    with services.begin(service, image):
        overlay.take_configuration()
    try:
        with overlay.begin():
            pass
        times = {
            "all in memory": pairs(service, image, overlay, TIMES_AS_MANY * runs, False),
            "page cache dropped": pairs(service, image, overlay, runs, True),
        }
        for label, found in times.items():
            print_pairs(service.image, label, found, goal=True)
        held = memory(service, image, overlay, max(1, runs // 2))
        print_memory(service.image, held)
    finally:
        overlay.remove()
        bench.forget()
    bench.VALUES[f"{service.image}, overlayfs"] = {"times": times, "memory": held}
