//! HTTP/2 settings and limits (`tune.h2.*`): the values announced to peers, and the treatment of peers that exceed them.

use std::thread;

use weir_tests::client::Client;
use weir_tests::multiplexed::{
    ACK, DATA, ENABLE_CONNECT_PROTOCOL, END_STREAM, ENHANCE_YOUR_CALM, Frames, GOAWAY, HEADER_TABLE_SIZE,
    HEADERS, INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, MAX_FRAME_SIZE, PING, REFUSED_STREAM, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, frame,
};
use weir_tests::versions::{backend, frontend};
use weir_tests::{Origin, Scratch, eventually};

#[test]
fn client_settings_follow_the_configuration() {
    let origin = Origin::text("x");
    let usual: [(u16, Option<u32>); 5] = [
        (MAX_CONCURRENT_STREAMS, Some(100)),
        (INITIAL_WINDOW_SIZE, Some(16_384)),
        (ENABLE_CONNECT_PROTOCOL, Some(1)),
        (HEADER_TABLE_SIZE, None),
        (MAX_FRAME_SIZE, None),
    ];
    type Said<'a> = (&'a str, &'a [(u16, Option<u32>)]);
    let cases: [Said<'_>; 8] = [
        ("", &usual),
        ("tune.h2.max-concurrent-streams 7", &[(MAX_CONCURRENT_STREAMS, Some(7))]),
        (
            "tune.h2.max-concurrent-streams 7\n tune.h2.fe.max-concurrent-streams 8",
            &[(MAX_CONCURRENT_STREAMS, Some(8))],
        ),
        ("tune.h2.initial-window-size 50000", &[(INITIAL_WINDOW_SIZE, Some(50_000))]),
        ("tune.h2.fe.initial-window-size 40000", &[(INITIAL_WINDOW_SIZE, Some(40_000))]),
        ("tune.h2.header-table-size 1024", &[(HEADER_TABLE_SIZE, Some(1024))]),
        ("tune.bufsize 32768\n tune.h2.max-frame-size 20000", &[(MAX_FRAME_SIZE, Some(20_000))]),
        ("h2-workaround-bogus-websocket-clients", &[(ENABLE_CONNECT_PROTOCOL, None)]),
    ];
    for (global, expected) in cases {
        let (_weir, port) = frontend(&format!(" {global}"), "", origin.port());
        let settings = Frames::connect(port).next_of(SETTINGS);
        for (setting, value) in expected {
            assert_eq!(settings.setting(*setting), *value, "{global}: {setting}");
        }
    }
}

#[test]
fn fewer_streams_are_announced_under_load() {
    let origin = Origin::text("x");
    // A task that runs on every turn while it is marked busy. `forced-yield` lets each turn run the whole loop, which takes far
    // longer than the 200 µs that `rq-load 10` allows.
    let script = "
        local busy = false
        core.register_cli({ 'busy' }, 'busy', function(applet) busy = true applet:send('yes') end)
        core.register_cli({ 'idle' }, 'idle', function(applet) busy = false applet:send('no') end)
        core.register_task(function()
            while true do
                if busy then
                    for _ = 1, 300000 do end
                    core.yield()
                else
                    core.msleep(1)
                end
            end
        end)
    ";
    let file = Scratch::holding("busy.lua", script);
    let global = format!(
        " nbthread 1\n tune.lua.forced-yield 10000000\n lua-load {file}\n stats socket runtime level admin\n tune.h2.fe.max-concurrent-streams 100 rq-load 10 min 7"
    );
    let (weir, port) = frontend(&global, "", origin.port());
    let told = || Frames::connect(port).next_of(SETTINGS).setting(MAX_CONCURRENT_STREAMS);
    assert!(eventually(|| told() == Some(100)), "{:?}", told());
    assert!(weir.ask("busy").contains("yes"));
    assert!(eventually(|| told().is_some_and(|told| (7..100).contains(&told))), "{:?}", told());
    assert!(weir.ask("idle").contains("no"));
    assert!(eventually(|| told() == Some(100)), "{:?}", told());
}

#[test]
fn server_settings_follow_the_configuration() {
    let cases = [
        ("tune.h2.be.initial-window-size 30000", INITIAL_WINDOW_SIZE, Some(30_000)),
        ("tune.h2.be.max-concurrent-streams 5", INITIAL_WINDOW_SIZE, Some(16_384)),
        ("tune.h2.header-table-size 512", HEADER_TABLE_SIZE, Some(512)),
    ];
    for (global, setting, value) in cases {
        let (listener, _weir, port) = backend(&format!(" {global}"), "", "");
        let mut client = Client::connect(port);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let settings = Frames::accept(&listener).next_of(SETTINGS);
        assert_eq!(settings.setting(setting), value, "{global}");
    }
}

