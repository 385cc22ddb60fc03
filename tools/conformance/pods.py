#!/usr/bin/env python3
"""A node and the controllers of a small cluster in one program, for `tools/conformance.sh`.

Deployments become pods, pods become processes in separate network namespaces, Services become EndpointSlices, and namespaces that
are deleted are emptied. The logs of pods are served as by a kubelet, for tests that read them. It looks at the API server five times a second, because that is simpler than watches and fast
enough for tests. Images are names of local programs.

    pods.py SERVER TOKEN DIRECTORY CERTIFICATE IMAGE=PROGRAM…

CERTIFICATE is a file with a certificate and its key, for the logs.
"""
import base64
import http.client
import http.server
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

NETWORK = "10.200.%d.%d"
GATEWAY = "10.200.0.1"
NODE = "local"
KUBELET = 10250
BRIDGE = "pods"
OWNER = "weir.dev/owner"
TURN = 0.2


class Refused(Exception):
    def __init__(self, status, text):
        super().__init__(f"{status}: {text[:200]}")
        self.status = status


class Api:
    """The API server, by one connection."""

    def __init__(self, server, token):
        url = urlsplit(server)
        context = ssl._create_unverified_context()
        self.connection = http.client.HTTPSConnection(url.hostname, url.port, timeout=15, context=context)
        self.headers = {"Authorization": "Bearer " + token}

    def send(self, method, path, body=None, kind="application/json"):
        headers = dict(self.headers)
        data = None
        if body is not None:
            data = json.dumps(body)
            headers["Content-Type"] = kind
        try:
            self.connection.request(method, path, data, headers)
            answer = self.connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            self.connection.close()
            raise
        if answer.status >= 300:
            raise Refused(answer.status, text.decode(errors="replace"))
        return json.loads(text)

    def list(self, path):
        return self.send("GET", path + "?resourceVersion=0")["items"]

    def delete(self, path):
        try:
            self.send("DELETE", path + "?gracePeriodSeconds=0")
        except Refused as error:
            if error.status != 404:
                raise


