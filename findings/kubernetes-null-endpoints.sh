#!/usr/bin/env bash
# The Kubernetes API describes `endpoints` of an EndpointSlice as a required list. A slice without endpoints, such as that of a
# Service without pods, is nevertheless written with `"endpoints": null` and `"ports": null` by the Go types of the API server
# (k8s.io/api 0.36.0), because these fields have no `omitempty`. Kubernetes' own Python client (34.1.0) refuses this document with a
# ValueError, so clients must treat `null` as an empty list.
#
# The script writes an empty slice with the Go types and reads it with the Python client. Needs Go, Python 3 with venv, and the
# network. Exits with 1 if the result changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
mkdir module
cat >module/main.go <<'GO'
package main

import (
	"encoding/json"
	"os"

	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func main() {
	slice := discovery.EndpointSlice{
		TypeMeta:    meta.TypeMeta{Kind: "EndpointSlice", APIVersion: "discovery.k8s.io/v1"},
		ObjectMeta:  meta.ObjectMeta{Name: "web-1"},
		AddressType: discovery.AddressTypeIPv4,
	}
	if err := json.NewEncoder(os.Stdout).Encode(slice); err != nil {
		panic(err)
	}
}
GO
export GOPATH=$folder/go GOFLAGS=-modcacherw
{
    cd module
    go mod init example.com/slices
    go get k8s.io/api@v0.36.0 k8s.io/apimachinery@v0.36.0
    go mod tidy
    go build -o ../write .
    cd ..
} >log 2>&1 || { cat log; exit 1; }
python3 -m venv python
python/bin/pip -q --disable-pip-version-check install kubernetes==34.1.0
cat >read.py <<'PYTHON'
import sys

from kubernetes import client


class Response:
    data = sys.stdin.read()


print(Response.data.strip())
try:
    client.ApiClient().deserialize(Response, "V1EndpointSlice")
    sys.exit("the client accepts the slice now")
except ValueError as error:
    print("ValueError:", error)
    sys.exit('"endpoints":null' not in Response.data or "endpoints" not in str(error))
PYTHON
./write | python/bin/python read.py
