//! The parts below the table: events, certificates and the busiest entries of stick tables. Only on pages that show the whole process.

use std::fmt::Write;

use base::clock::{Date, WallTime};
use state::journal;

use crate::page::attention::certificate_name;
use crate::page::figures::{count, duration, escape, number};
use crate::page::html::Page;

/// The most events that are shown.
const EVENTS: usize = 12;

/// The most certificates that are shown.
const CERTIFICATES: usize = 20;

impl Page {
    pub(super) fn write_extras(&self, out: &mut String) {
        if !self.shows_process() || self.options.scope.is_some() {
            return;
        }
        out.push_str("<div class=c>");
        self.write_events(out);
        self.write_certificates(out);
        if self.shows_addresses() {
            self.write_tables(out);
        }
        out.push_str("</div>");
    }

    fn write_events(&self, out: &mut String) {
        let events = journal::latest(EVENTS);
        if events.is_empty() {
            return;
        }
        out.push_str("<section class=\"p ev\" id=\"/events\"><h2>Events</h2><ol>");
        let now = WallTime::now().seconds;
        for event in events {
            let date = Date::local(event.at.seconds);
            let (hour, minute, second) = (date.hour, date.minute, date.second);
            out.push_str("<li><time>");
            // Writing into a String cannot fail.
            if now - event.at.seconds > 86_400 {
                let _ = write!(out, "{} {} ", date.day, date.month_name());
            }
            let _ = write!(out, "{hour:02}:{minute:02}:{second:02}</time><span>");
            // Messages about servers begin with the name, which is already shown.
            let text = event.text.strip_prefix("Server ").and_then(|text| text.strip_prefix(&*event.object));
            if &*event.object != "-" {
                let _ = write!(out, "<b>{}</b> ", escape(&event.object));
            }
            out.push_str(&escape(text.unwrap_or(&event.text).trim_start()));
            if event.count > 1 {
                let _ = write!(out, " <small>{} times</small>", number(event.count));
            }
            if let Some(previous) = event.previous {
                let _ = write!(out, " <small>after {}</small>", duration(previous.as_secs()));
            }
            out.push_str("</span>");
        }
        out.push_str("</ol></section>");
    }

    fn write_certificates(&self, out: &mut String) {
        let collected = self.statistics.collected.load();
        let mut used = collected.certificates.iter().filter(|term| term.is_used).peekable();
        if used.peek().is_none() {
            return;
        }
        out.push_str("<section class=p id=\"/certificates\"><h2>Certificates</h2><ol>");
        for term in used.by_ref().take(CERTIFICATES) {
            let days = term.days();
            let (class, text) = match days {
                ..0 => ("bad", "expired".to_owned()),
                0..7 => ("bad", count(days as usize, "day")),
                7..14 => ("mid", count(days as usize, "day")),
                _ => ("dim", count(days as usize, "day")),
            };
            let renewed = if term.is_ordered { " · renewed by acme" } else { "" };
            let _ = write!(
                out,
                "<li><b>{}</b><span class=dim>{}{renewed}</span><span class={class}>{text}</span>",
                escape(certificate_name(term)),
                escape(if term.name.is_empty() { "" } else { &term.file })
            );
        }
        let more = used.count();
        if more > 0 {
            let _ = write!(out, "<li class=dim>{} more, which end later", number(more as u64));
        }
        out.push_str("</ol></section>");
    }

    fn write_tables(&self, out: &mut String) {
        for top in &self.statistics.collected.load().tops {
            let column = &top.column;
            let period = match column.period_ms {
                0 => String::new(),
                ms if ms.is_multiple_of(1000) => format!("({}s)", ms / 1000),
                ms => format!("({ms}ms)"),
            };
            let _ = write!(
                out,
                "<section class=p id=\"/table.{0}\"><h2>Busiest keys of {0}, {1}{period}</h2><ol>",
                escape(top.table.name()),
                column.data.name()
            );
            for (key, value) in &top.entries {
                let _ = write!(out, "<li><b>{}</b><span></span><span>{}</span>", escape(key), number(*value));
            }
            let (used, size) = (top.table.used(), top.table.settings.size);
            let _ = write!(
                out,
                "<li class=dim>{} of {} entries used</ol></section>",
                number(used.into()),
                number(size.into())
            );
        }
    }
}
