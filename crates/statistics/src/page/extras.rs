//! The parts below the table: certificates and the busiest entries of stick tables. Only on pages that show the whole process.

use std::fmt::Write;

use crate::page::attention::certificate_name;
use crate::page::figures::{count, escape, number};
use crate::page::html::Page;

/// The most certificates that are shown.
const CERTIFICATES: usize = 20;

impl Page {
    pub(super) fn write_extras(&self, out: &mut String) {
        if !self.shows_process() || self.options.scope.is_some() {
            return;
        }
        out.push_str("<div class=c>");
        self.write_certificates(out);
        if self.shows_addresses() {
            self.write_tables(out);
        }
        out.push_str("</div>");
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
