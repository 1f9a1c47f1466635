"""The systems that `make bench-hello` compares, one file each. A new one is a class like `base.System` in this list."""

import os

import bench
from systems import erofs, nydus, overlayfs, soci, stargz, xebec

ALL = [
    overlayfs.Overlayfs,
    erofs.Erofs,
    stargz.Stargz,
    stargz.Optimised,
    soci.Soci,
    nydus.Nydus,
    nydus.Optimised,
    xebec.Lazy,
    xebec.Runtime,
]


def asked(names, wanted):
    """Those of the names that are meant by a list: a whole name means itself, another text all that it is a part of."""
    parts = [part.strip() for part in wanted.split(",") if part.strip()]
    meant = {name for part in parts for name in names if (part == name if part in names else part in name)}
    return [name for name in names if name in meant or not parts]


def in_turn(present, number):
    """In the order of a round: each time another one is the first, which may find the host as no other does."""
    first = number % max(len(present), 1)
    return present[first:] + present[:first]


def chosen():
    """Those that are asked for (BENCH_SYSTEMS) and can run, and by name why the others of them cannot."""
    names = asked([kind.name for kind in ALL], os.environ.get("BENCH_SYSTEMS", ""))
    present, absent = [], {}
    for kind in ALL:
        if kind.name not in names:
            continue
        system = kind(os.path.join(bench.SCRATCH, "host"), os.environ["BENCH_NAMESPACE"])
        if reason := system.missing():
            absent[kind.name] = reason
        else:
            present.append(system)
    return present, absent
