"""The deployment cycle of Slacker (figure 20): an image that has long been in the registry starts on a host that never saw it.

What `make bench-hello` measures with all its stages; here it stands beside the development cycle, with the same figures.
"""

import starting
from scenarios import base


class Deployment(base.Scenario):
    """pull and run on a new host"""

    name = "deployment"
    networks = "1000 100"
    figures = [
        ("cycle_ms", "cycle", "ms", 1), ("pull_ms", "= pull", "", 1), ("start_ms", "+ start", "", 1),
        ("rx_bytes", "received", "MB", 1e6),
    ]

    def measure(self, system, subject, made, group):
        with system.running():
            found = starting.cold(system, subject, made, "first", self.patience_s(subject))
        return {None: {**found, "cycle_ms": found["ready_ms"]}}
