//! A connection, a request with its response, and configured names, for tests.

#![allow(dead_code, unreachable_pub, missing_docs)]

pub(crate) mod everyday;
pub(crate) mod rows;

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use diag::Span;
use runtime::Local;
use sample::Acls;
use sample::auth::{Password, Userlist};
use sample::pattern::PatternSets;
use sample::vars::Variables;
use sample::{
    Accepted, Condition, Endpoint, Ends, Env, Expression, Format, FormatFor, Names, Place, Scope, Session,
    Test, Tlv, Transaction, Word, Words,
};
use state::proxy::ProxySeed;
use state::server::{ServerAddress, ServerSeed};
use state::table::{Column, DataType, KeyType, ServerKey, Table, TableSettings, ValueForm};
use state::{Listener, Mode, Process, Proxy, Server};

/// Fixed kernel metrics.
struct Kernel;

impl sample::Sockets for Kernel {
    fn client_tcp(&self) -> Option<sample::TcpFacts> {
        Some(sample::TcpFacts {
            rtt_us: 12_345,
            rttvar_us: 2_345,
            unacked: Some(1),
            sacked: Some(2),
            lost: 3,
            retrans: Some(4),
            fackets: Some(5),
            reordering: 6,
        })
    }
    fn server_tcp(&self) -> Option<sample::TcpFacts> {
        Some(sample::TcpFacts { rtt_us: 999, rttvar_us: 1_001, ..Default::default() })
    }
    fn saved_syn(&self) -> Option<Vec<u8>> {
        Some(b"SYN".to_vec())
    }
    fn descriptors(&self) -> [Option<i32>; 2] {
        [Some(11), Some(12)]
    }
}

/// A test environment with configured names.
pub struct World {
    pub files: HashMap<&'static str, &'static str>,
    pub frontend: Arc<Proxy>,
    pub backend: Arc<Proxy>,
    pub users: Arc<Userlist>,
    pub variables: RefCell<Variables>,
    pub patterns: RefCell<PatternSets>,
    pub acls: Acls,
    pub process: Process,
    pub session: Session,
    pub transaction: Transaction,
    pub place: Place,
    pub request_bytes: Vec<u8>,
    pub response_bytes: Vec<u8>,
    pub complete: bool,
    pub longest_head: usize,
    pub certificates: Arc<sample::keys::Certificates>,
    /// The frontend's stick table, also available as `x`: string keys and all data types.
    pub table: Arc<Table>,
    /// Whether kernel metrics are available.
    pub kernel: bool,
    /// The warnings about compiled expressions and formats.
    pub warnings: RefCell<Vec<String>>,
}

impl Names for World {
    fn predicate(
        &self,
        names: Vec<String>,
        scope: &Scope<'_>,
    ) -> Result<Box<dyn sample::named_acls::Predicate>, String> {
        Ok(Box::new(Condition::of_names(names.into_iter(), scope)?))
    }

    fn backend(&self, name: &str) -> Option<Arc<Proxy>> {
        (name == "be").then(|| Arc::clone(&self.backend))
    }

    fn frontend(&self, name: &str) -> Option<Arc<Proxy>> {
        (name == "fe").then(|| Arc::clone(&self.frontend))
    }

    fn userlist(&self, name: &str) -> Option<Arc<Userlist>> {
        (name == "users").then(|| Arc::clone(&self.users))
    }

    fn table(&self, name: &str) -> Option<Arc<Table>> {
        matches!(name, "fe" | "x").then(|| Arc::clone(&self.table))
    }

    fn http_errors(&self, _: &str) -> Option<Arc<[(u16, Arc<[u8]>)]>> {
        None
    }

    fn certificates(&self) -> Arc<sample::keys::Certificates> {
        Arc::clone(&self.certificates)
    }

    fn directory(&self) -> Option<Arc<sample::scope::Directory>> {
        let (frontend, backend) = (Arc::clone(&self.frontend), Arc::clone(&self.backend));
        Some(Arc::new(sample::scope::Directory {
            frontends: HashMap::from([("fe".into(), frontend)]),
            backends: HashMap::from([("be".into(), backend)]),
        }))
    }

    fn resolvers(&self, name: &str) -> Option<Arc<state::resolvers::ResolversSection>> {
        (name == "dns").then(|| state::resolvers::ResolversSection::new(name, []))
    }

    fn warn(&self, warning: diag::Diagnostic) {
        self.warnings.borrow_mut().push(warning.message.to_string());
    }

