"""Two images in two systems once, on the network that is as fast as memory, by hello.py; and whether the file of its results is
whole. Called by scripts/bench.sh (`make bench-smoke`), which CI does, too.
"""

import json
import os
import sys

os.environ |= {"BENCH_ONLY": "nginx redis", "BENCH_SYSTEMS": "overlayfs,Xebec", "BENCH_RATES": "0", "BENCH_RUNS": "1"}

import hello
import results_file
import systems


def main():
    hello.main()
    with open(os.environ["BENCH_JSON"]) as file:
        found = json.load(file)
    names = systems.asked([kind.name for kind in systems.ALL], os.environ["BENCH_SYSTEMS"])
    wanted = [
        {"image": image.name, "version": image.versions[-1], "network": str(net), "system": name}
        for image in hello.images() for net in hello.NETWORKS for name in names
    ]
    said = results_file.gaps(found, wanted, hello.RUNS)
    said += [f"failed: {failed}" for failed in found["failed"]] + [f"skipped: {skipped}" for skipped in found["skipped"]]
    for text in said:
        print(f"FAILED {text}")
    failed = min(len(said), len(wanted))
    print(f"{len(wanted) - failed} passed, {failed} failed, 0 skipped")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
