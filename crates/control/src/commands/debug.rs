//! `debug dev …` (management manual, 9.3), in expert mode: commands that block a worker, end the process or produce output.
//! Commands that access memory or close descriptors are refused with a reason: see the table of commands.

use std::time::{Duration, Instant};

use base::output::to_standard_error;

use crate::invocation::{Call, CommandReply, error};

/// `debug dev log`: writes a line to the logs of the process.
pub(crate) fn log(call: &mut Call<'_>) -> CommandReply {
    if let Some(keeper) = call.runtime.keeper() {
        keeper.log(&call.args.join(" "));
    }
    CommandReply::Done
}

/// `debug dev delay`: the calling worker sleeps, which blocks everything it serves.
pub(crate) fn delay(call: &mut Call<'_>) -> CommandReply {
    hold_up(call, "100", 1, std::thread::sleep)
}

/// `debug dev loop`: blocks the worker with a busy loop. The watchdog reports it like any other.
pub(crate) fn busy_loop(call: &mut Call<'_>) -> CommandReply {
    match call.arg(1) {
        "" | "warn" => {}
        "isolated" => {
            return error("Workers cannot be blocked individually: threads are not isolated.");
        }
        _ => return error("Usage: debug dev loop <ms> [warn]"),
    }
    hold_up(call, "", 2, |time| {
        let begin = Instant::now();
        while begin.elapsed() < time {
            std::hint::spin_loop();
        }
    })
}

/// The longest permitted delay of a worker, in ms.
const LONGEST: u64 = 60_000;

/// Calls `how` with the duration given by the first word, or `usual` by default. More than `most` words are an error.
fn hold_up(call: &Call<'_>, usual: &str, most: usize, how: impl FnOnce(Duration)) -> CommandReply {
    let asked = match call.arg(0) {
        "" => usual,
        asked => asked,
    };
    match asked.parse() {
        Ok(ms @ 0..=LONGEST) if call.args.len() <= most => {
            how(Duration::from_millis(ms));
            CommandReply::Done
        }
        _ => error(format!("Expects a number of milliseconds from 0 to {LONGEST}.")),
    }
}

/// `debug dev exit`: ends the process immediately without cleanup.
pub(crate) fn exit(call: &mut Call<'_>) -> CommandReply {
    match call.arg(0) {
        "" => std::process::exit(0),
        code => match code.parse::<u8>() {
            Ok(code) => std::process::exit(code.into()),
            Err(_) => error("Expects an exit status from 0 to 255."),
        },
    }
}

/// `debug dev abort` and `debug dev panic`: ends the process with SIGABRT.
pub(crate) fn abort(call: &mut Call<'_>) -> CommandReply {
    if !call.args.is_empty() {
        return error("This command takes no argument.");
    }
    let pid = std::process::id();
    to_standard_error(&format!("[ALERT]    ({pid}) : aborted by a command on the runtime socket.\n"));
    std::process::abort()
}

/// `debug dev bug`: simulates an error in the program: a panic that ends the requesting connection and is counted (`show
/// activity`).
pub(crate) fn bug(call: &mut Call<'_>) -> CommandReply {
    if !call.args.is_empty() {
        return error("This command takes no argument.");
    }
    panic!("panic requested by a command on the runtime socket");
}

/// `debug dev check` and `debug dev warn`: writes a warning to standard error.
pub(crate) fn warn(call: &mut Call<'_>) -> CommandReply {
    if !call.args.is_empty() {
        return error("This command takes no argument.");
    }
    let pid = std::process::id();
    to_standard_error(&format!(
        "[WARNING]  ({pid}) : warning requested by a command on the runtime socket.\n"
    ));
    CommandReply::Done
}

/// The size of a piece, and the maximum in total.
const PIECE: usize = 4096;
const MOST: usize = 1 << 30;

/// `debug dev write`: writes that many bytes of output.
pub(crate) fn write(call: &mut Call<'_>) -> CommandReply {
    match call.arg(0).parse::<usize>() {
        Ok(size @ 0..=MOST) => {
            let pieces = (0..size).step_by(PIECE).map(move |at| ".".repeat(PIECE.min(size - at)));
            CommandReply::Pieces(Box::new(pieces))
        }
        _ if call.args.is_empty() => error("Missing output size."),
        _ => error(format!("Expects a number of bytes from 0 to {MOST}.")),
    }
}
