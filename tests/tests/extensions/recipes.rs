//! Recipes (`docs/recipes`) with scripts, unchanged except for their addresses.

use weir_tests::client::{exchange, exchange_with};
use weir_tests::{Origin, Weir, free_port, recipe, workspace};

/// Starts the recipe of that name with these addresses; returns its port.
fn start(name: &str, addresses: &[(&str, u16)]) -> (Weir, u16) {
    let (port, folder) = (free_port(), workspace().join("docs/recipes"));
    let text = recipe(name, port, addresses).replace("/etc/haproxy", &folder.display().to_string());
    (Weir::start(&text, &[port]), port)
}

#[test]
fn cors_recipe_admits_only_listed_origins() {
    let origin = Origin::start(|_, _| b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage".to_vec());
    let (_weir, port) = start("cors.cfg", &[("192.0.2.10:8080", origin.port())]);
    let allowed = |fields: &str| {
        let response = exchange_with(port, "/", fields).expect("an answer");
        response.header("access-control-allow-origin").map(str::to_owned)
    };
    assert_eq!(allowed("Origin: https://app.example.com\r\n").as_deref(), Some("https://app.example.com"));
    assert_eq!(allowed("Origin: https://evil.example.com\r\n"), None);
    assert_eq!(allowed(""), None);
    let asked = "OPTIONS / HTTP/1.1\r\nHost: a\r\nOrigin: https://admin.example.com\r\nAccess-Control-Request-Method: PUT\r\n\r\n";
    let response = exchange(port, asked).expect("an answer");
    assert_eq!((response.status, response.header("vary")), (204, Some("origin")));
}

#[test]
fn auth_recipe_admits_signed_in_users() {
    let page = |head: &str, _: &[u8]| {
        let user = head.lines().find(|line| line.starts_with("x-user: ")).unwrap_or("nobody").to_owned();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{user}", user.len()).into_bytes()
    };
    let service = Origin::start(|head, _| {
        let answer = match head {
            head if head.contains("cookie: broken") => "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
            head if head.contains("cookie: session=7") && head.contains("x-uri: /page?a=b") => {
                "HTTP/1.1 204 Yes\r\nX-User: alice\r\n\r\n"
            }
            _ => "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n",
        };
        answer.as_bytes().to_vec()
    });
    let origin = Origin::start(page);
    let servers = [("192.0.2.10:8080", origin.port()), ("192.0.2.20:8080", service.port())];
    let (_weir, port) = start("sign-in.cfg", &servers);
    let asked = |fields: &str| exchange_with(port, "/page?a=b", fields).expect("an answer");
    assert_eq!(asked("Cookie: session=7\r\nX-User: eve\r\n").text(), "x-user: alice");
    let refused = asked("X-User: eve\r\n");
    assert_eq!((refused.status, refused.header("location")), (302, Some("/sign-in?to=%2Fpage%3Fa%3Db")));
    assert_eq!(asked("Cookie: broken\r\n").status, 503);
    drop(service);
    assert_eq!(asked("Cookie: session=7\r\n").status, 503, "nobody can say");
}
