//! The pieces in which statistics are written.

mod common;

use std::sync::Arc;

use state::server::Admin;
use statistics::info::InfoFormat;
use statistics::pieces::StatPieces;
use statistics::stat::{RowFilter, Show};
use statistics::{ConfigView, Statistics};

/// The rows of all servers of a large backend take far more memory than their text, so each piece makes only its own.
#[test]
fn rows_are_created_when_their_piece_is_written() {
    let servers: Vec<_> = (1..=1000).map(|id| common::server(id, &format!("s{id}"), false, false)).collect();
    let last = servers[999].clone();
    let view =
        ConfigView { proxies: vec![common::proxy(3, "be", false, true, servers)], ..ConfigView::default() };
    let statistics = Statistics::new(Arc::default(), view);
    let show = Show::now(&statistics, false);
    let mut pieces = StatPieces::new(statistics.view(), RowFilter::default(), show, InfoFormat::Plain, false);
    let first = pieces.next().expect("a piece");
    assert!(first.contains("\nbe,s1,") && !first.contains("\nbe,s999,"));
    last.change_admin(Admin::FORCED_MAINT, 0, 1);
    let rest: String = pieces.collect();
    let row = rest.lines().find(|line| line.starts_with("be,s1000,")).expect("a row of the last server");
    assert!(row.contains(",MAINT,"), "{row}");
    assert_eq!((first + &rest).lines().filter(|line| line.starts_with("be,")).count(), 1001);
}
