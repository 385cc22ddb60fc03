//! One exchange to compare: lines of a configuration, what clients do and what servers do. Made by
//! [`crate::exchanges::random`], cut down by [`crate::exchanges::reduce`], carried out by [`crate::exchanges::act`].

use std::fmt;

/// What a client or a server does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Send(Vec<u8>),
    /// Milliseconds; what arrives meanwhile is read.
    Pause(u64),
    /// Milliseconds in which nothing is read: what arrives meanwhile fills the buffers of the kernel.
    Idle(u64),
    /// Until this many responses arrived in full (clients only).
    Await(usize),
    /// Ends its own direction.
    Shut,
    /// Closes with a reset.
    Reset,
    Close,
}

/// When a server begins its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Connected,
    Head,
    Body,
}

/// What a server does with one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) when: When,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// Parameters behind the address.
    pub(crate) parameters: String,
    /// Nobody listens at its address.
    pub(crate) is_refused: bool,
    /// For its first request, its second and so on; the last one again for all that follow.
    pub(crate) answers: Vec<Answer>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) front: Vec<String>,
    pub(crate) back: Vec<String>,
    pub(crate) servers: Vec<Server>,
    pub(crate) clients: Vec<Vec<Step>>,
}

impl Case {
    /// Its part of a configuration: a frontend and a backend with this number in their names.
    pub(crate) fn sections(&self, number: usize, bind: &str, servers: &[String]) -> String {
        let mut text = format!("frontend f{number}\n    bind {bind}\n");
        for line in &self.front {
            text.push_str(&format!("    {line}\n"));
        }
        text.push_str(&format!("    default_backend b{number}\nbackend b{number}\n"));
        for line in &self.back {
            text.push_str(&format!("    {line}\n"));
        }
        for (place, (server, address)) in self.servers.iter().zip(servers).enumerate() {
            text.push_str(&format!("    server s{place} {address} {}\n", server.parameters));
        }
        text
    }
}

/// Bytes as the text of a string literal.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    if bytes.len() > 600 {
        let end = bytes.len() - 40;
        return format!(
            "\"{}\" ... {} bytes ... \"{}\"",
            bytes[..400].escape_ascii(),
            end - 400,
            bytes[end..].escape_ascii()
        );
    }
    format!("\"{}\"", bytes.escape_ascii())
}

impl fmt::Display for Step {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Send(bytes) => write!(to, "send {}", quoted(bytes)),
            Step::Pause(ms) => write!(to, "pause {ms} ms"),
            Step::Idle(ms) => write!(to, "read nothing for {ms} ms"),
            Step::Await(count) => write!(to, "await {count} responses"),
            Step::Shut => to.write_str("shut"),
            Step::Reset => to.write_str("reset"),
            Step::Close => to.write_str("close"),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<String> = self
            .servers
            .iter()
            .map(|server| if server.is_refused { "(refused)" } else { "(listens)" }.to_owned())
            .collect();
        to.write_str(&self.sections(0, "(port)", &addresses))?;
        for (number, steps) in self.clients.iter().enumerate() {
            writeln!(to, "client {number}:")?;
            steps.iter().try_for_each(|step| writeln!(to, "    {step}"))?;
        }
        for (number, server) in self.servers.iter().enumerate() {
            for (turn, answer) in server.answers.iter().enumerate() {
                writeln!(to, "server s{number}, request {turn}, from {:?}:", answer.when)?;
                answer.steps.iter().try_for_each(|step| writeln!(to, "    {step}"))?;
            }
        }
        Ok(())
    }
}
