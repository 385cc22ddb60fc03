//! Priorities (RFC 9218 section 4), in the syntax of the `priority` field and of PRIORITY_UPDATE frames.

/// The priority of a response relative to the others on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// 0 to 7. Smaller is more urgent.
    pub urgency: u8,
    /// Whether the client can use parts of the response before the end.
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Priority {
        Priority { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// Parses the text of a field or frame. Invalid and unknown members are ignored.
    #[must_use]
    pub fn parse(text: &[u8]) -> Priority {
        let mut priority = Priority::default();
        for member in text.split(|b| *b == b',') {
            let member = member.trim_ascii();
            // Parameters follow a semicolon; none are defined.
            match member.split(|b| *b == b';').next().unwrap_or_default().trim_ascii() {
                [b'u', b'=', urgency @ b'0'..=b'7'] => priority.urgency = urgency - b'0',
                b"i" | b"i=?1" => priority.incremental = true,
                b"i=?0" => priority.incremental = false,
                _ => {}
            }
        }
        priority
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgency_and_incremental_are_parsed_and_others_ignored() {
        for (text, urgency, incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i, u=1", 1, true),
            ("u=5,i=?1", 5, true),
            ("i=?1, i=?0", 3, false),
            ("u=8", 3, false),
            ("u=-1, i=1", 3, false),
            ("u=2;x=1, i;y", 2, true),
            ("x=(a b), u=4", 4, false),
            ("\"u=1", 3, false),
        ] {
            assert_eq!(Priority::parse(text.as_bytes()), Priority { urgency, incremental }, "{text}");
        }
    }
}
