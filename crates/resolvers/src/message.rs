//! DNS messages (RFC 1035, RFC 2782 for SRV, RFC 6891 for the payload size): hickory-proto encodes and decodes them, and this
//! module interprets them. It has no socket and no clock.

use std::net::IpAddr;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, Record, RecordType};

/// The type of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum DnsQuestion {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// SRV records.
    Srv,
}

impl DnsQuestion {
    fn record_type(self) -> RecordType {
        match self {
            Self::A => RecordType::A,
            Self::Aaaa => RecordType::AAAA,
            Self::Srv => RecordType::SRV,
        }
    }
}

/// The data of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Data {
    /// An address.
    Address(IpAddr),
    /// An SRV record. Its priority is ignored, as in HAProxy.
    Service(ServiceRecord),
}

/// An SRV record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceRecord {
    /// The host, without the trailing dot.
    pub(crate) target: Box<str>,
    /// The port of the service.
    pub(crate) port: u16,
    /// The weight, 0 to 65535.
    pub(crate) weight: u16,
    /// The host's address, if the answer includes it.
    pub(crate) address: Option<IpAddr>,
}

/// The identity of a record, without its other data: an address, or a host in lower case and its port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    Address(IpAddr),
    Service(String, u16),
}

impl Data {
    /// Returns the identity of the record.
    pub(crate) fn subject(&self) -> Subject {
        match self {
            Self::Address(address) => Subject::Address(*address),
            Self::Service(service) => Subject::Service(service.target.to_ascii_lowercase(), service.port),
        }
    }
}

/// A valid answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DnsAnswer {
    /// The records; at least one.
    pub(crate) records: Vec<Data>,
    /// Whether the name was an alias.
    pub(crate) alias: bool,
}

/// Why an answer is not usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Not a DNS message, or not an answer to this query.
    Invalid,
    /// The name does not exist.
    NoName,
    /// The server refused the query.
    Refused,
    /// The answer has no records.
    Empty,
    /// An alias without a target record.
    Alias,
    /// Truncated by the server.
    Truncated,
    /// Any other error, or no record of the requested type.
    Other,
}

/// The maximum length of an alias chain. Resolvers themselves allow fewer.
const MOST_ALIASES: usize = 16;

/// Parses a name; returns `None` if it is invalid.
pub(crate) fn parse_name(text: &str) -> Option<Name> {
    let mut name = Name::from_ascii(text).ok()?;
    name.set_fqdn(true);
    (!name.is_root()).then_some(name)
}

/// Encodes a query; `payload_size` is the largest answer accepted.
pub(crate) fn question(id: u16, name: &Name, asked: DnsQuestion, payload_size: u16) -> Vec<u8> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.metadata.authentic_data = true;
    message.add_query(Query::query(name.clone(), asked.record_type()));
    let mut edns = Edns::new();
    edns.set_max_payload(payload_size);
    message.set_edns(edns);
    // Parsed names can always be encoded. An empty query would simply get no answer.
    message.to_vec().unwrap_or_default()
}

/// Returns the query id in an answer.
pub(crate) fn answer_id(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?]))
}

/// Parses the answer to a query for `asked` of `name`.
pub(crate) fn read(bytes: &[u8], name: &Name, asked: DnsQuestion) -> Result<DnsAnswer, Flaw> {
    // It is possible that only the header of a truncated answer can be parsed.
    let flags = bytes.get(2).copied().ok_or(Flaw::Invalid)?;
    if flags & 0x80 != 0 && flags & 0x02 != 0 {
        return Err(Flaw::Truncated);
    }
    let message = Message::from_vec(bytes).map_err(|_| Flaw::Invalid)?;
    if message.metadata.message_type != MessageType::Response {
        return Err(Flaw::Invalid);
    }
    match message.metadata.response_code {
        ResponseCode::NoError => {}
        ResponseCode::NXDomain => return Err(Flaw::NoName),
        ResponseCode::Refused => return Err(Flaw::Refused),
        _ => return Err(Flaw::Other),
    }
    let [query] = message.queries.as_slice() else { return Err(Flaw::Invalid) };
    if query.query_type != asked.record_type() || !query.name.eq_ignore_root(name) {
        return Err(Flaw::Invalid);
    }
    if message.answers.is_empty() {
        return Err(Flaw::Empty);
    }
    let (owner, alias) = follow(&message.answers, name)?;
    let own = message.answers.iter().filter(|record| record.name.eq_ignore_root(&owner));
    let records: Vec<Data> = own.filter_map(|record| data(record, asked, &message.additionals)).collect();
    match records.is_empty() {
        true if alias => Err(Flaw::Alias),
        true => Err(Flaw::Other),
        false => Ok(DnsAnswer { records, alias }),
    }
}

