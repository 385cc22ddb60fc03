"""The HTTP/1.1 server behind the proxy: one thread for each connection, and one path for each kind of exchange."""

import base64
import hashlib
import pathlib
import socket
import socketserver

PAGE = pathlib.Path(__file__).with_name("page.html")
PIECE = bytes(97 + at % 251 % 26 for at in range(251 * 256))


def pattern(length):
    """Returns a body of this length. Its bytes depend on their position."""
    return (PIECE * (length // len(PIECE) + 1))[:length]


class Exchange(socketserver.StreamRequestHandler):
    def handle(self):
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while self.exchange():
            pass

    def exchange(self):
        line = self.rfile.readline()
        if not line.strip():
            return False
        method, path, _ = line.decode().split(" ", 2)
        fields = self.fields()
        if path == "/ws":
            return self.websocket(fields)
        body, trailers = self.body(fields)
        if path == "/page":
            self.answer(PAGE.read_bytes(), method, [("content-type", "text/html")])
        elif path == "/result":
            self.server.result.append(body.decode())
            self.answer(b"", method)
        elif path.startswith("/bytes/"):
            self.answer(pattern(int(path[7:])), method)
        elif path == "/echo":
            mode = fields.get("transfer-encoding", "length").lower()
            self.answer(body, method, [("x-framing", mode)])
        elif path == "/trailers":
            self.chunked(body, trailers)
        elif path == "/interim":
            self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n")
            self.answer(b"final", method)
        elif path == "/etag" and fields.get("if-none-match") == '"one"':
            self.wfile.write(b'HTTP/1.1 304 Not Modified\r\nETag: "one"\r\n\r\n')
        elif path == "/etag":
            self.answer(b"one", method, [("etag", '"one"')])
        elif path == "/cut":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\npart")
            return False
        else:
            self.answer(b"", method)
        return True

    def fields(self):
        all = {}
        while line := self.rfile.readline().strip():
            name, value = line.decode("latin-1").split(":", 1)
            all[name.lower()] = value.strip()
        return all

    def body(self, fields):
        """Returns the request's body and trailers."""
        if "chunked" not in fields.get("transfer-encoding", ""):
            return self.rfile.read(int(fields.get("content-length", 0))), {}
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        return b"".join(pieces), self.fields()

    def answer(self, body, method, fields=()):
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in fields) + "\r\n"
        self.wfile.write(head.encode() + (b"" if method == "HEAD" else body))

    def chunked(self, body, trailers):
        """Returns the body with the request's trailers, and one more."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-last\r\n\r\n")
        if body:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
        lines = "".join(f"{name}: {value}\r\n" for name, value in trailers.items())
        self.wfile.write(f"0\r\n{lines}x-last: yes\r\n\r\n".encode())

    def websocket(self, fields):
        key = fields["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        self.wfile.write(f"{head}Sec-WebSocket-Accept: {accept}\r\n\r\n".encode())
        # Repeats short masked text frames.
        while head := self.rfile.read(2):
            length, mask = head[1] & 0x7F, self.rfile.read(4)
            data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self.rfile.read(length)))
            self.wfile.write(bytes([head[0], length]) + data)
        return False


class Origin(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Exchange)
        # What the page has reported.
        self.result = []

    def handle_error(self, request, client_address):
        """The proxy may close connections at any time."""
