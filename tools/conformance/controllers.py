#!/usr/bin/env python3
"""Runs HAProxy's ingress controllers with Weir in the place of HAProxy, on a real API server, and changes Ingresses under load.

    INSTEAD=tools/conformance/controllers.py tools/conformance.sh

HAPROXY_INGRESS names a folder with the sources of haproxy-ingress and its program `haproxy-ingress`, KUBERNETES_INGRESS the program
of HAProxy Technologies' controller. A controller without a variable is skipped. Each change must reach the data path, no request
may fail, and with `reload in-place` all changes must be served by the first worker.
"""
import base64
import http.client
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from pods import Api, Refused  # noqa: E402

WORK, WEIR, ECHO = (os.environ[name] for name in ("WORK", "WEIR", "ECHO"))
SPACE, HOST, CHANGES = "controllers", "10.200.0.1", int(os.environ.get("CHANGES", "20"))
NETWORKING = "/apis/networking.k8s.io/v1"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{SPACE}/endpointslices"
INGRESSES = f"{NETWORKING}/namespaces/{SPACE}/ingresses"
api = Api(os.environ["SERVER"], "admin-token")


def send(method, path, body):
    try:
        return api.send(method, path, body)
    except Refused as refused:
        if refused.status != 409:
            raise


def meta(name, **more):
    return {"metadata": {"namespace": SPACE, "name": name, **more}}


def slice_of(name, ports):
    """The endpoints of a Service: an address for each port, because a slice has only one port."""
    return {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            **meta(name, labels={"kubernetes.io/service-name": name}), "ports": [{"name": "p", "port": ports[0], "protocol": "TCP"}],
            "endpoints": [{"addresses": [f"10.200.0.{1 + number}"], "conditions": {"ready": True}} for number, _ in enumerate(ports)]}


def service(name, port):
    send("POST", f"/api/v1/namespaces/{SPACE}/services",
         {"apiVersion": "v1", "kind": "Service", **meta(name), "spec": {"ports": [{"name": "p", "port": 80, "targetPort": port}]}})
    send("POST", SLICES, slice_of(name, [port]))


def ingress(name, path, backend, kind, secret=None):
    spec = {"ingressClassName": kind, "rules": [{"host": "a.test", "http": {"paths": [
        {"path": path, "pathType": "Prefix", "backend": {"service": {"name": backend, "port": {"number": 80}}}}]}}]}
    if secret:
        spec["tls"] = [{"hosts": ["a.test"], "secretName": secret}]
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", **meta(name), "spec": spec}


def certificate():
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=a.test", "-addext",
                    "subjectAltName=DNS:a.test", "-keyout", f"{WORK}/a.key", "-out", f"{WORK}/a.crt"], check=True, stderr=subprocess.DEVNULL)
    data = {f"tls.{part}": base64.b64encode(open(f"{WORK}/a.{part}", "rb").read()).decode() for part in ("crt", "key")}
    return {"apiVersion": "v1", "kind": "Secret", **meta("tls"), "type": "kubernetes.io/tls", "data": data}


def get(port, path):
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path, headers={"Host": "a.test"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error)
    finally:
        connection.close()


def wait_for(ask_for, is_there, limit=90):
    begun = time.monotonic()
    while True:
        answer = ask_for()
        if is_there(answer):
            return time.monotonic() - begun
        if time.monotonic() - begun > limit:
            raise SystemExit(f"gave up: {answer}")
        time.sleep(0.02)


def ask(path, command):
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(10)
    stream.connect(path)
    stream.sendall(command.encode() + b"\n")
    answer = b""
    while part := stream.recv(65536):
        answer += part
    return answer.decode(errors="replace")


