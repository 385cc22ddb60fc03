//! Chunked bodies (RFC 9112, 7.1): encoding by an origin and decoding by a client.

/// Encodes `body` in chunks of `size` bytes, with `trailers`, complete lines, after the last one.
pub fn chunked(body: &[u8], size: usize, trailers: &str) -> Vec<u8> {
    let mut coded = Vec::new();
    for part in body.chunks(size) {
        coded.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        coded.extend_from_slice(part);
        coded.extend_from_slice(b"\r\n");
    }
    coded.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
    coded
}

/// Decodes the chunks. Returns the payload, and everything after the last chunk, including trailers.
///
/// # Panics
/// The chunks are malformed or incomplete.
pub fn unchunked(mut coded: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut plain = Vec::new();
    loop {
        let end = coded.windows(2).position(|two| two == b"\r\n").expect("the line of a chunk");
        let text = std::str::from_utf8(&coded[..end]).expect("a size");
        let size = usize::from_str_radix(text.split(';').next().unwrap_or_default(), 16).expect("a size");
        coded = &coded[end + 2..];
        if size == 0 {
            return (plain, coded.to_vec());
        }
        plain.extend_from_slice(&coded[..size]);
        coded = &coded[size + 2..];
    }
}
