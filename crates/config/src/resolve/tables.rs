//! Stick tables (manual, 11.1), built from the `stick-table` lines of proxies and the `table` lines of `peers` sections.

use std::collections::HashSet;
use std::sync::Arc;

use base::units::DefaultUnit::{self, Milliseconds};
use base::units::{parse_duration, parse_size};
use diag::Diagnostic;
use plan::peers::SharedTable;
use state::table::{Column, DataType, KeyType, MOST_ELEMENTS, ServerKey, Table, TableSettings, ValueForm};
use syntax::Word;

use crate::draft::args::Args;
use crate::draft::{SectionKind, Statement};
use crate::resolve::{PendingProxy, ResolveContext, carry_over};
use crate::tables::environment::LOCAL_PEER;

mod aggregate;
pub(super) mod fleet_limit;

/// A parsed line: the table's settings, and the names it refers to.
struct TableLine<'a> {
    settings: TableSettings,
    write_to: Option<&'a Word>,
    peers: Option<&'a Word>,
    aggregate: Option<aggregate::AggregateLine<'a>>,
}

/// A line that declares a table, and the table's name.
struct Declared<'a> {
    statement: &'a Statement,
    name: Box<str>,
    /// The section that contains it, and its name there.
    section: Option<(&'a str, &'a str)>,
}

/// Returns all lines that declare tables. Those of proxies are first.
fn declared<'a>(pending: &[PendingProxy<'a>], context: &mut ResolveContext<'_>) -> Vec<Declared<'a>> {
    let mut all = Vec::new();
    for settings in pending.iter().map(|proxy| &proxy.settings) {
        if let Some(statement) = settings.stick_table {
            all.push(Declared { statement, name: settings.name.into(), section: None });
        }
        for statement in &settings.peers.tables {
            let Some(name) = statement.arguments().first() else {
                context.diagnostics.push(
                    Diagnostic::alert("`table` expects a name")
                        .at(statement.end())
                        .label(format!("usage: table {}", statement.keyword.signature))
                        .haproxy("table: missing size."),
                );
                continue;
            };
            let full = format!("{}/{name}", settings.name).into();
            all.push(Declared { statement, name: full, section: Some((settings.name, name)) });
        }
    }
    all
}

/// Creates all tables of proxies and `peers` sections, and registers their names.
pub(crate) fn tables(pending: &[PendingProxy<'_>], context: &mut ResolveContext<'_>) -> Vec<Arc<Table>> {
    let sticky = sticky(pending);
    let (mut tables, mut targets) = (Vec::new(), Vec::new());
    for Declared { statement, name, section } in declared(pending, context) {
        let mut line = match read(&name, statement, section.is_some(), sticky.contains(&*name), context) {
            Ok(line) => line,
            Err(mut error) => {
                if section.is_some() {
                    error.haproxy = error.haproxy.map(|text| text.replacen("stick-table", "table", 1));
                }
                context.diagnostics.push(error);
                continue;
            }
        };
        let shared_in = match (section, line.peers) {
            (Some((section, _)), _) => sharing(section, pending),
            (None, Some(word)) => match find_section(word, &name, pending, context) {
                Ok(found) => found,
                Err(error) => {
                    context.diagnostics.push(error);
                    continue;
                }
            },
            (None, None) => None,
        };
        line.settings.peers = shared_in.map(Into::into);
        match aggregate::settings(&line, section.is_some(), pending, context) {
            Ok(found) => line.settings.aggregate = found,
            Err(error) => {
                context.diagnostics.push(error);
                continue;
            }
        }
        let previous = context.previous.filter(|_| line.write_to.is_none());
        let table = carry_over::table(line.settings, previous);
        if let Some(shared_in) = shared_in {
            let name = section.map_or_else(|| name.clone(), |(_, own)| format!("/{own}").into());
            let all = context.shared.entry(shared_in.into()).or_default();
            all.push(SharedTable { table: table.clone(), name });
        }
        if let Some(target) = line.write_to {
            targets.push((table.clone(), target));
        }
        if context.names.tables.insert(name.clone(), table.clone()).is_some() {
            context.diagnostics.push(two_tables(&name, section.is_some(), statement));
        }
        tables.push(table);
    }
    aggregate::check_names(&tables, pending, context);
    let sources: Vec<Arc<Table>> = targets.iter().map(|(table, _)| table.clone()).collect();
    for (table, target) in targets {
        let outcome = link(&table, target, &sources, context);
        context.note(outcome);
    }
    tables
}

fn two_tables(name: &str, of_section: bool, statement: &Statement) -> Diagnostic {
    let error =
        Diagnostic::alert(format!("there are two stick tables named `{name}`")).at(statement.keyword_span());
    if of_section {
        let (section, name) = name.split_once('/').unwrap_or(("", name));
        return error.haproxy(format!(
            "stick-table name '{name}' conflicts with table declared in peers '{section}'."
        ));
    }
    error.help("a frontend and a backend with the same name cannot both have one")
}

/// The `peers` section of that name, if it is active.
fn sharing<'a>(name: &str, pending: &[PendingProxy<'a>]) -> Option<&'a str> {
    let is_it = |proxy: &&PendingProxy<'_>| {
        proxy.settings.kind == SectionKind::Peers && proxy.settings.name == name && !proxy.settings.disabled
    };
    pending.iter().find(is_it).map(|proxy| proxy.settings.name)
}