/// Returns the name at the end of the alias chain, and whether there were aliases.
fn follow(answers: &[Record], name: &Name) -> Result<(Name, bool), Flaw> {
    let mut owner = name.clone();
    let target = |owner: &Name| {
        answers.iter().find_map(|record| match &record.data {
            RData::CNAME(target) if record.name.eq_ignore_root(owner) => Some(target.0.clone()),
            _ => None,
        })
    };
    // Each alias is looked up in the whole answer. A cycle would never end without this limit.
    for _ in 0..=MOST_ALIASES {
        match target(&owner) {
            Some(next) => owner = next,
            None => {
                let alias = owner != *name;
                return Ok((owner, alias));
            }
        }
    }
    Err(Flaw::Alias)
}

fn data(record: &Record, asked: DnsQuestion, additionals: &[Record]) -> Option<Data> {
    match (&record.data, asked) {
        (RData::A(address), DnsQuestion::A) => Some(Data::Address(address.0.into())),
        (RData::AAAA(address), DnsQuestion::Aaaa) => Some(Data::Address(address.0.into())),
        (RData::SRV(srv), DnsQuestion::Srv) => {
            let address = additionals.iter().find_map(|other| match &other.data {
                RData::A(address) if other.name.eq_ignore_root(&srv.target) => Some(address.0.into()),
                RData::AAAA(address) if other.name.eq_ignore_root(&srv.target) => Some(address.0.into()),
                _ => None,
            });
            let target = srv.target.to_ascii();
            let target = target.strip_suffix('.').unwrap_or(&target);
            // A single dot means that the service does not exist.
            (!target.is_empty()).then(|| {
                Data::Service(ServiceRecord {
                    target: target.into(),
                    port: srv.port,
                    weight: srv.weight,
                    address,
                })
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use hickory_proto::rr::rdata::{A, AAAA, CNAME, SRV};

    use super::*;

    fn name(text: &str) -> Name {
        parse_name(text).unwrap()
    }

    fn answer(asked: DnsQuestion, of: &str, records: &[(&str, RData)], more: &[(&str, RData)]) -> Vec<u8> {
        let mut message = Message::new(7, MessageType::Response, OpCode::Query);
        message.add_query(Query::query(name(of), asked.record_type()));
        for (owner, data) in records {
            message.add_answer(Record::from_rdata(name(owner), 60, data.clone()));
        }
        for (owner, data) in more {
            message.add_additional(Record::from_rdata(name(owner), 60, data.clone()));
        }
        message.to_vec().unwrap()
    }

    #[test]
    fn query_has_the_type_and_the_payload_size() {
        let message =
            Message::from_vec(&question(513, &name("www.example.com"), DnsQuestion::Aaaa, 4096)).unwrap();
        assert_eq!(message.metadata.id, 513);
        assert!(message.metadata.recursion_desired);
        assert_eq!(message.queries[0].name.to_ascii(), "www.example.com.");
        assert_eq!(message.queries[0].query_type, RecordType::AAAA);
        assert_eq!(message.edns.unwrap().max_payload(), 4096);
    }

    #[test]
    fn aliases_are_followed_in_any_order() {
        let (one, two) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
        let bytes = answer(
            DnsQuestion::A,
            "www.example.com",
            &[
                ("host.example.net", RData::A(A(one))),
                ("CDN.example.net", RData::CNAME(CNAME(name("host.example.net")))),
                ("www.EXAMPLE.com", RData::CNAME(CNAME(name("cdn.example.net")))),
                ("host.example.net", RData::A(A(two))),
                ("other.example.net", RData::A(A(Ipv4Addr::new(192, 0, 2, 3)))),
            ],
            &[],
        );
        let records = vec![Data::Address(one.into()), Data::Address(two.into())];
        assert_eq!(
            read(&bytes, &name("www.example.com"), DnsQuestion::A),
            Ok(DnsAnswer { records, alias: true })
        );
    }

    #[test]
    fn srv_records_include_addresses_of_their_hosts() {
        let target = name("a.example.com");
        let bytes = answer(
            DnsQuestion::Srv,
            "_http._tcp.example.com",
            &[
                ("_http._tcp.example.com", RData::SRV(SRV::new(1, 65535, 8080, target))),
                ("_http._tcp.example.com", RData::SRV(SRV::new(9, 0, 81, name("b.example.com")))),
                ("_http._tcp.example.com", RData::SRV(SRV::new(0, 0, 0, Name::root()))),
            ],
            &[("a.example.com", RData::AAAA(AAAA(Ipv6Addr::LOCALHOST)))],
        );
        let service = |target: &str, port, weight, address| {
            Data::Service(ServiceRecord { target: target.into(), port, weight, address })
        };
        assert_eq!(
            read(&bytes, &name("_http._tcp.example.com"), DnsQuestion::Srv).unwrap().records,
            [
                service("a.example.com", 8080, 65535, Some(Ipv6Addr::LOCALHOST.into())),
                service("b.example.com", 81, 0, None)
            ]
        );
    }

    #[test]
    fn unusable_answers_are_classified() {
        let coded = |code| {
            let mut message = Message::new(7, MessageType::Response, OpCode::Query);
            message.metadata.response_code = code;
            message.add_query(Query::query(name("a.b"), RecordType::A));
            message
        };
        let mut cut = coded(ResponseCode::NoError);
        cut.metadata.truncation = true;
        let mut question = coded(ResponseCode::NoError);
        question.metadata.message_type = MessageType::Query;
        let circle = [("a.b", RData::CNAME(CNAME(name("c.d")))), ("c.d", RData::CNAME(CNAME(name("a.b"))))];
        let address = RData::A(A(Ipv4Addr::LOCALHOST));
        let wire = |message: Message| message.to_vec().unwrap();
        let cases = [
            (wire(coded(ResponseCode::NXDomain)), Flaw::NoName),
            (wire(coded(ResponseCode::Refused)), Flaw::Refused),
            (wire(coded(ResponseCode::ServFail)), Flaw::Other),
            (wire(coded(ResponseCode::NoError)), Flaw::Empty),
            (wire(cut), Flaw::Truncated),
            (wire(question), Flaw::Invalid),
            (answer(DnsQuestion::A, "x.y", &[("a.b", address.clone())], &[]), Flaw::Invalid),
            (answer(DnsQuestion::Aaaa, "a.b", &[("a.b", address.clone())], &[]), Flaw::Invalid),
            (answer(DnsQuestion::A, "a.b", &[("x.y", address)], &[]), Flaw::Other),
            (answer(DnsQuestion::A, "a.b", &circle, &[]), Flaw::Alias),
            (answer(DnsQuestion::A, "a.b", &circle[..1], &[]), Flaw::Alias),
            (vec![0, 7, 0x81], Flaw::Invalid),
            (Vec::new(), Flaw::Invalid),
        ];
        for (bytes, flaw) in cases {
            assert_eq!(read(&bytes, &name("a.b"), DnsQuestion::A), Err(flaw), "{bytes:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_are_refused_without_panic(
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)
        ) {
            for asked in [DnsQuestion::A, DnsQuestion::Aaaa, DnsQuestion::Srv] {
                let _ = read(&bytes, &name("a.b"), asked);
            }
        }

        #[test]
        fn damaged_answers_are_parsed_or_refused(
            at in 0..400usize, value in proptest::prelude::any::<u8>(), length in 0..400usize
        ) {
            let target = name("a.example.com");
            let mut bytes = answer(
                DnsQuestion::Srv,
                "_http._tcp.example.com",
                &[
                    ("_http._tcp.example.com", RData::SRV(SRV::new(1, 2, 8080, target.clone()))),
                    ("_http._tcp.example.com", RData::CNAME(CNAME(target))),
                ],
                &[("a.example.com", RData::A(A(Ipv4Addr::LOCALHOST)))],
            );
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            bytes.truncate(length);
            if let Ok(answer) = read(&bytes, &name("_http._tcp.example.com"), DnsQuestion::Srv) {
                proptest::prop_assert!(!answer.records.is_empty());
            }
        }
    }
}
