//! The full-screen form for walls: the verdict, the tiles, and the squares of every proxy.

use std::fmt::Write;

use crate::page::figures::{escape, percent, rate};
use crate::page::html::{Page, PageLine};
use crate::page::standing::Level;
use crate::stat;

impl Page {
    pub(super) fn write_wall_begin(&self, out: &mut String) {
        out.push_str("<div class=wb>");
    }

    /// A proxy on the wall.
    pub(super) fn write_wall(&self, line: &PageLine, out: &mut String) {
        let proxy = &self.view.proxies[line.place].state;
        let side = if line.is_backend { "b" } else { "f" };
        let class = if line.urgency.0 > Level::Notice { line.urgency.0.class() } else { "" };
        let _ = write!(out, "<div id=/{side}{} class=\"{class}\"><h3>{}</h3>", proxy.id, escape(&proxy.name));
        out.push_str("<div class=q>");
        if line.is_backend {
            self.write_squares(proxy, &line.census, 400, out);
        } else {
            let _ = write!(out, "<small>{}</small>", stat::frontend_status(proxy));
        }
        let failed = if line.load.failed > 0.0 {
            format!("{} failed", percent(line.load.failed))
        } else {
            String::new()
        };
        let class = if line.load.failed >= 5.0 { "bad" } else { "dim" };
        let _ = writeln!(
            out,
            "</div><p><span>{}/s</span><span class={class}>{failed}</span></p></div>",
            rate(line.load.rate)
        );
    }
}
