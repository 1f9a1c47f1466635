#!/usr/bin/env python3
"""Runs the test programs of all crates, twice as many side by side as there are processors, each in a mount namespace of its own.

    scripts/unit.py [ARGUMENT...]     the arguments are for the test programs: a filter, --show-output

`cargo test` runs one program after the other, and the slow ones mostly wait: for servers, databases, timeouts. What a program prints is
shown as a whole when it has ended, under a line as cargo's. The exit code is 1 if a program failed.
"""

import concurrent.futures
import json
import os
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# It tries all that the registry's store does over each of four pairs of engines.
LONGEST = "store"
BUILD = ["cargo", "test", "--workspace", "--locked", "--lib", "--bins", "--tests", "--no-run", "--message-format=json-render-diagnostics"]


def programs():
    """The test programs, the longest first, which must not be the last to begin: that of LONGEST, then by size."""
    built = subprocess.run(BUILD, cwd=TOP, stdout=subprocess.PIPE, check=False)
    if built.returncode:
        sys.exit("unit.py: the test programs do not compile")
    messages = map(json.loads, built.stdout.splitlines())
    found = [message for message in messages if message.get("executable") and message["profile"]["test"]]
    if not found:
        sys.exit("unit.py: cargo names no test program")
    return sorted(found, key=lambda message: (message["target"]["name"] != LONGEST, -os.path.getsize(message["executable"])))


def run(program, arguments):
    """Runs one program where cargo would; gives its exit code and all that it printed."""
    crate = os.path.dirname(program["manifest_path"])
    ended = subprocess.run(
        [os.path.join(TOP, "scripts/in-own-mounts.sh"), program["executable"], *arguments],
        cwd=crate,
        env={**os.environ, "CARGO_MANIFEST_DIR": crate},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return ended.returncode, ended.stdout


def main():
    failed = []
    with concurrent.futures.ThreadPoolExecutor(2 * os.cpu_count()) as pool:
        running = {pool.submit(run, program, sys.argv[1:]): program for program in programs()}
        for ended in concurrent.futures.as_completed(running):
            program = running[ended]
            code, printed = ended.result()
            source = os.path.relpath(program["target"]["src_path"], os.path.dirname(program["manifest_path"]))
            kind = "" if "test" in program["target"]["kind"] else "unittests "
            title = f"     Running {kind}{source} ({program['executable']})\n"
            sys.stdout.buffer.write(b"\n" + title.encode() + printed)
            sys.stdout.flush()
            if code:
                failed.append(f"{source} of {program['package_id'].split('#')[0].rsplit('/', 1)[-1]}: exit code {code}")
    for line in failed:
        print(f"failed: {line}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
