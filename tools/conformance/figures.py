#!/usr/bin/env python3
"""Measures weir-gateway with 1,000 routes and 5,000 endpoints on a real API server, under load by clients of five protocols.

    INSTEAD=tools/conformance/figures.py tools/conformance.sh

It makes CHANGES (1000) changes, one after the other, for at most LIMIT (3600) seconds, waits until each has reached the data path, and
prints the times, the memory of the controller, and the failed requests. The clients of HTTP/1, HTTP/2 and HTTP/3 are `weir load`; the one of gRPC is grpc-go's
`interop_client`, if the variable GRPC names the folder with it and the server.
"""
import base64
import http.client
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from pods import Api, Refused  # noqa: E402

WORK, SERVER, WEIR, ECHO = (os.environ[name] for name in ("WORK", "SERVER", "WEIR", "ECHO"))
ROUTES = int(os.environ.get("ROUTES", "1000"))
ENDPOINTS = 5
CHANGES = int(os.environ.get("CHANGES", "1000"))
LIMIT = int(os.environ.get("LIMIT", "3600"))
SPACE = "figures"
GATEWAY = "/apis/gateway.networking.k8s.io/v1"
HOST = "10.200.0.1"
GRPC = os.environ.get("GRPC")
api = Api(SERVER, "admin-token")


def create(path, body):
    try:
        return api.send("POST", path, body)
    except Refused as refused:
        if refused.status != 409:
            raise


def meta(name, **more):
    return {"metadata": {"namespace": SPACE, "name": name, **more}}


def service(name, port, protocol=None):
    spec = {"ports": [{"name": "p", "port": 80, "targetPort": port}]}
    if protocol:
        spec["ports"][0]["appProtocol"] = protocol
    create(f"/api/v1/namespaces/{SPACE}/services", {"apiVersion": "v1", "kind": "Service", **meta(name), "spec": spec})


def slice_of(name, port, addresses):
    return {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            **meta(name, labels={"kubernetes.io/service-name": name}), "ports": [{"name": "p", "port": port}],
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses]}


def route(name, path, backend, kind="HTTPRoute"):
    rule = {"backendRefs": [{"name": backend, "port": 80}]}
    if kind == "HTTPRoute":
        rule["matches"] = [{"path": {"type": "PathPrefix", "value": path}}]
    else:
        rule["matches"] = [{"method": {"service": path}}]
    return {"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, **meta(name),
            "spec": {"parentRefs": [{"name": "web"}], "rules": [rule]}}


SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{SPACE}/endpointslices"
HTTP_ROUTES = f"{GATEWAY}/namespaces/{SPACE}/httproutes"


def prepare():
    create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=figures", "-keyout",
                    f"{WORK}/tls.key", "-out", f"{WORK}/tls.crt"], check=True, stderr=subprocess.DEVNULL)
    data = {f"tls.{part}": base64.b64encode(open(f"{WORK}/tls.{part}", "rb").read()).decode() for part in ("crt", "key")}
    create(f"/api/v1/namespaces/{SPACE}/secrets",
           {"apiVersion": "v1", "kind": "Secret", **meta("tls"), "type": "kubernetes.io/tls", "data": data})
    listeners = [{"name": "http", "port": 8080, "protocol": "HTTP"},
                 {"name": "https", "port": 8443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "tls"}]}}]
    create(f"{GATEWAY}/namespaces/{SPACE}/gateways",
           {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", **meta("web"),
            "spec": {"gatewayClassName": "weir", "listeners": listeners}})
    # The addresses of the endpoints.
    subprocess.run(["ip", "route", "add", "local", "10.210.0.0/16", "dev", "lo"], check=True)
    begun = time.monotonic()
    for number in range(ROUTES):
        name = f"app-{number}"
        service(name, 3000)
        create(SLICES, slice_of(name, 3000, [HOST] + [f"10.210.{number // 250}.{1 + i}" for i in range(ENDPOINTS - 1)]))
        create(HTTP_ROUTES, route(name, f"/{name}", name))
    for name, port, protocol in (("echo", 3000, None), ("probe", 3100, None), ("socket", 3000, "kubernetes.io/ws"), ("calls", 3300, "kubernetes.io/h2c")):
        service(name, port, protocol)
        create(SLICES, slice_of(name, port, [HOST]))
    create(HTTP_ROUTES, route("echo", "/echo", "echo"))
    create(HTTP_ROUTES, route("probe", "/probe", "probe"))
    create(HTTP_ROUTES, route("socket", "/ws", "socket"))
    create(f"{GATEWAY}/namespaces/{SPACE}/grpcroutes", route("calls", "grpc.testing.TestService", "calls", "GRPCRoute"))
    print(f"{ROUTES} routes and {ROUTES * ENDPOINTS} endpoints created in {time.monotonic() - begun:.1f} s", flush=True)


