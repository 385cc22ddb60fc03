//! State of the process that is independent of the plan in use.

use std::sync::Arc;

use control::Runtime;
use state::Process;
use telemetry::Exporter;

use crate::checks::Notifier;
use crate::discovered::Discovery;
use crate::hand_over::Exposed;
use crate::messages::MessageFormat;
use crate::system;

/// State of the process that is independent of the plan in use.
pub(crate) struct Common {
    pub(crate) process: Arc<Process>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) notifier: Notifier,
    pub(crate) exposed: Arc<Exposed>,
    pub(crate) limits: system::ProcessLimits,
    pub(crate) messages: MessageFormat,
    /// Exports to OpenTelemetry collectors.
    pub(crate) exporter: Exporter,
    /// Finds servers.
    pub(crate) discovery: Discovery,
}
