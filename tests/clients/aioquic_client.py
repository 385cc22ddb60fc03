"""aioquic as the client: `aioquic_client.py PORT`."""

import asyncio
import os
import ssl
import sys

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import StreamReset

from exchanges import check, report
from origin import pattern


class Response:
    def __init__(self):
        self.heads, self.body, self.queue = [], [], asyncio.Queue()
        self.done = asyncio.get_running_loop().create_future()

    @property
    def status(self):
        return int(self.heads[0][b":status"])

    @property
    def bytes(self):
        return b"".join(self.body)


class Client(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.responses = {}

    def quic_event_received(self, event):
        if isinstance(event, StreamReset) and event.stream_id in self.responses:
            done = self.responses[event.stream_id].done
            if not done.done():
                done.set_exception(ConnectionResetError(event.error_code))
        for event in self.http.handle_event(event):
            response = self.responses.get(event.stream_id)
            if response is None:
                continue
            if isinstance(event, HeadersReceived):
                response.heads.append(dict(event.headers))
            elif isinstance(event, DataReceived):
                response.body.append(event.data)
                response.queue.put_nowait(event.data)
            if event.stream_ended and not response.done.done():
                response.done.set_result(None)

    def begin(self, method, path, fields=(), end=True):
        stream = self._quic.get_next_available_stream_id()
        self.responses[stream] = Response()
        head = [(b":method", method), (b":scheme", b"https"), (b":authority", b"localhost"), (b":path", path)]
        self.http.send_headers(stream, head + list(fields), end_stream=end)
        return stream

    async def finish(self, stream):
        self.transmit()
        response = self.responses[stream]
        await asyncio.wait_for(response.done, 120)
        del self.responses[stream]
        return response

    async def get(self, path, method=b"GET", fields=()):
        return await self.finish(self.begin(method, path.encode(), fields))

    async def post(self, path, body, with_length, trailers=()):
        fields = [(b"content-length", str(len(body)).encode())] if with_length else []
        stream = self.begin(b"POST", path.encode(), fields, end=False)
        self.http.send_data(stream, body, end_stream=not trailers)
        if trailers:
            self.http.send_headers(stream, list(trailers), end_stream=True)
        return await self.finish(stream)


async def of_length(client, length):
    response = await client.get(f"/bytes/{length}")
    check(response.status == 200 and response.bytes == pattern(length))


async def post(client, with_length):
    body = pattern(300_000)
    response = await client.post("/echo", body, with_length)
    framing = response.heads[0][b"x-framing"]
    check(response.bytes == body and framing == (b"length" if with_length else b"chunked"))


async def trailers(client):
    response = await client.post("/trailers", b"abc", False, [(b"x-first", b"one")])
    check(response.bytes == b"abc" and response.heads[1] == {b"x-first": b"one", b"x-last": b"yes"})


async def not_modified(client):
    response = await client.get("/etag", fields=[(b"if-none-match", b'"one"')])
    check(response.status == 304 and response.bytes == b"")


async def resets(client):
    stream = client.begin(b"GET", b"/bytes/10000000")
    client.transmit()
    await client.responses[stream].queue.get()
    client._quic.stop_stream(stream, 0x10C)
    client.transmit()
    try:
        await client.get("/cut")
        raise AssertionError("a response that is cut looks complete")
    except ConnectionResetError:
        pass
    await of_length(client, 100)


async def parallel(client):
    await asyncio.gather(*(of_length(client, number * 97) for number in range(100)))


async def row(client):
    for _ in range(10_000):
        await of_length(client, 100)


async def websocket(client):
    fields = [(b":method", b"CONNECT"), (b":protocol", b"websocket"), (b":scheme", b"https")]
    fields += [(b":authority", b"localhost"), (b":path", b"/ws"), (b"sec-websocket-version", b"13")]
    stream = client._quic.get_next_available_stream_id()
    response = client.responses[stream] = Response()
    client.http.send_headers(stream, fields)
    for text in [b"one", b"two"]:
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(text))
        client.http.send_data(stream, bytes([0x81, 0x80 | len(text)]) + mask + masked, end_stream=False)
        client.transmit()
        received = b""
        while len(received) < 2 + len(text):
            received += await asyncio.wait_for(response.queue.get(), 10)
        check(response.status == 200 and received == bytes([0x81, len(text)]) + text)
    client.http.send_data(stream, b"", end_stream=True)
    client.transmit()


EXCHANGES = [
    lambda client: of_length(client, 0),
    lambda client: of_length(client, 100),
    lambda client: of_length(client, 1 << 20),
    lambda client: of_length(client, 100 << 20),
    lambda client: post(client, True),
    lambda client: post(client, False),
    trailers,
    # The library takes the head after an interim response for trailers, and expects a body of the announced length after HEAD.
    None,
    None,
    not_modified,
    resets,
    parallel,
    row,
    websocket,
]


async def main(port):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name="localhost")
    configuration.verify_mode = ssl.CERT_NONE
    configuration.max_data = configuration.max_stream_data = 16 << 20
    for number, exchange in enumerate(EXCHANGES):
        if exchange is None:
            report(number, "-")
            continue
        try:
            async with connect("127.0.0.1", port, configuration=configuration, create_protocol=Client) as client:
                await exchange(client)
            report(number, "ok")
        except Exception as error:
            report(number, f"failed: {type(error).__name__} {error}")


asyncio.run(main(int(sys.argv[1])))
