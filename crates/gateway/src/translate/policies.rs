//! TLS to services: `BackendTLSPolicy`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::api::{BackendTlsPolicy, BackendTlsValidation, GATEWAY_GROUP};
use crate::objects::Key;
use crate::output::StatusUpdate;
use crate::status::{StatusCondition, conditions};
use crate::text::{is_hostname, is_printable, quote};

use super::certificates::{BadRef, authorities, file_name};
use super::context::Context;
use super::grants::Referrer;
use super::policy_table::{Policies, Policy, PolicyKey};

/// The most ancestors in a status.
const MOST_ANCESTORS: usize = 16;

/// Reads all policies. If several have one target, the oldest one applies.
pub(crate) fn read<'a>(context: &mut Context<'a>) {
    let objects = context.objects;
    let mut sorted: Vec<_> = objects.backend_tls_policies.iter().collect();
    sorted.sort_by_key(|(key, policy)| (&policy.metadata.creation_timestamp, *key));
    let mut policies = Policies::default();
    for (key, object) in sorted {
        let mut policy = compile(context, key, object);
        let targets = object.spec.target_refs.iter().filter(|it| it.group.is_empty() && it.kind == "Service");
        let targets: Vec<PolicyKey<'_>> =
            targets.map(|it| (Key::new(&key.namespace, &it.name), it.section_name.as_deref())).collect();
        let other = targets.iter().find_map(|target| policies.of_target.get(target));
        if let Some(other) = other {
            let message = format!("policy `{}` is older and has the same target", policies.list[*other].key);
            policy.accepted = StatusCondition::no("Accepted", "Conflicted", message);
        } else {
            let number = policies.list.len();
            policies.of_target.extend(targets.into_iter().map(|target| (target, number)));
        }
        policies.list.push(policy);
    }
    context.policies = policies;
}

fn compile<'a>(context: &mut Context<'a>, key: &'a Key, object: &'a BackendTlsPolicy) -> Policy<'a> {
    let validation = &object.spec.validation;
    let mut policy = Policy {
        key,
        object,
        server: None,
        accepted: StatusCondition::yes("Accepted", "Accepted"),
        resolved: StatusCondition::yes("ResolvedRefs", "ResolvedRefs"),
    };
    let from = Referrer { group: GATEWAY_GROUP, kind: "BackendTLSPolicy", namespace: &key.namespace };
    let (pem, errors) = authorities(context, &validation.ca_certificate_refs, from);
    if let Some(error) = errors.first() {
        let reason = if matches!(error, BadRef::Kind(_)) { "InvalidKind" } else { "InvalidCACertificateRef" };
        policy.resolved = StatusCondition::no("ResolvedRefs", reason, error.message());
    }
    let file = match (pem.is_empty(), validation.well_known_ca_certificates.as_deref()) {
        (true, Some("System")) => "@system-ca".to_string(),
        (true, _) => {
            let message = "there is no valid authority for the certificates of the service";
            policy.accepted = StatusCondition::no("Accepted", "NoValidCACertificate", message);
            return policy;
        }
        (false, _) => {
            let relative = format!("ca/policy-{}.pem", file_name(key));
            let path = context.path(&relative);
            context.files.insert(relative, pem);
            path
        }
    };
    match server(validation, &file) {
        Ok(server) => policy.server = Some(server),
        Err(message) => policy.accepted = StatusCondition::no("Accepted", "Invalid", message),
    }
    policy
}

/// The parameters of servers.
fn server(validation: &BackendTlsValidation, authorities: &str) -> Result<String, String> {
    let host = &validation.hostname;
    if !is_hostname(host) || host.starts_with('*') {
        return Err(format!("`{host}` is not a hostname"));
    }
    let mut text = format!(" ssl verify required ca-file {} sni str({host})", quote(authorities));
    let mut names = Vec::new();
    for name in &validation.subject_alt_names {
        let (kind, value) = match name.r#type.as_str() {
            "Hostname" => ("dns", &name.hostname),
            "URI" => ("uri", &name.uri),
            other => return Err(format!("alternative names of type `{other}` are not supported")),
        };
        if value.is_empty() || !is_printable(value) || value.contains([',', ' ', '"', '\'', '\\']) {
            return Err(format!("`{value}` is not an alternative name"));
        }
        names.push(format!("{kind}:{value}"));
    }
    if !names.is_empty() {
        text.push_str(&format!(" verifysan {}", quote(&names.join(","))));
    }
    Ok(text)
}

impl Policies<'_> {
    /// The parameters of servers of a service port: nothing without a policy.
    ///
    /// # Errors
    /// The policy is invalid.
    pub(crate) fn server(&self, service: &Key, port: &str) -> Result<Option<&str>, ()> {
        let of = |section| self.of_target.get(&(service.clone(), section));
        match of(Some(port)).or_else(|| of(None)) {
            None => Ok(None),
            Some(number) => self.list[*number].server.as_deref().map(Some).ok_or(()),
        }
    }

    /// Records that routes of a gateway refer to a service.
    pub(crate) fn note_user(&mut self, service: &Key, gateway: &Key) {
        if !self.list.is_empty() {
            self.users.entry(service.clone()).or_default().insert(gateway.clone());
        }
    }
}

/// Sets the statuses of all policies for services that gateways of the controller use.
pub(crate) fn set_statuses(context: &mut Context<'_>) {
    let policies = std::mem::take(&mut context.policies);
    for policy in &policies.list {
        let targets = policy.object.spec.target_refs.iter();
        let users =
            targets.filter_map(|target| policies.users.get(&Key::new(&policy.key.namespace, &target.name)));
        let gateways: BTreeSet<&Key> = users.flatten().collect();
        if gateways.is_empty() {
            continue;
        }
        let generation = policy.object.metadata.generation;
        let own = conditions(&[policy.accepted.clone(), policy.resolved.clone()], generation);
        let ancestors: Value = gateways
            .into_iter()
            .take(MOST_ANCESTORS)
            .map(|gateway| {
                json!({
                    "ancestorRef": {
                        "group": GATEWAY_GROUP,
                        "kind": "Gateway",
                        "namespace": gateway.namespace,
                        "name": gateway.name,
                    },
                    "controllerName": context.settings.controller_name,
                    "conditions": own,
                })
            })
            .collect();
        if !policy.accepted.is_true {
            let message = policy.accepted.message.clone();
            context.warn("BackendTLSPolicy", policy.key, policy.accepted.reason, message);
        }
        context.statuses.push(StatusUpdate {
            kind: "BackendTLSPolicy",
            key: policy.key.clone(),
            generation,
            status: json!({ "ancestors": ancestors }),
        });
    }
}
