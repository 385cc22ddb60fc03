//! Comparative trials of both proxies: reloads, dying servers, memory, floods, the runtime socket. Each trial prints a table with a
//! row for each of the two; `docs/dev/reliability.md` has the figures. Everything is bounded in count and time.
//!
//!     weir-bench trials [reload|origins|memory|pressure|floods|descriptors|control|servers ...] [scale=1]
//!
//! `scale=10` makes ten times as many reloads, requests and connections where that is possible; `HAPROXY35` in the environment
//! names a second HAProxy for `reload`, `WAYS="passed bound master in-place"` and `PROXIES="haproxy haproxy35 weir"` select its
//! rows. Not called by tests.

mod control;
mod floods;
mod load;
mod memory;
mod origins;
mod pressure;
mod reload;
mod subject;

use std::process::ExitCode;

use reload::{Traffic, Way};
use subject::{Outcome, Program};

/// Prints the table of a trial.
type Trial = fn(&[Program; 2], usize);

/// The trials by name.
const TRIALS: &[(&str, Trial)] = &[
    ("reload", reloads),
    ("origins", dying_origins),
    ("memory", memory),
    ("pressure", pressure),
    ("floods", floods),
    ("descriptors", descriptors),
    ("control", control),
    ("servers", servers),
];

fn heading(columns: &[&str]) {
    println!("\n| {} |", columns.join(" | "));
    println!("|{}", " --- |".repeat(columns.len()));
}

fn row(result: Outcome<String>) {
    match result {
        Ok(row) => println!("{row}"),
        Err(error) => println!("| failed: {error} |"),
    }
}

fn reloads(programs: &[Program; 2], scale: usize) {
    heading(&[
        "reload by",
        "connections",
        "proxy",
        "reloads",
        "ms each",
        "answered",
        "reset",
        "cut off",
        "refused or late",
        "wrong",
        "KiB more",
        "descriptors more",
    ]);
    let mut all = programs.to_vec();
    if let Some(path) = std::env::var_os("HAPROXY35") {
        all.insert(1, Program { name: "haproxy35", path: path.into() });
    }
    for way in [Way::Passed, Way::Bound, Way::Master, Way::InPlace] {
        for traffic in Traffic::ALL {
            let able = |program: &&Program| {
                (!matches!(way, Way::InPlace) || program.name == "weir")
                    && chosen("PROXIES", program.name)
                    && chosen("WAYS", way.word())
            };
            for program in all.iter().filter(able) {
                row(reload::run(program, way, traffic, 20 * scale));
            }
        }
    }
}

/// Returns whether an environment variable is unset or includes the name.
fn chosen(variable: &str, name: &str) -> bool {
    std::env::var(variable).map_or(true, |all| all.split(' ').any(|one| one == name))
}

fn dying_origins(programs: &[Program; 2], scale: usize) {
    heading(&["http-reuse", "proxy", "kills", "answered", "5xx", "lost", "foreign"]);
    for reuse in origins::REUSES {
        for program in programs {
            row(origins::run(program, reuse, 2 * scale as u64));
        }
    }
}

fn memory(programs: &[Program; 2], scale: usize) {
    heading(&["what", "proxy", "KiB before", "KiB with them", "KiB after", "CPU ms", ""]);
    let both =
        |run: &dyn Fn(&Program) -> Outcome<String>| programs.iter().for_each(|program| row(run(program)));
    let many = 100_000 * scale as u64;
    both(&|program| memory::requests(program, many, true));
    both(&|program| memory::requests(program, many / 10, false));
    let request = b"GET /x HTTP/1.1\r\nHost: trial\r\n\r\n";
    both(&|program| memory::held(program, "idle connections", 4000, request, true));
    let upload = b"POST /up HTTP/1.1\r\nHost: trial\r\nContent-Length: 1000000\r\n\r\nsome bytes";
    both(&|program| memory::held(program, "slow uploads", 1000, upload, false));
    let head = b"GET /slow HTTP/1.1\r\nHost: trial\r\nX-Slow: ";
    both(&|program| memory::held(program, "slow heads", 4000, head, false));
}

