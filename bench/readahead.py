"""What read-ahead, prefetching and the unit of fills do to starts. Called by scripts/bench.sh.

The read-ahead of a view is set from outside, at its backing device, as soon as it is mounted: that is long before the
container's first read. Each experiment runs its settings in turn, in one go, in an order that changes.

* cold: a host that never saw the image, with the runtime image: what it brings is in the page cache of the data files.
* warm: all is there and in memory. The view is mounted anew, so its own page cache is empty.
* disk: all is there, on the disk alone.
* lazy: a host that never saw the image, without the runtime image.
* complete: all of the image is there, on the disk alone.
* ahead: with the runtime image, and the view's own page cache, or that of the data files below it, filled by somebody else
  while the container is created.
* shared: the view stays mounted by another container of the image, so its page cache is full: what filling it could
  bring at most.
* large: a large file that is read in order.
* unit: what a miss brings in, which is decided when a layer is indexed (the distance of access points). Each unit needs a
  program of its own that was built with it: BENCH_UNITS of scripts/bench.sh. Lazily and with the runtime image.

Environment: as for bench.py; BENCH_ONLY is a list of images, BENCH_PARTS one of experiments.
"""

import ctypes
import json
import mmap
import os
import statistics
import subprocess
import threading
import time

import bench
import network
import overlay
import services

SMALL = os.environ.get("SMALL") == "1"
RUNS = 3 if SMALL else min(7, bench.RUNS)
IMAGES = ["nginx"] if SMALL else ["nginx", "scipy", "jvm"]
BDI = "/sys/class/bdi"
# In KiB. `None` leaves what Xebec chose.
SETTINGS = [None, 0, 16, 32, 64, 128, 512]
PAGE = mmap.PAGESIZE


class Disturbed(RuntimeError):
    """Somebody else mounted EROFS at the same time, so the view's device cannot be told."""


def again(work):
    """What was disturbed is done again, a few times."""
    for _ in range(9):
        try:
            return work()
        except Disturbed:
            continue
    return work()


class Watcher(threading.Thread):
    """Does something to the next view that is mounted, at once: before the container's first read."""

    def __init__(self, act):
        super().__init__(daemon=True)
        self.views, self.devices = set(records()), set(os.listdir(BDI))
        self.act, self.over, self.error, self.took = act, False, None, None
        self.start()

    def run(self):
        while self.took is None:
            is_last = self.over
            found = records()
            if new := set(found) - self.views:
                began = time.perf_counter()
                try:
                    self.act(self.device(found[new.pop()]))
                except (OSError, RuntimeError) as error:
                    self.error = error
                self.took = (time.perf_counter() - began) * 1e3
            elif is_last:
                return
            else:
                self.views &= set(found)
                time.sleep(0.0003)

    def device(self, record):
        """Xebec notes it if it has chosen its read-ahead; else it is told by what appeared meanwhile."""
        if record.get("narrow"):
            return record["narrow"]
        new = [name for name in set(os.listdir(BDI)) - self.devices if name.startswith("erofs-")]
        if len(new) != 1:
            raise Disturbed(f"{len(new)} EROFS were mounted at once; measure on an idle machine")
        return new[0]

    def finish(self):
        self.over = True
        self.join(timeout=30)
        if isinstance(self.error, Disturbed):
            raise self.error
        if self.error or self.took is None:
            raise RuntimeError(f"nothing was done to the view: {self.error}")


def records():
    """What the daemon wrote down of each mounted view, by the path of that file."""
    folder, found = os.path.join(os.environ["XEBEC_RUN"], "views"), {}
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name.endswith(".json"):
            try:
                with open(os.path.join(folder, name)) as file:
                    found[name] = json.load(file)
            except (FileNotFoundError, json.JSONDecodeError):
                continue  # it goes, or comes
    return found


def keep(name, kib):
    bench.set_read_ahead(name, kib, zero=True)
    kept[:] = [name]


# The view whose read-ahead was set last.
kept = []


