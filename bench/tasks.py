"""When a container counts as ready: the same for every way to start it. An image of `bench/catalogue` has one task.

`answer`: a port answers a real request, and the answer is right (protocols.py).
`line`: the container has written a line that has the text, such as "ready for connections".
`output`: the program has written the text, and ends by itself with status 0: hello world, compiled or run. Whether it has ended
and with what status, those know who started it: see `ends`.
"""

import socket

import protocols

KINDS = ("answer", "line", "output")
# The time that a peer may take for one answer; one that is up but has nothing to say yet is asked again.
PATIENCE_S = 10
# Of the regular expressions of `xebec record --probe log:…`.
SPECIAL = r"\.+*?()|[]{}^$"


class Task:
    """`text` is what the output or, by http, the answer must have; `log` is a line that says about the same as an answer."""

    def __init__(self, kind, text=None, protocol=None, port=None, path="/", log=None):
        self.kind, self.text, self.protocol, self.port, self.path, self.log = kind, text, protocol, port, path, log

    @property
    def ends(self):
        """Whether the program is to end by itself, with status 0; only then is it done."""
        return self.kind == "output"

    def ready(self, output=None):
        """Whether it is now. `output`: path of the file with what the container wrote to stdout and stderr."""
        return self.answers() if self.kind == "answer" else has(output, self.text.encode())

    def answers(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as peer:
                return protocols.ASK[self.protocol](peer, self)
        except (OSError, protocols.Wrong):
            return False

    @property
    def probe(self):
        """The options by which `xebec run` and `xebec record` wait for about the same."""
        if self.ends:
            return ["--probe", "exit"]
        if self.log or self.kind == "line":
            return ["--probe", "log:" + "".join(f"\\{char}" if char in SPECIAL else char for char in self.log or self.text)]
        if self.protocol == "http":
            return ["--probe", f"http://127.0.0.1:{self.port}{self.path}"]
        return ["--probe", f"port:{self.port}"]


def has(path, text):
    """Whether a file has a text; one that is not there has none."""
    try:
        with open(path, "rb") as file:
            return text in file.read()
    except FileNotFoundError:
        return False
