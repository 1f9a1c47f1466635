"""A small training run on a local data set (FlacIO, machine learning): from a cold start to a checked result.

The image brings Python and numpy; program and data set lie on the host, as a user's do. The data set is made here: ten patterns
of 784 bits, 50,000 noisy samples, the same everywhere. A recording, where a system has one, is that of the image's own service,
not of the training.
"""

import json
import os
import random
import shutil
import subprocess
import time

import bench
import starting
from scenarios import base

SAMPLES, BITS = 50_000, 784
# The results for these seeds; libraries for other processors round differently.
RIGHT, TOLERANCE = {"loss": 0.1773, "accuracy": 0.939}, 0.005
PROGRAM = "training_program.py"
IMAGES = ["python", "scipy"]
TIMEOUT_S = 600


class Training(base.Scenario):
    """a small training run from a cold start to its result"""

    name = "training"
    figures = [
        ("trained_ms", "trained", "ms", 1), ("pull_ms", "= pull", "", 1), ("run_ms", "+ run", "", 1),
        ("rx_bytes", "received", "MB", 1e6),
    ]

    def __init__(self, systems):
        super().__init__(systems)
        self.folder = os.path.join(bench.SCRATCH, "training")

    def missing(self, subject):
        return None if subject.name in IMAGES else f"numpy is in {' and '.join(IMAGES)}"

    def prepare(self, system, subject):
        if not os.path.exists(self.folder):
            write_data(self.folder)
            shutil.copy(os.path.join(os.path.dirname(__file__), PROGRAM), self.folder)
        return super().prepare(system, subject)

    def measure(self, system, subject, made, group):
        with system.running() as node:
            os.sync()
            step = starting.meter(system)
            began = time.perf_counter()
            pulled = starting.pull(node, made, self.patience_s(subject))
            done = subprocess.run(
                ["ctr", "run", "--rm", "--net-host", "--mount", f"type=bind,src={self.folder},dst=/training,options=rbind:ro",
                 made, "training", "python3", f"/training/{PROGRAM}", "/training"],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=node.environment, timeout=TIMEOUT_S,
            )
            trained = (time.perf_counter() - began) * 1e3
            found = step.read()
            check(done)
            starting.prove_cold(system, subject, {**found, "pull_bytes": 0})
        return {None: {"pull_ms": pulled, "run_ms": trained - pulled, "trained_ms": trained, **found}}


def check(done):
    """That the program ended well, with the right result."""
    try:
        result = json.loads(done.stdout) if done.returncode == 0 else None
    except ValueError:
        result = None
    if result is None:
        raise RuntimeError(f"the training ended with status {done.returncode}: {(done.stdout + done.stderr).decode()[-1500:]}")
    for name, right in RIGHT.items():
        if abs(result[name] - right) > TOLERANCE:
            raise RuntimeError(f"the training's {name} is {result[name]:.4f}, not {right:.4f}")


def write_data(folder):
    """Each sample is the pattern of its label with seven sixteenths of all bits turned."""
    numbers = random.Random(7)
    patterns = [numbers.getrandbits(BITS) for _ in range(10)]
    labels = bytes(numbers.randrange(10) for _ in range(SAMPLES))
    os.makedirs(folder)
    with open(os.path.join(folder, "labels"), "wb") as file:
        file.write(labels)
    with open(os.path.join(folder, "images"), "wb") as file:
        for label in labels:
            one, other, third, fourth = (numbers.getrandbits(BITS) for _ in range(4))
            noise = one & (other | third | fourth)
            file.write((patterns[label] ^ noise).to_bytes(BITS // 8, "big"))
