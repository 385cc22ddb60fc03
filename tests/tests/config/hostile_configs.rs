//! Broken, endless and oversized configurations: each ends with exit code 0 or 1, in time and without a panic.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_tests::{eventually, program, scratch, workspace};

/// Returns the result of `-c`: the exit code, if it ended by itself, and the messages.
fn check(command: &mut Command, file: &Path) -> (Option<i32>, String) {
    let path = file.with_extension("messages");
    let messages = std::fs::File::create(&path).expect("the directory takes files");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(messages)
        .spawn()
        .expect("the program runs");
    let mut status = None;
    let mut ended = || {
        status = child.try_wait().ok().flatten();
        status.is_some()
    };
    // The largest ones need seconds of CPU time, and other tests run at the same time.
    let _ = eventually(&mut ended) || eventually(&mut ended) || eventually(&mut ended);
    let _ = child.kill();
    let _ = child.wait();
    let text = std::fs::read(&path).unwrap_or_default();
    (status.and_then(|status| status.code()), String::from_utf8_lossy(&text).into_owned())
}

fn check_text(text: &[u8], file: &Path) -> (Option<i32>, String) {
    std::fs::write(file, text).expect("the directory takes files");
    check(Command::new(program()).args(["-c", "-f"]).arg(file), file)
}

const DEFAULTS: &str = "defaults\n mode http\n timeout client 5s\n timeout connect 5s\n timeout server 5s\nfrontend f\n bind :8000\n";

#[test]
fn non_files_are_errors_and_dev_null_is_empty() {
    let directory = scratch("pipes");
    let pipe = directory.join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo makes a pipe");
    let file = directory.join("haproxy.cfg");
    let keywords: &[(&str, &str)] = &[
        (DEFAULTS, " errorfile 400 @\n"),
        ("", "http-errors e\n errorfile 400 @\n"),
        (DEFAULTS, " acl a path -f @\n"),
        (DEFAULTS, " http-request set-header x %[path,map(@)]\n"),
        (DEFAULTS, " http-request return status 200 content-type text/plain file @\n"),
        (DEFAULTS, " http-request return status 200 content-type text/plain lf-file @\n"),
        ("global\n h1-case-adjust-file @\n", DEFAULTS),
        ("crt-store s\n load crt @ alias a jwt on\n", DEFAULTS),
    ];
    for (before, after) in keywords {
        for (no_file, what) in [(pipe.as_path(), "a pipe"), (Path::new("/dev/zero"), "a device")] {
            let text = format!("{before}{after}").replace('@', &no_file.to_string_lossy());
            let (code, messages) = check_text(text.as_bytes(), &file);
            assert_eq!(code, Some(1), "{text}: {messages}");
            assert!(messages.contains(&format!("it is {what}, not a file")), "{text}: {messages}");
        }
    }
    let (code, messages) = check_text(format!("{DEFAULTS} errorfile 408 /dev/null\n").as_bytes(), &file);
    assert_eq!(code, Some(0), "{messages}");
}

#[test]
fn pipes_as_state_files_do_not_block_the_start() {
    let directory = scratch("pipes");
    let pipe = directory.join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo makes a pipe");
    let port = weir_tests::free_port();
    let shown = pipe.display();
    let text = format!(
        "global\n server-state-file {shown}\n stats-file {shown}\n{}\nbackend b\n load-server-state-from-file global\n \
         server s 127.0.0.1:1\n",
        DEFAULTS.replace("8000", &port.to_string())
    );
    let weir = weir_tests::Weir::start(&text, &[port]);
    // The port answers before states are read.
    assert!(weir.says("it is a pipe, not a file"), "{}", weir.messages());
}

#[test]
fn exponentially_growing_variable_is_an_error() {
    let directory = scratch("doubling");
    let file = directory.join("haproxy.cfg");
    let doubled = " setenv A \"${A}${A}\"\n".repeat(64);
    std::fs::write(&file, format!("global\n setenv A 0123456789abcdef\n{doubled}{DEFAULTS}"))
        .expect("a file");
    let line = "ulimit -v 1000000 && exec \"$0\" -c -f \"$1\"";
    let (code, messages) = check(Command::new("sh").args(["-c", line]).arg(program()).arg(&file), &file);
    assert_eq!(code, Some(1), "{messages}");
    assert!(messages.contains("line too long"), "{messages}");
}