    fn read_file(&self, path: &str) -> Result<Vec<u8>, String> {
        self.files
            .get(path)
            .map(|text| text.as_bytes().to_vec())
            .ok_or_else(|| "No such file or directory".into())
    }
}

/// A stick table that stores every data type.
fn table() -> Arc<Table> {
    let single = [DataType::Gpt0, DataType::Gpc0, DataType::Gpc1, DataType::Gpc0Rate, DataType::Gpc1Rate];
    let column = |data: DataType| {
        let period = if data.form() == ValueForm::Rate { 10_000 } else { 0 };
        Column::new(data, if data.is_array() { 3 } else { 1 }, period)
    };
    Table::new(TableSettings {
        name: "fe".into(),
        kind: KeyType::Str,
        key_length: 32,
        size: 100,
        expire_ms: 60_000,
        nopurge: false,
        recv_only: false,
        server_key: ServerKey::Name,
        bytes_factor: 1,
        columns: DataType::all().filter(|data| !single.contains(data)).map(column).collect(),
        peers: None,
        aggregate: None,
    })
}

pub fn proxy(id: u32, name: &str, is_frontend: bool) -> Arc<Proxy> {
    Arc::new(Proxy::new(ProxySeed {
        id,
        name: name.into(),
        mode: Mode::Http,
        is_frontend,
        is_backend: !is_frontend,
        maxconn: 0,
        session_limit: 0,
        disabled: false,
    }))
}

pub fn server(id: u32, name: &str) -> Arc<Server> {
    Server::new(ServerSeed {
        id,
        name: name.into(),
        proxy: "be".into(),
        backup: false,
        maxconn: 10,
        minconn: 0,
        maxqueue: 0,
        address: ServerAddress::Ip(SocketAddr::from(([10, 1, 1, 1], 80))),
        weight: 100,
        disabled: false,
        checked: false,
    })
}

fn end(text: &str) -> Endpoint {
    Endpoint::Ip(text.parse().expect("an address with a port"))
}

impl World {
    /// A GET request from a client at 192.0.2.7, with a response.
    pub fn new() -> Self {
        let frontend = proxy(2, "fe", true);
        frontend.capture_lengths.store(Some(Arc::new([[64, 64].into(), [].into()])));
        let backend = proxy(3, "be", false);
        let chosen = server(1, "s1");
        backend.servers.store(Arc::new(vec![Arc::clone(&chosen), server(2, "s2")]));
        let mut users = Userlist::new("users");
        ["ops", "dev", "admin"].iter().for_each(|group| users.add_group(group));
        users.add_user("joe", Some(Password::Plain(b"secret"[..].into())), vec!["ops".into(), "dev".into()]);
        let session = Session::new(Accepted {
            ends: Ends { source: end("10.9.9.9:5000"), destination: end("203.0.113.1:80") },
            wall_us: 1_234_567_890_123_456,
            us: 1_000_000,
            frontend: Local::new(frontend.clone()),
            listener: Local::new(Arc::new(Listener::new(1, "sock-1".into(), "*:80".into(), 0))),
            id: 9,
        });
        session.set_source(end("192.0.2.7:4711"));
        let tlv = |kind, value: &[u8]| Tlv { kind, value: value.into() };
        session.set_tlvs(vec![tlv(5, b"uid-1"), tlv(2, b"sni.example")]);
        session.received_proxy.set(true);
        session.ready_us.set(1_003_000);
        session.requests.set(1);
        let mut transaction = Transaction { is_http: true, has_response: true, ..Transaction::default() };
        let request = &mut transaction.request;
        request.start_request(b"GET", b"/static/img/logo.png?a=1&b=two&A=3&empty=");
        for (name, value) in [
            ("Host", "www.Example.com:8080"),
            ("User-Agent", "curl/8 \"x\""),
            ("X-Forwarded-For", "10.0.0.1, 10.0.0.2"),
            ("X-Forwarded-For", "10.0.0.3"),
            ("Cookie", "sid=abc; n=42; sid=def"),
            ("Accept-Language", "de-DE,fr;q=0.9,en;q=0.8"),
            ("Authorization", "Basic am9lOnNlY3JldA=="),
            ("Content-Length", "12"),
        ] {
            assert!(request.append(name.as_bytes(), value.as_bytes()));
        }
        let response = &mut transaction.response;
        response.start_response(404, None);
        for (name, value) in [("Set-Cookie", "sid=new; Path=/"), ("Server", "unit"), ("X-Num", "17 bytes")] {
            assert!(response.append(name.as_bytes(), value.as_bytes()));
        }
        transaction.request_line =
            transaction.keep(b"GET /static/img/logo.png?a=1&b=two&A=3&empty= HTTP/1.1");
        transaction.unique_id = transaction.keep(b"id-77");
        let first = transaction.keep(b"agent {x|y}");
        transaction.request_captures = vec![first, None];
        transaction.backend = Some(Local::new(backend.clone()));
        transaction.server = Some(Local::new(chosen));
        transaction.server_ends = Some((end("10.1.1.254:33000"), end("10.1.1.1:80")));
        transaction.status = 404;
        transaction.server_status = 404;
        transaction.bytes_in = 300;
        transaction.bytes_out = 2750;
        transaction.id = 31;
        let times = &mut transaction.times;
        times.idle_from = 1_000_000;
        times.started = 1_013_000;
        times.started_wall = 1_234_567_890_136_456;
        times.request = 1_023_000;
        times.queued = 1_024_000;
        times.connected = 1_054_000;
        times.response = 1_123_000;
        times.closed = 1_132_000;
        Self {
            files: HashMap::new(),
            frontend,
            backend,
            users: Arc::new(users),
            variables: RefCell::default(),
            patterns: RefCell::default(),
            acls: Acls::new(),
            process: Process::default(),
            session,
            transaction,
            place: Place::HttpRequest,
            request_bytes: b"name=x&v=two".to_vec(),
            response_bytes: Vec::new(),
            complete: true,
            longest_head: usize::MAX,
            certificates: Arc::default(),
            table: table(),
            kernel: false,
            warnings: RefCell::default(),
        }
    }

