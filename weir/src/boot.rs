//! From a plan to running workers.

use std::process::ExitCode;

use config::Plan;
use diag::Severity;

use crate::args::Args;
use crate::messages::Messages;

/// Starts what the plan says and returns when all is over.
pub(crate) fn run(_plan: Plan, args: Args) -> ExitCode {
    Messages::new(args.quiet).say(Severity::Alert, "the data path is not linked into this program yet.");
    ExitCode::FAILURE
}
