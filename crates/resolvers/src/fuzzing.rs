//! Parsing of answers in isolation, for the fuzz target `dns_answer`.

use crate::message::{self, Data, DnsQuestion};

/// The data of a record as text: an address, or a host with its port.
pub type RecordData = String;

/// Parses `bytes` as the answer to an A, an AAAA and an SRV query for `name`. Returns the records of each, or `None` if the answer
/// is refused. Nothing is parsed if `name` is invalid.
pub fn read_answer(bytes: &[u8], name: &str) -> [Option<Vec<RecordData>>; 3] {
    let Some(name) = message::parse_name(name) else { return [None, None, None] };
    [DnsQuestion::A, DnsQuestion::Aaaa, DnsQuestion::Srv].map(|asked| {
        let answer = message::read(bytes, &name, asked).ok()?;
        Some(answer.records.iter().map(told).collect())
    })
}

fn told(record: &Data) -> RecordData {
    match record {
        Data::Address(address) => address.to_string(),
        Data::Service(service) => format!("{}:{}", service.target, service.port),
    }
}
