//! Hostnames with wildcards. The empty text stands for all hostnames.

/// Whether `pattern` covers all names of `name`, which may be a pattern as well.
pub(crate) fn covers(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix('*') {
        _ if pattern.is_empty() || pattern == name => true,
        Some(suffix) => {
            let bare = name.strip_prefix('*').unwrap_or(name);
            bare.len() > suffix.len() && bare.ends_with(suffix)
        }
        None => false,
    }
}

/// The names that both a listener and a route serve, or nothing.
pub(crate) fn intersection<'a>(one: &'a str, other: &'a str) -> Option<&'a str> {
    if covers(one, other) {
        Some(other)
    } else if covers(other, one) {
        Some(one)
    } else {
        None
    }
}

/// The names that cover a name, from the most to the least specific one.
pub(crate) fn wider_names(name: &str) -> impl Iterator<Item = String> {
    let bare = name.strip_prefix("*.").unwrap_or(name);
    let dots = bare.match_indices('.').map(|(at, _)| format!("*{}", &bare[at..]));
    dots.chain((!name.is_empty()).then(String::new))
}

/// The sort key by which more specific names come first.
pub(crate) fn specificity(name: &str) -> (u8, std::cmp::Reverse<usize>, &str) {
    let class = match name {
        "" => 2,
        _ if name.starts_with("*.") => 1,
        _ => 0,
    };
    (class, std::cmp::Reverse(name.len()), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_cover_longer_names() {
        assert!(covers("", "a.com") && covers("*.com", "a.com") && covers("*.com", "b.a.com"));
        assert!(covers("*.com", "*.a.com") && covers("*.com", "*.com"));
        assert!(!covers("*.com", "com") && !covers("*.a.com", "*.com") && !covers("a.com", "*.com"));
        assert!(!covers("*.a.com", "ba.com"));
    }

    #[test]
    fn wider_names_end_with_all_names() {
        let list = |name| wider_names(name).collect::<Vec<_>>();
        assert_eq!(list("a.b.com"), ["*.b.com", "*.com", ""]);
        assert_eq!(list("*.b.com"), ["*.com", ""]);
        assert!(list("").is_empty());
    }

    #[test]
    fn intersections_are_the_more_specific_name() {
        assert_eq!(intersection("*.com", "a.com"), Some("a.com"));
        assert_eq!(intersection("a.com", ""), Some("a.com"));
        assert_eq!(intersection("*.a.com", "*.com"), Some("*.a.com"));
        assert_eq!(intersection("a.com", "b.com"), None);
    }
}
