//! Writes backend sections and their endpoint lists.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::api::ServicePort;
use crate::text::{Text, digest, line, section_name};

use super::context::Context;
use super::resolve::{PodInstance, ServiceRef, Slices};

/// The number of files for endpoints. With few files, the proxy has little to watch; with many, a change is read quickly.
const SHARDS: u64 = 32;

/// The largest weight of a server.
const MAX_WEIGHT: u64 = 256;

/// A service of a backend.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BackendMember<'a> {
    pub(crate) service: ServiceRef,
    pub(crate) port: &'a ServicePort,
    pub(crate) weight: u64,
}

/// A backend section.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Backend<'a> {
    pub(crate) is_http: bool,
    /// The services. The weights count only if there are several.
    pub(crate) members: Vec<BackendMember<'a>>,
    /// The parameters of servers.
    pub(crate) server: String,
    /// Further lines.
    pub(crate) lines: Vec<String>,
}

/// All backend sections by their names.
#[derive(Debug, Default)]
pub(crate) struct Backends<'a>(BTreeMap<String, Backend<'a>>);

impl<'a> Backends<'a> {
    /// Adds a backend, unless there is the same one, and returns its name.
    pub(crate) fn add(&mut self, backend: Backend<'a>) -> String {
        let mut name = match backend.members.as_slice() {
            [one] => service_name(&one.service),
            _ => {
                let list: Vec<_> = backend.members.iter().map(|it| (&it.service, it.weight)).collect();
                let first = backend.members.first().map_or_else(String::new, |it| service_name(&it.service));
                format!("{first}+{}", digest(&list)).replace('+', ".")
            }
        };
        if !backend.is_http {
            name.push_str(".tcp");
        }
        if !backend.server.is_empty() || !backend.lines.is_empty() {
            name = format!("{name}.{}", &digest(&(&backend.server, &backend.lines))[..8]);
        }
        let name = section_name(&name);
        self.0.insert(name.clone(), backend);
        name
    }

    /// Writes the sections and the lists of endpoints.
    pub(crate) fn write(self, context: &mut Context<'a>, text: &mut Text) {
        let slices = Slices::new(context.objects);
        let mut shards: BTreeMap<u64, BTreeMap<String, String>> = BTreeMap::new();
        let mut sections = Text::default();
        for (name, backend) in &self.0 {
            sections.section("backend", name);
            line!(sections, "mode {}", if backend.is_http { "http" } else { "tcp" });
            backend.lines.iter().for_each(|own| sections.line(own));
            let instances: Vec<Vec<PodInstance<'_>>> =
                backend.members.iter().map(|it| slices.instances(&it.service, it.port)).collect();
            let weights = weights(backend, &instances);
            for (number, member) in backend.members.iter().enumerate() {
                let pool = match backend.members.len() {
                    1 => service_name(&member.service),
                    _ => format!("{name}.{number}"),
                };
                let shard = shard(&pool);
                line!(
                    sections,
                    "servers from endpoints-{shard} label pool={pool} max 5000{}",
                    backend.server
                );
                let entries = shards.entry(shard).or_default().entry(pool.clone()).or_default();
                if entries.is_empty() {
                    push_entries(entries, &instances[number], &pool, weights[number]);
                }
            }
        }
        for (shard, pools) in shards {
            let relative = format!("{FOLDER}{shard}.json");
            text.section("discovery", &format!("endpoints-{shard}"));
            let refresh = context.settings.endpoints_refresh_ms.max(100);
            line!(text, "targets {} refresh {refresh}ms", crate::text::quote(&context.path(&relative)));
            let entries: Vec<String> = pools.into_values().filter(|entries| !entries.is_empty()).collect();
            context.files.insert(relative, format!("[{}]", entries.join(",")).into_bytes());
        }
        text.verbatim(&sections.finish());
    }
}

/// The folder with the lists of endpoints.
const FOLDER: &str = "endpoints/";

/// Returns the name of the `discovery` section that reads a file of [`Output::files`](crate::Output::files), if it is a list of
/// endpoints.
pub fn endpoints_section(file: &str) -> Option<String> {
    let shard = file.strip_prefix(FOLDER)?.strip_suffix(".json")?;
    Some(format!("endpoints-{shard}"))
}

/// The name of a service port, unique for each one.
fn service_name(service: &ServiceRef) -> String {
    let suffix = if service.is_udp { "u" } else { "" };
    section_name(&format!("{}_{}_{}{suffix}", service.key.namespace, service.key.name, service.port))
}

fn shard(pool: &str) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for byte in pool.bytes() {
        sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    (sum >> 32) % SHARDS
}

/// The weight of each member's servers, if it matters, so that each member as a whole gets its share.
fn weights(backend: &Backend<'_>, instances: &[Vec<PodInstance<'_>>]) -> Vec<Option<u64>> {
    if backend.members.len() < 2 {
        return vec![None; backend.members.len()];
    }
    let share = |number: usize| {
        let count = instances[number].iter().filter(|it| !it.is_draining).count().max(1) as f64;
        backend.members[number].weight as f64 / count
    };
    let largest = (0..instances.len()).map(share).fold(0.0, f64::max);
    let scaled = |number: usize| match share(number) {
        share if share > 0.0 => ((share / largest * MAX_WEIGHT as f64).round() as u64).max(1),
        _ => 0,
    };
    (0..instances.len()).map(|number| Some(scaled(number))).collect()
}

/// An entry of a list of endpoints. Lists are long, so they are written without values in between.
#[derive(Serialize)]
struct EndpointEntry<'a> {
    labels: EndpointLabels<'a>,
    targets: [&'a str; 1],
}

#[derive(Serialize)]
struct EndpointLabels<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    draining: Option<&'static str>,
    id: String,
    pool: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    zone: &'a str,
}

/// Appends the entries of a pool to a list.
fn push_entries(list: &mut String, instances: &[PodInstance<'_>], pool: &str, weight: Option<u64>) {
    for instance in instances {
        // A pod may belong to several services, and the list has an instance for each of them.
        let name = if instance.name.is_empty() { &instance.address } else { instance.name };
        let labels = EndpointLabels {
            draining: instance.is_draining.then_some("true"),
            id: format!("{name}.{pool}"),
            pool,
            weight: weight.map(|weight| weight.to_string()),
            zone: instance.zone,
        };
        let entry = EndpointEntry { labels, targets: [&instance.address] };
        if !list.is_empty() {
            list.push(',');
        }
        // Texts and lists always have a JSON form.
        list.push_str(&serde_json::to_string(&entry).unwrap_or_default());
    }
}