#[test]
fn too_many_glitches_end_a_connection() {
    let origin = Origin::text("x");
    let (_weir, port) = frontend(" tune.h2.fe.glitches-threshold 8", "", origin.port());
    let mut client = Frames::connect(port);
    for stream in 0..40 {
        client.head(2 * stream + 1, END_STREAM, &[(":method", "GET"), ("X", "1")]);
    }
    let codes: Vec<u32> =
        client.rest().iter().filter(|frame| frame.kind == GOAWAY).map(|frame| frame.number(4)).collect();
    assert_eq!(codes.last(), Some(&ENHANCE_YOUR_CALM), "{codes:?}");
}

#[test]
fn too_many_glitches_of_a_server_end_its_connection() {
    let (listener, _weir, port) = backend(" tune.h2.be.glitches-threshold 3", "", "");
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut peer = Frames::accept(&listener);
    peer.next_of(HEADERS);
    for _ in 0..10 {
        // Shrinking windows.
        peer.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 64, 0]).send(SETTINGS, 0, 0, &[0, 4, 0, 0, 32, 0]);
    }
    assert!(peer.rest().iter().any(|frame| frame.kind == GOAWAY && frame.number(4) == ENHANCE_YOUR_CALM));
    assert_eq!(client.response().expect("an answer").status, 502);
}

#[test]
fn connection_ends_after_its_maximum_number_of_requests() {
    let origin = Origin::text("x");
    let (_weir, port) = frontend(" tune.h2.fe.max-total-streams 3", "", origin.port());
    let mut client = Frames::connect(port);
    for stream in [1, 3] {
        assert_eq!(client.get(stream, "/").next_head().0[0], ":status: 200");
    }
    client.get(5, "/");
    let mut seen = Vec::new();
    while let Some(frame) = client.next_frame() {
        match frame.kind {
            // The client has seen the announcement, and the end follows.
            PING if frame.flags & ACK == 0 => drop(client.send(PING, ACK, 0, &frame.payload)),
            GOAWAY => seen.push((frame.number(0), frame.number(4))),
            HEADERS => assert_eq!((frame.stream, client.fields(&frame)[0].as_str()), (5, ":status: 200")),
            _ => {}
        }
    }
    assert_eq!(seen, [(0x7fff_ffff, 0), (5, 0)]);
}

#[test]
fn frames_and_resets_are_processed_in_batches() {
    let origin = Origin::text("x");
    let global = " tune.h2.fe.max-frames-at-once 2\n tune.h2.fe.max-rst-at-once 1";
    let (_weir, port) = frontend(global, "", origin.port());
    let mut client = Frames::connect(port);
    let mut all = Vec::new();
    for number in 0..50u32 {
        all.extend_from_slice(&frame(PING, 0, 0, &u64::from(number).to_be_bytes()));
    }
    client.raw(&all);
    for number in 0..50u64 {
        let answer = client.find(|frame| frame.kind == PING && frame.flags & ACK != 0).expect("an answer");
        assert_eq!(answer.payload, number.to_be_bytes());
    }
    assert_eq!(client.get(1, "/").next_head().0[0], ":status: 200");
}

#[test]
fn server_frames_are_processed_in_batches() {
    let global = " tune.h2.be.max-frames-at-once 2\n tune.h2.be.rxbuf 65536";
    let (listener, _weir, port) = backend(global, "", "");
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut peer = Frames::accept(&listener);
    let stream = peer.next_of(HEADERS).stream;
    peer.head(stream, 0, &[(":status", "200"), ("content-length", "50")]);
    for number in 0..50 {
        peer.send(DATA, if number == 49 { END_STREAM } else { 0 }, stream, b"z");
    }
    assert_eq!(client.response().expect("an answer").text(), "z".repeat(50));
}