def ip(*words):
    subprocess.run(["ip", *words], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def is_leaving(item):
    return "deletionTimestamp" in item["metadata"]


def name_of(item):
    return item["metadata"]["namespace"], item["metadata"]["name"]


class Pod:
    """A pod that runs here."""

    numbers = iter(range(2, 60000))

    def __init__(self, node, pod):
        uid = pod["metadata"]["uid"]
        self.key = name_of(pod)
        number = next(Pod.numbers)
        self.address = NETWORK % (number // 250 + 1, number % 250 + 1)
        self.network = "pod-" + uid[:8]
        self.link = "v" + uid[:8]
        self.folder = os.path.join(node.directory, self.network)
        os.makedirs(self.folder, exist_ok=True)
        ip("netns", "add", self.network)
        ip("link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.network)
        ip("link", "set", self.link, "master", BRIDGE, "up")
        ip("-n", self.network, "link", "set", "lo", "up")
        ip("-n", self.network, "addr", "add", self.address + "/16", "dev", "eth0")
        ip("-n", self.network, "link", "set", "eth0", "up")
        ip("-n", self.network, "route", "add", "default", "via", GATEWAY)
        self.processes = [self.start(node, pod, container) for container in pod["spec"]["containers"]]

    def start(self, node, pod, container):
        image = container["image"].rsplit("/", 1)[-1].split(":")[0].split("@")[0]
        if image not in node.images:
            raise Refused(0, f"there is no program for the image {image}")
        mounts = {}
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
        for mount in container.get("volumeMounts", []):
            mounts[mount["mountPath"]] = self.volume(node.api, pod, volumes.get(mount["name"], {}))

        def local(text):
            for path, folder in mounts.items():
                text = text.replace(path, folder)
            return text

        fields = {"metadata.name": pod["metadata"]["name"], "metadata.namespace": pod["metadata"]["namespace"],
                  "status.podIP": self.address}
        environment = {"PATH": os.environ["PATH"]}
        for variable in container.get("env", []):
            field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            environment[variable["name"]] = fields.get(field) or local(variable.get("value", ""))
        command = container.get("command") or [node.images[image]]
        command = command + [local(word) for word in container.get("args", [])]
        with open(self.folder + ".log", "ab") as log:
            return subprocess.Popen(["ip", "netns", "exec", self.network, *command], env=environment,
                                    stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def log(self):
        with open(self.folder + ".log", "rb") as file:
            return file.read()

    def volume(self, api, pod, volume):
        """Writes the files of a volume. Returns their folder."""
        folder = os.path.join(self.folder, volume.get("name", "none"))
        os.makedirs(folder, exist_ok=True)
        kinds = {"secret": ("secrets", "secretName"), "configMap": ("configmaps", "name")}
        for kind, (plural, field) in kinds.items():
            if kind not in volume:
                continue
            source = volume[kind]
            stored = api.send("GET", f"/api/v1/namespaces/{pod['metadata']['namespace']}/{plural}/{source[field]}")
            data = stored.get("data") or {}
            items = source.get("items") or [{"key": key, "path": key} for key in data]
            for item in items:
                value = data[item["key"]]
                content = base64.b64decode(value) if kind == "secret" else value.encode()
                with open(os.path.join(folder, item["path"]), "wb") as file:
                    file.write(content)
        return folder

    def runs(self):
        return all(process.poll() is None for process in self.processes)

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()
        ip("link", "del", self.link)
        ip("netns", "del", self.network)


class Node:
    def __init__(self, api, directory, images):
        self.api, self.directory, self.images = api, directory, images
        self.running = {}
        self.slices = {}
        os.makedirs(directory, exist_ok=True)

    def register(self):
        """Creates the Node, by which the API server finds the logs."""
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        try:
            self.api.send("POST", "/api/v1/nodes", body)
        except Refused as error:
            if error.status != 409:
                raise
        status = {"addresses": [{"type": "InternalIP", "address": GATEWAY}],
                  "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET}},
                  "conditions": [{"type": "Ready", "status": "True"}]}
        self.api.send("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": status}, "application/merge-patch+json")

    def serve_logs(self, certificate):
        node = self

        class Logs(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                # /containerLogs/NAMESPACE/POD/CONTAINER
                words = self.path.split("?")[0].split("/")
                own = [pod for pod in list(node.running.values()) if [*pod.key] == words[2:4]]
                if words[1] != "containerLogs" or not own:
                    self.send_error(404)
                    return
                text = own[0].log()
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer((GATEWAY, KUBELET), Logs)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def turn(self):
        pods = self.api.list("/api/v1/pods")
        self.run_pods(pods)
        self.scale(self.api.list("/apis/apps/v1/deployments"), pods)
        self.list_endpoints(self.api.list("/api/v1/services"), pods)
        self.empty_namespaces()

    def run_pods(self, pods):
        present = {pod["metadata"]["uid"] for pod in pods if not is_leaving(pod)}
        for uid in [uid for uid in self.running if uid not in present]:
            self.running.pop(uid).stop()
        for pod in pods:
            namespace, name = name_of(pod)
            path = f"/api/v1/namespaces/{namespace}/pods/{name}"
            if is_leaving(pod):
                self.api.delete(path)
                continue
            uid = pod["metadata"]["uid"]
            own = self.running.get(uid)
            if own is None:
                try:
                    own = self.running[uid] = Pod(self, pod)
                except Refused as error:
                    # A Secret may not exist yet.
                    print(f"{namespace}/{name}: {error}", flush=True)
                    continue
            ready = "True" if own.runs() else "False"
            if (pod.get("status", {}).get("podIP"), ready_state(pod)) != (own.address, ready):
                conditions = [{"type": kind, "status": ready} for kind in ("Ready", "ContainersReady")]
                status = {"phase": "Running", "podIP": own.address, "podIPs": [{"ip": own.address}], "conditions": conditions}
                self.api.send("PATCH", path + "/status", {"status": status}, "application/merge-patch+json")

    def scale(self, deployments, pods):
        wanted = {}
        for deployment in deployments:
            if is_leaving(deployment):
                continue
            namespace, name = name_of(deployment)
            uid = deployment["metadata"]["uid"]
            wanted[uid] = deployment
            own = [pod for pod in pods if pod["metadata"].get("annotations", {}).get(OWNER) == uid and not is_leaving(pod)]
            count = deployment["spec"].get("replicas", 1)
            template = deployment["spec"]["template"]
            for _ in range(count - len(own)):
                metadata = {"generateName": f"{name}-{uid.replace('-', '')[:9]}-",
                            "labels": template["metadata"].get("labels", {}), "annotations": {OWNER: uid}}
                spec = dict(template["spec"], nodeName=NODE)
                body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
                self.api.send("POST", f"/api/v1/namespaces/{namespace}/pods", body)
            for pod in own[count:]:
                self.api.delete(f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}")
            ready = sum(ready_state(pod) == "True" for pod in own[:count])
            available = "True" if ready >= count else "False"
            generation = deployment["metadata"].get("generation")
            status = deployment.get("status", {})
            if (status.get("observedGeneration"), status.get("readyReplicas", 0)) != (generation, ready):
                condition = {"type": "Available", "status": available, "reason": "Counted", "message": ""}
                status = {"observedGeneration": generation, "replicas": count, "updatedReplicas": count,
                          "readyReplicas": ready, "availableReplicas": ready, "conditions": [condition]}
                self.api.send("PATCH", f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}/status",
                              {"status": status}, "application/merge-patch+json")
        for pod in pods:
            owner = pod["metadata"].get("annotations", {}).get(OWNER)
            if owner and owner not in wanted and not is_leaving(pod):
                self.api.delete("/api/v1/namespaces/%s/pods/%s" % name_of(pod))

    def list_endpoints(self, services, pods):
        current = {}
        for service in services:
            selector = service["spec"].get("selector")
            if selector and not is_leaving(service):
                current[name_of(service)] = endpoint_slice(service, selector, pods)
        for key, body in current.items():
            if self.slices.get(key) == body:
                continue
            path = f"/apis/discovery.k8s.io/v1/namespaces/{key[0]}/endpointslices"
            try:
                self.api.send("POST", path, body)
            except Refused as error:
                if error.status != 409:
                    raise
                self.api.send("PUT", f"{path}/{body['metadata']['name']}", body)
            self.slices[key] = body
        for key in [key for key in self.slices if key not in current]:
            body = self.slices.pop(key)
            self.api.delete(f"/apis/discovery.k8s.io/v1/namespaces/{key[0]}/endpointslices/{body['metadata']['name']}")

    def empty_namespaces(self):
        for namespace in self.api.list("/api/v1/namespaces"):
            if not is_leaving(namespace):
                continue
            name = namespace["metadata"]["name"]
            for path in self.namespaced():
                try:
                    self.api.send("DELETE", path.replace("NAMESPACE", name) + "?gracePeriodSeconds=0")
                except Refused:
                    pass
            namespace["spec"] = {"finalizers": []}
            try:
                self.api.send("PUT", f"/api/v1/namespaces/{name}/finalize", namespace)
            except Refused as error:
                if error.status not in (404, 409):
                    raise

    def namespaced(self):
        """The paths of all kinds that live in namespaces."""
        groups = [("/api/v1", self.api.send("GET", "/api/v1"))]
        for group in self.api.send("GET", "/apis")["groups"]:
            version = group["preferredVersion"]["groupVersion"]
            groups.append((f"/apis/{version}", self.api.send("GET", f"/apis/{version}")))
        return [f"{root}/namespaces/NAMESPACE/{kind['name']}" for root, found in groups for kind in found["resources"]
                if kind["namespaced"] and "deletecollection" in kind["verbs"]]


def ready_state(pod):
    conditions = pod.get("status", {}).get("conditions") or []
    return next((own["status"] for own in conditions if own["type"] == "Ready"), None)


def endpoint_slice(service, selector, pods):
    namespace, name = name_of(service)
    own = [pod for pod in pods if pod["metadata"]["namespace"] == namespace and not is_leaving(pod)
           and pod.get("status", {}).get("podIP")
           and selector.items() <= pod["metadata"].get("labels", {}).items()]
    own.sort(key=lambda pod: pod["metadata"]["name"])
    ports = []
    for port in service["spec"].get("ports", []):
        target = port.get("targetPort", port["port"])
        if isinstance(target, str):
            named = (known for pod in own for container in pod["spec"]["containers"]
                     for known in container.get("ports", []) if known.get("name") == target)
            target = next((known["containerPort"] for known in named), None)
        if target is not None:
            entry = {"name": port.get("name", ""), "port": target, "protocol": port.get("protocol", "TCP")}
            if "appProtocol" in port:
                entry["appProtocol"] = port["appProtocol"]
            ports.append(entry)
    endpoints = [{"addresses": [pod["status"]["podIP"]],
                  "conditions": {"ready": ready_state(pod) == "True", "serving": ready_state(pod) == "True", "terminating": False},
                  "targetRef": {"kind": "Pod", "namespace": namespace, "name": pod["metadata"]["name"]}} for pod in own]
    metadata = {"name": name + "-pods", "namespace": namespace, "labels": {"kubernetes.io/service-name": name}}
    return {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
            "addressType": "IPv4", "endpoints": endpoints, "ports": ports}


def main():
    server, token, directory, certificate = sys.argv[1:5]
    node = Node(Api(server, token), directory, dict(word.split("=", 1) for word in sys.argv[5:]))
    node.register()
    node.serve_logs(certificate)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        while True:
            begun = time.monotonic()
            try:
                node.turn()
            except (Refused, OSError, http.client.HTTPException) as error:
                # Objects change while they are looked at, and the server may be restarted.
                print(error, flush=True)
            time.sleep(max(0.02, TURN - (time.monotonic() - begun)))
    finally:
        for pod in node.running.values():
            pod.stop()


if __name__ == "__main__":
    main()
