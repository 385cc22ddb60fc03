//! Letters over real connections.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mail::{Letter, Mailer, Post};

type Why = Receiver<(String, String)>;

/// Returns a [`Post`] with one server at that address, and the receiver of its failures.
fn post(address: SocketAddr, limit: Duration) -> (Post, Why) {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let failed = move |name: &str, why: &str| {
        let _ = tell.lock().expect("nobody panics with it").send((name.to_owned(), why.to_owned()));
    };
    let mailer = Mailer { name: "m".into(), address, limit };
    (Post::start(&[mailer], &(Arc::new(failed) as _)).expect("there are threads"), told)
}

fn letter(text: &str) -> Letter {
    Letter::new("from@a.test", "to@b.test", "host", text)
}

/// Serves one connection with the replies in order: the first at once, each further one after a line from the client, or after the
/// message that follows `DATA`.
fn serve(socket: TcpStream, replies: &[&str]) -> Vec<String> {
    let mut reader = BufReader::new(socket.try_clone().expect("it can be copied"));
    let mut writer = socket;
    let (mut said, mut is_message) = (Vec::new(), false);
    for (place, reply) in replies.iter().enumerate() {
        let mut is_due = place == 0;
        while !is_due {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return said;
            }
            is_message &= line != ".\r\n";
            said.push(line);
            is_due = !is_message;
        }
        is_message = said.last().is_some_and(|line| line == "DATA\r\n");
        writer.write_all(reply.as_bytes()).expect("the client is there");
    }
    said
}

const ALL: [&str; 7] =
    ["220 hi\r\n", "250 ok\r\n", "250 ok\r\n", "250 ok\r\n", "354 go\r\n", "250 queued\r\n", "221 bye\r\n"];

#[test]
fn a_refused_letter_does_not_stop_later_ones() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (post, told) = post(listener.local_addr().expect("it has one"), Duration::from_secs(60));
    post.send(letter("first"));
    post.send(letter("second"));
    let (first, _) = listener.accept().expect("a connection");
    serve(first, &["554 busy\r\n"]);
    assert_eq!(told.recv().expect("it is told"), ("m".to_owned(), "it answered \"554 busy\"".to_owned()));
    let (second, _) = listener.accept().expect("another one");
    let said = serve(second, &ALL);
    assert!(said.contains(&"Subject: [HAProxy Alert] second\r\n".to_owned()), "{said:?}");
    assert_eq!(said.last().map(String::as_str), Some("QUIT\r\n"));
    drop(post);
    assert!(told.recv().is_err(), "all went well");
}

#[test]
fn silent_and_closing_servers_are_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it has one");
    let (quick, told) = post(address, Duration::from_millis(20));
    quick.send(letter("x"));
    assert_eq!(told.recv().expect("it is told").1, "it timed out");
    drop(listener.accept().expect("it connected"));
    let (patient, told) = post(address, Duration::from_secs(60));
    patient.send(letter("x"));
    drop(listener.accept().expect("it connects"));
    assert_eq!(told.recv().expect("it is told").1, "it closed the connection");
}

#[test]
fn letters_beyond_the_queue_are_dropped() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (post, told) = post(listener.local_addr().expect("it has one"), Duration::from_secs(600));
    // The thread is already delivering one of them.
    for number in 0..mail::QUEUE + 2 {
        post.send(letter(&number.to_string()));
    }
    assert_eq!(told.recv().expect("it is told").1, format!("its queue of {} e-mails is full", mail::QUEUE));
}
