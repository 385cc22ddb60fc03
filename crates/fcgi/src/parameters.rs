//! Name-value pairs in FastCGI's encoding (specification, 3.4).

/// The pairs would exceed the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

/// Encoded pairs, up to a limit.
#[derive(Debug, Clone, Default)]
pub struct Parameters {
    bytes: Vec<u8>,
    limit: usize,
}

impl Parameters {
    /// Returns an empty list that may grow to `limit` bytes in total.
    #[must_use]
    pub fn new(limit: usize) -> Parameters {
        Parameters { bytes: Vec::new(), limit }
    }

    /// Adds a pair.
    ///
    /// # Errors
    /// The pair exceeds the limit, and was not added.
    pub fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), TooLong> {
        self.add_mapped(name, value, |byte| byte)
    }

    /// Adds a pair, and maps each byte of the name with `spell`.
    ///
    /// # Errors
    /// The errors of [`add`](Self::add).
    pub(crate) fn add_mapped(
        &mut self,
        name: &[u8],
        value: &[u8],
        spell: impl Fn(u8) -> u8,
    ) -> Result<(), TooLong> {
        self.begin(&[name], &[value])?;
        self.bytes.extend(name.iter().map(|byte| spell(*byte)));
        self.bytes.extend_from_slice(value);
        Ok(())
    }

    /// Adds the pair of a request header field: the name is `HTTP_` and the field's name in the spelling of variables.
    ///
    /// # Errors
    /// The errors of [`add`](Self::add).
    pub(crate) fn add_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), TooLong> {
        self.begin(&[b"HTTP_", name], &[value])?;
        self.bytes.extend_from_slice(b"HTTP_");
        self.bytes.extend(name.iter().map(|byte| variable(*byte)));
        self.bytes.extend_from_slice(value);
        Ok(())
    }

    /// Adds a pair with a value that consists of parts.
    ///
    /// # Errors
    /// The errors of [`add`](Self::add).
    pub(crate) fn add_parts(&mut self, name: &[u8], value: &[&[u8]]) -> Result<(), TooLong> {
        self.begin(&[name], value)?;
        self.bytes.extend_from_slice(name);
        value.iter().for_each(|part| self.bytes.extend_from_slice(part));
        Ok(())
    }

    /// Writes both lengths.
    fn begin(&mut self, name: &[&[u8]], value: &[&[u8]]) -> Result<(), TooLong> {
        let [name, value] = [name, value].map(|parts| parts.iter().map(|part| part.len()).sum::<usize>());
        let lengths = [name, value].map(|length| if length > 127 { 4 } else { 1 });
        if self.bytes.len() + lengths[0] + lengths[1] + name + value > self.limit {
            return Err(TooLong);
        }
        for length in [name, value] {
            match u8::try_from(length) {
                Ok(length @ 0..=127) => self.bytes.push(length),
                _ => self.bytes.extend_from_slice(&(length as u32 | 1 << 31).to_be_bytes()),
            }
        }
        Ok(())
    }

    /// Returns the encoded pairs.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Maps a byte of a field name to its form in a CGI variable name (RFC 3875, 4.1.18).
pub(crate) fn variable(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte.to_ascii_uppercase() } else { b'_' }
}

/// Iterates over encoded pairs, and ends at the first incomplete one.
#[derive(Debug, Clone)]
pub struct Pairs<'a>(&'a [u8]);

impl<'a> Pairs<'a> {
    /// Returns an iterator over the pairs in `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Pairs<'a> {
        Pairs(bytes)
    }

    /// Returns the bytes that were not read.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, rest) = length(self.0)?;
        let (value, rest) = length(rest)?;
        let (name, rest) = rest.split_at_checked(name)?;
        let (value, rest) = rest.split_at_checked(value)?;
        self.0 = rest;
        Some((name, value))
    }
}

fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    if first < 128 {
        return Some((first.into(), rest));
    }
    let (four, rest) = bytes.split_first_chunk::<4>()?;
    Some((usize::try_from(u32::from_be_bytes(*four) & !(1 << 31)).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_any_length_round_trip() {
        let long = vec![b'v'; 70_000];
        let pairs: [(&[u8], &[u8]); 5] =
            [(b"A", b""), (b"", b"x"), (&long[..127], &long[..128]), (&long[..128], b"y"), (b"Z", &long)];
        let mut all = Parameters::new(usize::MAX);
        for (name, value) in pairs {
            all.add(name, value).unwrap();
        }
        let mut read = Pairs::new(all.bytes());
        assert!(read.by_ref().eq(pairs));
        assert!(read.rest().is_empty());
    }

    #[test]
    fn truncated_pairs_are_not_returned() {
        let mut all = Parameters::new(1000);
        all.add(b"NAME", &[b'v'; 200]).unwrap();
        for cut in 0..all.bytes().len() {
            assert_eq!(Pairs::new(&all.bytes()[..cut]).next(), None, "cut at {cut}");
        }
        assert_eq!(Pairs::new(&[0xff, 0xff, 0xff, 0xff, 1, b'x']).next(), None);
    }

    #[test]
    fn pair_over_the_limit_is_refused_and_not_added() {
        let mut all = Parameters::new(10);
        all.add(b"ABC", b"12345").unwrap();
        assert_eq!(all.add(b"", b""), Err(TooLong));
        assert_eq!(all.bytes().len(), 10);
    }
}
