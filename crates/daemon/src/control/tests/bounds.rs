//! What clients cannot do to the server, and to one another.

use super::*;
use std::io::ErrorKind;
use std::time::Instant;

#[test]
fn long_lists_come_in_messages_of_bounded_size() {
    // What JSON writes twice as long, and as long as keys may be.
    let keys: Vec<String> = (0..100).map(|n| format!("{n:03}{}", "\"".repeat(4000))).collect();
    let served = Served::new(keys.clone());
    let mut client = served.client();
    let (mut found, mut after) = (Vec::new(), Value::Null);
    loop {
        let page = client.call("List", json!({ "after": after })).unwrap();
        assert!(page.to_string().len() < MOST_MESSAGE);
        let apps = page["apps"].as_array().unwrap();
        found.extend(apps.iter().map(|app| app["key"].as_str().unwrap().to_string()));
        after = page["next"].clone();
        if after.is_null() {
            break;
        }
    }
    assert_eq!(found, keys);
}

#[test]
fn calls_that_come_together_are_answered_in_order() {
    let served = Served::new([]);
    let mut stream = served.raw();
    let one = |name: &str| json!({ "method": format!("{INTERFACE}.{name}") });
    let oneway = json!({ "method": "org.varlink.service.GetInfo", "oneway": true });
    let info = json!({ "method": "org.varlink.service.GetInfo", "more": true });
    let together = format!("{}\0{oneway}\0{info}\0{}\0", one("A"), one("B"));
    stream.write_all(together.as_bytes()).unwrap();
    // Nothing more comes, and all is answered.
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(
        receive(&mut stream)["parameters"]["method"],
        format!("{INTERFACE}.A")
    );
    assert_eq!(receive(&mut stream)["parameters"]["product"], "headstart");
    assert_eq!(
        receive(&mut stream)["parameters"]["method"],
        format!("{INTERFACE}.B")
    );
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

/// Reads until the server closes.
fn until_closed(stream: &mut UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => bytes,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => bytes,
        Err(error) => panic!("it is not closed: {error}"),
    }
}

#[test]
fn what_is_too_long_too_slow_or_no_call_ends_the_connection_and_no_other() {
    let served = Served::new([]);
    let mut other = served.client();
    // More than a message has, without an end.
    let mut long = served.raw();
    let _ = long.write_all(&[b'x'; MOST_MESSAGE + 1]);
    until_closed(&mut long);
    // A call that never ends, byte by byte.
    let mut slow = served.raw();
    let begun = Instant::now();
    while slow.write_all(b" ").is_ok() {
        std::thread::sleep(Duration::from_millis(20));
        assert!(begun.elapsed() < Duration::from_secs(5), "it is not closed");
    }
    for nonsense in ["", "{}", "[]", "\u{0}", "{\"method\":1}", &"[".repeat(60_000)] {
        let mut stream = served.raw();
        stream.write_all(format!("{nonsense}\0").as_bytes()).unwrap();
        let reply = until_closed(&mut stream);
        assert!(
            String::from_utf8_lossy(&reply).contains("InvalidParameter"),
            "{nonsense:.9}"
        );
    }
    // Nobody says anything.
    assert_eq!(until_closed(&mut served.raw()), b"");
    other = match other.call("List", json!({})) {
        Ok(_) => other,
        Err(_) => served.client(),
    };
    other.call("List", json!({})).unwrap();
}

#[test]
fn who_takes_no_replies_holds_up_nobody() {
    let served = Served::new((0..16).map(|n| format!("{n}{}", "x".repeat(3000))));
    let mut greedy = served.raw();
    greedy.set_nonblocking(true).unwrap();
    let list = format!("{}\0", json!({ "method": format!("{INTERFACE}.List") }));
    // Until neither the socket nor the server takes any more.
    while greedy.write(list.as_bytes()).is_ok() {}
    let begun = Instant::now();
    for _ in 0..20 {
        served.client().call("List", json!({})).unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    // And it is closed after a while.
    greedy.set_nonblocking(false).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    until_closed(&mut greedy);
}

#[test]
fn a_user_has_few_connections() {
    let served = Served::new([]);
    let mut open: Vec<UnixStream> = (0..4).map(|_| served.raw()).collect();
    for stream in &mut open {
        send(stream, &json!({ "method": "org.varlink.service.GetInfo" }));
        assert!(receive(stream)["parameters"].is_object());
    }
    let mut fifth = served.client();
    let refused = fifth.call("List", json!({}));
    assert!(matches!(refused, Err(ClientError::Fault { name, .. }) if name == "TooManyConnections"));
    open.pop();
    // The server has to notice first.
    let begun = Instant::now();
    while served.client().call("List", json!({})).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(5), "no room again");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_only_tells_something_is_not_asked_for_who_does_not_listen() {
    let served = Served::new(["/a".into()]);
    let mut stream = served.raw();
    let list = json!({ "method": format!("{INTERFACE}.List"), "oneway": true });
    let enable = json!({
        "method": format!("{INTERFACE}.SetEnabled"), "parameters": { "key": "/a", "enabled": true }, "oneway": true
    });
    let info = json!({ "method": "org.varlink.service.GetInfo" });
    let together = format!("{}{enable}\0{info}\0", format!("{list}\0").repeat(100));
    stream.write_all(together.as_bytes()).unwrap();
    assert_eq!(receive(&mut stream)["parameters"]["product"], "headstart");
    // The one that does something.
    let asked = served.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
}