/// Resolves `peers` to a section, if that is active.
fn find_section<'a>(
    word: &Word,
    table: &str,
    pending: &[PendingProxy<'a>],
    context: &ResolveContext<'_>,
) -> Result<Option<&'a str>, Diagnostic> {
    let sections = || pending.iter().filter(|proxy| proxy.settings.kind == SectionKind::Peers);
    let Some(section) = sections().find(|proxy| proxy.settings.name == word.as_str()) else {
        let near = diag::suggest(word, sections().map(|proxy| proxy.settings.name));
        return Err(Diagnostic::alert(format!("there is no peers section named `{word}`"))
            .at(word.span())
            .did_you_mean(near)
            .haproxy_whole(format!("Proxy '{table}': unable to find sync peers '{word}'.")));
    };
    if section.settings.servers.is_empty() && section.settings.binds.is_empty() {
        let local = context.environment.get(LOCAL_PEER).unwrap_or_default();
        return Err(Diagnostic::alert(format!("peers section `{word}` has no peers"))
            .at(word.span())
            .haproxy_whole(format!(
                "Proxy '{table}': unable to find local peer '{local}' in peers section '{word}'."
            )));
    }
    Ok(sharing(word, pending))
}

/// `write-to`: finds the other table, which must have the same type of keys. `sources` are the tables with `write-to`.
fn link(
    table: &Arc<Table>,
    target: &Word,
    sources: &[Arc<Table>],
    context: &ResolveContext<'_>,
) -> Result<(), Diagnostic> {
    let wrong = |message: String, why: String| {
        let name = table.name();
        Diagnostic::alert(message)
            .at(target.span())
            .haproxy_whole(format!("Proxy '{name}': failed to initialize stick-table: write-to: {why}."))
    };
    let Some(other) = context.names.tables.get(target.as_str()) else {
        let known = context.names.tables.keys().map(|name| &**name);
        let near = diag::suggest(target, known);
        let text = format!("there is no stick table `{target}`");
        return Err(wrong(text, format!("table '{target}' doesn't exist")).did_you_mean(near));
    };
    if Arc::ptr_eq(table, other) {
        let why = format!("table '{target}' cannot write to itself");
        return Err(wrong("a table cannot write to itself".to_owned(), why));
    }
    if sources.iter().any(|source| Arc::ptr_eq(source, other)) {
        let why = format!("table '{target}' is already used as a source table");
        let help = format!("remove the `write-to` of table `{target}`, or write to a table without one");
        let text = format!("table `{target}` has a `write-to` itself, so it cannot be a target");
        return Err(wrong(text, why).help(help));
    }
    let (own, of_other) = (&table.settings, &other.settings);
    if (own.kind, own.key_length) != (of_other.kind, of_other.key_length) {
        let text = format!("table `{target}` has keys of a different type or length");
        return Err(wrong(text, format!("cannot use table '{target}': incompatible types or lengths")));
    }
    let _ = table.write_to.set(other.clone());
    Ok(())
}