fn pressure(programs: &[Program; 2], scale: usize) {
    heading(&["what", "proxy", "result", "KiB more", "CPU ms", "ms", "afterwards"]);
    let both =
        |run: &dyn Fn(&Program) -> Outcome<String>| programs.iter().for_each(|program| row(run(program)));
    both(&|program| pressure::slow_reader(program));
    both(&|program| pressure::small_chunks(program, 100_000 * scale));
    both(&|program| pressure::pipelined(program, 10_000));
    both(&|program| pressure::interim(program, 10_000 * scale));
    let chunked = b"POST / HTTP/1.1\r\nHost: trial\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
    let get = b"GET / HTTP/1.1\r\nHost: trial\r\n";
    both(&|program| pressure::flood(program, "flood of trailers", chunked, b"X-T: yyyy\r\n", 16 << 20));
    both(&|program| pressure::flood(program, "flood of header lines", get, b"X-H: yyyy\r\n", 16 << 20));
    both(&|program| pressure::flood(program, "one endless header", get, b"yyyyyyyy", 16 << 20));
    let size = b"POST / HTTP/1.1\r\nHost: trial\r\nTransfer-Encoding: chunked\r\n\r\n";
    both(&|program| pressure::flood(program, "one endless chunk size", size, b"00000000", 16 << 20));
}

fn floods(programs: &[Program; 2], scale: usize) {
    heading(&[
        "flood of HTTP/2",
        "proxy",
        "KiB sent",
        "connections",
        "KiB more",
        "CPU ms",
        "CPU ms a MiB",
        "ms",
        "afterwards",
    ]);
    for flood in weir_bench::floods::floods() {
        programs.iter().for_each(|program| row(floods::run(program, &flood, (32 << 20) * scale)));
    }
}

fn descriptors(programs: &[Program; 2], _: usize) {
    heading(&["proxy", "300 clients with 100 descriptors", "CPU ms", "served afterwards", "the process"]);
    programs.iter().for_each(|program| row(pressure::descriptors(program)));
}

fn control(programs: &[Program; 2], _: usize) {
    heading(&[
        "proxy",
        "clients answered",
        "KiB more",
        "requests answered",
        "requests lost",
        "CPU ms",
        "the socket",
    ]);
    programs.iter().for_each(|program| row(control::abused(program)));
}

fn servers(programs: &[Program; 2], scale: usize) {
    heading(&[
        "proxy",
        "rounds",
        "commands refused",
        "requests answered",
        "5xx",
        "lost or wrong",
        "KiB more",
        "the process",
    ]);
    programs.iter().for_each(|program| row(control::servers(program, 3 * scale as u64)));
}

/// Runs the trials on the two programs named by the first arguments; the others select trials and the scale.
pub(crate) fn main(words: &[String]) -> ExitCode {
    let mut words = words.iter();
    let (Some(weir), Some(haproxy)) = (words.next(), words.next()) else {
        let names: Vec<&str> = TRIALS.iter().map(|(name, _)| *name).collect();
        eprintln!("usage: weir-bench trials [{}] [scale=N]", names.join("|"));
        return ExitCode::from(2);
    };
    let programs =
        [Program { name: "haproxy", path: haproxy.into() }, Program { name: "weir", path: weir.into() }];
    let (mut scale, mut wanted) = (1, Vec::new());
    for word in words {
        match word.strip_prefix("scale=").map(str::parse) {
            Some(Ok(number)) => scale = number,
            None if TRIALS.iter().any(|(name, _)| name == word) => wanted.push(word),
            _ => {
                eprintln!("weir-bench: `{word}` is no trial");
                return ExitCode::from(2);
            }
        }
    }
    for (name, trial) in TRIALS {
        if wanted.is_empty() || wanted.iter().any(|word| *word == name) {
            trial(&programs, scale);
        }
    }
    ExitCode::SUCCESS
}
