#!/usr/bin/env python3
"""Checks the manifests, the chart and the rights of weir-gateway against a real API server.

    INSTEAD=tools/conformance/manifests.py tools/conformance.sh

The API server must accept each object in a dry run with strict validation. The chart is rendered by `helm`, or the program of the
variable HELM, with several values. The account of the manifests must have exactly the rights that are listed here.
"""
import http.client
import os
import re
import shutil
import ssl
import subprocess
import sys
from urllib.parse import urlsplit

SERVER = urlsplit(os.environ["SERVER"])
PLURALS = {"IngressClass": "ingressclasses", "GatewayClass": "gatewayclasses"}
CLUSTER = {"Namespace", "ClusterRole", "ClusterRoleBinding", "IngressClass", "GatewayClass"}
VALUES = [[], ["kind=DaemonSet", "hostNetwork=true", "addressPool={192.0.2.1,192.0.2.2}", "service.enabled=false"],
          ["ingress.enabled=false", "gatewayClass.create=false", "service.type=ClusterIP", "address=192.0.2.1"],
          ["podDisruptionBudget.enabled=false", "replicas=1", "extraArgs={--delay,50}", "image.tag=test"]]
ALLOWED = [("GET", path) for path in (
    "/api/v1/services", "/api/v1/secrets", "/api/v1/configmaps", "/api/v1/namespaces", "/apis/discovery.k8s.io/v1/endpointslices",
    "/apis/networking.k8s.io/v1/ingresses", "/apis/networking.k8s.io/v1/ingressclasses",
    *(f"/apis/gateway.networking.k8s.io/v1/{kind}" for kind in ("gatewayclasses", "gateways", "httproutes", "grpcroutes")))]
ALLOWED += [("POST", "/apis/coordination.k8s.io/v1/namespaces/weir-gateway/leases"), ("POST", "/api/v1/namespaces/default/events")]
FORBIDDEN = [("POST", "/api/v1/namespaces/default/secrets"), ("POST", "/api/v1/namespaces/default/configmaps"),
             ("DELETE", "/api/v1/namespaces/default"), ("GET", "/api/v1/pods"), ("GET", "/api/v1/namespaces/default/secrets/any"),
             ("POST", "/apis/apps/v1/namespaces/default/deployments"), ("GET", "/apis/coordination.k8s.io/v1/leases"),
             ("PATCH", "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes/any"),
             ("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases"),
             ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles")]


def send(token, method, path, body=None, kind="application/json"):
    connection = http.client.HTTPSConnection(SERVER.hostname, SERVER.port, timeout=15, context=ssl._create_unverified_context())
    connection.request(method, path, body, {"Authorization": "Bearer " + token, "Content-Type": kind})
    answer = connection.getresponse()
    return answer.status, answer.read().decode(errors="replace")


def documents(text):
    for document in re.split(r"^---\s*$", text, flags=re.M):
        field = lambda name, part: (re.search(rf"^{name}: *(\S+)", part, re.M) or [None, ""])[1].strip("\"'")
        if field("kind", document):
            metadata = re.sub("^  ", "", (re.search(r"^metadata:\n((?: .*\n|\n)*)", document, re.M) or [None, ""])[1], flags=re.M)
            yield document, field("apiVersion", document), field("kind", document), field("name", metadata), field("namespace", metadata)


def check(title, text):
    count = 0
    for document, version, kind, name, namespace in documents(text):
        root = "/api/v1" if version == "v1" else "/apis/" + version
        place = "" if kind in CLUSTER else f"/namespaces/{namespace or 'default'}"
        path = f"{root}{place}/{PLURALS.get(kind, kind.lower() + 's')}/{name}"
        query = "?fieldManager=check&force=true&dryRun=All&fieldValidation=Strict"
        status, answer = send("admin-token", "PATCH", path + query, document, "application/apply-patch+yaml")
        if status not in (200, 201):
            sys.exit(f"{title}: {kind} {name}: {status} {answer[:600]}")
        count += 1
    print(f"{title}: {count} objects accepted")


def main():
    for name in ("rbac", "classes", "deployment"):
        check(f"{name}.yaml", open(f"packaging/kubernetes/{name}.yaml").read())
    helm = os.environ.get("HELM") or shutil.which("helm")
    for values in VALUES if helm else []:
        words = [word for value in ["image.repository=registry.test/weir-gateway", *values] for word in ("--set", value)]
        command = [helm, "template", "release", "packaging/helm/weir-gateway", "--namespace", "weir-gateway",
                   "--kube-version", "1.37.2", *words]
        check(" ".join(["chart", *values]), subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    for expected, requests in ((True, ALLOWED), (False, FORBIDDEN)):
        for method, path in requests:
            kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
            status, answer = send("gateway-token", method, path + "?dryRun=All" * (method != "GET"), None if method == "GET" else "{}", kind)
            # An empty object is refused after the rights are checked.
            if (status != 403) != expected:
                sys.exit(f"{method} {path}: {status} {answer[:300]}")
    print(f"rights: {len(ALLOWED)} requests permitted, {len(FORBIDDEN)} refused")


main()
