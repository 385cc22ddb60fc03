//! Explains what would happen to a request: every rule and condition in order, the backend, and the server.
//!
//! Nothing is sent, and no counter or table changes: rules with side effects that cannot be simulated are listed but
//! not run. The rules run on a separate transaction, with the code that requests use ([`rules::RuleSet::explain`]);
//! the lists, stick tables and servers are those of the process. Used by the runtime socket (`explain`) and, with a
//! plan that nothing serves, by `weir explain`.

#![forbid(unsafe_code)]

mod backend;
mod entry;
mod frontend;
mod question;
mod report;
mod scene;
mod server;

use plan::Plan;
use state::Process;

pub use question::{Question, USAGE};

use backend::Backend;
use report::Explanation;
use scene::Scene;

/// Explains the request. The text has several lines, each with its line end.
///
/// # Errors
/// The frontend does not exist or is not clear from the URL, or the request is invalid.
pub fn explain(plan: &Plan, process: &Process, question: &Question) -> Result<String, String> {
    let entry = entry::find(plan, question)?;
    let mut scene = Scene::new(plan, process, question, entry)?;
    let mut report = Explanation::new(plan);
    scene.describe(question, &mut report);
    if let Some(end) = frontend::rules(&mut scene, &mut report) {
        report.result(&end);
        return Ok(report.finish());
    }
    let end = match backend::choose(&mut scene, &mut report) {
        Backend::Chosen(index) => server::of_backend(&mut scene, index, &mut report),
        Backend::None(reason) => reason,
    };
    report.result(&end);
    Ok(report.finish())
}
