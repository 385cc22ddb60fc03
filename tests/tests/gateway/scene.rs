//! A gateway with services on 127.0.0.1, in front of a running program.

use std::path::Path;

use gateway_model::{ListenAddress, Objects, Output, Settings, translate};
use serde_json::{Value, json};
use weir_tests::client::{Response, exchange};
use weir_tests::{Scratch, Weir, eventually, free_port, scratch};

/// Objects, and the program that runs with their configuration.
pub(crate) struct Scene {
    objects: Objects,
    directory: Scratch,
    pub(crate) port: u16,
    weir: Option<Weir>,
}

impl Scene {
    /// A gateway with one HTTP listener.
    pub(crate) fn new() -> Self {
        let mut scene = Self {
            objects: Objects::default(),
            directory: scratch("gateway"),
            port: free_port(),
            weir: None,
        };
        let class = json!({ "spec": { "controllerName": "weir.dev/gateway-controller" } });
        scene.add("GatewayClass", "weir", class);
        let listener = json!({ "name": "http", "port": scene.port, "protocol": "HTTP" });
        scene.add(
            "Gateway",
            "gateway",
            json!({ "spec": { "gatewayClassName": "weir", "listeners": [listener] } }),
        );
        scene
    }

    /// Adds an object.
    pub(crate) fn add(&mut self, kind: &str, name: &str, mut object: Value) {
        object["metadata"]["name"] = json!(name);
        if kind != "GatewayClass" {
            object["metadata"]["namespace"] = json!("test");
        }
        self.objects.insert(kind, object).expect("valid test data");
    }

    /// Adds a service with port 80 and these ports of 127.0.0.1 as endpoints.
    pub(crate) fn service(&mut self, name: &str, ports: &[u16]) {
        self.add("Service", name, json!({ "spec": { "ports": [{ "port": 80 }] } }));
        for (number, port) in ports.iter().enumerate() {
            let slice = json!({
                "metadata": { "labels": { "kubernetes.io/service-name": name } },
                "addressType": "IPv4",
                "ports": [{ "port": port }],
                "endpoints": [{ "addresses": ["127.0.0.1"] }],
            });
            self.add("EndpointSlice", &format!("{name}-{number}"), slice);
        }
    }

    /// Adds an HTTP route with these rules for all hosts.
    pub(crate) fn route(&mut self, name: &str, rules: Value) {
        self.add(
            "HTTPRoute",
            name,
            json!({ "spec": { "parentRefs": [{ "name": "gateway" }], "rules": rules } }),
        );
    }

    /// Translates the objects and writes the files. Returns the output.
    pub(crate) fn write(&self) -> Output {
        let settings = Settings {
            addresses: vec![ListenAddress { bind: "127.0.0.1".into(), reported: Vec::new() }],
            directory: self.directory.display().to_string(),
            ..Settings::default()
        };
        let output = translate(&self.objects, &settings);
        write_files(&output, &self.directory);
        output
    }

    /// Starts the program, and waits until the gateway has the endpoints.
    pub(crate) fn start(mut self) -> Self {
        let output = self.write();
        let config = output.config.replace("global\n", "global\n    stats socket runtime level admin\n");
        self.weir = Some(Weir::start(&config, &[self.port]));
        self
    }

    /// The running program.
    pub(crate) fn weir(&self) -> &Weir {
        self.weir.as_ref().expect("the program was started")
    }

    /// Sends a request on a new connection.
    pub(crate) fn ask(&self, request: &str) -> Response {
        exchange(self.port, request).unwrap_or_else(|| panic!("no response to {request}"))
    }

    /// Sends a GET for a host with additional fields.
    pub(crate) fn get(&self, host: &str, path: &str, fields: &str) -> Response {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n"))
    }

    /// Waits until a GET has this status.
    pub(crate) fn await_status(&self, path: &str, status: u16) {
        assert!(eventually(|| self.get("test", path, "").status == status), "{path}");
    }
}

/// Writes the files of an output to a directory.
pub(crate) fn write_files(output: &Output, directory: &Path) {
    for (name, content) in &output.files {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().expect("valid test data")).expect("valid test data");
        std::fs::write(path, content).expect("valid test data");
    }
}
