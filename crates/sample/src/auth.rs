//! Users, groups and passwords of a `userlist` (manual, 12.2). Names of users and passwords are bytes, as in requests.

mod apr1;

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use base::raw::bytes_of;
use yescrypt::{PasswordVerifier, Yescrypt};

/// A password as configured.
#[derive(Clone, Debug)]
pub enum Password {
    /// `insecure-password`.
    Plain(Box<[u8]>),
    /// `password`: a crypt(3) hash in a [`HashFormat`].
    Crypt(Box<str>),
}

/// The format of a crypt(3) hash, detected by its prefix (crypt(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashFormat {
    /// DES, MD5, SHA-1, SHA-256, SHA-512, bcrypt.
    Known,
    /// `$y$`.
    Yescrypt,
    /// `$apr1$`, of Apache's `htpasswd`. HAProxy does not support it.
    Apr1,
    /// Formats of libxcrypt that are not supported: scrypt, gost-yescrypt, NT, SunMD5.
    Unbuilt,
    /// Not a crypt(3) format: no password matches.
    Unknown,
}

impl HashFormat {
    /// Detects the format of a hash.
    pub fn of(hash: &str) -> Self {
        const KNOWN: [&str; 8] = ["_", "$1$", "$2a$", "$2b$", "$2y$", "$5$", "$6$", "$sha1$"];
        const UNBUILT: [&str; 5] = ["$7$", "$gy$", "$3$", "$md5", "$2x$"];
        let begins = |prefix: &str| hash.starts_with(prefix);
        let is_des = || {
            hash.len() == 13 && hash.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"./".contains(&byte))
        };
        match hash {
            _ if KNOWN.iter().any(|one| begins(one)) || is_des() => Self::Known,
            _ if hash.starts_with("$y$") => Self::Yescrypt,
            _ if hash.starts_with(apr1::PREFIX) => Self::Apr1,
            _ if UNBUILT.iter().any(|one| begins(one)) => Self::Unbuilt,
            _ => Self::Unknown,
        }
    }
}

#[derive(Debug)]
struct User {
    password: Option<Password>,
    groups: Vec<Box<str>>,
}

/// The name of a user and a password, which may have any bytes.
pub type NameAndPassword = (Box<[u8]>, Box<[u8]>);

/// The last accepted password of each user.
type AcceptedPasswords = HashMap<Box<[u8]>, Box<[u8]>>;

/// A userlist.
#[derive(Debug, Default)]
pub struct Userlist {
    /// The userlist's name.
    pub name: Box<str>,
    users: HashMap<Box<[u8]>, User>,
    /// All groups, including empty ones.
    groups: HashSet<Box<str>>,
    /// The last password accepted for each user. crypt(3) is slow on purpose, and clients send the same password with every
    /// request. Entries are kept as long as the plan.
    accepted: Mutex<AcceptedPasswords>,
}

impl Userlist {
    /// Creates an empty userlist.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Adds a group.
    pub fn add_group(&mut self, name: &str) {
        self.groups.insert(name.into());
    }

    /// Whether the list has the group `name`.
    pub fn has_group(&self, name: &str) -> bool {
        self.groups.contains(name)
    }

    /// The names of the groups.
    pub fn group_names(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().map(|name| &**name)
    }

    /// Adds a user. Returns false if the name already exists.
    pub fn add_user(&mut self, name: &str, password: Option<Password>, groups: Vec<Box<str>>) -> bool {
        let name = bytes_of(name);
        let free = !self.users.contains_key(&*name);
        if free {
            self.users.insert(name.into(), User { password, groups });
        }
        free
    }

    /// Adds a user to a group (`group … users …`). Returns false if the user does not exist.
    pub fn join(&mut self, user: &str, group: &str) -> bool {
        let Some(user) = self.users.get_mut(&*bytes_of(user)) else { return false };
        if !user.groups.iter().any(|other| &**other == group) {
            user.groups.push(group.into());
        }
        true
    }

    /// Whether `password` is the password of user `name`.
    pub fn check(&self, name: &[u8], password: &[u8]) -> bool {
        match self.users.get(name).and_then(|user| user.password.as_ref()) {
            Some(Password::Plain(right)) => same(right, password),
            Some(Password::Crypt(hash)) => self.check_crypt(name, hash, password),
            None => false,
        }
    }

