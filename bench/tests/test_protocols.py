"""What asks services, against servers that answer rightly, wrongly, not at all or with something else."""

import contextlib
import os
import socket
import struct
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import protocols
import tasks


@contextlib.contextmanager
def server(talk):
    """The port of a server that calls `talk` with its one client, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            peer, _ = listener.accept()
            with peer, contextlib.suppress(OSError):
                peer.settimeout(5)
                talk(peer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def script(*steps):
    """Reads as many bytes as were expected, compares them, and sends: (expected or a length, sent)."""

    def talk(peer):
        for expected, sent in steps:
            size = expected if isinstance(expected, int) else len(expected)
            got = b""
            while len(got) < size and (part := peer.recv(size - len(got))):
                got += part
            if not isinstance(expected, int) and got != expected:
                return
            peer.sendall(sent)

    return talk


def packet(number, body):
    return len(body).to_bytes(3, "little") + bytes([number]) + body


def method(one, two, rest=b""):
    body = struct.pack("!HH", one, two) + rest
    return struct.pack("!BHI", 1, 0, len(body)) + body + b"\xce"


def postgres_message(kind, body):
    return kind + struct.pack("!I", 4 + len(body)) + body


HTTP = b"GET /hello HTTP/1.0\r\nHost: localhost\r\n\r\n"
POSTGRES_START = struct.pack("!II", 41, 3 << 16) + b"user\0postgres\0database\0postgres\0\0"
POSTGRES_QUERY = postgres_message(b"Q", b"select 6 * 7\0")
GREETING = packet(0, b"\x0a11.4\0")
LOGIN = 4 + 32 + 6 + 1 + 22
COLUMNS = packet(1, b"\x01") + packet(2, b"what a column is") + packet(3, b"\xfe\0\0\x02\0")
MYSQL_QUERY = packet(0, b"\x03select 6 * 7")
MQTT_CONNECT, MQTT_SUBSCRIBE = b"\x10\x11\0\x04MQTT\x04\x02\0\x3c\0\x05hello", b"\x82\x08\0\x01\0\x03a/b\0"
MQTT_PUBLISH = b"\x30\x0a\0\x03a/bworld"
SET = b"set hello 0 0 5\r\nworld\r\n"
AMQP_START_OK = 7 + 4 + 4 + 6 + 4 + 12 + 6 + 1

# By protocol: what a right server does, and several wrong ones.
RIGHT = {
    "http": script((HTTP, b"HTTP/1.1 200 OK\r\nX: y\r\n\r\nit is hello")),
    "redis": script((b"PING\r\n", b"+PONG\r\n")),
    "memcached": script((SET, b"STORED\r\n"), (b"get hello\r\n", b"VALUE hello 0 5\r\nworld\r\nEND\r\n")),
    "postgres": script(
        (POSTGRES_START, postgres_message(b"R", bytes(4)) + postgres_message(b"Z", b"I")),
        (POSTGRES_QUERY, postgres_message(b"T", b"what") + postgres_message(b"D", b"\0\x01\0\0\0\x0242")),
    ),
    "mysql": script(
        (0, GREETING), (LOGIN, packet(2, b"\xfeother\0")), (packet(3, b""), packet(4, b"\0\0\0\x02\0\0\0")),
        (MYSQL_QUERY, COLUMNS + packet(4, b"\x0242")),
    ),
    "mqtt": script((MQTT_CONNECT, b"\x20\x02\0\0"), (MQTT_SUBSCRIBE, b"\x90\x03\0\x01\0"), (MQTT_PUBLISH, MQTT_PUBLISH)),
    "amqp": script(
        (b"AMQP\0\0\x09\x01", method(10, 10, b"much")), (AMQP_START_OK, method(10, 30)),
        (7 + 4 + 8 + 1 + 7 + 4 + 4 + 1, method(10, 41)),
    ),
}
WRONG = {
    "http": [
        script((HTTP, b"HTTP/1.1 503 Not yet\r\n\r\nhello")), script((HTTP, b"HTTP/1.1 200 OK\r\n\r\nanother site")),
        # In a header it does not count.
        script((HTTP, b"HTTP/1.1 200 OK\r\nServer: hello\r\n\r\nanother site")),
    ],
    "redis": [script((b"PING\r\n", b"-LOADING\r\n"))],
    "memcached": [
        script((len(SET), b"ERROR\r\n")), script((len(SET), b"STORED\r\n"), (11, b"END\r\n")),
        script((len(SET), b"STORED\r\n"), (11, b"VALUE hello 0 5\r\nother\r\nEND\r\n")),
    ],
    "postgres": [
        script((POSTGRES_START, postgres_message(b"E", b"the database system is starting up"))),
        script((41, postgres_message(b"Z", b"I")), (len(POSTGRES_QUERY), postgres_message(b"D", b"\0\x01\0\0\0\x0241"))),
    ],
    "mysql": [
        script((0, packet(0, b"\xff\x10\x04Too many connections"))),
        script((0, GREETING), (LOGIN, packet(2, b"\xff\x15\x04Access denied"))),
        script((0, GREETING), (LOGIN, packet(2, bytes(7))), (len(MYSQL_QUERY), packet(1, b"\xff no"))),
        script((0, GREETING), (LOGIN, packet(2, bytes(7))), (len(MYSQL_QUERY), COLUMNS + packet(4, b"\x0241"))),
        script((0, packet(255, b"\x0a11.4\0"))),
    ],
    "mqtt": [script((19, b"\x20\x02\0\x05")), script((19, b"\x20\x02\0\0"), (10, b"\x90\x03\0\x01\x80"))],
    "amqp": [
        script((8, b"AMQP\0\0\x09\x01")), script((8, method(10, 10)), (AMQP_START_OK, method(10, 50))),
        script((8, b"\x01\0\0\0\0\0\x02\0\0\xce")), script((8, method(10, 10)[:-1] + b"\0")),
    ],
}
# The answers that any of them may meet instead of its service's.
OTHERS = [script(), script((0, b"nothing\n")), script((0, bytes(64))), script((0, b"\xff" * 64))]


class Protocols(unittest.TestCase):
    def ask(self, protocol, talk):
        with server(talk) as port:
            return tasks.Task("answer", "hello", protocol, port, "/hello").ready()

    def test_every_protocol_is_tested(self):
        self.assertEqual(set(RIGHT), set(protocols.ASK))
        self.assertEqual(set(WRONG), set(protocols.ASK))

    def test_right(self):
        for protocol, talk in RIGHT.items():
            with self.subTest(protocol):
                self.assertTrue(self.ask(protocol, talk))

    def test_wrong(self):
        for protocol, servers in WRONG.items():
            for number, talk in enumerate([*servers, *OTHERS]):
                with self.subTest(protocol, number=number):
                    self.assertFalse(self.ask(protocol, talk))

    def test_nobody(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        self.assertFalse(tasks.Task("answer", protocol="redis", port=port).ready())


class Output(unittest.TestCase):
    def test_text(self):
        task = tasks.Task("line", "ready for connections")
        with tempfile.NamedTemporaryFile() as file:
            self.assertFalse(task.ready(file.name))
            file.write(b"starting\nready for \xff\n")
            file.flush()
            self.assertFalse(task.ready(file.name))
            file.write(b"now ready for connections.\n")
            file.flush()
            self.assertTrue(task.ready(file.name))
        self.assertFalse(task.ready(file.name))

    def test_probes(self):
        self.assertEqual(tasks.Task("output", "hello").probe, ["--probe", "exit"])
        self.assertEqual(tasks.Task("line", "ready (1)").probe, ["--probe", r"log:ready \(1\)"])
        self.assertEqual(tasks.Task("answer", "x", "http", 80, "/a").probe, ["--probe", "http://127.0.0.1:80/a"])
        self.assertEqual(tasks.Task("answer", protocol="mqtt", port=1883).probe, ["--probe", "port:1883"])
        self.assertEqual(tasks.Task("answer", protocol="redis", port=6379, log="Ready").probe, ["--probe", "log:Ready"])


if __name__ == "__main__":
    unittest.main()
