#!/usr/bin/env python3
"""Runs the test programs of all crates, twice as many side by side as there are processors, each in a mount namespace of its own.

    scripts/unit.py [ARGUMENT...]     the arguments are for the test programs: a filter, --show-output

`cargo test` runs one program after the other, and the slow ones mostly wait: for servers, databases, timeouts. What a program prints is
shown as a whole when it has ended, under a line as cargo's. A few tests that failed are tried once more when all programs have ended,
one at a time, and those that pass then are named as FLAKY. The exit code is 1 if a program failed otherwise.
"""

import concurrent.futures
import json
import os
import re
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# It tries all that the registry's store does over each of four pairs of engines.
LONGEST = "store"
# Up to so many tests are tried once more: a machine that is busy with others can make a test fail. More failures have another cause.
TRIED_AGAIN = 3
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
    """Runs one program where cargo would; gives its exit code and all that it printed. Notes how long processors worked for it."""
    crate = os.path.dirname(program["manifest_path"])
    with subprocess.Popen(
        [os.path.join(TOP, "scripts/in-own-mounts.sh"), program["executable"], *arguments],
        cwd=crate,
        env={**os.environ, "CARGO_MANIFEST_DIR": crate},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as running:
        printed = running.stdout.read()
        _, status, used = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    processors.append((used.ru_utime + used.ru_stime, title(program)[1]))
    return running.returncode, printed


# How long processors worked for each program.
processors = []
# So many of them are shown.
MOST = 10


def show_processors():
    """Both processors are busy most of the time, so only less work makes the whole quicker."""
    print(f"\n     {sum(time for time, _ in processors):8.1f} s of processors, most of it for")
    for time, name in sorted(processors, reverse=True)[:MOST]:
        print(f"     {time:8.1f} s  {name}")


# What libtest ends with when a test has failed. Any other code is of a program that did not come to its end.
TESTS_FAILED = 101


def failed_tests(code, printed):
    """The names of the tests that failed, as a program says; none if anything else went wrong, or if another try with other random
    values would say nothing: then they are not tried again."""
    named = re.findall(rb"^test (\S+)(?: - should panic)? \.\.\. FAILED$", printed, re.MULTILINE)
    # What a test prints by itself can look like that: the list at the end is the program's own.
    last = printed.rpartition(b"\nfailures:\n")[2].split(b"\n\n")[0]
    listed = [line.strip() for line in last.splitlines() if line.strip()]
    counts = re.findall(rb"^test result: FAILED\. \d+ passed; (\d+) failed;", printed, re.MULTILINE)
    is_whole = bool(counts) and int(counts[-1]) == len(listed) and all(name in named for name in listed)
    is_found = b"minimal failing input" in printed
    return [name.decode() for name in listed] if code == TESTS_FAILED and is_whole and not is_found else []


# So many lines of what a failed test says are told once more at the end.
TOLD = 8


def said(printed):
    """The names of failed tests, and the beginning of what each of them said when it failed. Those of a program that a test starts
    count, too; what passed tests print does not."""
    told, name, are_failures = {}, None, False
    for line in printed.decode(errors="replace").splitlines():
        section = re.fullmatch(r"---- (\S+) stdout ----", line)
        if line in ("successes:", "failures:") or line.startswith("test result: "):
            name, are_failures = None, line == "failures:"
        elif section:
            name = section[1] if are_failures else None
        elif name and (name in told or " panicked at " in line):
            told.setdefault(name, []).append(line)
    return {name: lines[:TOLD] for name, lines in told.items()}


def tell_again(printed):
    """As the end-to-end runner prints failed cases: scripts/test.sh repeats the beginning at the very end."""
    for name, lines in said(printed).items():
        print(f"test {name} ... FAILED", *lines, sep="\n     ")


def title(program):
    """The line that cargo prints before a program runs, and how a failure of it is named."""
    source = os.path.relpath(program["target"]["src_path"], os.path.dirname(program["manifest_path"]))
    kind = "" if "test" in program["target"]["kind"] else "unittests "
    name = f"{source} of {program['package_id'].split('#')[0].rsplit('/', 1)[-1]}"
    return f"\n     Running {kind}{source} ({program['executable']})\n".encode(), name


def show(program, printed):
    sys.stdout.buffer.write(title(program)[0] + printed)
    sys.stdout.flush()


def fails_again(program, tests):
    """Runs these tests of a program alone; whether one fails again. What it prints is indented, so that its tests are not counted
    twice."""
    code, printed = run(program, ["--exact", "--show-output", *tests])
    # Not after the last line: what follows begins a line, as scripts/test.sh looks for it.
    show(program, re.sub(rb"(?m)^(?=.)", b"    ", printed))
    tell_again(printed)
    # A program that runs none of them succeeds, too.
    ran = f"test result: ok. {len(tests)} passed;".encode()
    if code or ran not in printed:
        return True
    for test in tests:
        print(f"FLAKY {title(program)[1]}, {test}: it failed first, and passed alone")
    return False


def main():
    failed, told = [], []
    with concurrent.futures.ThreadPoolExecutor(2 * os.cpu_count()) as pool:
        running = {pool.submit(run, program, sys.argv[1:]): program for program in programs()}
        for ended in concurrent.futures.as_completed(running):
            program = running[ended]
            code, printed = ended.result()
            show(program, printed)
            if code:
                failed.append((program, code, failed_tests(code, printed)))
                told.append(printed)
    show_processors()
    for printed in told:
        tell_again(printed)
    count = sum(len(tests) for _, _, tests in failed)
    again = [each for each in failed if not each[2] or count > TRIED_AGAIN or fails_again(each[0], each[2])]
    for program, code, _ in again:
        print(f"failed: {title(program)[1]}: exit code {code}")
    sys.exit(1 if again else 0)


if __name__ == "__main__":
    main()