#[test]
fn receive_buffer_limits_uploads() {
    // The origin reads nothing, so the program buffers everything that the client may send.
    let origin = Origin::raw(|stream| {
        let mut byte = [0];
        let _ = std::io::Read::read(&mut &stream, &mut byte);
        thread::park_timeout(weir_tests::PATIENCE);
    });
    let credit = |global: &str| {
        let (_weir, port) = frontend(global, "", origin.port());
        let mut client = Frames::connect(port);
        client.head(1, 0, &[(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")]);
        client.send(DATA, 0, 1, &[0; 1024]).send(PING, 0, 0, &[0; 8]);
        let (mut credit, window) =
            (0, client.next_of(SETTINGS).setting(INITIAL_WINDOW_SIZE).unwrap_or(65_535));
        client.find(|frame| {
            if frame.kind == 8 && frame.stream == 1 {
                credit += frame.number(0);
            }
            frame.kind == PING && frame.flags & ACK != 0
        });
        window + credit
    };
    let two = " tune.h2.fe.max-concurrent-streams 2";
    let (large, small) =
        (credit(&format!("{two}\n tune.h2.fe.rxbuf 1m")), credit(&format!("{two}\n tune.h2.fe.rxbuf 65536")));
    assert!(large > 500_000 && (16_384..=65_536).contains(&small), "{large} and {small} bytes");
}

/// More than the kernel and the program buffer together.
const ENOUGH: u64 = 40 * 1024 * 1024;

/// Returns how many bytes of a body can be sent on `stream` before the peer's windows stay closed, at most [`ENOUGH`].
fn sent_while_nobody_takes_it(peer: &mut Frames, stream: u32) -> u64 {
    let window = peer.next_of(SETTINGS).setting(INITIAL_WINDOW_SIZE).unwrap_or(65_535);
    let mut windows = [65_535, window].map(i64::from);
    let (mut sent, mut silences) = (0, 0);
    // Bytes read after the answer to one PING are credited before the answer to a later one.
    while silences < 50 && sent < ENOUGH {
        while windows.iter().all(|left| *left > 0) {
            let piece = windows[0].min(windows[1]).min(16_384);
            peer.send(DATA, 0, stream, &vec![b'x'; piece as usize]);
            windows.iter_mut().for_each(|left| *left -= piece);
            sent += piece as u64;
            silences = 0;
        }
        peer.send(PING, 0, 0, &[0; 8]);
        let answered = peer.find(|frame| {
            if frame.kind == WINDOW_UPDATE && (frame.stream == 0 || frame.stream == stream) {
                windows[usize::from(frame.stream != 0)] += i64::from(frame.number(0));
            }
            frame.kind == PING && frame.flags & ACK != 0
        });
        assert!(answered.is_some(), "the connection ended after {sent} bytes");
        silences += 1;
    }
    sent
}

#[test]
fn server_is_throttled_while_the_client_is_blocked() {
    let (listener, _weir, port) = backend(" nbthread 1", "", "");
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut peer = Frames::accept(&listener);
    // There is no length, so the client gets chunks.
    peer.head(1, 0, &[(":status", "200")]);
    let sent = sent_while_nobody_takes_it(&mut peer, 1);
    assert!(sent < ENOUGH, "{sent} bytes were taken");
}

#[test]
fn client_is_throttled_while_the_server_is_blocked() {
    let origin = Origin::raw(|stream| {
        let _ = std::io::Read::read(&mut &stream, &mut [0]);
        thread::park_timeout(weir_tests::PATIENCE);
    });
    let (_weir, port) = frontend(" nbthread 1", "", origin.port());
    let mut client = Frames::connect(port);
    client.head(1, 0, &[(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")]);
    let sent = sent_while_nobody_takes_it(&mut client, 1);
    assert!(sent < ENOUGH, "{sent} bytes were taken");
}

#[test]
fn stream_limit_shrinks_with_the_total_number_of_streams() {
    let origin = Origin::text("x");
    let limits = " maxconn 10\n tune.h2.fe.max-concurrent-streams 7\n tune.streams-elasticity";
    // The successive values that HAProxy announces.
    let cases: [(u32, &[u32]); 3] = [(300, &[7, 5, 4, 3, 2, 2, 2]), (100, &[1, 1]), (0, &[7, 7])];
    for (percent, told) in cases {
        let (_weir, port) = frontend(&format!("{limits} {percent}"), "", origin.port());
        let mut open = Vec::new();
        for expected in told {
            // A connection that has just ended, such as the one that checked the port, may still be counted.
            let mut said = Vec::new();
            assert!(
                eventually(|| {
                    let mut client = Frames::connect(port);
                    said.push(client.next_of(SETTINGS).setting(MAX_CONCURRENT_STREAMS));
                    let is_right = said.last() == Some(&Some(*expected));
                    if is_right {
                        open.push(client);
                    }
                    is_right
                }),
                "{percent}: {said:?} behind {} others",
                open.len()
            );
        }
    }
}

#[test]
fn ended_connection_releases_its_streams() {
    let origin = Origin::text("x");
    let limits = " maxconn 10\n tune.h2.fe.max-concurrent-streams 7\n tune.streams-elasticity 300";
    let (_weir, port) = frontend(limits, "", origin.port());
    let most = || Frames::connect(port).next_of(SETTINGS).setting(MAX_CONCURRENT_STREAMS);
    // Each connection is closed at once, and the program notices that.
    for _ in 0..3 {
        assert!(eventually(|| most() == Some(7)));
    }
    // As many streams as were announced.
    let mut client = Frames::connect(port);
    let told = client.next_of(SETTINGS).setting(MAX_CONCURRENT_STREAMS).expect("a limit");
    for stream in 0..=told {
        let fields = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
        client.head(2 * stream + 1, 0, &fields);
    }
    let refused = client.next_of(RST_STREAM);
    assert_eq!((refused.stream, refused.number(0)), (2 * told + 1, REFUSED_STREAM));
}