    pub fn scope(&self) -> Scope<'_> {
        Scope {
            names: self,
            variables: &self.variables,
            patterns: &self.patterns,
            acls: &self.acls,
            proxy: Some(&self.frontend),
            mode: Mode::Http,
            place: self.place,
            inherited: false,
        }
    }

    pub fn env(&self) -> Env<'_> {
        Env {
            request_bytes: &self.request_bytes,
            response_bytes: &self.response_bytes,
            sockets: self.kernel.then_some(&Kernel as &dyn sample::Sockets),
            complete: self.complete,
            ..Env::of(&self.process, &self.session, &self.transaction, 2_000)
        }
    }

    /// Evaluates an expression to `type:text`. Returns the message if it does not compile, and `none` if there is no value.
    pub fn eval(&self, text: &str) -> String {
        let expression = match Expression::compile_str(text, Span::default(), &self.scope()) {
            Ok(expression) => expression,
            Err(error) => return format!("error: {}", error.message),
        };
        let env = self.env();
        match expression.eval(&env) {
            None => "none".into(),
            Some(value) => {
                let mut out = Vec::new();
                value.write_text(&mut out);
                format!("{}:{}", value.kind().name(), String::from_utf8_lossy(&out))
            }
        }
    }

    /// Declares an ACL.
    pub fn declare_acl(&mut self, name: &str, rest: &str) {
        let list = words(rest);
        let declared = sample::Criterion::compile(&mut Words::new(&list, Span::default()), &self.scope());
        let criterion = declared.unwrap_or_else(|error| panic!("{rest}: {}", error.message));
        self.acls.add(name.into(), criterion);
    }

    /// Evaluates a condition.
    pub fn test(&self, text: &str) -> Result<Test, String> {
        let list = words(text);
        let mut words = Words::new(&list, Span::default());
        let condition = Condition::compile(&mut words, &self.scope()).map_err(|error| error.message)?;
        Ok(condition.eval(&self.env()))
    }

    /// Renders a format.
    pub fn format(&self, text: &str, used_for: FormatFor) -> String {
        String::from_utf8_lossy(&self.format_bytes(text, used_for)).into_owned()
    }

    /// Renders a format to bytes.
    pub fn format_bytes(&self, text: &str, used_for: FormatFor) -> Vec<u8> {
        match Format::compile(text, Span::default(), &self.scope(), used_for) {
            Err(error) => format!("error: {}", error.message).into_bytes(),
            Ok(format) => {
                let mut out = Vec::new();
                format.render(&self.env(), &mut out);
                out
            }
        }
    }
}

/// Splits a line at blanks; the tests need no quoting.
pub fn words(text: &str) -> Vec<Word<'_>> {
    text.split(' ').filter(|word| !word.is_empty()).map(|text| Word { text, span: Span::default() }).collect()
}