def address():
    while True:
        status = api.send("GET", f"{GATEWAY}/namespaces/{SPACE}/gateways/web").get("status", {})
        if status.get("addresses"):
            return status["addresses"][0]["value"]
        time.sleep(0.2)


class Probe:
    """Requests on one kept connection."""

    def __init__(self, host):
        self.connection = http.client.HTTPConnection(host, 8080, timeout=10)

    def get(self, path):
        try:
            self.connection.request("GET", path)
            answer = self.connection.getresponse()
            text = answer.read().decode(errors="replace")
            return answer.status, text
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            return 0, str(error)

    def time_until(self, path, is_there):
        begun = time.monotonic()
        while True:
            answer = self.get(path)
            if is_there(*answer):
                return time.monotonic() - begun
            if time.monotonic() - begun > 60:
                raise SystemExit(f"{path}: {answer}")
            time.sleep(0.002)


class Messages(threading.Thread):
    """A WebSocket that stays open, and a message with its echo after each other."""

    def __init__(self, host):
        super().__init__(daemon=True)
        self.host, self.count, self.failures, self.ended = host, 0, [], False

    def run(self):
        try:
            stream = socket.create_connection((self.host, 8080), 10)
            stream.sendall(b"GET /ws HTTP/1.1\r\nHost: figures\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                           b"Sec-WebSocket-Version: 13\r\nOrigin: http://figures\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
            file = stream.makefile("rb")
            if b" 101 " not in file.readline():
                raise OSError("no 101")
            while file.readline().strip():
                pass
            while not self.ended:
                text = b"message %d" % self.count
                stream.sendall(b"\x81" + bytes([0x80 | len(text)]) + b"\0\0\0\0" + text)
                head = file.read(2)
                if len(head) < 2:
                    raise OSError("closed")
                length = head[1] & 127
                if length == 126:
                    length = struct.unpack(">H", file.read(2))[0]
                if not file.read(length):
                    raise OSError("closed")
                self.count += 1
                time.sleep(0.005)
        except OSError as error:
            self.failures.append(str(error))


def load(*words):
    return subprocess.Popen([WEIR, "load", "-d", "3600", "-u", "2", "-R", "100", "-ll", "-hs", *words], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def usage(program):
    """The memory in MB and the CPU time in seconds."""
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{process}/cmdline").read().split("\0")
            if words[0] == program and WORK in " ".join(words):
                status = open(f"/proc/{process}/status").read()
                figures = {key: int(status.split(key + ":")[1].split()[0]) // 1024 for key in ("VmRSS", "VmHWM")}
                times = open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()
                return figures, (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError):
            continue


def summary(name, times):
    times = sorted(times)
    pick = lambda share: times[min(len(times) - 1, int(len(times) * share))] * 1000
    print(f"{name}: {len(times)} changes, median {statistics.median(times) * 1000:.0f} ms, 95 % {pick(.95):.0f} ms, "
          f"longest {times[-1] * 1000:.0f} ms", flush=True)


def metric(name):
    connection = http.client.HTTPConnection("127.0.0.1", 9902)
    connection.request("GET", "/metrics")
    for line in connection.getresponse().read().decode().splitlines():
        if line.startswith(f"weir_gateway_{name} "):
            return float(line.split()[1])


def main():
    programs = []
    for port, name in ((3000, "one"), (3100, "first"), (3200, "second")):
        environment = {**os.environ, "HTTP_PORT": str(port), "HTTPS_PORT": str(port + 1), "H2C_PORT": str(port + 2), "POD_NAME": name,
                       "NAMESPACE": SPACE}
        programs.append(subprocess.Popen([ECHO], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    if GRPC:
        programs.append(subprocess.Popen([f"{GRPC}/grpc-interop-server", "-port", "3300"], stderr=subprocess.DEVNULL))
    prepare()
    host = address()
    probe = Probe(host)
    print(f"traffic {probe.time_until(f'/app-{ROUTES - 1}', lambda status, _: status == 200):.1f} s after the last object")
    probe.time_until("/probe", lambda status, _: status == 200)
    # Without an upgrade, the service refuses the request.
    probe.time_until("/ws", lambda status, _: status not in (0, 404, 500, 503))
    print("memory after the start, in MB:", usage(os.environ["GATEWAY"])[0], flush=True)
    loads = {"HTTP/1.1": load("-1", f"http://{host}:8080/echo"), "HTTP/1.1, a connection each": load("-r", "1", "-1", f"http://{host}:8080/echo"),
             "HTTP/2": load("-2", f"https://{host}:8443/echo"), "HTTP/3": load(f"quic://{host}:8443/echo")}
    socket_load = Messages(host)
    socket_load.start()
    calls = None
    if GRPC:
        calls = subprocess.Popen([f"{GRPC}/grpc-interop-client", "-server_host", host, "-server_port", "8080", "-test_case", "rpc_soak",
                                  "-soak_iterations", "1000000", "-soak_max_failures", "0", "-soak_overall_timeout_seconds", "3600",
                                  "-soak_min_time_ms_between_rpcs", "10", "-soak_request_size", "100",
                                  "-soak_response_size", "100", "-soak_per_iteration_max_acceptable_latency_ms", "10000"],
                                 stdout=open(f"{WORK}/grpc.log", "w"), stderr=subprocess.STDOUT)
    time.sleep(3)
    reloads = metric("reloads_total")
    programs_before = {program: usage(program)[1] for program in (os.environ["GATEWAY"], WEIR)}
    endpoints, routes, backends = [], [], []
    last = time.monotonic() + LIMIT
    for change in range(CHANGES):
        if time.monotonic() > last:
            break
        kind = change % 3
        if kind == 0:
            name, port = ("second", 3200) if change % 2 == 0 else ("first", 3100)
            api.send("PUT", f"{SLICES}/probe", slice_of("probe", port, [HOST]))
            endpoints.append(probe.time_until("/probe", lambda status, text: status == 200 and f'"{name}"' in text))
        elif kind == 1:
            body = route("moving", f"/moving/{change}", "echo")
            if change == 1:
                api.send("POST", HTTP_ROUTES, body)
            else:
                api.send("PATCH", f"{HTTP_ROUTES}/moving", {"spec": body["spec"]}, "application/merge-patch+json")
            routes.append(probe.time_until(f"/moving/{change}", lambda status, _: status == 200))
        else:
            # The route of the load: its requests move between two services with the same endpoints.
            name = "echo" if change % 2 == 0 else "app-1"
            api.send("PATCH", f"{HTTP_ROUTES}/echo", {"spec": route("echo", "/echo", name)["spec"]}, "application/merge-patch+json")
            api.send("PATCH", f"{HTTP_ROUTES}/moving", {"spec": route("moving", f"/then/{change}", "echo")["spec"]}, "application/merge-patch+json")
            backends.append(probe.time_until(f"/then/{change}", lambda status, _: status == 200))
    summary("endpoints of a Service", endpoints)
    summary("path of an HTTPRoute", routes)
    summary("backend of the loaded HTTPRoute, and a path", backends)
    print(f"reloads: {metric('reloads_total') - reloads:.0f}")
    for series in ("translation_seconds", "apply_seconds"):
        print(f"{series}: mean {metric(series + '_sum') / metric(series + '_count') * 1000:.0f} ms")
    for name, program in (("controller", os.environ["GATEWAY"]), ("proxy", WEIR)):
        memory, cpu = usage(program)
        print(f"{name}: memory in MB {memory}, CPU time for each change {(cpu - programs_before[program]) * 1000 / len(endpoints + routes + backends):.0f} ms")
    socket_load.ended = True
    socket_load.join(5)
    print(f"WebSocket: {socket_load.count} messages on one connection, failures: {socket_load.failures}")
    for name, process in loads.items():
        process.send_signal(2)
        lines = process.communicate(timeout=30)[0].splitlines()
        statuses = [int(count) for count in next(line for line in reversed(lines) if line[:1] != "#").split()[-5:]]
        report = [line.strip("# ") for line in lines if line.startswith("#")][1:]
        print(f"{name}: 2xx {statuses[1]}, others {sum(statuses) - statuses[1]};", "; ".join(report))
    if calls:
        print("gRPC: the client", "runs without a failed call" if calls.poll() is None else f"ended with {calls.returncode}")
        calls.terminate()
        lines = open(f"{WORK}/grpc.log").read().splitlines()
        print(f"gRPC: {sum('succeeded' in line for line in lines)} calls;", *lines[-1:])
    for process in programs:
        process.terminate()


main()