/// The names of tables used by `stick` lines, which store servers.
fn sticky<'a>(pending: &[PendingProxy<'a>]) -> HashSet<&'a str> {
    let mut names = HashSet::new();
    for proxy in pending {
        for line in proxy.settings.all_rules().filter(|line| line.keyword.name.starts_with("stick ")) {
            let words = line.arguments();
            let named = words.iter().position(|word| word == "table").and_then(|at| words.get(at + 1));
            names.insert(named.map_or(proxy.settings.name, |word| word.as_str()));
        }
    }
    names
}

/// The parameters of a line.
#[rustfmt::skip]
const KNOWN: &[&str] = &[
    "type", "size", "expire", "nopurge", "recv-only", "write-to", "peers", "aggregate", "srvkey", "brates-factor", "store",
];

fn read<'a>(
    name: &str,
    statement: &'a Statement,
    of_section: bool,
    sticky: bool,
    context: &mut ResolveContext<'_>,
) -> Result<TableLine<'a>, Diagnostic> {
    let keyword = statement.keyword.name;
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    if of_section {
        args.next();
    }
    let (mut kind, mut size, mut columns) = (None, 0, Vec::new());
    let mut line = TableLine {
        settings: TableSettings {
            name: name.into(),
            kind: KeyType::Ip4,
            key_length: 0,
            size: 0,
            expire_ms: 0,
            nopurge: false,
            recv_only: false,
            server_key: ServerKey::Name,
            bytes_factor: 1,
            columns: Vec::new(),
            peers: None,
            aggregate: None,
        },
        write_to: None,
        peers: None,
        aggregate: None,
    };
    let own = &mut line.settings;
    while let Some(word) = args.next() {
        match word.as_str() {
            "type" => kind = Some(key_type(&mut args)?),
            "size" => size = entries(&mut args)?,
            "expire" => {
                let word = args.value()?;
                own.expire_ms = time(&args, word, "expire")?;
            }
            "nopurge" => own.nopurge = true,
            "recv-only" => own.recv_only = true,
            "write-to" => line.write_to = Some(args.value()?),
            "peers" if !of_section => line.peers = Some(args.value()?),
            "aggregate" => line.aggregate = Some(aggregate::read(word, &mut args)?),
            "srvkey" => {
                own.server_key = match args.value()?.as_str() {
                    "name" => ServerKey::Name,
                    "addr" => ServerKey::Address,
                    other => {
                        return Err(args
                            .wrong(format!("unknown server key type `{other}`"))
                            .did_you_mean(diag::suggest(other, ["name", "addr"]))
                            .help("use `name` or `addr`")
                            .haproxy(format!("stick-table : unknown server key type '{other}'.")));
                    }
                }
            }
            "brates-factor" => {
                let word = args.value()?;
                own.bytes_factor =
                    word.parse().ok().filter(|factor| (1..=1024).contains(factor)).ok_or_else(|| {
                        args.wrong(format!("invalid byte rate factor `{word}`"))
                            .label("1 to 1024")
                            .haproxy("stick-table: argument 'brates-factor' must be greater than 0 and lower or equal than 1024.")
                    })?;
            }
            "store" => {
                let list = args.value()?;
                store(list, &mut columns, &mut args)?;
            }
            other => {
                return Err(args
                    .wrong(format!("unknown argument `{other}` for `{keyword}`"))
                    .did_you_mean(diag::suggest(other, KNOWN.iter().copied()))
                    .haproxy(format!("stick-table: unknown argument '{other}'.")));
            }
        }
    }
    let missing = |what: &str, usage: &str| {
        Diagnostic::alert(format!("`{keyword}` needs `{usage}`"))
            .at(statement.end())
            .haproxy(format!("stick-table: missing {what}."))
    };
    if size == 0 {
        return Err(missing("size", "size <entries>"));
    }
    let (kind, key_length) = kind.ok_or_else(|| missing("type", "type <type>"))?;
    if sticky {
        for data in [DataType::ServerId, DataType::ServerKey] {
            if !columns.iter().any(|column: &Column| column.data == data) {
                columns.push(Column::new(data, 1, 0));
            }
        }
    }
    let line_settings = &mut line.settings;
    (line_settings.kind, line_settings.key_length) = (kind, key_length);
    (line_settings.size, line_settings.columns) = (size, columns);
    Ok(line)
}

