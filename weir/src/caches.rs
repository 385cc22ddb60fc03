//! The directories of caches (`disk`): opened before the process changes its root and drops privileges, then served by the threads
//! of the crate `disk`. Called by `boot`, `generation` and `soft_stop`.

use std::path::Path;
use std::sync::{Arc, Mutex};

use cache::Store;
use diag::Severity;
use disk::{Directory, DirectoryOwner};
use plan::Plan;
use proxy::Shared;
use state::transition;

use crate::checks;
use crate::messages::MessageFormat;

/// Open directories without running threads.
static OPEN: Mutex<Vec<Directory>> = Mutex::new(Vec::new());

fn stores(plan: &Plan) -> impl Iterator<Item = &Arc<Store>> {
    plan.caches.iter().filter(|store| store.files.is_some())
}

fn open(directory: &str, plan: &Plan, messages: MessageFormat) -> Option<Directory> {
    let owner = DirectoryOwner { user: plan.global.uid, group: plan.global.gid };
    match Directory::open(Path::new(directory), owner) {
        Ok(opened) => Some(opened),
        Err(error) => {
            let text = format!(
                "cannot open the directory {directory} of a cache, which will use memory only: {error}"
            );
            messages.say(Severity::Warning, &text);
            None
        }
    }
}

/// Opens the directories at process start.
pub(crate) fn prepare(plan: &Plan, messages: MessageFormat) {
    let names = stores(plan).filter_map(|store| Some(&*store.settings.disk.as_ref()?.directory));
    let opened: Vec<Directory> = names.filter_map(|name| open(name, plan, messages)).collect();
    if let Ok(mut kept) = OPEN.lock() {
        *kept = opened;
    }
}

/// Starts the threads of stores that have none.
pub(crate) fn serve(shared: &Arc<Shared>, is_first: bool, messages: MessageFormat) {
    let plan = &shared.plan;
    for store in stores(plan) {
        let (Some(files), Some(disk)) = (&store.files, &store.settings.disk) else { continue };
        if files.is_served() {
            continue;
        }
        let opened = OPEN.lock().ok().and_then(|mut open| {
            let at = open.iter().position(|own| own.path == Path::new(&*disk.directory))?;
            Some(open.swap_remove(at))
        });
        let opened = if is_first { opened } else { open(&disk.directory, plan, messages) };
        let Some(directory) = opened else { continue };
        let weak = Arc::downgrade(shared);
        let report = Arc::new(move |text: &str| {
            messages.say(Severity::Warning, text);
            if let Some(shared) = weak.upgrade() {
                checks::log_global(&shared, transition::WARNING, text);
            }
        });
        if let Err(error) = disk::serve(store, directory, report) {
            messages
                .say(Severity::Warning, &format!("cannot start a thread for {}: {error}", disk.directory));
        }
    }
}

/// Closes the directories of `plan` that `new` does not use, so that other caches may use them.
pub(crate) fn let_go(plan: &Plan, new: Option<&Plan>) {
    let stays =
        |store: &&Arc<Store>| new.is_some_and(|new| new.caches.iter().any(|other| Arc::ptr_eq(other, store)));
    for files in stores(plan).filter(|store| !stays(store)).filter_map(|store| store.files.as_ref()) {
        files.close();
    }
}
