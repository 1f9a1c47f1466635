"""`make bench-scenarios`: the scenarios of the papers, one after the other. Called by scripts/bench.sh; docs/bench-scenarios.md
says what each does, what is fair and how to read it.

`python3 -m scenarios images` prints the names of the images that are needed, and nothing else happens.

Environment: as for hello.py; ONLY (names of scenarios), BENCH_ONLY (images, where a scenario can do with another one),
BENCH_SYSTEMS, BENCH_RATES, BENCH_RUNS, BENCH_BUDGET (seconds), BENCH_JSON (a directory for the results, a file for each
scenario), BENCH_SECONDS (of throughput), BENCH_HOSTS (of batch). SMALL=1: one image each, one run, less of all.
"""

import os
import sys

import scenarios  # which needs none of what a benchmark is told by its environment

SMALL = os.environ.get("SMALL") == "1"
WANTED = os.environ.get("ONLY", "").split() or scenarios.NAMES
IMAGES = os.environ.get("BENCH_ONLY", "").split()


def needed():
    return sorted({image for name in WANTED for image in scenarios.images(name, SMALL, IMAGES)})


def main():
    import catalogue
    import systems
    from budget import Budget
    from scenarios import base

    present, absent = systems.chosen()
    directory = os.environ["BENCH_JSON"]
    budget = Budget(float(os.environ.get("BENCH_BUDGET") or "inf"), float(os.environ.get("BENCH_SPENT") or 0))
    load = f"load {os.getloadavg()[0]:.1f} before"
    print(f"{os.cpu_count()} processors, Linux {os.uname().release}, {load}; {base.RUNS} runs, medians")
    for system in present:
        print(f"  {system.name}: {system.version()}")
    failures = 0
    for name in WANTED:
        table = base.Table(scenarios.load(name)(present), budget, directory)
        for system, reason in absent.items():
            table.skip(system, reason)
        failures += table.run(catalogue.load(only=scenarios.images(name, SMALL, IMAGES)))
    print(f"\nload {os.getloadavg()[0]:.1f} afterwards; results in {directory}")
    if failures:
        raise SystemExit(f"{failures} of the measurements failed")


if unknown := [name for name in WANTED if name not in scenarios.NAMES]:
    raise SystemExit(f"no scenario is called {', '.join(unknown)}: ONLY takes {', '.join(scenarios.NAMES)}")
if sys.argv[1:] == ["images"]:
    print(*needed())
else:
    main()
