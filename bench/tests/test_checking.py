"""What proves tasks takes nothing else for them."""

import os
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import check_images
import tasks


class Done(unittest.TestCase):
    def ran(self, task, command):
        """Whether it is done after a command has run."""
        with tempfile.NamedTemporaryFile() as output:
            process = subprocess.Popen(["sh", "-c", command], stdout=output)
            process.wait()
            return check_images.done(task, process, output.name)

    def test_who_ends(self):
        task = tasks.Task("output", "hello")
        self.assertTrue(self.ran(task, "echo hello there"))
        self.assertFalse(self.ran(task, "echo hello; exit 1"))
        self.assertFalse(self.ran(task, "echo something else"))

    def test_who_does_not_end_yet(self):
        with tempfile.NamedTemporaryFile() as output:
            output.write(b"hello\n")
            output.flush()
            process = subprocess.Popen(["sleep", "60"])
            try:
                self.assertFalse(check_images.done(tasks.Task("output", "hello"), process, output.name))
                self.assertTrue(check_images.done(tasks.Task("line", "hello"), process, output.name))
            finally:
                process.kill()
                process.wait()

    def test_decoys_differ(self):
        """Nothing that is expected is in what the decoy writes."""
        for task in (tasks.Task("line", "hello"), tasks.Task("output", "hello"), tasks.Task("answer", "hello", "http", 80)):
            self.assertNotIn("hello", " ".join(check_images.decoy(task)))


class Misleads(unittest.TestCase):
    """What watches a decoy sees that it is there."""

    def sees(self, task, written="something else\n", status=None):
        process = mock.Mock(poll=lambda: status)
        with tempfile.NamedTemporaryFile() as output:
            output.write(written.encode())
            output.flush()
            return check_images.misleads(task, process, output.name)

    def answers(self, said):
        """Whether one is seen whose port says this."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(10)

            def serve():
                with server.accept()[0] as peer:
                    peer.sendall(said)

            thread = threading.Thread(target=serve)
            thread.start()
            try:
                return self.sees(tasks.Task("answer", "hello", "http", server.getsockname()[1]))
            finally:
                thread.join()

    def test_who_ends(self):
        self.assertTrue(self.sees(tasks.Task("output", "hello"), status=0))
        self.assertFalse(self.sees(tasks.Task("output", "hello")))
        self.assertFalse(self.sees(tasks.Task("output", "hello"), status=1))

    def test_who_writes(self):
        self.assertTrue(self.sees(tasks.Task("line", "hello")))
        self.assertFalse(self.sees(tasks.Task("line", "hello"), written=""))
        self.assertFalse(self.sees(tasks.Task("line", "hello"), status=0))

    def test_who_answers(self):
        self.assertTrue(self.answers(b"HTTP/1.0 200 OK\r\n\r\nsomething else\r\n"))
        self.assertFalse(self.answers(b""))
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        self.assertFalse(self.sees(tasks.Task("answer", "hello", "http", port)))

    def test_one_that_goes_away_proves_nothing(self):
        host, task = mock.MagicMock(), tasks.Task("line", "hello")
        process = mock.Mock()
        process.poll.side_effect = [None, 1, 1]
        with tempfile.NamedTemporaryFile() as output, mock.patch.object(check_images, "WATCHED_S", 0):
            output.write(b"something else\n")
            output.flush()
            host.begin.return_value = process, output.name
            with self.assertRaisesRegex(check_images.Failed, "gone: status 1"):
                check_images.not_done(host, task, "other")


if __name__ == "__main__":
    unittest.main()