class Load(threading.Thread):
    """Requests on one connection after the other."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.count, self.failures, self.ended = port, 0, [], False

    def run(self):
        while not self.ended:
            status, text = get(self.port, "/load")
            self.count += 1
            if status != 200:
                self.failures.append((status, text[:80]))
            time.sleep(0.005)


def changes(kind, port, tls_port, master):
    """Makes the changes, and returns the times."""
    wait_for(lambda: get(port, "/load"), lambda answer: answer[0] == 200)
    workers = lambda: re.findall(r"^(\d+)\s+worker", ask(master, "show proc"), re.M)
    first, load = workers(), Load(port)
    load.start()
    times = {"path": [], "endpoints": [], "new Service": []}
    for number in range(CHANGES):
        send("PUT", f"{INGRESSES}/moving", ingress("moving", f"/moving/{number}", "one", kind))
        times["path"].append(wait_for(lambda: get(port, f"/moving/{number}"), lambda answer: answer[0] == 200))
        name, own = ("two", 3100) if number % 2 == 0 else ("one", 3000)
        send("PUT", f"{SLICES}/swing", slice_of("swing", [own]))
        times["endpoints"].append(wait_for(lambda: get(port, "/swing"), lambda answer: answer[0] == 200 and f'"{name}"' in answer[1]))
        if number % 5 == 0:
            service(f"new-{number}", 3000)
            send("POST", INGRESSES, ingress(f"new-{number}", f"/new/{number}", f"new-{number}", kind))
            times["new Service"].append(wait_for(lambda: get(port, f"/new/{number}"), lambda answer: answer[0] == 200))
    send("POST", f"/api/v1/namespaces/{SPACE}/secrets", certificate())
    send("PUT", f"{INGRESSES}/moving", ingress("moving", "/moving", "one", kind, "tls"))
    curl = ["curl", "-s", "--resolve", f"a.test:{tls_port}:{HOST}", "-o", "/dev/null", "-w", "%{http_code} %{ssl_verify_result}",
            "--cacert", f"{WORK}/a.crt", f"https://a.test:{tls_port}/moving"]
    wait_for(lambda: subprocess.run(curl, capture_output=True, text=True).stdout, lambda answer: answer == "200 0")
    load.ended = True
    load.join()
    last = workers()
    print(f"{kind}: workers before {first}, afterwards {last}; {load.count} requests, failures: {load.failures[:5]}")
    for what, all_times in times.items():
        print(f"{kind}: {what}: {len(all_times)} changes, median {sorted(all_times)[len(all_times) // 2] * 1000:.0f} ms")
    print(ask(master, "show proc"), flush=True)


def prepare(kind, controller):
    send("POST", NETWORKING + "/ingressclasses",
         {"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": kind}, "spec": {"controller": controller}})
    for name in ("load", "moving", "swing"):
        backend = "swing" if name == "swing" else "one"
        path = f"{INGRESSES}/{name}"
        try:
            api.send("DELETE", path)
        except Refused:
            pass
        send("POST", INGRESSES, ingress(name, f"/{name}", backend, kind))


def haproxy_ingress(folder):
    # The path of the files must not have a dot.
    root, kind = tempfile.mkdtemp(prefix="haproxy-ingress-"), "haproxy-ingress"
    for part in ("etc/haproxy/maps", "var/run/haproxy", "var/lib/haproxy/crt", "tmp"):
        os.makedirs(f"{root}/{part}", exist_ok=True)
    shutil.copytree(f"{folder}/rootfs/etc/lua", f"{root}/etc/haproxy/lua", dirs_exist_ok=True)
    # A package of the controller's image, which only authorization uses.
    with open(f"{root}/etc/haproxy/lua/json.lua", "w") as file:
        file.write("return {}")
    os.makedirs(f"{root}/bin", exist_ok=True)
    if not os.path.exists(f"{root}/bin/haproxy"):
        os.symlink(WEIR, f"{root}/bin/haproxy")
    prepare(kind, f"haproxy-ingress.github.io/controller/{kind}")
    send("POST", f"/api/v1/namespaces/{SPACE}/configmaps",
         {"apiVersion": "v1", "kind": "ConfigMap", **meta("haproxy-ingress"),
          "data": {"config-global": "reload in-place", "http-port": "8180", "https-port": "8543", "ssl-redirect": "false"}})
    environment = {**os.environ, "PATH": f"{root}/bin:{os.environ['PATH']}", "POD_NAMESPACE": SPACE}
    program = subprocess.Popen(
        [f"{folder}/haproxy-ingress", f"--kubeconfig={os.environ['KUBECONFIG']}", f"--local-filesystem-prefix={root}",
         f"--controller-class={kind}", f"--configmap={SPACE}/haproxy-ingress", "--update-status=false", "--master-worker=true",
         "--watch-gateway=false", "--ip-mode=v4"],
        cwd=folder, env=environment, stdout=open(f"{WORK}/haproxy-ingress.log", "w"), stderr=subprocess.STDOUT)
    try:
        changes(kind, 8180, 8543, f"{root}/var/run/haproxy/master.sock")
    finally:
        program.terminate()
        program.wait(60)
        shutil.rmtree(root)


def kubernetes_ingress(program):
    root, kind = f"{WORK}/kubernetes-ingress", "kubernetes-ingress"
    for part in ("etc", "run"):
        os.makedirs(f"{root}/{part}", exist_ok=True)
    prepare(kind, f"haproxy.org/ingress-controller/{kind}")
    send("POST", f"/api/v1/namespaces/{SPACE}/configmaps",
         {"apiVersion": "v1", "kind": "ConfigMap", **meta("kubernetes-ingress"),
          "data": {"global-config-snippet": "reload in-place", "ssl-redirect": "false"}})
    environment = {**os.environ, "POD_NAME": "kubernetes-ingress-0", "POD_NAMESPACE": SPACE}
    process = subprocess.Popen(
        [program, "--external", f"--kubeconfig={os.environ['KUBECONFIG']}", f"--program={WEIR}", f"--config-dir={root}/etc",
         f"--runtime-dir={root}/run", f"--configmap={SPACE}/kubernetes-ingress", f"--ingress.class={kind}", "--http-bind-port=8280",
         "--https-bind-port=8643", "--disable-quic", "--disable-ingress-status-update", "--healthz-bind-port=1042", "--stats-bind-port=1024",
         "--sync-period=100ms"],
        env=environment, stdout=open(f"{WORK}/kubernetes-ingress.log", "w"), stderr=subprocess.STDOUT)
    try:
        changes(kind, 8280, 8643, f"{root}/run/haproxy-master.sock")
    finally:
        process.terminate()
        process.wait(60)


def main():
    programs = []
    for port, name in ((3000, "one"), (3100, "two")):
        environment = {**os.environ, "HTTP_PORT": str(port), "HTTPS_PORT": str(port + 1), "H2C_PORT": str(port + 2), "POD_NAME": name,
                       "NAMESPACE": SPACE}
        programs.append(subprocess.Popen([ECHO], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    send("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    service("one", 3000)
    service("swing", 3000)
    try:
        if folder := os.environ.get("HAPROXY_INGRESS"):
            haproxy_ingress(folder)
        if program := os.environ.get("KUBERNETES_INGRESS"):
            kubernetes_ingress(program)
    finally:
        for process in programs:
            process.terminate()


main()
