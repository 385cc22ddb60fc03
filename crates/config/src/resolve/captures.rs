//! Capture slots: those that a frontend declares, and the check that those named by rules (`capture … id`) exist.

use diag::Diagnostic;
use sample::transaction::CaptureSlot;

use crate::draft::Statement;
use crate::draft::settings::DeclaredCapture;
use crate::resolve::names::CaptureDraft;
use crate::resolve::rule_sets::{CaptureUse, CompiledRules};
use crate::resolve::{PendingProxy, ResolveContext};

/// Allocates a slot for a declared capture; a backend has no slots.
pub(crate) fn declare(capture: &DeclaredCapture<'_>, context: &ResolveContext<'_>) {
    if let Some(captures) = &mut *context.names.captures.borrow_mut() {
        captures.push((capture.header.map(Into::into), capture.length));
    }
}

/// The slot of a capturing rule, with the location of its number in the rule.
pub(crate) fn used(slot: CaptureSlot, words: &[sample::Word<'_>], statement: &Statement) -> CaptureUse {
    let number = words.iter().skip_while(|word| word.text != "id").nth(1);
    CaptureUse { slot, place: number.map_or(statement.span, |word| word.span) }
}

/// Refuses rules of a frontend that name a slot which the frontend does not have. For backends, the frontend is known only at run
/// time: a slot that it does not have is ignored (manual, 4.4 `capture`).
pub(crate) fn check(
    proxy: &PendingProxy<'_>,
    rules: &CompiledRules,
    requests: Option<&[CaptureDraft]>,
    context: &mut ResolveContext<'_>,
) {
    let Some(requests) = requests else { return };
    let responses = &proxy.settings.response_captures;
    for CaptureUse { slot, place } in &rules.captures_used {
        let (direction, number, count) = match *slot {
            CaptureSlot::Request(number) => ("request", number, requests.len()),
            CaptureSlot::Response(number) => ("response", number, responses.len()),
        };
        if number < count {
            continue;
        }
        let name = proxy.settings.name;
        let has = match count {
            0 => format!("`{name}` declares no {direction} captures"),
            1 => format!("`{name}` has a single {direction} capture slot, 0"),
            _ => format!("`{name}` has the {direction} capture slots 0 to {}", count - 1),
        };
        let unknown = Diagnostic::alert(format!("unknown capture slot {number}"))
            .at(*place)
            .label(has)
            .help(format!("declare one with `declare capture {direction} len <length>`"))
            .haproxy_whole(format!(
                "Proxy '{name}': unable to find capture id '{number}' referenced by http-{direction} capture rule."
            ));
        context.diagnostics.push(unknown);
    }
}