def start(service, image, kib, *options):
    """A start with a read-ahead of the view, which is looked at again at its end."""
    if kib is None:
        return with_memory(service, image, *options)
    watcher = Watcher(lambda name: keep(name, kib))

    def look():
        watcher.finish()
        return bench.set_read_ahead(kept[0], 0)

    found = with_memory(service, image, *options, look=look)
    if found["looked"] != kib:
        raise RuntimeError(f"the view read {found['looked']} KiB ahead, not {kib}")
    return found


def spread(values, digits=0):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def table(name, part, found):
    """A row for each setting."""
    print(f"\n{name}, {part}; {len(next(iter(found.values())))} runs")
    print(f"  {'read-ahead':28} {'ms':>18} {'events':>12} {'MB moved':>9} {'MB in view':>11} {'MB in data files':>17}")
    for setting, runs in found.items():
        of = lambda what, unit=1: statistics.median(run.get(what, 0) for run in runs) / unit
        print(
            f"  {setting:28} {spread([run['ms'] for run in runs]):>18} {of('events'):>12.0f}"
            f" {of('bytes', 1e6):>9.2f} {of('view', 1e6 / PAGE):>11.1f} {of('data', 1e6 / PAGE):>17.1f}",
            flush=True,
        )
    bench.VALUES[f"{name}, {part}"] = found


def label(kib):
    return "as Xebec does it" if kib is None else f"{kib} KiB"


def with_memory(service, image, *options, look=lambda: None):
    """A start, and what it has in the page cache, which would be gone afterwards."""
    counted = {}
    inner = services.Started.__exit__

    def leave(started, *rest):
        try:
            counted["view"] = sum(overlay.cached_below(path) for path in overlay.views())
            counted["data"] = overlay.cached(overlay.data_files())
            counted["looked"] = look()
        finally:
            inner(started, *rest)

    services.Started.__exit__ = leave
    try:
        return {**services.measure(service, image, *options), **counted}
    finally:
        services.Started.__exit__ = inner


def sweep(name, part, service, image, prepare, settings=SETTINGS, options=()):
    found = {label(kib): [] for kib in settings}
    for number in range(RUNS):
        order = settings if number % 2 else settings[::-1]
        for kib in order:

            def one(kib=kib):
                prepare()
                return start(service, image, kib, *options)

            found[label(kib)].append(again(one))
    table(name, part, found)


def cold(service, image):
    sweep(service.image, "cold", service, image, services.fresh_host)


def warm(service, image):
    services.fresh_host()
    services.measure(service, image)
    sweep(service.image, "warm", service, image, lambda: None)


def disk(service, image):
    services.fresh_host()
    services.measure(service, image)
    sweep(service.image, "disk", service, image, bench.drop_caches)


def lazy(service, image):
    for mbit in (None, 100):
        with network.shaped(mbit):
            part = f"lazy, {f'{mbit} Mbit/s' if mbit else 'unlimited'}"
            sweep(service.image, part, service, image, services.fresh_host, options=("--no-runtime-image",))


def complete(service, image):
    services.fresh_host()
    bench.xebec("pull", "--complete", image)
    sweep(service.image, "complete", service, image, bench.drop_caches)


# --- the view's own page cache, filled ahead ---------------------------------------------------------------------------


