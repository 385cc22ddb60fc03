//! Output with names hidden (`set anon`).

use crate::running::{expect, start};
use weir_tests::{Origin, free_port};

#[test]
fn anonymized_output_hides_names_consistently() {
    let (origin, port) = (Origin::text("hello"), free_port());
    let weir = start(
        &format!(
            "frontend f\n  bind 127.0.0.1:{port}\n  default_backend be\nbackend be\n  server srv 127.0.0.1:{}\n  server far 192.0.2.7:80\n",
            origin.port()
        ),
        port,
    );
    let on = |command: &str| weir.ask(&format!("set anon on 1234; {command}"));
    assert!(on("show servers state").contains(" ef0d7f 1 67b14b 127.0.0.1 "), "{}", on("show servers state"));
    assert!(on("show servers conn").contains("\nef0d7f/67b14b "));
    assert!(on("show servers state").contains(" IPV4("));
    assert!(on("debug dev hash foo").contains("e311e9"));
    assert!(on("show anon").contains("Anonymized mode enabled\nKey : 1234"));
    assert!(weir.ask("show servers state").contains(" be 1 srv "), "of one connection alone");
    expect(&weir, "show anon", "Anonymized mode disabled");
    expect(&weir, "set anon on 0", "Value out of range (1 to 4294967295 expected).");
    assert_eq!(weir.ask("set anon global-key 1234").trim(), "");
    expect(&weir, "set anon on; show anon", "Key : 1234");
    expect(&weir, "set anon on; set anon off; show anon", "disabled");
}
