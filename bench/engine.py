"""What an engine is: it has a system's containerd start containers, and is used with `with` while that runs."""


class Engine:
    # As it stands in the table, and what has to be installed.
    name, programs = None, []

    def __init__(self, system, top):
        self.system, self.top = system, top
        self.process = None

    @staticmethod
    def configuration(_):
        """What the containerd of a system needs for it."""
        return ""

    def start(self):
        """Until it answers."""

    def stop(self):
        """Nothing of it is left, however far `start` came."""

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()
