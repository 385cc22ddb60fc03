"""Peers of a proxy for benchmarks: an agent (SPOE), and readers of log lines. Each prints a line when it is ready and ends when it is
killed.

    peers.py agent          answers the queries of `spoe` filters; prints the port
    peers.py datagrams PATH receives the lines of `log PATH`
"""

import os
import select
import socket
import struct
import sys

HELLO, DISCONNECT, NOTIFY = 1, 2, 3
AGENT_HELLO, AGENT_DISCONNECT, ACK = 101, 102, 103
STRING, UINT32 = 8, 3


def number(value):
    """A variable-length integer of the agent protocol."""
    if value < 240:
        return bytes([value])
    out = bytearray([value & 0xFF | 0xF0])
    value = (value - 240) >> 4
    while value >= 128:
        out.append(value & 0xFF | 0x80)
        value = (value - 128) >> 7
    out.append(value)
    return bytes(out)


def take_number(data, at):
    value = data[at]
    at += 1
    if value < 240:
        return value, at
    shift = 4
    while True:
        byte = data[at]
        at += 1
        value += byte << shift
        shift += 7
        if byte < 128:
            return value, at


def text(value):
    return number(len(value)) + value


def frame(kind, stream, frame_id, payload):
    body = bytes([kind]) + b"\x00\x00\x00\x01" + number(stream) + number(frame_id) + payload
    return struct.pack(">I", len(body)) + body


HELLO_ANSWER = frame(
    AGENT_HELLO,
    0,
    0,
    text(b"version") + bytes([STRING]) + text(b"2.0")
    + text(b"max-frame-size") + bytes([UINT32]) + number(16380)
    + text(b"capabilities") + bytes([STRING]) + text(b"pipelining"),
)
# Sets the variable `verdict` of the transaction to 1.
ACTION = bytes([1, 3, 2]) + text(b"verdict") + bytes([UINT32]) + number(1)


def answer(body):
    """The answer to a frame; empty if it has none."""
    kind = body[0]
    stream, at = take_number(body, 5)
    frame_id, at = take_number(body, at)
    if kind == HELLO:
        return HELLO_ANSWER
    if kind == NOTIFY:
        return frame(ACK, stream, frame_id, ACTION)
    return b""


def agent():
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    print(listener.getsockname()[1], flush=True)
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    peers = {}
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == listener.fileno():
                peer, _ = listener.accept()
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peers[peer.fileno()] = (peer, bytearray())
                poll.register(peer, select.EPOLLIN)
                continue
            peer, held = peers[descriptor]
            try:
                data = peer.recv(65536)
            except OSError:
                data = b""
            if not data:
                poll.unregister(peer)
                peer.close()
                del peers[descriptor]
                continue
            held += data
            answers = []
            while len(held) >= 4 and len(held) >= 4 + int.from_bytes(held[:4], "big"):
                size = int.from_bytes(held[:4], "big")
                answers.append(answer(bytes(held[4 : 4 + size])))
                del held[: 4 + size]
            peer.sendall(b"".join(answers))


def datagrams(path):
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    if os.path.exists(path):
        os.unlink(path)
    receiver.bind(path)
    print("ready", flush=True)
    while True:
        receiver.recv(65536)


if sys.argv[1] == "agent":
    agent()
else:
    datagrams(sys.argv[2])
