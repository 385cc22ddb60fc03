//! Interned strings of the configuration.

/// Interns a string for the lifetime of the process. Only for names in the configuration, because there are few of them.
pub(crate) fn intern(file: String) -> &'static str {
    use std::collections::HashSet;
    use std::sync::Mutex;
    static FILES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut files = FILES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let files = files.get_or_insert_default();
    if let Some(known) = files.get(file.as_str()) {
        return known;
    }
    let kept: &'static str = Box::leak(file.into_boxed_str());
    files.insert(kept);
    kept
}
