//! Texts of the configuration that are kept for as long as the process lives.

/// One copy of a text for as long as the process lives: for names of the configuration, which are few.
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
