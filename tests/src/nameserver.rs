//! A name server that the program queries: over UDP and TCP on one port, with a zone that the test can change.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};

/// The data of a name.
#[derive(Debug, Clone)]
pub enum Zone {
    /// Addresses of the name. The answer has those of the requested family.
    Addresses(Vec<&'static str>),
    /// SRV records of the name: weight, port, host, and the host's address if the answer includes it.
    Services(Vec<(u16, u16, &'static str, Option<&'static str>)>),
    /// TXT records of the name.
    Texts(Vec<String>),
    /// Addresses, but only over TCP: UDP answers are truncated.
    Long(Vec<&'static str>),
    /// The name does not exist.
    NoName,
    /// The query is refused.
    Refused,
    /// The query is not answered.
    Silence,
}

#[derive(Default)]
struct Shared {
    zone: Mutex<HashMap<String, Zone>>,
    datagrams: AtomicUsize,
    streams: AtomicUsize,
    stop: AtomicBool,
}

/// A running name server. It stops when the value is dropped.
pub struct NameServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl NameServer {
    /// Starts a server that answers from `zone`; other names do not exist.
    pub fn start(zone: &[(&str, Zone)]) -> NameServer {
        let (datagrams, listener) = bind();
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        std::thread::spawn(move || serve_datagrams(&datagrams, &own));
        let own = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if own.stop.load(Relaxed) {
                    break;
                }
                let own = own.clone();
                std::thread::spawn(move || serve_stream(stream, &own));
            }
        });
        let server = NameServer { address, shared };
        zone.iter().for_each(|(name, said)| server.say(name, said.clone()));
        server
    }

    /// Changes the data of a name.
    pub fn say(&self, name: &str, said: Zone) {
        self.shared.zone.lock().expect("no holder panics").insert(name.to_ascii_lowercase(), said);
    }

    /// Returns the server's port of 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the numbers of queries so far over UDP and over TCP.
    pub fn questions(&self) -> (usize, usize) {
        (self.shared.datagrams.load(Relaxed), self.shared.streams.load(Relaxed))
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        // Wakes the threads, which wait for input.
        let _ = TcpStream::connect(self.address);
        if let Ok(socket) = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) {
            let _ = socket.send_to(&[], self.address);
        }
    }
}

/// Binds both sockets to one port.
fn bind() -> (UdpSocket, TcpListener) {
    for _ in 0..100 {
        let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
        let address = datagrams.local_addr().expect("a bound socket has an address");
        if let Ok(listener) = TcpListener::bind(address) {
            return (datagrams, listener);
        }
    }
    panic!("no port is free for both UDP and TCP");
}

fn serve_datagrams(socket: &UdpSocket, shared: &Shared) {
    let mut buffer = [0; 65_535];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        if shared.stop.load(Relaxed) {
            return;
        }
        shared.datagrams.fetch_add(1, Relaxed);
        if let Some(answer) = answer(&buffer[..length], false, shared) {
            let _ = socket.send_to(&answer, from);
        }
    }
}

fn serve_stream(mut stream: TcpStream, shared: &Shared) {
    let mut length = [0; 2];
    while stream.read_exact(&mut length).is_ok() {
        let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
        if stream.read_exact(&mut question).is_err() {
            return;
        }
        shared.streams.fetch_add(1, Relaxed);
        let Some(answer) = answer(&question, true, shared) else { continue };
        let mut framed = (answer.len() as u16).to_be_bytes().to_vec();
        framed.extend_from_slice(&answer);
        if stream.write_all(&framed).is_err() {
            return;
        }
    }
}

fn answer(question: &[u8], stream: bool, shared: &Shared) -> Option<Vec<u8>> {
    let question = Message::from_vec(question).ok()?;
    let query = question.queries.first()?.clone();
    let mut message = Message::new(question.metadata.id, MessageType::Response, OpCode::Query);
    let name = query.name.to_ascii().trim_end_matches('.').to_ascii_lowercase();
    let said = shared.zone.lock().ok()?.get(&name).cloned().unwrap_or(Zone::NoName);
    let mut add = |data| {
        message.add_answer(Record::from_rdata(query.name.clone(), 0, data));
    };
    match said {
        Zone::Addresses(addresses) => {
            addresses.iter().filter_map(|text| address(text, query.query_type)).for_each(add);
        }
        Zone::Long(addresses) if stream => {
            addresses.iter().filter_map(|text| address(text, query.query_type)).for_each(add);
        }
        Zone::Long(_) => message.metadata.truncation = true,
        Zone::Services(services) if query.query_type == RecordType::SRV => {
            let host = |text: &str| Name::from_ascii(format!("{text}.")).expect("the test's own name");
            for (weight, port, target, _) in &services {
                add(RData::SRV(SRV::new(1, *weight, *port, host(target))));
            }
            for (_, _, target, told) in services {
                for kind in [RecordType::A, RecordType::AAAA] {
                    if let Some(data) = told.and_then(|told| address(told, kind)) {
                        message.add_additional(Record::from_rdata(host(target), 0, data));
                    }
                }
            }
        }
        Zone::Services(_) => {}
        Zone::Texts(texts) if query.query_type == RecordType::TXT => {
            texts.into_iter().for_each(|text| add(RData::TXT(TXT::new(vec![text]))));
        }
        Zone::Texts(_) => {}
        Zone::NoName => message.metadata.response_code = ResponseCode::NXDomain,
        Zone::Refused => message.metadata.response_code = ResponseCode::Refused,
        Zone::Silence => return None,
    }
    message.add_query(query);
    message.to_vec().ok()
}

fn address(text: &str, asked: RecordType) -> Option<RData> {
    match (text.parse().expect("the test's own address"), asked) {
        (IpAddr::V4(address), RecordType::A) => Some(RData::A(A(address))),
        (IpAddr::V6(address), RecordType::AAAA) => Some(RData::AAAA(AAAA(address))),
        _ => None,
    }
}
