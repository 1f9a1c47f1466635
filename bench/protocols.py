"""Real requests to the services of `bench/catalogue`, and whether they are answered rightly.

Each function is given a connection and the task (for http its path and text), and is true if the answer is right; what is
not the protocol at all raises `Wrong`. They know as little of a protocol as it takes for one request of a client that needs
no password.
"""

import struct


class Wrong(Exception):
    """The peer speaks something else, or has hung up."""


def exactly(peer, size):
    data = b""
    while len(data) < size:
        part = peer.recv(size - len(data))
        if not part:
            raise Wrong("it has hung up")
        data += part
    return data


def until(peer, end):
    """All up to a mark that a right answer has, and nothing more than 4 KiB."""
    data = b""
    while end not in data:
        part = peer.recv(4096)
        if not part or len(data) > 4096:
            raise Wrong("no such answer")
        data += part
    return data


def http(peer, task):
    """Status 200, and the text in the body if one is expected."""
    peer.sendall(f"GET {task.path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    data = b""
    while part := peer.recv(65536):
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    return b" 200" in head.split(b"\r\n")[0] and (task.text or "").encode() in body


def redis(peer, _):
    peer.sendall(b"PING\r\n")
    return until(peer, b"\r\n") == b"+PONG\r\n"


def memcached(peer, _):
    """What was set is got."""
    peer.sendall(b"set hello 0 0 5\r\nworld\r\n")
    if until(peer, b"\r\n") != b"STORED\r\n":
        return False
    peer.sendall(b"get hello\r\n")
    return until(peer, b"END\r\n") == b"VALUE hello 0 5\r\nworld\r\nEND\r\n"


def postgres(peer, _):
    """`select 6 * 7`, in the simple protocol, by a user who needs no password."""
    parameters = b"user\0postgres\0database\0postgres\0\0"
    peer.sendall(struct.pack("!II", 8 + len(parameters), 3 << 16) + parameters)
    asked = False
    while True:
        kind, length = struct.unpack("!cI", exactly(peer, 5))
        if not 4 <= length < 65536:
            raise Wrong("no message of PostgreSQL")
        body = exactly(peer, length - 4)
        if kind == b"E":
            return False  # it is starting up
        if kind == b"D":
            return body.endswith(b"42")
        if kind == b"Z" and not asked:
            query = b"select 6 * 7\0"
            peer.sendall(b"Q" + struct.pack("!I", 4 + len(query)) + query)
            asked = True


def mysql_packet(peer):
    """The number and the contents of one."""
    header = exactly(peer, 4)
    return header[3], exactly(peer, int.from_bytes(header[:3], "little"))


def mysql_send(peer, number, body):
    peer.sendall(len(body).to_bytes(3, "little") + bytes([number % 256]) + body)


def mysql(peer, _):
    """`select 6 * 7`, by the user `hello` who needs no password."""
    number, greeting = mysql_packet(peer)
    if greeting[:1] != b"\x0a":
        return False  # not version 10 of the protocol, or an error
    # CLIENT_LONG_PASSWORD, PROTOCOL_41, SECURE_CONNECTION and PLUGIN_AUTH; utf8mb4; an empty answer to its challenge.
    login = struct.pack("<IIB23x", 0x88201, 1 << 24, 45) + b"hello\0" + b"\0" + b"mysql_native_password\0"
    mysql_send(peer, number + 1, login)
    number, answer = mysql_packet(peer)
    if answer[:1] == b"\xfe":  # another plugin, to which no password is as empty
        mysql_send(peer, number + 1, b"")
        number, answer = mysql_packet(peer)
    if answer[:1] != b"\0":
        return False
    mysql_send(peer, 0, b"\x03select 6 * 7")
    # How many columns, what they are and the end of that, then the row: its length and its text.
    for _ in range(3):
        number, answer = mysql_packet(peer)
        if answer[:1] == b"\xff":
            return False
    return mysql_packet(peer)[1] == b"\x0242"


def mqtt(peer, _):
    """A message comes back to the client that subscribed to its topic."""
    peer.sendall(b"\x10\x11\0\x04MQTT\x04\x02\0\x3c\0\x05hello")  # CONNECT, 3.1.1, a clean session
    if exactly(peer, 4) != b"\x20\x02\0\0":
        return False
    peer.sendall(b"\x82\x08\0\x01\0\x03a/b\0")  # SUBSCRIBE, at most once
    if exactly(peer, 5) != b"\x90\x03\0\x01\0":
        return False
    message = b"\x30\x0a\0\x03a/bworld"  # PUBLISH
    peer.sendall(message)
    return exactly(peer, len(message)) == message


def amqp_method(peer):
    """Class and method of the next one; heartbeats are passed over."""
    while True:
        kind, _, size = struct.unpack("!BHI", exactly(peer, 7))
        if kind not in (1, 8) or not (4 if kind == 1 else 0) <= size < 1 << 20:
            raise Wrong("no frame of AMQP")
        body = exactly(peer, size + 1)
        if body[-1:] != b"\xce":
            raise Wrong("no frame of AMQP")
        if kind == 1:
            return struct.unpack("!HH", body[:4])


def amqp_send(peer, method, arguments):
    body = struct.pack("!HH", *method) + arguments
    peer.sendall(struct.pack("!BHI", 1, 0, len(body)) + body + b"\xce")


def amqp(peer, _):
    """Version 0-9-1: the virtual host `/` is open to `guest`."""
    peer.sendall(b"AMQP\0\0\x09\x01")
    if amqp_method(peer) != (10, 10):
        return False
    login = b"\0guest\0guest"
    # No properties, PLAIN, the login, a locale.
    amqp_send(peer, (10, 11), struct.pack("!I", 0) + b"\x05PLAIN" + struct.pack("!I", len(login)) + login + b"\x05en_US")
    if amqp_method(peer) != (10, 30):
        return False
    amqp_send(peer, (10, 31), struct.pack("!HIH", 1, 131072, 0))  # channels, the largest frame, no heartbeats
    amqp_send(peer, (10, 40), b"\x01/\0\0")
    return amqp_method(peer) == (10, 41)


ASK = {
    "http": http, "redis": redis, "memcached": memcached, "postgres": postgres, "mysql": mysql, "mqtt": mqtt, "amqp": amqp,
}