#[test]
fn huge_configurations_are_parsed() {
    let directory = scratch("large");
    let file = directory.join("haproxy.cfg");
    let words: String = (0..500_000).map(|number| format!(" /w{number}")).collect();
    let (code, messages) = check_text(format!("{DEFAULTS} acl a path{words}\n").as_bytes(), &file);
    assert!(code == Some(1) && messages.contains("too many words"), "{code:?}: {messages}");
    std::fs::write(directory.join("words"), words.replace(' ', "\n")).expect("a file");
    let list = format!("{DEFAULTS} acl a path -f {}\n", directory.join("words").display());
    assert_eq!(check_text(list.as_bytes(), &file).0, Some(0));
    let lines: String =
        (0..100_000).map(|number| format!(" acl a{} path /{number}\n", number % 1000)).collect();
    let (code, messages) = check_text(format!("{DEFAULTS}{lines}").as_bytes(), &file);
    assert_eq!(code, Some(0), "{messages}");
    let wrong: String = (0..100_000).map(|number| format!(" wrong{number}\n")).collect();
    assert_eq!(check_text(format!("{DEFAULTS}{wrong}").as_bytes(), &file).0, Some(1));
    let deep = format!("{}{}", ".if 1\n".repeat(50_000), ".endif\n".repeat(50_000));
    let (code, messages) = check_text(format!("{DEFAULTS}{deep}").as_bytes(), &file);
    assert!(code == Some(1) && messages.contains("too many nested '.if'"), "{code:?}: {messages}");
}

/// A pseudo-random generator with a fixed sequence.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides.max(1) as u64) as usize
    }
}

/// Fragments inserted into configurations.
const JUNK: &[&[u8]] = &[
    b"\0",
    b"\xff\xfe",
    b"\xc3",
    b"\"",
    b"'",
    b"\\",
    b"${",
    b"${A[*]}",
    b"%[",
    b"(",
    b")",
    b",",
    b"{",
    b"}",
    b"!",
    b"99999999999999999999",
    b"-1",
    b"\r",
    b"\t",
    b" ",
    b"\n",
    b"\n.if 1\n",
    b"\n.endif\n",
    b"\n.else\n",
    b"\nfrontend x\n",
    b"\nbackend\n",
    b"\ndefaults d from d\n",
    b" if { ",
    b" unless ",
    b" -f /dev/zero ",
    b"\xe2\x80\xae",
];

fn mutate(text: &mut Vec<u8>, dice: &mut Dice) {
    let at = dice.roll(text.len());
    match dice.roll(8) {
        0 => {
            if let Some(byte) = text.get_mut(at) {
                *byte ^= 1 << dice.roll(8);
            }
        }
        1 => drop(text.splice(at..at, JUNK[dice.roll(JUNK.len())].iter().copied())),
        2 => text.truncate(at),
        3 => {
            let deep = dice.roll(150);
            text.splice(at..at, [b"\n".as_slice(), &b".if 1\n".repeat(deep)].concat());
        }
        _ => {
            let mut lines: Vec<Vec<u8>> =
                text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            let (one, other) = (dice.roll(lines.len()), dice.roll(lines.len()));
            match dice.roll(3) {
                _ if lines.is_empty() => {}
                0 => drop(lines.remove(one)),
                1 => lines.insert(other, lines[one].clone()),
                _ => lines.swap(one, other),
            }
            *text = lines.concat();
        }
    }
}

#[test]
fn broken_configurations_get_a_verdict() {
    const COUNT: usize = 2_400;
    let source = workspace().join("tests/configs");
    let mut bases: Vec<_> = std::fs::read_dir(&source)
        .expect("configurations to break")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "cfg"))
        .collect();
    bases.sort();
    let bases: Vec<Vec<u8>> = bases.iter().map(|path| std::fs::read(path).expect("a file")).collect();
    let (next, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let break_some = || {
        let directory = scratch("broken");
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= COUNT {
                return;
            }
            let mut dice =
                Dice(0x9e37_79b9_7f4a_7c15 ^ (number as u64 + 1).wrapping_mul(0x2545_f491_4f6c_dd1d));
            let mut text = bases[number % bases.len()].clone();
            (0..=dice.roll(4)).for_each(|_| mutate(&mut text, &mut dice));
            let file = directory.join("haproxy.cfg");
            std::fs::write(&file, &text).expect("the directory takes files");
            let mut command = Command::new(program());
            let (code, messages) = check(command.args(["-c", "-f"]).arg(&file).current_dir(&source), &file);
            let shown = String::from_utf8_lossy(&text);
            assert!(matches!(code, Some(0 | 1)), "number {number} ended with {code:?}: {messages}\n{shown}");
            assert!(!messages.contains("panicked"), "number {number}: {messages}\n{shown}");
            let told = messages.contains("[ALERT]");
            assert_eq!(told, code == Some(1), "number {number} says what is wrong: {messages}\n{shown}");
            refused.fetch_add(usize::from(told), Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(break_some), scope.spawn(break_some)];
        threads.into_iter().for_each(|thread| thread.join().expect("every one ends"));
    });
    // Most are broken, but not all.
    let refused = refused.into_inner();
    assert!((COUNT / 3..COUNT).contains(&refused), "{refused} of {COUNT}");
}
