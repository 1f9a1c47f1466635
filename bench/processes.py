"""Waiting for what processes do, and ending them."""

import signal
import subprocess
import time


def holds(is_so, seconds, process=None, pause_s=0.02):
    """Asks again and again whether it is so, no longer than so many seconds or than a process runs."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline or (process and process.poll() is not None):
            return False
        time.sleep(pause_s)
    return True


def end(process, by=signal.SIGTERM, seconds=30):
    """Tells a process to end, kills one that does not, and waits for it."""
    process.send_signal(by)
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
