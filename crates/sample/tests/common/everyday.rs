//! Typical expressions over an in-memory request, for allocation counts and benchmarks.
#![allow(dead_code)]

use super::World;

/// Fetches.
pub(crate) const FETCHES: &[&str] = &[
    "src",
    "dst_port",
    "method",
    "path",
    "pathq",
    "query",
    "url",
    "base",
    "url_param(b)",
    "req.hdr(host)",
    "req.hdr(x-forwarded-for,-1)",
    "req.fhdr(user-agent)",
    "req.hdr_cnt(x-forwarded-for)",
    "req.cook(sid)",
    "hdr_ip(x-forwarded-for,1)",
    "var(txn.x)",
    "fe_name",
    "unique-id",
    "str(constant)",
];

/// Converters, each after a fetch that produces its input.
pub(crate) const CONVERTERS: &[&str] = &[
    "path,lower",
    "path,field(2,/)",
    "path,word(2,/)",
    "path,bytes(1,6)",
    "path,length",
    "path,regsub(static,dynamic)",
    "path,url_dec",
    "src,ipmask(24)",
    "req.hdr(host),host_only",
    "path,map_beg(paths)",
    "req.hdr(host),lower,map(hosts,none)",
    "src,map_ip(networks)",
    "path,set-var(txn.x)",
];

/// Conditions.
pub(crate) const CONDITIONS: &[&str] = &[
    "{ path /static/img/logo.png }",
    "{ path_beg /static }",
    "{ path_end .png .jpg .gif }",
    "{ path -i -m sub LOGO }",
    "{ path -m reg ^/static/.*[.]png$ }",
    "{ path_dir img }",
    "{ hdr_dom(host) example }",
    "{ src 192.0.2.0/24 10.0.0.0/8 }",
    "{ method GET HEAD }",
    "{ req.hdr_cnt(cookie) gt 0 }",
    "{ req.hdr(x-none) -m found }",
    "METH_GET { path_beg /static } or HTTP_URL_STAR",
];

/// A world with the files to which these expressions refer.
pub(crate) fn world() -> World {
    let mut world = World::new();
    world.files.insert("paths", "/static dir\n/static/img deep\n");
    world.files.insert("paths.lst", "/a\n/b\n/static/img/logo.png\n");
    world.files.insert("hosts", "www.example.com:8080 host\n");
    world.files.insert("networks", "192.0.2.0/24 net\n192.0.2.7 host\n");
    world
}