/// The maximum key length.
const LONGEST: usize = 16_384;

fn key_type(args: &mut Args<'_, '_>) -> Result<(KeyType, usize), Diagnostic> {
    let word = args.value()?;
    let (kind, usual) = match word.as_str() {
        "ip" | "ipv4" => return Ok((KeyType::Ip4, 4)),
        "ipv6" => return Ok((KeyType::Ip6, 16)),
        "integer" => return Ok((KeyType::Int, 4)),
        // HAProxy's 32 bytes include a terminating zero, and peers share tables only if their keys have equal length.
        "string" => (KeyType::Str, 31),
        "binary" => (KeyType::Bin, 32),
        other => {
            return Err(args
                .wrong(format!("unknown key type `{other}`"))
                .did_you_mean(diag::suggest(other, ["ip", "ipv4", "ipv6", "integer", "string", "binary"]))
                .haproxy(format!("stick-table: unknown type '{other}'.")));
        }
    };
    if !args.take("len") {
        return Ok((kind, usual));
    }
    let word = args.value()?;
    let length = word.parse::<usize>().ok().filter(|length| (1..=LONGEST).contains(length));
    length.map(|length| (kind, length)).ok_or_else(|| {
        args.wrong(format!("invalid key length `{word}`"))
            .label(format!("use 1 to {LONGEST}"))
            .haproxy("'len' expects a positive integer argument.")
    })
}

fn entries(args: &mut Args<'_, '_>) -> Result<u32, Diagnostic> {
    let word = args.value()?;
    let wrong = |text: String, haproxy: String| args.wrong(text).haproxy(haproxy);
    let size = parse_size(word).map_err(|error| {
        let text = match word.find(|c: char| !c.is_ascii_digit()) {
            Some(at) => {
                format!("stick-table: unexpected character '{}' in argument of 'size'.", &word[at..=at])
            }
            None => "stick-table: missing size.".to_owned(),
        };
        wrong(format!("invalid table size `{word}`: {error}"), text)
    })?;
    u32::try_from(size).ok().filter(|size| *size < u32::MAX / 2).ok_or_else(|| {
        wrong(format!("a table of {word} entries is too large"), "stick-table: size is too large.".to_owned())
    })
}

fn time(args: &Args<'_, '_>, word: &Word, what: &str) -> Result<u32, Diagnostic> {
    milliseconds(word, Milliseconds).ok_or_else(|| {
        let found = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
        args.wrong(format!("invalid time `{word}`"))
            .label("use a number and one of: us, ms, s, m, h, d; the maximum is about 24 days")
            .haproxy(format!(
                "stick-table: unexpected character '{}' in argument of '{what}'.",
                word.get(found..=found).unwrap_or_default()
            ))
    })
}

/// A time in milliseconds that fits into 31 bits.
fn milliseconds(text: &str, unit: DefaultUnit) -> Option<u32> {
    let time = parse_duration(text, unit).ok()?;
    u32::try_from(time.as_millis()).ok().filter(|ms| *ms <= i32::MAX as u32)
}

