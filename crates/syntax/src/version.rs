//! Versions as `version_atleast` and `openssl_version_atleast` compare them.

use std::fmt;
use std::str::FromStr;

/// A version such as `3.5-dev5`, `2.4.17`, `2.9-dev3-12` or `1.1.1k`.
///
/// Versions are ordered by release: `3.5-dev5` before `3.5-dev6` before `3.5-rc1` before `3.5` before `3.5.1`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    numbers: [u32; 4],
    stage: ReleaseStage,
    stage_number: u32,
    /// Commits since the tag, or the letter of an OpenSSL 1.x version counted from a = 1.
    later: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum ReleaseStage {
    Dev,
    Pre,
    Candidate,
    #[default]
    Release,
}

/// The text is not a valid version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionError;

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let mut version = Self::default();
        // Git tags begin with a `v`.
        let mut rest = text.strip_prefix('v').unwrap_or(text);
        for slot in 0..4 {
            version.numbers[slot] = take_number(&mut rest).ok_or(VersionError)?;
            match rest.strip_prefix('.') {
                Some(after) if slot < 3 => rest = after,
                _ => break,
            }
        }
        if let [letter @ b'a'..=b'z', tail @ ..] = rest.as_bytes()
            && tail.first().is_none_or(|byte| *byte == b'-')
        {
            version.later = u32::from(letter - b'a') + 1;
            rest = &rest[1..];
        }
        for (name, stage) in
            [("-dev", ReleaseStage::Dev), ("-pre", ReleaseStage::Pre), ("-rc", ReleaseStage::Candidate)]
        {
            if let Some(after) = rest.strip_prefix(name) {
                (version.stage, rest) = (stage, after);
                version.stage_number = take_number(&mut rest).unwrap_or(0);
            }
        }
        // Commit counts and suffixes of packagers: `-12`, `-a1b2c3-7`, `-1+deb12u4`.
        match rest.strip_prefix('-') {
            Some(mut after) => version.later += take_number(&mut after).unwrap_or(0),
            None if rest.is_empty() || rest.starts_with('+') => {}
            None => return Err(VersionError),
        }
        Ok(version)
    }
}

fn take_number(rest: &mut &str) -> Option<u32> {
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let number = rest[..digits].parse().ok()?;
    *rest = &rest[digits..];
    Some(number)
}

impl fmt::Display for VersionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a version such as `2.8`, `3.0.5` or `3.5-dev5`")
    }
}

impl std::error::Error for VersionError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_release() {
        let ordered = [
            "1.8",
            "2.4-dev2",
            "2.4-dev19",
            "2.4-dev19-7",
            "2.4",
            "2.4.1",
            "2.10-dev0",
            "3.5-dev4",
            "3.5-dev5",
            "3.5-rc1",
            "3.5",
        ];
        for pair in ordered.windows(2) {
            let (low, high): (Version, Version) = (pair[0].parse().unwrap(), pair[1].parse().unwrap());
            assert!(low < high, "{pair:?}");
        }
        assert_eq!("3".parse::<Version>(), "3.0.0".parse());
        assert_eq!("v3.5-dev3".parse::<Version>(), "3.5-dev3".parse());
        assert!("1.1.1k".parse::<Version>().unwrap() > "1.1.1".parse().unwrap());
        assert!("1.1.1-pre3".parse::<Version>().unwrap() < "1.1.1".parse().unwrap());
        for wrong in ["", "x", "2.", "2.x", "2.4abc", "-dev"] {
            assert_eq!(wrong.parse::<Version>(), Err(VersionError), "{wrong}");
        }
    }
}
