//! Reading answers of name servers apart from everything else, for the fuzz target `dns_answer`.

use crate::message::{self, Data, DnsQuestion};

/// What stands in a record: an address, or a host with its port.
pub type RecordData = String;

/// Reads `bytes` as the answer to a question for the A, the AAAA and the SRV records of `name`: what each
/// of them brings, `None` where it is refused. Of a `name` that can be none nothing is read.
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
