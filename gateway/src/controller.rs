//! The main loop: waits for changes, translates the objects, hands the result to the proxy, and passes statuses on.
//!
//! If the proxy refuses a configuration, the objects that changed since the last accepted one are tried in halves until the ones at
//! fault are found. These keep their last accepted version (or stay out, if they are new) until they change again, and their status
//! has the proxy's message. All other changes take effect.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use base::clock::WallTime;
use gateway_model::{Event, ListenAddress, Objects, Output, Settings, translate};
use runtime::timer;
use serde_json::Value;

use crate::apply::{Applier, ApplyError};
use crate::args::GatewayArgs;
use crate::measures::Measures;
use crate::publish::Publisher;
use crate::report::{alert, notice, warning};
use crate::status;
use crate::store::{ObjectName, ObjectStore};
use crate::supervise::Supervisor;

/// How often the objects are translated without a change, because certificates expire.
const PERIOD: Duration = Duration::from_secs(60);

/// The delays before further attempts while the proxy does not answer.
const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(2);

/// The most configurations that are tried to find the objects at fault.
const TRIALS: usize = 100;

/// The state of the main loop.
pub(crate) struct Controller {
    pub(crate) args: Rc<GatewayArgs>,
    pub(crate) base: Settings,
    pub(crate) store: Rc<ObjectStore>,
    pub(crate) measures: Rc<Measures>,
    pub(crate) publisher: Rc<Publisher>,
    pub(crate) applier: Applier,
    pub(crate) supervisor: Option<Rc<Supervisor>>,
    /// The number of kinds that are watched.
    pub(crate) kinds: usize,
    /// The objects of the configuration in use.
    pub(crate) accepted: Objects,
    /// The objects that have changed since then.
    pub(crate) changed: BTreeSet<ObjectName>,
    /// Those of them that may be at fault if the proxy refuses the next configuration.
    pub(crate) unsettled: BTreeSet<ObjectName>,
    /// The objects that the proxy refuses, with its answers.
    pub(crate) refused: BTreeMap<ObjectName, String>,
}

impl Controller {
    /// Runs until the task is dropped.
    pub(crate) async fn run(mut self) {
        let mut failures = 0u32;
        loop {
            let wait = match failures {
                0 => PERIOD,
                _ => FIRST_DELAY.saturating_mul(1 << failures.min(8)).min(LONGEST_DELAY),
            };
            let is_timeout = timer::timeout(wait, self.store.changed.notified()).await.is_err();
            if !is_timeout {
                timer::sleep(self.args.delay).await;
            }
            if self.store.listed() < self.kinds {
                continue;
            }
            if let Some(supervisor) = &self.supervisor
                && supervisor.is_reset.take()
            {
                self.applier.forget();
                failures += 1;
            }
            let is_due = self.take_changes();
            if !is_due && failures == 0 && !is_timeout {
                continue;
            }
            match self.turn().await {
                Ok(()) => failures = 0,
                Err(error) => {
                    if failures == 0 {
                        warning(format!("the configuration is not applied yet: {error}."));
                    }
                    failures += 1;
                }
            }
        }
    }

    /// Takes the changes since the last turn. Returns whether they may change the configuration.
    fn take_changes(&mut self) -> bool {
        let mut changes = self.store.take_changes();
        self.measures.objects.set(self.store.count() as u64);
        // The own Service may have got an address.
        let has_address = changes.statuses.iter().any(|(kind, _)| *kind == "Service");
        let is_due = changes.has_new_kind || has_address || !changes.objects.is_empty();
        self.changed.append(&mut changes.objects);
        self.unsettled.append(&mut changes.by_users);
        self.refused.retain(|name, _| !self.unsettled.contains(name));
        self.publisher.compare(changes.statuses);
        is_due
    }

    /// Brings the proxy to the current objects.
    ///
    /// # Errors
    /// Why the next attempt may succeed.
    async fn turn(&mut self) -> Result<(), String> {
        let settings = self.settings();
        let names: Vec<ObjectName> =
            self.changed.iter().filter(|name| !self.refused.contains_key(name)).cloned().collect();
        let output = match self.attempt(&names, &settings).await {
            Ok(output) => {
                self.changed.clear();
                self.unsettled.clear();
                output
            }
            Err(ApplyError::Later(error)) => return Err(error),
            Err(ApplyError::Refused(answer)) => self.admit_one_by_one(&answer, &settings).await?,
        };
        if !self.measures.is_ready.replace(true) {
            notice("the proxy serves the configuration.");
        }
        self.measures.quarantined.set(self.refused.len() as u64);
        self.publish(output, &settings);
        Ok(())
    }

