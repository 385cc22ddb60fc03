use super::*;

fn map(lines: &[(&str, &str)]) -> Arc<List> {
    let list = List::new(ListOrigin::Virtual("virt@m".into()), 0, true, Entries::default());
    lines.iter().for_each(|(key, value)| list.add(key.as_bytes(), Some(value.as_bytes())));
    Arc::new(list)
}

fn look(view: &View, key: &str) -> Option<String> {
    view.lookup(&Value::str(key.as_bytes()), |value| String::from_utf8_lossy(value).into_owned())
}

#[test]
fn every_view_sees_changes() {
    let list = map(&[("a", "1"), ("/x", "2")]);
    let exact = View::new(Arc::clone(&list), MatchMethod::Str, false).unwrap();
    let prefix = View::new(Arc::clone(&list), MatchMethod::Beg, false).unwrap();
    list.set_or_add(b"/xy", b"3");
    list.set_or_add(b"a", b"4");
    assert_eq!((look(&exact, "a").as_deref(), look(&exact, "/xyz")), (Some("4"), None));
    assert_eq!((look(&prefix, "/xyz").as_deref(), look(&prefix, "ab").as_deref()), (Some("3"), Some("4")));
    assert!(list.remove(b"/xy") && !list.remove(b"/xy"));
    assert_eq!(look(&prefix, "/xyz").as_deref(), Some("2"));
    list.replace(vec![((*b"new").into(), Some((*b"5").into()))]);
    assert_eq!((look(&exact, "new").as_deref(), look(&exact, "a")), (Some("5"), None));
    let lines = list.lines(&list.ids());
    assert_eq!((lines.len(), lines[0].id), (1, 4), "ids are not given again");
    list.clear();
    assert!(list.is_empty() && look(&prefix, "new").is_none());
}

#[test]
fn invalid_patterns_are_refused_in_files_and_inert_when_added() {
    let list = map(&[("10.0.0.0/8", "1")]);
    let view = View::new(Arc::clone(&list), MatchMethod::Ip, false).unwrap();
    list.add(b"nonsense", Some(b"2"));
    assert!(View::new(Arc::clone(&list), MatchMethod::Int, false).unwrap_err().contains("10.0.0.0/8"));
    let address = Value::ip(std::net::IpAddr::from([10, 1, 2, 3]));
    assert_eq!(view.lookup(&address, |value| value.to_vec()).as_deref(), Some(&b"1"[..]));
    assert!(list.remove(b"nonsense") && list.remove(b"10.0.0.0/8") && !view.matches(&address));
}

#[test]
fn concurrent_lookups_see_the_old_or_the_new_list() {
    let list = map(&[("k", "aa")]);
    let view = View::new(Arc::clone(&list), MatchMethod::Str, false).unwrap();
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                for _ in 0..2000 {
                    let seen = look(&view, "k");
                    assert!(matches!(seen.as_deref(), Some("aa" | "bb")), "{seen:?}");
                }
            });
        }
        for turn in 0..2000 {
            list.set(b"k", if turn % 2 == 0 { b"bb" } else { b"aa" });
        }
    });
}
