//! The dates of certificates in the exporter. HAProxy has no equivalent.

use std::fmt::Write;
use std::sync::Arc;

use crate::config_view::ConfigView;
use crate::field::DescribedMetric;

/// The scope of a scrape.
pub(crate) const SCOPE: &str = "certificate";

/// The name without the object.
pub(crate) const NAME: &str = "not_after_seconds";
const HELP: &str = "End of the certificate's validity, in seconds since 1970.";

/// The number of certificates in a piece.
const A_PIECE: usize = 256;

/// The metrics: object, name, type, description, labels.
pub(crate) fn described() -> impl Iterator<Item = DescribedMetric> {
    [(SCOPE, NAME.to_owned(), "gauge", HELP, &["certificate", "name"][..])].into_iter()
}

/// Returns the text of the metrics in pieces: one series for each certificate file, with the first host name in it.
pub(crate) fn metrics(view: Arc<ConfigView>, is_wanted: bool) -> impl Iterator<Item = Vec<u8>> {
    let names = if is_wanted { view.tls.certificates() } else { Vec::new() };
    let mut is_described = false;
    (0..names.len().div_ceil(A_PIECE)).map(move |piece| {
        let mut out = String::new();
        for name in names.iter().skip(piece * A_PIECE).take(A_PIECE) {
            let Some(certificate) = view.tls.certificate(name) else { continue };
            if !std::mem::replace(&mut is_described, true) {
                let _ = writeln!(
                    out,
                    "# HELP weir_certificate_{NAME} {HELP}\n# TYPE weir_certificate_{NAME} gauge"
                );
            }
            let host = certificate.names.first().map_or("", |host| &**host);
            let (file, host, end) = (escape(name), escape(host), certificate.validity.1);
            let _ = writeln!(out, "weir_certificate_{NAME}{{certificate=\"{file}\",name=\"{host}\"}} {end}");
        }
        out.into_bytes()
    })
}

/// Escapes the value of a label. A certificate may contain any text.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
