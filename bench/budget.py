"""How long a benchmark may still go on. Nothing is begun that would probably take longer than is left."""

import contextlib
import time


class Budget:
    """`seconds`: in all; `spent`: before this was made. What is being done when it ends is finished."""

    def __init__(self, seconds, spent=0.0, clock=time.monotonic):
        self.seconds, self.clock = seconds, clock
        self.began = clock() - spent
        self.longest = {}

    def left(self):
        return self.seconds - (self.clock() - self.began)

    def allows(self, kind):
        """Whether there is room for one more of a kind, by the longest of that kind so far."""
        return self.left() > self.longest.get(kind, 0.0)

    @contextlib.contextmanager
    def spending(self, kind):
        began = self.clock()
        try:
            yield
        finally:
            self.longest[kind] = max(self.longest.get(kind, 0.0), self.clock() - began)