    /// Applies the accepted objects with the current versions of some. If the proxy does not take them, the accepted objects stay as
    /// they were.
    async fn attempt(&mut self, names: &[ObjectName], settings: &Settings) -> Result<Output, ApplyError> {
        let mut former = Objects::default();
        self.store.with(|objects| {
            for (kind, key) in names {
                former.copy_from(&self.accepted, kind, key);
                self.accepted.copy_spec_from(objects, kind, key);
            }
        });
        let mut output = self.translated(&self.accepted, settings);
        let outcome = self.apply(&mut output).await;
        match &outcome {
            Ok(()) => self.accepted.record_addresses(&output.statuses),
            Err(_) => names.iter().for_each(|(kind, key)| self.accepted.copy_from(&former, kind, key)),
        }
        outcome.map(|()| output)
    }

    fn translated(&self, objects: &Objects, settings: &Settings) -> Output {
        let begun = Instant::now();
        let output = translate(objects, settings);
        self.measures.translations.add(begun.elapsed());
        output
    }

    async fn apply(&mut self, output: &mut Output) -> Result<(), ApplyError> {
        let begun = Instant::now();
        if self.applier.apply(output).await? {
            self.measures.applications.add(begun.elapsed());
            self.measures.applied_at.set(WallTime::now().seconds.unsigned_abs());
        }
        Ok(())
    }

    /// Applies the changes since the accepted configuration in parts. Returns the translation that is in use afterwards.
    async fn admit_one_by_one(&mut self, answer: &str, settings: &Settings) -> Result<Output, String> {
        alert(format!("the proxy refuses the configuration:\n{answer}"));
        let mut parts = vec![self.unsettled.iter().cloned().collect::<Vec<_>>()];
        // The settings may have changed, too. Without a configuration that is accepted, no object is at fault.
        let mut output = self.attempt(&[], settings).await.map_err(|error| match error {
            ApplyError::Later(error) | ApplyError::Refused(error) => error,
        })?;
        let mut trials = 0;
        while let Some(part) = parts.pop() {
            if trials == TRIALS {
                alert("too many objects are refused: the remaining changes wait for the next turn.");
                parts.push(part);
                break;
            }
            trials += 1;
            match self.attempt(&part, settings).await {
                Ok(accepted) => {
                    self.changed.retain(|name| !part.contains(name));
                    output = accepted;
                }
                Err(ApplyError::Later(error)) => return Err(error),
                Err(ApplyError::Refused(answer)) => match &*part {
                    [] => {}
                    [name] => {
                        warning(format!("{} {} is refused: {}", name.0, name.1, answer.trim()));
                        self.changed.remove(name);
                        self.refused.insert(name.clone(), answer);
                    }
                    several => {
                        let (first, second) = several.split_at(several.len() / 2);
                        parts.extend([second.to_vec(), first.to_vec()]);
                    }
                },
            }
        }
        self.unsettled = parts.into_iter().flatten().collect();
        Ok(output)
    }

    /// Passes the statuses on, with those of objects that the proxy refuses.
    fn publish(&self, output: Output, settings: &Settings) {
        let Output { mut statuses, mut events, .. } = output;
        if !self.refused.is_empty() {
            let current = self.store.with(|objects| translate(objects, settings));
            let is_refused = |kind: &'static str, key: &gateway_model::Key| {
                self.refused.contains_key(&(kind, key.clone()))
            };
            statuses.retain(|update| !is_refused(update.kind, &update.key));
            let own = current.statuses.into_iter().filter(|update| is_refused(update.kind, &update.key));
            for mut update in own {
                let answer = &self.refused[&(update.kind, update.key.clone())];
                status::refused(&mut update, answer);
                statuses.push(update);
            }
            events.extend(self.refused.iter().map(|((kind, key), answer)| Event {
                kind,
                key: key.clone(),
                is_warning: true,
                reason: "Refused".to_owned(),
                message: format!("The proxy refuses the configuration of this object: {}", answer.trim()),
            }));
        }
        self.publisher.set(statuses, events);
    }

    /// The settings with the current time and addresses.
    fn settings(&self) -> Settings {
        let mut settings = self.base.clone();
        settings.now = WallTime::now().seconds.unsigned_abs();
        if !self.args.address_pool.is_empty() {
            let pool = self.args.address_pool.iter();
            let listen =
                |address: &String| ListenAddress { bind: address.clone(), reported: vec![address.clone()] };
            settings.addresses = pool.map(listen).collect();
        } else {
            let own = &self.args.addresses;
            let reported = if own.is_empty() { self.service_addresses() } else { own.clone() };
            settings.addresses = vec![ListenAddress { bind: "*".to_owned(), reported }];
        }
        settings
    }

    /// The addresses of the Service of `--service`.
    fn service_addresses(&self) -> Vec<String> {
        let Some((namespace, name)) = &self.args.service else { return Vec::new() };
        let live = self.store.live(&("Service", gateway_model::Key::new(namespace, name)));
        let status = live.unwrap_or_default().status;
        let entries = status.pointer("/loadBalancer/ingress").and_then(Value::as_array);
        let text = |entry: &Value, name: &str| entry.get(name).and_then(Value::as_str).map(str::to_owned);
        let addresses = entries.into_iter().flatten();
        addresses.filter_map(|entry| text(entry, "ip").or_else(|| text(entry, "hostname"))).collect()
    }
}