/// `store`: a list of data types, some with arguments in parentheses.
fn store(list: &Word, columns: &mut Vec<Column>, args: &mut Args<'_, '_>) -> Result<(), Diagnostic> {
    let (mut start, mut depth) = (0, 0);
    for (at, letter) in list.char_indices().chain([(list.len(), ',')]) {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth <= 0 || at == list.len() => {
                let text = &list[start..at];
                let error = |diagnostic: Diagnostic| diagnostic.at(list.part(start, at));
                match data_type(text).map_err(error)? {
                    column if columns.iter().any(|other| other.data == column.data) => {
                        let name = column.data.name();
                        args.diagnostics.push(
                            Diagnostic::warning(format!("`{name}` is already stored"))
                                .at(list.part(start, at))
                                .haproxy(format!(
                                    "stick-table: store option '{name}' already enabled, ignored."
                                )),
                        );
                    }
                    column => {
                        check_arrays(columns, column).map_err(error)?;
                        columns.push(column);
                    }
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    Ok(())
}

fn data_type(text: &str) -> Result<Column, Diagnostic> {
    let (name, inner) = match text.split_once('(') {
        Some((name, rest)) => (name, Some(rest.strip_suffix(')').unwrap_or(rest))),
        None => (text, None),
    };
    let Some(data) = DataType::find(name) else {
        return Err(Diagnostic::alert(format!("unknown data type `{name}`"))
            .did_you_mean(diag::suggest(name, DataType::all().map(DataType::name)))
            .haproxy(format!("stick-table: unknown store option '{name}'.")));
    };
    let is_rate = data.form() == ValueForm::Rate;
    let parts: Vec<&str> = inner.map_or(Vec::new(), |inner| inner.split(',').map(str::trim).collect());
    let wanted = usize::from(data.is_array()) + usize::from(is_rate);
    if parts.len() < wanted {
        let what = match (data.is_array(), is_rate) {
            (true, true) => "a number and a period: `gpc_rate(2,10s)`".to_owned(),
            (true, false) => format!("a number: `{name}(2)`"),
            _ => format!("a period: `{name}(10s)`"),
        };
        return Err(Diagnostic::alert(format!("`{name}` needs {what}"))
            .haproxy(format!("stick-table: missing argument to store option '{name}'.")));
    }
    if parts.len() > wanted {
        return Err(Diagnostic::alert(format!("unexpected argument `{}` for `{name}`", parts[wanted]))
            .haproxy(format!("stick-table: unexpected argument to store option '{name}'.")));
    }
    let mut parts = parts.into_iter();
    let count = match data.is_array() {
        true => parts
            .next()
            .and_then(|count| count.parse().ok())
            .filter(|count| (1..=MOST_ELEMENTS).contains(count)),
        false => Some(1),
    };
    let count = count.ok_or_else(|| {
        Diagnostic::alert(format!("`{name}` can have 1 to {MOST_ELEMENTS} elements")).haproxy(format!(
            "stick-table: array size is out of allowed range (1-{MOST_ELEMENTS}) for store option '{name}'."
        ))
    })?;
    let period = match parts.next() {
        Some(period) => milliseconds(period, Milliseconds).filter(|ms| *ms > 0).ok_or_else(|| {
            Diagnostic::alert(format!("invalid period `{period}`"))
                .haproxy(format!("stick-table: error when processing store option '{name}'."))
        })?,
        None => 0,
    };
    Ok(Column::new(data, count, period))
}

/// Checks that an array is not stored together with the single counters it replaces.
fn check_arrays(columns: &[Column], new: Column) -> Result<(), Diagnostic> {
    const GROUPS: [(DataType, &[DataType], &str); 3] = [
        (DataType::Gpc, &[DataType::Gpc0, DataType::Gpc1], "gpc[0/1]"),
        (DataType::GpcRate, &[DataType::Gpc0Rate, DataType::Gpc1Rate], "gpc[0/1]_rate"),
        (DataType::Gpt, &[DataType::Gpt0], "gpt0"),
    ];
    for (array, single, shown) in GROUPS {
        let has = |data: DataType| data == new.data || columns.iter().any(|column| column.data == data);
        if has(array) && single.iter().any(|data| has(*data)) {
            let name = array.name();
            return Err(Diagnostic::alert(format!("`{name}` replaces `{shown}`: a table cannot store both"))
                .haproxy(format!(
                    "stick-table: simultaneous usage of '{name}' and '{shown}' in a same table is not permitted as '{name}' overrides '{shown}'."
                )));
        }
    }
    Ok(())
}
