//! Checks whether DNS has a TXT record (`challenge-ready dns`): queries the name servers of the resolvers section `default` one
//! after the other.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RData, RecordType};
use plan::Resolvers;
use plan::resolvers::NameServerAddress;
use runtime::timer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

/// The time limit for each name server.
const PATIENCE: Duration = Duration::from_secs(5);
/// The maximum size of a UDP response.
const PAYLOAD: u16 = 1232;

/// The TXT records of a name; empty if no name server knows it.
pub(crate) async fn texts(resolvers: &Resolvers, name: &str) -> Vec<Vec<u8>> {
    let Ok(mut name) = Name::from_ascii(name) else { return Vec::new() };
    name.set_fqdn(true);
    for nameserver in &resolvers.nameservers {
        let NameServerAddress::Ip(address) = nameserver.address else { continue };
        for _ in 0..resolvers.retries.clamp(1, 3) {
            let wait = resolvers.retry.clamp(Duration::from_millis(100), PATIENCE);
            let answer = timer::timeout(wait, ask(address, &name, nameserver.stream)).await;
            if let Ok(Ok(found)) = answer {
                return found;
            }
        }
    }
    Vec::new()
}

/// An unpredictable query ID.
fn number() -> u16 {
    use aws_lc_rs::rand::{SecureRandom, SystemRandom};
    let mut bytes = [0; 2];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => u16::from_be_bytes(bytes),
        Err(_) => fastrand::u16(..),
    }
}

async fn ask(address: SocketAddr, name: &Name, by_stream: bool) -> io::Result<Vec<Vec<u8>>> {
    let id = number();
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name.clone(), RecordType::TXT));
    let mut edns = Edns::new();
    edns.set_max_payload(PAYLOAD);
    message.set_edns(edns);
    let question = message.to_vec().map_err(io::Error::other)?;
    if !by_stream {
        let any: SocketAddr =
            if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
        let socket = UdpSocket::bind(any).await?;
        socket.connect(address).await?;
        socket.send(&question).await?;
        let mut buffer = vec![0; usize::from(u16::MAX)];
        loop {
            let length = socket.recv(&mut buffer).await?;
            match read(&buffer[..length], id, name) {
                Some(DnsRead::Texts(found)) => return Ok(found),
                Some(DnsRead::Cut) => break,
                // A spoofed response.
                None => {}
            }
        }
    }
    let mut stream = TcpStream::connect(address).await?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], &question].concat()).await?;
    let mut answer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut answer).await?;
    match read(&answer, id, name) {
        Some(DnsRead::Texts(found)) => Ok(found),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum DnsRead {
    Texts(Vec<Vec<u8>>),
    /// The response was truncated.
    Cut,
}

/// Parses a response; `None` if it does not match the query.
fn read(bytes: &[u8], id: u16, name: &Name) -> Option<DnsRead> {
    if bytes.get(..2)? != id.to_be_bytes() {
        return None;
    }
    if bytes.get(2)? & 0x82 == 0x82 {
        return Some(DnsRead::Cut);
    }
    let message = Message::from_vec(bytes).ok()?;
    let [query] = message.queries.as_slice() else { return None };
    if query.query_type != RecordType::TXT || !query.name.eq_ignore_root(name) {
        return None;
    }
    // The records of an alias have the name of its target, but they do answer this query.
    let texts = message.answers.iter().filter_map(|record| match &record.data {
        RData::TXT(text) => Some(text.txt_data.iter().flat_map(|part| part.iter().copied()).collect()),
        _ => None,
    });
    Some(DnsRead::Texts(texts.collect()))
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::Record;
    use hickory_proto::rr::rdata::TXT;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_only_taken_from_the_matching_response() {
        let name = Name::from_ascii("_acme-challenge.a.test.").expect("a name");
        let mut message = Message::new(7, MessageType::Response, OpCode::Query);
        message.add_query(Query::query(name.clone(), RecordType::TXT));
        let text = RData::TXT(TXT::new(vec!["ab".to_owned(), "cd".to_owned()]));
        message.add_answer(Record::from_rdata(name.clone(), 1, text));
        let mut bytes = message.to_vec().expect("it can be written");
        assert_eq!(read(&bytes, 7, &name), Some(DnsRead::Texts(vec![b"abcd".to_vec()])));
        assert_eq!(read(&bytes, 8, &name), None);
        assert_eq!(read(&bytes, 7, &Name::from_ascii("b.test.").expect("a name")), None);
        bytes[2] |= 2;
        assert_eq!(read(&bytes, 7, &name), Some(DnsRead::Cut));
    }

    proptest! {
        #[test]
        fn arbitrary_dns_responses_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let name = Name::from_ascii("a.test.").expect("a name");
            let _ = read(&[&[0, 7], &bytes[..]].concat(), 7, &name);
        }
    }
}
