//! The statistics page (configuration manual, `stats enable`): a request results in HTML, CSV or JSON. A pure function of the
//! state. `control` executes the forms; `proxy` matches the URI, authenticates and sends.

mod assets;
mod attention;
mod details;
mod extras;
mod figures;
mod html;
mod request;
mod standing;
mod table;
mod totals;
mod wall;

use std::sync::Arc;

use base::raw::bytes_of;

pub use self::request::{ActionOutcome, PageRequest, PageResponse, PageSettings, decode};
use self::request::{PageFormat, options};
use crate::info::InfoFormat;
use crate::pieces::{self, StatPieces};
use crate::process::Statistics;
use crate::stat::{RowFilter, Show};

/// The page, in the format that the URI selects; without a body for HEAD.
pub fn show(
    statistics: &Arc<Statistics>,
    settings: &PageSettings,
    request: &PageRequest<'_>,
) -> PageResponse {
    let options = options(request.uri, &settings.uri);
    let view = statistics.view();
    let filter = RowFilter {
        up: options.up,
        no_maintenance: options.no_maintenance,
        scope: options.scope.clone(),
        names: settings.scope.clone(),
        ..RowFilter::default()
    };
    let shown = Show::now(statistics, settings.show_legends);
    let pieces = |format| {
        let pieces = StatPieces::new(view.clone(), filter.clone(), shown, format, false);
        Box::new(pieces.map(|text| bytes_of(&text).into_owned())) as Box<dyn Iterator<Item = Vec<u8>>>
    };
    let one =
        |text: String| Box::new(std::iter::once(text.into_bytes())) as Box<dyn Iterator<Item = Vec<u8>>>;
    let (kind, body) = match options.format {
        PageFormat::Csv => ("text/plain", pieces(InfoFormat::Plain)),
        PageFormat::Typed => ("text/plain", pieces(InfoFormat::Typed)),
        PageFormat::Json => ("application/json", pieces(InfoFormat::Json)),
        PageFormat::Schema => ("application/json", one(pieces::schema_text())),
        PageFormat::Info => {
            ("text/plain", one(crate::info::show_info(statistics, InfoFormat::Plain, false, false)))
        }
        PageFormat::Html => {
            let (statistics, settings) = (statistics.clone(), settings.clone());
            let page = html::Page::new(statistics, settings, options.clone(), filter, request.admin);
            ("text/html; charset=utf-8", Box::new(page.pieces()) as Box<dyn Iterator<Item = Vec<u8>>>)
        }
    };
    let mut headers = vec![("cache-control", "no-cache".to_owned()), ("content-type", kind.to_owned())];
    if options.format == PageFormat::Html {
        let mut policy = format!(
            "default-src 'none'; style-src {}; script-src {}; connect-src 'self'; img-src data:; base-uri 'none'; \
             form-action 'self'",
            assets::STYLE.source,
            assets::SCRIPT.source
        );
        // Pages that change nothing, such as that for walls, may be embedded in frames of other sites.
        if request.admin && !options.is_wall {
            headers.push(("x-frame-options", "SAMEORIGIN".to_owned()));
            policy.push_str("; frame-ancestors 'self'");
        } else if !settings.frame_ancestors.is_empty() {
            policy.push_str("; frame-ancestors ");
            policy.push_str(&settings.frame_ancestors);
        }
        headers.push(("content-security-policy", policy));
    }
    if let Some(refresh) = settings.refresh.filter(|_| !options.no_refresh) {
        headers.push(("refresh", refresh.as_secs().max(1).to_string()));
    }
    let body = if request.method == http::Method::Head { Box::new(std::iter::empty()) } else { body };
    PageResponse { status: 200, headers, body }
}

/// A redirect to the page after its form was handled, so that reloading it does not repeat the
/// action. The page then shows the outcome.
pub fn redirect(settings: &PageSettings, request: &PageRequest<'_>, outcome: ActionOutcome) -> PageResponse {
    let options = options(request.uri, &settings.uri);
    let mut location = format!("{};st={}", settings.uri, outcome.code());
    if options.up {
        location.push_str(";up");
    }
    if options.no_refresh {
        location.push_str(";norefresh");
    }
    if let Some(scope) = &options.scope {
        let mut encoded = Vec::new();
        http::uri::url_encode(scope.as_bytes(), &mut encoded);
        location.push_str(";scope=");
        location.push_str(&String::from_utf8_lossy(&encoded));
    }
    let headers = vec![
        ("cache-control", "no-cache".to_owned()),
        ("content-type", "text/plain".to_owned()),
        ("location", location),
    ];
    PageResponse { status: 303, headers, body: Box::new(std::iter::empty()) }
}
