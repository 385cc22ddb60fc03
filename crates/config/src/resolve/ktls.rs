//! `ktls` on `bind` and `server` lines and in crt-lists (manual, 5.1 and 5.2): TLS runs in user space, and a line that requests
//! kernel TLS produces a message.

use diag::{Diagnostic, Span};

use crate::draft::tls::KernelWord;
use crate::resolve::ResolveContext;

/// Checks the `ktls` parameter of a line. `place` is a prefix for the message, for lines in other files.
///
/// # Errors
/// The global section does not allow experimental directives.
pub(crate) fn check(
    given: Option<KernelWord>,
    place: &str,
    context: &mut ResolveContext<'_>,
) -> Result<(), Diagnostic> {
    let Some((on, span)) = given else { return Ok(()) };
    context.names.experiments.set(true);
    if !context.names.experimental {
        let text =
            "'ktls' directive is experimental, must be allowed via a global 'expose-experimental-directives'";
        return Err(Diagnostic::alert(format!("{place}`ktls` is experimental"))
            .at(span)
            .help("add `expose-experimental-directives` to the global section to allow it")
            .haproxy(format!("{place}{text}")));
    }
    if on && !context.tls.no_kernel && !context.setting.no_kernel_tls {
        warn(span, place, context);
    }
    Ok(())
}

fn warn(span: Span, place: &str, context: &mut ResolveContext<'_>) {
    let has = context.setting.kernel_has_tls.is_some_and(|has| has());
    let why =
        if has { "kernel TLS is not supported yet" } else { "the kernel does not support it (CONFIG_TLS)" };
    context.diagnostics.push(
        Diagnostic::warning(format!("{place}`ktls on`: {why}: TLS is handled in user space"))
            .at(span)
            .help("use `ktls off`, `noktls` in the global section, or -dT to silence this warning"),
    );
}