def resident(path):
    """Which pages of a file the page cache holds, as runs of (first, count)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        size = os.fstat(descriptor).st_size
        if size == 0 or bench.cached_pages(descriptor) == 0:
            return []
        pages = (size + PAGE - 1) // PAGE
        held = (ctypes.c_ubyte * pages)()
        # Not `mmap` of the module, which gives no address for a read-only mapping.
        bench.LIBC.mmap.restype = ctypes.c_void_p
        address = bench.LIBC.mmap(None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_SHARED, descriptor, ctypes.c_long(0))
        if bench.LIBC.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), held) != 0:
            raise OSError(ctypes.get_errno(), "mincore")
        bench.LIBC.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))
    finally:
        os.close(descriptor)
    runs, first = [], None
    for page in range(pages + 1):
        is_held = page < pages and held[page] & 1
        if is_held and first is None:
            first = page
        elif not is_held and first is not None:
            runs.append((first, page - first))
            first = None
    return runs


def working_set(service, image):
    """What a start with the runtime image on a fresh host has in memory: {path: runs}, of the view (without read-ahead),
    where paths are relative, and of the data files."""
    services.fresh_host()
    in_view = {}
    watcher = Watcher(lambda name: keep(name, 0))
    with services.begin(service, image):
        for view in overlay.views():
            for folder, _, names in os.walk(view):
                for name in names:
                    path = os.path.join(folder, name)
                    try:
                        if runs := resident(path):
                            in_view[os.path.relpath(path, view)] = runs
                    except OSError:
                        continue
        in_data = {path: resident(path) for path in overlay.data_files()}
    watcher.finish()
    return in_view, in_data


def fill_view(pages):
    """Asks for all of it in the view that was mounted last, without waiting for any."""
    deadline = time.monotonic() + 5
    while not (mounted := [path for path in overlay.views() if os.path.ismount(path)]):
        if time.monotonic() > deadline:
            raise RuntimeError("no view is mounted")
        time.sleep(0.0003)
    fill_files({os.path.join(mounted[0], path): runs for path, runs in pages.items()})


def fill_files(pages):
    for path, runs in pages.items():
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        for first, count in runs:
            os.posix_fadvise(descriptor, first * PAGE, count * PAGE, os.POSIX_FADV_WILLNEED)
        os.close(descriptor)


def ahead(service, image):
    in_view, in_data = working_set(service, image)
    count = lambda pages: sum(run[1] for runs in pages.values() for run in runs)
    print(f"\n{service.image}: a start reads {count(in_view)} pages of {len(in_view)} files; {count(in_data)} of data files")
    acts = {"view filled ahead": lambda _: fill_view(in_view), "data files filled ahead": lambda _: fill_files(in_data)}
    kinds = {"cold": services.fresh_host, "warm": lambda: None, "disk": bench.drop_caches}
    for kind, prepare in kinds.items():
        found = {"as Xebec does it": [], "view filled ahead": []}
        if kind == "disk":
            found["data files filled ahead"] = []
        took = {way: [] for way in found}
        for number in range(RUNS):
            for way in list(found) if number % 2 else list(found)[::-1]:
                prepare()
                watcher = Watcher(acts[way]) if way in acts else None
                found[way].append(with_memory(service, image))
                if watcher:
                    watcher.finish()
                    took[way].append(watcher.took)
        table(service.image, f"ahead, {kind}", found)
        for way, values in took.items():
            if values:
                print(f"  {way}: asking took {spread(values)} ms")


def shared(service, image):
    """Another container of the image holds the view, in a network of its own."""
    services.fresh_host()
    services.measure(service, image)
    found = {"mounted anew": [], "mounted already": []}
    for _ in range(RUNS):
        found["mounted anew"].append(with_memory(service, image))
    command = [bench.XEBEC, "run", "--rm", "--net", "none", "--name", "bench-holder", "--probe", service.probe, image]
    log = open(os.path.join(bench.SCRATCH, "holder.log"), "w")
    holder = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        time.sleep(4)
        for _ in range(RUNS):
            found["mounted already"].append(with_memory(service, image))
        if holder.poll() is not None:
            raise RuntimeError("the other container has ended")
    finally:
        services.end(holder)
    table(service.image, "shared", found)


def unit(service, _):
    """The programs are told apart by BENCH_UNIT_PROGRAMS, a list of KiB=PATH; ours is one of them."""
    given = os.environ.get("BENCH_UNIT_PROGRAMS", "").split()
    programs = {1024: bench.XEBEC, **{int(kib): path for kib, path in (item.split("=", 1) for item in given)}}
    ours, images = bench.XEBEC, {}
    nets = [network.Network(text) for text in ("0", "100", "10ms")]
    found = {(kib, str(net), way): [] for kib in programs for net in nets for way in ("lazy", "runtime image")}
    print(f"\n{service.image}, unit of fills; {RUNS} runs")
    try:
        for kib, path in sorted(programs.items()):
            bench.XEBEC = path
            images[kib], _ = bench.publish(service.layout, f"{service.image}-{kib}")
            services.record(service.task, images[kib])
            bench.forget()
        for net in nets:
            with network.delayed(bench.REGISTRY, net.round_trip) as registry:
                for _ in range(RUNS):
                    for kib, path in sorted(programs.items()):
                        bench.XEBEC = path
                        image = images[kib].replace(bench.REGISTRY, registry)
                        for way, options in (("lazy", ["--no-runtime-image"]), ("runtime image", [])):
                            services.fresh_host()
                            with network.shaped(net.mbit):
                                run = services.measure(service, image, *options)
                            found[kib, str(net), way].append(run)
                        bench.forget()
    finally:
        bench.XEBEC = ours
    print(f"  {'':44} {'ms':>18} {'MB moved':>9} {'requests':>9} {'MB written':>11}")
    for (kib, net, way), runs in sorted(found.items(), key=lambda item: (item[0][2], item[0][1], item[0][0])):
        of = lambda what, size=1: statistics.median(run[what] for run in runs) / size
        name = f"{way}, {net}, {kib} KiB"
        print(
            f"  {name:44} {spread([run['ms'] for run in runs]):>18} {of('bytes', 1e6):>9.2f} {of('requests'):>9.0f}"
            f" {of('written_pages', 1e6 / PAGE):>11.2f}",
            flush=True,
        )
        bench.VALUES[f"{service.image}, unit, {name}"] = runs


def large():
    """A file that no recording has, read from start to end by 1 MiB in a view of a service: what a service does to it
    that loads a model, say. From memory, and over the network."""
    image, _ = bench.publish(os.path.join(bench.IMAGES, "big", "oci"), "big")
    target = bench.mount_directory()
    size = 200_000_000
    print(f"\nthe first {size // 10**6} MB of a large file, read in order; {RUNS} runs")
    print(f"  {'':44} {'MB/s':>18} {'events':>9}")
    for kind in ("missing", "in memory below"):
        for kib in (0, 16, 32, 64, 128, 512, 1024):

            def one(kind=kind, kib=kib):
                if kind == "missing":
                    services.fresh_host()
                watcher = Watcher(lambda name: keep(name, kib))
                bench.xebec("mount", image, target)
                try:
                    watcher.finish()
                    before, began = bench.status()["events"], time.perf_counter()
                    with open(os.path.join(target, "big.bin"), "rb", buffering=0) as file:
                        left = size
                        while left > 0:
                            left -= len(file.read(min(left, 1 << 20)))
                    return size / 1e6 / (time.perf_counter() - began), bench.status()["events"] - before
                finally:
                    bench.xebec("umount", target)

            rates, events = zip(*(again(one) for _ in range(RUNS)))
            print(
                f"  {f'{kind}, {kib} KiB':44} {spread(rates):>18} {statistics.median(events):>9.0f}", flush=True
            )
            bench.VALUES[f"large, {kind}, {kib}"] = {"rates": rates, "events": events}
    bench.forget()


PARTS = {part.__name__: part for part in (cold, warm, disk, lazy, complete, ahead, shared, unit)}


def main():
    print(f"{os.cpu_count()} processors, Linux {os.uname().release}, load {os.getloadavg()[0]:.1f} before; {RUNS} runs, medians")
    chosen = os.environ.get("BENCH_PARTS", "").split()
    if not chosen:
        has_units = "BENCH_UNIT_PROGRAMS" in os.environ
        chosen = [part for part in PARTS if part != "unit" or has_units] + ["large"]
    for name in os.environ.get("BENCH_ONLY", "").split() or IMAGES:
        service = services.SERVICES[name]
        parts = [PARTS[part] for part in chosen if part in PARTS]
        if parts:
            image, _ = bench.publish(service.layout, name)
            services.record(service.task, image)
        for part in parts:
            part(service, image)
        bench.forget()
    if "large" in chosen:
        large()
    print(f"load {os.getloadavg()[0]:.1f} afterwards")
    bench.keep_values()


if __name__ == "__main__":
    main()