    fn check_crypt(&self, name: &[u8], hash: &str, password: &[u8]) -> bool {
        let lock = || self.accepted.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if lock().get(name).is_some_and(|known| same(known, password)) {
            return true;
        }
        let right = match HashFormat::of(hash) {
            HashFormat::Known => pwhash::unix::verify(password, hash),
            HashFormat::Yescrypt => Yescrypt::default().verify_password(password, hash).is_ok(),
            HashFormat::Apr1 => apr1::verify(password, hash),
            HashFormat::Unbuilt | HashFormat::Unknown => false,
        };
        if right {
            lock().insert(name.into(), password.into());
        }
        right
    }

    /// The groups of a user.
    pub fn groups(&self, name: &[u8]) -> &[Box<str>] {
        self.users.get(name).map_or(&[], |user| &user.groups)
    }
}

/// Compares two strings in time that does not depend on where they differ.
pub(crate) fn same(left: &[u8], right: &[u8]) -> bool {
    let differences = left.iter().zip(right).fold(0, |all, (left, right)| all | (left ^ right));
    left.len() == right.len() && differences == 0
}

/// Parses a `Basic` authorization header into user and password.
pub fn basic(header: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    use base64::Engine;
    use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
    // Padding is optional, because some clients omit it.
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent),
    );
    let (scheme, token) = header.split_at_checked(header.iter().position(|byte| *byte == b' ')?)?;
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let decoded = LENIENT.decode(token.trim_ascii()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some((decoded[..colon].to_vec(), decoded[colon + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_of_every_kind_are_checked() {
        let mut list = Userlist::new("l");
        let crypt = |hash: &str| Some(Password::Crypt(hash.into()));
        list.add_user("plain", Some(Password::Plain(b"secret"[..].into())), vec![]);
        list.add_user(
            "yescrypt",
            crypt("$y$j75$F5Jx5fExrKuPp53xLKQ..1$l5YiXCKNY/N9ezall4xjJAFS/wg.kWVcFXfOzyxVn1."),
            vec![],
        );
        list.add_user("sha512", crypt("$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1"), vec![]);
        list.add_user("apr1", crypt("$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/"), vec![]);
        list.add_user("long", crypt("$apr1$xy$ydi4vLfD5LxrQlAISGcwV/"), vec![]);
        list.add_user("none", None, vec!["g".into()]);
        let raw = base::raw::text_of(b"u\xe9");
        list.add_user(&raw, Some(Password::Plain(b"p\xe9"[..].into())), vec![]);
        assert!(list.join(&raw, "g"));
        assert!(list.check(b"u\xe9", b"p\xe9"));
        assert!(!list.check("u\u{10ffe9}".as_bytes(), b"p\xe9"));
        assert_eq!(list.groups(b"u\xe9"), &["g".into()]);
        for (user, password, right) in [
            ("plain", "secret", true),
            ("plain", "Secret", false),
            ("plain", "", false),
            ("none", "", false),
            ("nobody", "", false),
            ("yescrypt", "wrong", false),
            ("yescrypt", "secret", true),
            ("apr1", "secreT", false),
            ("apr1", "secret", true),
            ("long", "a longer password than sixteen bytes", true),
            ("sha512", "wrong", false),
            ("sha512", "secret", true),
            ("sha512", "secret", true),
        ] {
            assert_eq!(list.check(user.as_bytes(), password.as_bytes()), right, "{user} {password}");
        }
        assert!(!list.add_user("none", None, vec![]));
        assert_eq!(list.groups(b"none"), &["g".into()]);
    }

    #[test]
    fn basic_headers_yield_user_and_password() {
        let expected = Some((b"user".to_vec(), b"pa:ss".to_vec()));
        assert_eq!(basic(b"Basic dXNlcjpwYTpzcw=="), expected);
        assert_eq!(basic(b"basic dXNlcjpwYTpzcw"), expected);
        assert_eq!(basic(b"Basic 6Trp"), Some((b"\xe9".to_vec(), b"\xe9".to_vec())));
        assert_eq!(basic(b"Bearer dXNlcjpwYTpzcw=="), None);
        assert_eq!(basic(b"Basic !"), None);
    }
}
